"""What the server reports of the queue to the tower.

Rules: what happened is counted once it is committed, by the server that did it; how things stand is sent with
each sweep. Environments are named as they registered; lengths are classes, so that labels stay few. An absent
number is not sent. Must not know HTTP.
"""

from collections.abc import Iterable
from contextlib import AbstractContextManager

import overwatch.sdk
from overwatch.sdk import Run
from overwatch.sdk.tracing import Span
from overwatch_rl.rollouts.state import NS, Report, State
from overwatch_rl.web.spans import SERVED_A_SECOND, Spans

ROLE = "rollouts"


class Telemetry:
    """Reports to a run of the tower, where there is one."""

    def __init__(self, run: Run | None = None) -> None:
        self._run = run
        self._spans = Spans(run, SERVED_A_SECOND)

    def span(self, traceparent: str | None, name: str) -> AbstractContextManager[Span | None]:
        """One below the caller's, where there may be one more."""
        return self._spans.within(traceparent, name)

    def emit(self, reports: Iterable[Report]) -> None:
        """Count and observe."""
        for verb, name, value, labels in reports if self._run else ():
            getattr(self._run, verb)(name, value, **labels)

    def swept(self, state: State, now: int) -> None:
        """Send how things stand."""
        if self._run is None:
            return
        queued = state.account.queued
        known = [env for env in state.envs.values() if env.presence != "disconnected"]
        self._run.gauge(
            queue_groups=queued.groups,
            queue_sequences=queued.sequences,
            envs=len(known),
            envs_paused=len(state.waiting),
            envs_silent=sum(env.presence == "silent" for env in known),
            leases=len(state.leases),
            tickets=len(state.tickets),
            **_of_trainer(state),
            **_of_queue(state),
        )
        if known:
            self._run.gauge(env_silence=max(0, now - min(env.seen for env in known)) / NS)


def _of_trainer(state: State) -> dict[str, float]:
    if state.trainer is None:
        return {}
    return {
        "batch_size": state.batch_size,
        "capacity": state.batch_size * state.limits.max_queued_batches,
        "max_staleness": state.max_staleness,
    }


def _of_queue(state: State) -> dict[str, float]:
    """The age of the oldest queued group, absent where there is none."""
    return {"data_age": max(state.age(lane.version) for lane in state.lanes)} if state.lanes else {}


def start_run(run_id: str | None, endpoint: str | None) -> Run:
    """Begin to report; the SDK finds or makes what is not given."""
    return overwatch.sdk.start(run_id=run_id, endpoint=endpoint, role=ROLE, task="rollouts")


def start_handler_run(run_id: str, endpoint: str | None, rank: int) -> Run:
    """Begin to report as one of a run's handlers, each by its rank; the machine is sampled by others."""
    return overwatch.sdk.start(
        run_id=run_id, endpoint=endpoint, role="handler", rank=rank, sample=False, quiet=True
    )
