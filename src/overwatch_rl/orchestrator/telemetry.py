"""What the orchestrator reports to the tower: counters by the names of the catalogue, and what happened.

Rules: what happened is reported once it is stored. Of the run that it reports to, states and commands are
facts; of other runs, and where there is no fact, they are lines of log. The tower shows them and never sends
a command. Must not know HTTP.
"""

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, Protocol

import overwatch.sdk
from overwatch.events import CommandApplied, RunStateChanged, Severity
from overwatch.sdk import Run
from overwatch.sdk.tracing import Span
from overwatch_rl.orchestrator.commands import Done, Kind
from overwatch_rl.orchestrator.states import Health, State
from overwatch_rl.orchestrator.wire import CommandStatus
from overwatch_rl.web.spans import SERVED_A_SECOND, Spans

ROLE: Final = "orchestrator"

_SEVERITY: Final[Mapping[str, Severity]] = {
    "stale": Severity.WARNING, "unresponsive": Severity.CRITICAL, "failed": Severity.CRITICAL,
    "refused": Severity.WARNING,
}  # fmt: skip
"""Of what is no mere information."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A run went from a state to the next."""

    run_id: str
    before: State
    after: State
    command: str | None
    """Id of the command that led there; `None` where a heartbeat did."""
    by: str
    """The role that issued it, or `learner`."""
    reason: str | None = None
    """Why, where its sender gave a reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commanded:
    """What became of a command."""

    run_id: str
    id: str
    kind: Kind
    status: CommandStatus
    by: str
    """The role that issued it."""
    done: Done | None = None


class Telemetry(Protocol):
    """What observes runs."""

    def moved(self, move: Moved) -> None:
        """A run went from state to state."""

    def commanded(self, command: Commanded) -> None:
        """What became of a command."""

    def health(self, run_id: str, event: Health) -> None:
        """A learner is silent, or beats again."""

    def silent(self, run_id: str, seconds: float) -> None:
        """So long ago the newest heartbeat of a run came."""


class Requests(Protocol):
    """What observes requests."""

    def requested(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request was answered; `route` is the row of the table, not the address."""

    def span(self, traceparent: str | None, name: str) -> AbstractContextManager[Span | None]:
        """Measure work for a caller whose own span is recorded; `None` where it is not."""


class Silent:
    """Reports nothing."""

    def moved(self, move: Moved) -> None:
        """Nothing."""

    def commanded(self, command: Commanded) -> None:
        """Nothing."""

    def health(self, run_id: str, event: Health) -> None:
        """Nothing."""

    def silent(self, run_id: str, seconds: float) -> None:
        """Nothing."""

    def requested(self, method: str, route: str, status: int, seconds: float) -> None:
        """Nothing."""

    def span(self, traceparent: str | None, name: str) -> AbstractContextManager[Span | None]:  # noqa: ARG002
        """Nothing."""
        return nullcontext()


class Tower:
    """Reports to a run of the tower."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._spans = Spans(run, SERVED_A_SECOND)

    def moved(self, move: Moved) -> None:
        """Counted by both names; a fact of the run."""
        labels: dict[str, Any] = {"from": move.before, "to": move.after}
        self._run.count("run_state_transitions", **labels)
        if move.run_id == self._run.run_id:
            self._run.fact(
                RunStateChanged(
                    at=time.time_ns(),
                    before=move.before,
                    after=move.after,
                    command=move.command,
                    by=move.by,
                    reason=move.reason,
                )
            )
            return
        self._log(move.after, f"run {move.run_id}: {move.before} → {move.after}", run=move.run_id, by=move.by)

    def commanded(self, command: Commanded) -> None:
        """Counted by kind and status; what a learner did is a fact of the run."""
        self._run.count("commands", kind=command.kind, status=command.status)
        done = command.done
        if command.run_id == self._run.run_id and done is not None:
            self._run.fact(
                CommandApplied(
                    at=time.time_ns(),
                    command=command.id,
                    kind=command.kind,
                    outcome=done.outcome,
                    detail=done.detail or None,
                    changes={name: f"{one.before:g} > {one.after:g}" for name, one in done.changes.items()},
                    by=command.by,
                )
            )
            return
        stated = f"run {command.run_id}: {command.kind} {command.status}"
        self._log(command.status, stated, run=command.run_id, command=command.id, by=command.by)

    def health(self, run_id: str, event: Health) -> None:
        """Counted by type, and a line each."""
        self._run.count("health_events", type=event)
        self._log(event, f"run {run_id}: its learner is {event}", run=run_id)

    def silent(self, run_id: str, seconds: float) -> None:
        """Of the run that is reported to."""
        if run_id == self._run.run_id:
            self._run.gauge(heartbeat_age=seconds)

    def requested(self, method: str, route: str, status: int, seconds: float) -> None:
        """By method, route and status; heartbeats that were accepted apart too."""
        self._run.observe("http_request_duration", seconds, method=method, route=route, status=str(status))
        if route.endswith("/heartbeat") and status < 400:
            self._run.observe("heartbeat_latency", seconds)

    def span(self, traceparent: str | None, name: str) -> AbstractContextManager[Span | None]:
        """One below the caller's, where there may be one more."""
        return self._spans.within(traceparent, name)

    def _log(self, what: str, message: str, **fields: Any) -> None:
        severity = _SEVERITY.get(what, Severity.INFO)
        self._run.log(message, severity=severity, subsystem=ROLE, **fields)


def start_run(run_id: str | None, endpoint: str | None) -> Run:
    """Begin to report; the SDK finds or makes what is not given."""
    return overwatch.sdk.start(run_id=run_id, endpoint=endpoint, role=ROLE, task="orchestrator")
