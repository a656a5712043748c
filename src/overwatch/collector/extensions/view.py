"""The extension `view`: snapshots for the TUI and for programs, over HTTP and WebSocket."""

import msgspec

from overwatch.collector.context import Context
from overwatch.collector.loop import Door
from overwatch.collector.net import parse
from overwatch.serve.stream import ViewApi


class ViewConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`extensions.view`."""

    endpoint: str
    """`host:port` of the view API."""


class ViewExtension:
    """The view API over the collector's aggregator."""

    def __init__(self, config: ViewConfig, context: Context) -> None:
        if context.aggregator is None:
            raise ValueError("extension 'view' shows snapshots; add exporter 'aggregator' to pipeline 'logs'")
        wanted = parse(config.endpoint)
        api = ViewApi(context.aggregator, context.bell, loopback=wanted.loopback)
        self._context = context
        self._door = Door(context.loop, wanted, api.app())

    def start(self) -> None:
        """Serve."""
        self._context.board.note("view", "ws", self._door.open())

    def stop(self) -> None:
        """Hang up on all readers and serve no more."""
        self._context.bell.close()
        self._door.close()
