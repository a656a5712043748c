"""What the orchestrator reports to the tower: counters by the names of the catalogue, and what happened.

Rules: what happened is reported once it is stored. Of the run that it reports to, states and commands are
facts; of other runs, and where there is no fact, they are lines of log. The tower shows them and never sends
a command. Must not know HTTP.
"""

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

import overwatch.sdk
from overwatch.events import CommandApplied, RunStateChanged, Severity
from overwatch.sdk import Run
from overwatch_rl.orchestrator.commands import Tune
from overwatch_rl.orchestrator.states import Health
from overwatch_rl.orchestrator.wire import CommandRecord, TransitionRecord
from overwatch_rl.web.spans import SERVED_A_SECOND, Spans

ROLE: Final = "orchestrator"

_SEVERITY: Final[Mapping[str, Severity]] = {
    "stale": Severity.WARNING, "unresponsive": Severity.CRITICAL, "failed": Severity.CRITICAL,
    "refused": Severity.WARNING,
}  # fmt: skip
"""Of what is no mere information."""


class Telemetry:
    """Reports to a run of the tower, where there is one."""

    def __init__(self, run: Run | None = None) -> None:
        self._run = run
        self._spans = Spans(run, SERVED_A_SECOND)

    def moved(self, run_id: str, move: TransitionRecord, cause: CommandRecord | None) -> None:
        """Count a move by both names; a fact of the run."""
        if self._run is None:
            return
        by = "learner" if cause is None else cause.issued_by
        labels: dict[str, Any] = {"from": move.before, "to": move.after}
        self._run.count("run_state_transitions", **labels)
        if run_id == self._run.run_id:
            reason = None if cause is None or isinstance(cause.command, Tune) else cause.command.reason
            self._run.fact(
                RunStateChanged(
                    at=time.time_ns(),
                    before=move.before,
                    after=move.after,
                    command=None if cause is None else cause.id,
                    by=by,
                    reason=reason,
                )
            )
            return
        self._log(move.after, f"run {run_id}: {move.before} → {move.after}", run=run_id, by=by)

    def commanded(self, run_id: str, command: CommandRecord) -> None:
        """Count a command by kind and status; what a learner did is a fact of the run."""
        if self._run is None:
            return
        self._run.count("commands", kind=command.kind, status=command.status)
        done = command.done
        if run_id == self._run.run_id and done is not None:
            changes = {name: f"{each.before:g} > {each.after:g}" for name, each in done.changes.items()}
            self._run.fact(
                CommandApplied(
                    at=time.time_ns(),
                    command=command.id,
                    kind=command.kind,
                    outcome=done.outcome,
                    detail=done.detail or None,
                    changes=changes,
                    by=command.issued_by,
                )
            )
            return
        message = f"run {run_id}: {command.kind} {command.status}"
        self._log(command.status, message, run=run_id, command=command.id, by=command.issued_by)

    def health(self, run_id: str, event: Health) -> None:
        """Count that a learner is silent, or beats again, and log it."""
        if self._run is not None:
            self._run.count("health_events", type=event)
            self._log(event, f"run {run_id}: its learner is {event}", run=run_id)

    def silent(self, run_id: str, seconds: float) -> None:
        """Report how long ago the newest heartbeat came, of the run that is reported to."""
        if self._run is not None and run_id == self._run.run_id:
            self._run.gauge(heartbeat_age=seconds)

    def requested(self, method: str, route: str, status: int, seconds: float) -> None:
        """Observe an answer by method, route and status; heartbeats that were accepted apart too."""
        if self._run is None:
            return
        self._run.observe("http_request_duration", seconds, method=method, route=route, status=str(status))
        if route.endswith("/heartbeat") and status < 400:
            self._run.observe("heartbeat_latency", seconds)

    def span(self, traceparent: str | None, name: str) -> AbstractContextManager[object]:
        """Measure a handler below the caller's span, where there may be one more."""
        return self._spans.within(traceparent, f"{ROLE}.{name}")

    def _log(self, what: str, message: str, **fields: Any) -> None:
        if self._run is not None:
            severity = _SEVERITY.get(what, Severity.INFO)
            self._run.log(message, severity=severity, subsystem=ROLE, **fields)


def start_run(run_id: str | None, endpoint: str | None) -> Run:
    """Begin to report; the SDK finds or makes what is not given."""
    return overwatch.sdk.start(run_id=run_id, endpoint=endpoint, role=ROLE, task="orchestrator")
