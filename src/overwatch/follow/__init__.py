"""Runs of programs that know nothing of Overwatch, out of what they write: growing files, or standard output.

`readers` make rows of bytes, one file and one row of the table a format; `tail` reads what was appended;
`runs` finds the runs below a path; `story` makes events of rows, by the catalogue's names of the library;
`output` sends and records them. Must not know a training library.
"""
