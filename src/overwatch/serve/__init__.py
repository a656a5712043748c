"""Snapshots over the wire: Prometheus pages, the view API, the recording of snapshots.

Every module here reads frames and snapshots and nothing else. Must not know receivers, the journal,
the collector's configuration or the terminal.
"""
