"""The extension `view`: snapshots for the TUI and for programs, over HTTP and WebSocket."""

from typing import Final

import msgspec
from aiohttp import web

from overwatch.collector.auth import Role
from overwatch.collector.context import Context
from overwatch.collector.guard import Entry, Refused
from overwatch.collector.tls import TlsConfig
from overwatch.serve.stream import ViewApi, problem


def _refused(_: web.Request, refused: Refused) -> web.Response:
    return problem(refused.status, refused.message, refused.header)


_ENTRY: Final = Entry(name="view", reads=Role.READ, acts=Role.CONTROL, answer=_refused)


class ViewConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`extensions.view`."""

    endpoint: str
    """`host:port` of the view API."""
    tls: TlsConfig | None = None
    """TLS of this listener; that of `service.security` if left out."""


class ViewExtension:
    """The view API over the collector's aggregator."""

    def __init__(self, config: ViewConfig, context: Context) -> None:
        if context.aggregator is None:
            raise ValueError("extension 'view' shows snapshots; add exporter 'aggregator' to pipeline 'logs'")
        api = ViewApi(context.aggregator, context.bell)
        self._context = context
        self._door = context.door(config.endpoint, api.app(), _ENTRY, config.tls)

    def start(self) -> None:
        """Serve."""
        self._context.board.note("view", "ws", self._door.open(), secure=self._door.secure)

    def stop(self) -> None:
        """Hang up on all readers and serve no more."""
        self._context.bell.close()
        self._door.close()
