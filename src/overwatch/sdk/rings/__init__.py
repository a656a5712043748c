"""The rings: what a trainer says goes through two small shared files to the process that sends it.

A writer costs the training thread about a microsecond and makes no system call; what it has published
survives its own death. `ringset` writes, `source` reads; `fast` and `columns` are the short ways in.
"""
