"""The extension `view`: snapshots over HTTP and WebSocket, their page, and what an operator has seen."""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from aiohttp import web

from overwatch.collector.auth import Role
from overwatch.collector.context import Context
from overwatch.collector.guard import Entry, Guard, Listener, Refused
from overwatch.collector.login import FREE, Login
from overwatch.collector.tls import TlsConfig
from overwatch.events import FindingAcknowledged, Origin, Record
from overwatch.feeds.player import AnyPlayer, Player
from overwatch.feeds.recording import Recording
from overwatch.feeds.shared import SharedReplay
from overwatch.journal import Signal
from overwatch.otlp.encode import request as encoded
from overwatch.serve import pages
from overwatch.serve.answers import problem
from overwatch.serve.past import PastAnswers
from overwatch.serve.stream import ViewApi


def _refused(_: web.Request, refused: Refused) -> web.Response:
    return problem(refused.status, refused.message, refused.header)


_ROLE: Final = "operator"
_MOST_BYTES: Final = 256 << 20
"""On disk, of the places of this collector's own recording that are kept near."""
ENTRY: Final = Entry(
    name="view", scheme="ws", reads=Role.READ, acts=Role.CONTROL, answer=_refused, free=FREE | pages.FREE
)
"""Of the view API, wherever it is served."""


class ViewConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`extensions.view`."""

    endpoint: str
    """`host:port` of the view API."""
    tls: TlsConfig | None = None
    """TLS of this listener; that of `service.security` if left out."""

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """The address of the view API."""
        return (Listener(path="endpoint", endpoint=self.endpoint, tls=self.tls, role=Role.READ),)


def application(api: ViewApi, guard: Guard) -> web.Application:
    """The view API with the page and its login; who may come in is for the guard to judge."""
    app = api.app()
    pages.Pages().add_to(app)
    Login(guard, time.monotonic).add_to(app)
    return app


def _recorded(folder: Path, settle: Callable[[], None]) -> SharedReplay:
    """What this collector has recorded so far; nothing is read before a moment of the past is requested."""

    def opened() -> AnyPlayer:
        recording = Recording(folder)
        recording.keeps = False
        return Player(recording, most_bytes=_MOST_BYTES)

    return SharedReplay(opened, settle=settle)


class ViewExtension:
    """The view API over the collector's aggregator."""

    def __init__(self, config: ViewConfig, context: Context, _: str = "view") -> None:
        if context.aggregator is None:
            raise ValueError("extension 'view' shows snapshots; add exporter 'aggregator' to pipeline 'logs'")
        guard = context.guard
        may = partial(guard.may, Role.READ)
        api = ViewApi(context.aggregator, context.notifier, self._keep, context.archive, may)
        guard.on_change(api.review)
        self._recorded = None if context.recording is None else _recorded(context.recording, context.settle)
        api.past = PastAnswers(self._recorded)
        self._context = context
        self._listener = context.web_listener(config.endpoint, application(api, guard), ENTRY, config.tls)

    def start(self) -> None:
        """Serve."""
        self._listener.start()

    async def _keep(self, run_id: str, event: FindingAcknowledged) -> None:
        origin = Origin(run_id=run_id, role=_ROLE, ours=True)
        body = encoded([Record(origin=origin, event=event)], {})
        await asyncio.wrap_future(self._context.journal.submit(Signal.LOGS, body))

    def stop(self) -> None:
        """Hang up on all readers and serve no more."""
        self._context.notifier.close()
        self._listener.stop()
        if self._recorded is not None:
            self._recorded.stop()
