"""How the collector is: its phase and the condition of its components, in otelcol's JSON.

Rules: a component that fails is in the answer, and is logged once until it recovers; only the phase
decides whether the collector is available, unless the request counts components too. A component that ended
while it should go on comes back only with a restart, and so makes the collector unavailable. Must not know
HTTP or what components do.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum

import msgspec

_log = logging.getLogger("overwatch.collector")


class Phase(Enum):
    """Where the collector is in its life; the value is otelcol's name for it."""

    STARTING = "Starting"
    OK = "OK"
    STOPPING = "Stopping"
    STOPPED = "Stopped"


class Component(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The condition of one component, or of all below it."""

    healthy: bool
    status: str
    status_time: str
    error: str | None = None
    components: "dict[str, Component] | None" = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The body: first the keys of otelcol's `health_check`, then those of its successor."""

    status: str
    upSince: str  # noqa: N815 otelcol's spelling
    uptime: str
    phase: str
    healthy: bool
    components: dict[str, Component]


class _Trouble(msgspec.Struct, frozen=True, kw_only=True):
    error: str
    since: datetime
    is_for_good: bool = False
    """Only a restart helps."""


class Health:
    """The collector's condition; safe from any thread."""

    def __init__(self, graph: Mapping[str, Sequence[str]] | None = None) -> None:
        """Components by pipeline, e.g. `{"pipeline:logs": ("receiver:otlp",)}`."""
        self._graph = graph or {}
        self._lock = threading.Lock()
        self.phase = Phase.STARTING
        """Where the collector is in its life."""
        self._since = self._phase_since = datetime.now(UTC)
        self._began = time.monotonic()
        self._troubles: dict[str, _Trouble] = {}
        self._watched: dict[str, Callable[[], bool]] = {}

    @property
    def uptime_s(self) -> float:
        """Seconds since the collector became what it is."""
        return time.monotonic() - self._began

    def enter(self, phase: Phase) -> None:
        """Go to the next phase."""
        with self._lock:
            if phase is not self.phase:
                self.phase, self._phase_since = phase, datetime.now(UTC)

    def watch(self, component: str, goes_on: Callable[[], bool]) -> None:
        """Look, at each request, whether a component that must go on does."""
        with self._lock:
            self._watched[component] = goes_on

    def failed(self, component: str, error: str) -> None:
        """Note that a component cannot do its work; logged when it could until now.

        `component` is its name, or kind and name, e.g. `exporter:otlp`, where several have that name.
        """
        self._failed(component, error)

    def _failed(self, component: str, error: str, *, is_for_good: bool = False) -> None:
        with self._lock:
            known = self._troubles.get(component)
            if known is not None and known.is_for_good:
                return
            since = datetime.now(UTC) if known is None else known.since
            self._troubles[component] = _Trouble(error=error, since=since, is_for_good=is_for_good)
        if known is None or is_for_good:
            _log.error("%s fails: %s", component, error)

    def report(self, component: str, error: str | None) -> None:
        """Note why a component cannot do its work, or that it can."""
        if error is None:
            self.recovered(component)
        else:
            self._failed(component, error)

    def lost(self, component: str, error: str) -> None:
        """Note that a component ended in a way that only a restart mends."""
        self._failed(component, error, is_for_good=True)

    def recovered(self, component: str) -> None:
        """Note that a component works."""
        with self._lock:
            known = self._troubles.get(component)
            if known is None or known.is_for_good:
                return
            del self._troubles[component]
        _log.warning("%s works again", component)

    @property
    def ended(self) -> list[str]:
        """Components that only a restart brings back."""
        self._look()
        with self._lock:
            return [name for name, trouble in self._troubles.items() if trouble.is_for_good]

    @property
    def degraded(self) -> dict[str, str]:
        """The last error of each component that fails."""
        self._look()
        with self._lock:
            return {name: trouble.error for name, trouble in self._troubles.items()}

    def answer(
        self, *, detailed: bool = True, patience_s: float | None = None, is_accepting: bool = True
    ) -> tuple[int, bytes]:
        """HTTP status and JSON body of a health request; without `detailed` it has no errors.

        With `patience_s` a component that is in trouble for so long makes the collector unavailable; so does
        an intake that is not accepting.
        """
        self._look()
        with self._lock:
            phase, since, troubles = self.phase, self._phase_since, dict(self._troubles)
        available = is_accepting and phase is Phase.OK and not _lasts(troubles, patience_s)
        body = Answer(
            status="Server available" if available else "Server not available",
            upSince=self._since.isoformat(),
            uptime=f"{self.uptime_s:.3f}s",
            phase=phase.value,
            healthy=available and not troubles,
            components=_tree(self._graph, (phase, since), troubles, detailed=detailed),
        )
        return (200 if available else 503), msgspec.json.encode(body)

    def _look(self) -> None:
        """See who ended that should go on."""
        if self.phase is Phase.OK:
            with self._lock:
                watched = list(self._watched.items())
            for component in [name for name, goes_on in watched if not goes_on()]:
                self._failed(component, "it ended by an error of ours; restart", is_for_good=True)


def _lasts(troubles: Mapping[str, _Trouble], patience_s: float | None) -> bool:
    if any(one.is_for_good for one in troubles.values()):
        return True
    if patience_s is None or not troubles:
        return False
    return (datetime.now(UTC) - min(one.since for one in troubles.values())).total_seconds() >= patience_s


def _tree(
    graph: Mapping[str, Sequence[str]],
    now: tuple[Phase, datetime],
    troubles: Mapping[str, _Trouble],
    *,
    detailed: bool,
) -> dict[str, Component]:
    """Every component under its pipelines; what is in trouble and in none stands under `collector`."""
    every = {name for names in graph.values() for name in names}
    placed = every | {name.partition(":")[2] for name in every}
    own = tuple(f"collector:{name}" for name in troubles if name not in placed)
    found = {}
    for section, names in (*graph.items(), *([("collector", own)] if own else [])):
        below = {
            name: _one(now, troubles.get(name) or troubles.get(name.partition(":")[2]), detailed=detailed)
            for name in names
        }
        worst = min(below.values(), key=lambda one: one.healthy, default=_one(now, None, detailed=detailed))
        found[section] = msgspec.structs.replace(worst, error=None, components=below)
    return found


def _one(now: tuple[Phase, datetime], trouble: _Trouble | None, *, detailed: bool) -> Component:
    phase, since = now
    if trouble is None or phase in (Phase.STOPPING, Phase.STOPPED):
        status = f"Status{phase.value}"
        return Component(healthy=phase is Phase.OK, status=status, status_time=since.isoformat())
    return Component(
        healthy=False,
        status="StatusPermanentError" if trouble.is_for_good else "StatusRecoverableError",
        status_time=trouble.since.isoformat(),
        error=trouble.error if detailed else None,
    )
