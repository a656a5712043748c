"""Builders that many tests share: a run given as records, with a clock that the test holds."""

from collections.abc import Sequence

from overwatch.catalog import Scope, find
from overwatch.events import (
    ActionTaken,
    Column,
    EnvCrashed,
    EpisodeEnded,
    Event,
    Measured,
    MetricInfo,
    NonFiniteSeen,
    Origin,
    Record,
    RunFinished,
    RunStarted,
    scalars,
)
from overwatch.state import RunState, apply, new_run

START_NS = 1_800_000_000_000_000_000
SECOND = 1_000_000_000


def policy_names(values: dict[str, float]) -> dict[str, float]:
    """Short policy names to full ones."""
    full = {}
    for short, value in values.items():
        row = find(short, Scope.POLICY)
        full[row.name if row else f"overwatch.custom.{short}"] = value
    return full


def policy(at: int, index: int | None = None, **values: float) -> Measured:
    """One update's numbers by short name."""
    return Measured(at=at, scope=Scope.POLICY, values=scalars(policy_names(values)), index=index)


def envs(at: int, ids: Sequence[int], index: int | None = None, **columns: Sequence[float]) -> Measured:
    """One step's env columns by short name; `lane` takes words."""
    values = {}
    for short, column in columns.items():
        if short == "lane":
            values["lane"] = Column.of_labels([str(word) for word in column])
        else:
            row = find(short, Scope.ENV)
            assert row is not None
            values[row.name] = Column.of(column)
    return Measured(at=at, scope=Scope.ENV, keys={"env_id": Column.of(ids)}, values=values, index=index)


def slots(at: int, ids: Sequence[int], names: Sequence[str], stages: Sequence[str]) -> Measured:
    """Slot rows: stages by env and slot."""
    return Measured(
        at=at,
        scope=Scope.SLOT,
        keys={"env_id": Column.of(ids), "slot": Column.of_labels(list(names))},
        values={"overwatch.slot.stage": Column.of_labels(list(stages))},
    )


def started(at: int, **fields: object) -> RunStarted:
    """A start record with the usual identity."""
    known = {
        "task": "digits",
        "algo": "ppo",
        "n_envs": 4,
        "metric": MetricInfo(name="acc"),
        "devices": ("cpu",),
        **fields,
    }
    return RunStarted(at=at, **known)  # type: ignore[arg-type]  # the test names real fields


def ended(at: int, ids: Sequence[int], returns: Sequence[float]) -> EpisodeEnded:
    """Episodes that ended."""
    return EpisodeEnded(at=at, env_id=Column.of(ids), episode_return=Column.of(returns))


def acted(
    at: int, ids: Sequence[int], ops: Sequence[str], slot: Sequence[str | None] | None = None
) -> ActionTaken:
    """Actions of one step."""
    return ActionTaken(
        at=at,
        env_id=Column.of(ids),
        op=Column.of_labels(list(ops)),
        slot=None if slot is None else Column.of_labels(list(slot)),
    )


def crashed(at: int, env_id: int, error: str = "boom") -> EnvCrashed:
    """An env that died."""
    return EnvCrashed(at=at, env_id=env_id, error=error, step=12)


def non_finite(at: int, metric: str, env_ids: tuple[int, ...] = ()) -> NonFiniteSeen:
    """A value that was NaN."""
    return NonFiniteSeen(at=at, scope=Scope.ENV, metric=metric, kind="nan", env_ids=env_ids)


def finished(at: int, outcome: str = "completed") -> RunFinished:
    """An end record."""
    return RunFinished(at=at, outcome=outcome)


ORIGIN = Origin(run_id="run-1", epoch="e1", ours=True)


def records(events: Sequence[Event], origin: Origin = ORIGIN, first_seq: int = 1) -> list[Record]:
    """Events as numbered records of one origin."""
    return [Record(origin=origin, event=event, seq=first_seq + i) for i, event in enumerate(events)]


def folded(events: Sequence[Event], delay_ns: int = 1_000_000) -> RunState:
    """The state after these events, each received `delay_ns` after it happened."""
    reported = records(events)
    state = new_run(reported[0])
    for record in reported:
        apply(state, record, record.event.at + delay_ns)
    return state
