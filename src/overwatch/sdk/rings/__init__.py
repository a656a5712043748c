"""The rings: what a trainer says goes through two small shared files to the process that sends it.

A writer costs the training thread a microsecond or less and makes no system call; what it has published
survives its own death. `ringset` writes, `source` reads; `fast` and `columns` are the short ways in.
`compiled` has functions for both where there is a C compiler.
"""
