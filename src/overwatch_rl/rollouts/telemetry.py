"""What the server reports of the queue to the tower.

Rules: what happened is counted when it is applied, so each thing once; how things stand is sent with each
sweep. Environments are named as they registered; lengths are classes, so that labels stay few. An absent
number is not sent. Must not know HTTP.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import overwatch.sdk
from overwatch.catalog.services import length_label
from overwatch.sdk import Run
from overwatch.sdk.tracing import Span
from overwatch_rl.rollouts.answers import ANONYMOUS, Batch, Offer
from overwatch_rl.rollouts.operations import (
    Accepted,
    Acknowledged,
    Expired,
    Operation,
    Refused,
    Released,
    Waiting,
)
from overwatch_rl.rollouts.state import State
from overwatch_rl.web.spans import SERVED_A_SECOND, Spans

ROLE = "rollouts"
SECOND = 1_000_000_000


class Telemetry(Protocol):
    """What observes the queue."""

    def applied(self, state: State, operation: Operation) -> None:
        """An operation is about to change the state."""

    def requested(self, state: State, batch: Batch | str, now: int) -> None:
        """A trainer asked for a batch and got one, or the word for why there is none."""

    def full(self, state: State, offers: Sequence[Offer]) -> None:
        """Groups found no room; their sender was asked to rest."""

    def swept(self, state: State, now: int) -> None:
        """A second has passed."""

    def span(self, traceparent: str | None, name: str) -> AbstractContextManager[Span | None]:
        """Measure work for a caller whose own span is recorded; `None` where it is not."""


class Silent:
    """Reports nothing."""

    def applied(self, state: State, operation: Operation) -> None:
        """Nothing."""

    def requested(self, state: State, batch: Batch | str, now: int) -> None:
        """Nothing."""

    def full(self, state: State, offers: Sequence[Offer]) -> None:
        """Nothing."""

    def swept(self, state: State, now: int) -> None:
        """Nothing."""

    def span(self, traceparent: str | None, name: str) -> AbstractContextManager[Span | None]:  # noqa: ARG002
        """Nothing."""
        return nullcontext()


class Tower:
    """Reports to a run of the tower."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._spans = Spans(run, SERVED_A_SECOND)

    def span(self, traceparent: str | None, name: str) -> AbstractContextManager[Span | None]:
        """One below the caller's, where there may be one more."""
        return self._spans.within(traceparent, name)

    def applied(self, state: State, operation: Operation) -> None:
        """Count what is accepted, served, expired, refused, served again and asked to rest."""
        match operation:
            case Accepted(env_id=env_id, sequences=sequences):
                self._run.count("accepted", sequences, env=_name(state, env_id))
            case Refused():
                self._refused(state, operation.env_id, operation.reason, operation)
            case Acknowledged(lease=lease):
                self._items("served", state, state.leases[lease].items)
            case Expired(items=items):
                self._items("expired", state, items)
            case Released(lease=lease):
                again = sum(state.items[item].sequences for item in state.leases[lease].items)
                self._run.count("redelivered", again)
            case Waiting(env_id=env_id) if env_id not in state.waiting:
                self._run.count("pauses", env=_name(state, env_id))
            case _:
                pass

    def requested(self, state: State, batch: Batch | str, now: int) -> None:
        """Count how it ended, how long each group waited, and how old it is."""
        if isinstance(batch, str):
            self._run.count("batches", status=batch)
            return
        self._run.count("batches", status="served")
        for served in batch.items:
            self._run.observe("wait_time", (now - state.items[served.id].at) / SECOND)
            self._run.observe("age", served.age, source=served.version_source)

    def full(self, state: State, offers: Sequence[Offer]) -> None:
        """Count what found no room, and the rest that its sender was asked for."""
        for offer in offers:
            self._refused(state, offer.env_id, "full", offer)
        self._run.count("pauses", env=_name(state, offers[0].env_id))

    def swept(self, state: State, now: int) -> None:
        """Send how things stand."""
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
            self._run.gauge(env_silence=max(0, now - min(env.seen for env in known)) / SECOND)

    def _refused(self, state: State, env_id: int, reason: str, group: Refused | Offer) -> None:
        labels = {"env": _name(state, env_id), "reason": reason}
        if group.sequences:
            labels["length"] = length_label(group.tokens // group.sequences)
        self._run.count("refused", max(1, group.sequences), **labels)

    def _items(self, name: str, state: State, items: Sequence[int]) -> None:
        for item in items:
            group = state.items[item]
            self._run.count(name, group.sequences, env=_name(state, group.env_id))


def _name(state: State, env_id: int) -> str:
    env = state.envs.get(env_id)
    if env is not None:
        return env.registered.name
    return "anonymous" if env_id == ANONYMOUS else "unknown"


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
