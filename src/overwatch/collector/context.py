"""What every component is given: the journal, the loop, the counters, and where to note its address.

Must not know which components there are.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from aiohttp import web

from overwatch.aggregator import Aggregator
from overwatch.collector.budget import StorageBudget
from overwatch.collector.connections import ConnectionLimiter, LoopThread, WebListener
from overwatch.collector.guard import Entry, Guard
from overwatch.collector.health import Health
from overwatch.collector.intake import Intake
from overwatch.collector.net import Listening, parse
from overwatch.collector.tally import Tally
from overwatch.collector.tls import TlsConfig
from overwatch.journal import Journal, Signal
from overwatch.serve.archive import Archive
from overwatch.serve.stream import FrameNotifier

_log = logging.getLogger("overwatch.collector")


class Component(Protocol):
    """A part of the collector. `stop` may follow a `start` that failed, and a second `stop` does nothing."""

    def start(self) -> None:
        """Begin to work; raises `AddressError` or `OSError` when it cannot."""
        ...

    def stop(self) -> None:
        """Finish what was begun."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The collector as its components see it."""

    journal: Journal
    intake: Intake
    loop: LoopThread
    health: Health
    tally: Tally
    guard: Guard
    notifier: FrameNotifier
    storage: StorageBudget
    """How much each part may have on disk."""
    now: Callable[[], int]
    """The time of stamps and ticks, Unix nanoseconds."""
    signals: frozenset[Signal]
    """Signals that a pipeline takes in."""
    exporting: Callable[[str], frozenset[Signal]]
    """Signals that pipelines give to an exporter."""
    urls: dict[str, str] = field(default_factory=dict)
    """What components listen at, by the name of the listener."""
    settle: Callable[[], None] = lambda: None
    """What a thread that computes calls before it works."""
    limiters: dict[str, ConnectionLimiter] = field(default_factory=dict)
    """The connections of each web listener, by its name."""
    fixed: frozenset[str] = frozenset()
    """Endpoints that a person named: a port of theirs that is busy is an error."""
    aggregator: Aggregator | None = None
    """Set for the components that are made after the aggregator."""
    archive: Archive | None = None
    """The runs that the aggregator evicted; only with a data folder."""
    recording: Path | None = None
    """The folder that a replay would read; `None` where nothing is recorded."""

    def listens(self, name: str, scheme: str, listening: Listening, *, secure: bool) -> None:
        """Note an address; one that moved is logged with the reason."""
        self.urls[name] = listening.address.url(f"{scheme}s" if secure else scheme)
        if listening.moved is not None:
            _log.warning("%s: %s", name, listening.moved)

    def web_listener(
        self,
        endpoint: str,
        app: web.Application,
        entry: Entry,
        tls: TlsConfig | None,
        *,
        shared: bool = True,
    ) -> WebListener:
        """A guarded listener; `shared` takes the TLS of all listeners where it has none of its own."""
        wanted = parse(endpoint)
        certificates = self.guard.certificates(tls, shared=shared)
        guarded = self.guard.protect(app, entry, wanted)
        listener = WebListener(self.loop, wanted, guarded, certificates, entry.connections)
        listener.may_move = endpoint not in self.fixed
        listener.announce = lambda found, secure: self.listens(entry.name, entry.scheme, found, secure=secure)
        listener.limiter.report = partial(self.health.report, f"listener:{entry.name}")
        self.limiters[entry.name] = listener.limiter
        return listener
