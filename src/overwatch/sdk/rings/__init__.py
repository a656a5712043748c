"""The rings: how a trainer's records reach the process that sends them, through two small shared files.

`writer` has the theory. `producer` is the way in, `updates` and `columns` encode what comes often, `source`
reads.
"""
