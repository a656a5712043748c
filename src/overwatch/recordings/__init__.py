"""A recording on disk: its files and their names, the lines of its index, and how it is kept small.

Writing goes on in `serve.recording`, replay in `feeds.recording`; what both and compaction must agree on is
here. Must not know snapshots, views or the collector.
"""
