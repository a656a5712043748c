"""HOW it is named for others: Overwatch's telemetry as a registry of semantic conventions.

`registry()` is derived from the catalogue, the events and the wire's names; nothing is written down twice.
"""

from overwatch.conventions.registry import registry

__all__ = ["registry"]
