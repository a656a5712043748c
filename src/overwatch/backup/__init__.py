"""Backups of a collector's data folder: a consistent copy while it runs, and the way back.

`capture` chooses files that belong to one moment, `manifest` describes a copy of them, `place` writes and
reads copies in a folder or an object store. Must not know what batches and snapshots mean.
"""
