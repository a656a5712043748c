"""What gives a view its snapshots: live, from the stream of a collector, or from a recording.

A feed hides where snapshots come from; a view sees `Snapshot`s and changes of the connection.
"""

from overwatch.feeds.live import Connection, Live

__all__ = ["Connection", "Live"]
