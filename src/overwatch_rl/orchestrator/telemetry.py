"""What the orchestrator reports to the tower: counters by the names of the catalogue, and lines of its log.

Rules: what happened is reported once it is stored. States, commands and silence are lines of log with their
fields, so that the tower shows them; it never sends a command. Must not know HTTP.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, Protocol

import overwatch.sdk
from overwatch.events import Severity
from overwatch.sdk import Run
from overwatch.sdk.tracing import Span
from overwatch_rl.orchestrator.commands import Kind
from overwatch_rl.orchestrator.states import Health, State
from overwatch_rl.orchestrator.wire import CommandStatus
from overwatch_rl.web.spans import SERVED_A_SECOND, Spans

ROLE: Final = "orchestrator"

_SEVERITY: Final[Mapping[str, Severity]] = {
    "stale": Severity.WARNING, "unresponsive": Severity.CRITICAL, "failed": Severity.CRITICAL,
    "refused": Severity.WARNING,
}  # fmt: skip
"""Of what is no mere information."""


class Telemetry(Protocol):
    """What observes runs."""

    def moved(self, run_id: str, moves: Sequence[tuple[State, State]], cause: str) -> None:
        """A run went from state to state."""

    def commanded(self, run_id: str, command_id: str, kind: Kind, status: CommandStatus, detail: str) -> None:
        """What became of a command."""

    def health(self, run_id: str, event: Health) -> None:
        """A learner is silent, or beats again."""


class Requests(Protocol):
    """What observes requests."""

    def requested(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request was answered; `route` is the row of the table, not the address."""

    def span(self, traceparent: str | None, name: str) -> AbstractContextManager[Span | None]:
        """Measure work for a caller whose own span is recorded; `None` where it is not."""


class Silent:
    """Reports nothing."""

    def moved(self, run_id: str, moves: Sequence[tuple[State, State]], cause: str) -> None:
        """Nothing."""

    def commanded(self, run_id: str, command_id: str, kind: Kind, status: CommandStatus, detail: str) -> None:
        """Nothing."""

    def health(self, run_id: str, event: Health) -> None:
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

    def moved(self, run_id: str, moves: Sequence[tuple[State, State]], cause: str) -> None:
        """Counted by both names, and a line each."""
        for before, after in moves:
            labels: dict[str, Any] = {"from": before, "to": after}
            self._run.count("run_state_transitions", **labels)
            self._log(after, f"run {run_id}: {before} → {after}", run=run_id, cause=cause)

    def commanded(self, run_id: str, command_id: str, kind: Kind, status: CommandStatus, detail: str) -> None:
        """Counted by kind and status, and a line each."""
        self._run.count("commands", kind=kind, status=status)
        more = f": {detail}" if detail else ""
        self._log(status, f"run {run_id}: {kind} {status}{more}", run=run_id, command=command_id)

    def health(self, run_id: str, event: Health) -> None:
        """Counted by type, and a line each."""
        self._run.count("health_events", type=event)
        self._log(event, f"run {run_id}: its learner is {event}", run=run_id)

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
