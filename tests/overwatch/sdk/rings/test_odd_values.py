"""One value that cannot be taken never takes the others of its call along, by whichever way the call goes."""

import warnings
from collections.abc import Callable

import numpy as np
import pytest

from overwatch.events import (
    ActionTaken,
    CheckpointSaved,
    Column,
    EnvCrashed,
    EpisodeEnded,
    Event,
    GateEvaluated,
    LogLine,
    Measured,
    PhaseEnded,
    SeedStageChanged,
)  # fmt: skip
from overwatch.sdk.rings.ringset import RingLimits
from overwatch.sdk.run import Run
from tests.overwatch.sdk.rings.calling import Called, called
from tests.overwatch.sdk.test_values import NO_NUMBERS, OnDevice, Raising

LIMITS = RingLimits(numbers_bytes=512 << 10, facts_bytes=64 << 10, forms_bytes=16 << 10)
KL = "overwatch.policy.kl_divergence"
Call = Callable[[Called, object, object], None]
BEFORE = 4
"""Good calls before an odd one, after which a function is written for them."""


def _newest(path: Called) -> Measured:
    path.read_all()
    return path.events[-1]


def _by_name(path: Called, value: object, update: object) -> None:
    for _ in range(BEFORE):
        path.run.update(update=1, kl_divergence=0.01, odd=1.0)
    path.read_all()
    path.run.update(update=update, kl_divergence=0.01, odd=value)  # type: ignore[arg-type]


def _by_place(path: Called, value: object, update: object) -> None:
    report = path.run.updater("kl_divergence", "odd")
    for _ in range(BEFORE):
        report(0.01, 1.0, update=1)
    path.read_all()
    report(0.01, value, update=update)  # type: ignore[arg-type]


@pytest.mark.parametrize("call", [_by_name, _by_place])
@pytest.mark.parametrize("odd", NO_NUMBERS, ids=lambda odd: type(odd).__name__)
def test_an_odd_value_is_rejected_alone(call: Call, odd: object) -> None:
    """Its neighbours and the number of the update arrive, and nothing is written to stderr."""
    with called(LIMITS, "single") as path, warnings.catch_warnings():
        warnings.simplefilter("error")
        call(path, odd, 2)
        event = _newest(path)
        assert {name: column.first() for name, column in event.values.items()}[KL] == 0.01
        assert event.index == 2
        assert path.run.close(0.0).refused == 1


@pytest.mark.parametrize("call", [_by_name, _by_place])
@pytest.mark.parametrize(
    "odd",
    ["2", 2.5, float("nan"), Raising(), 10**30, np.zeros(2), OnDevice()],
    ids=lambda odd: type(odd).__name__,
)
def test_an_odd_index_is_rejected_alone(call: Call, odd: object) -> None:
    """The numbers arrive, as those of an update without a number."""
    with called(LIMITS, "single") as path:
        call(path, 1.0, odd)
        event = _newest(path)
        assert event.index is None
        assert event.values[KL].first() == 0.01
        assert path.run.close(0.0).refused == 1


@pytest.mark.parametrize("call", [_by_name, _by_place])
@pytest.mark.parametrize("index", [2.0, np.int32(2), np.float64(2), np.array([2])], ids=repr)
def test_a_whole_number_of_any_type_is_an_index(call: Call, index: object) -> None:
    """Whole floats, NumPy's numbers and arrays of one."""
    with called(LIMITS, "single") as path:
        call(path, np.array([[0.5]]), index)
        event = _newest(path)
        assert event.index == 2
        assert event.values["overwatch.custom.odd"].first() == 0.5
        assert path.run.close(0.0).refused == 0


ODD = Raising()


def _columns(run: Run) -> None:
    run.envs(step=ODD, reward=[1.0, 2.0], metric=[ODD, 1.0], lane=ODD)  # type: ignore[arg-type, list-item]


def _episodes(run: Run) -> None:
    run.episodes(env_id=[0.0, 1.0], episode_return=[1.0, 2.0], length=["a", "b"], metric=[1j, 2])  # type: ignore[list-item]


def _actions(run: Run) -> None:
    run.actions(env_id=[0, 1], op=["a", "b"], slot=["x"], step="now")  # type: ignore[arg-type]


def _stage(run: Run) -> None:
    run.seed_stage_changed(
        env_id=1, slot="a", seed_id="s", before="training", after="pruned", alpha=ODD, age=0.5, extra=ODD,
        reason=ODD,
    )  # type: ignore[arg-type]  # fmt: skip


def _gate(run: Run) -> None:
    run.gate_evaluated(env_id=1, slot="a", seed_id="s", gate="G", passed=True, score="high", message=ODD)  # type: ignore[arg-type]


def _crash(run: Run) -> None:
    run.env_crashed(1, ODD, step=ODD)  # type: ignore[arg-type]


def _checkpoint(run: Run) -> None:
    run.checkpoint_saved("p", update=ODD, size_bytes="big", duration_s=1j)  # type: ignore[arg-type]


def _line(run: Run) -> None:
    run.log(ODD, env_id=ODD, slot=ODD, field=ODD)  # type: ignore[arg-type]


def _phase(run: Run) -> None:
    with run.phase("collect", update=ODD):  # type: ignore[arg-type]
        pass


def _gauge(run: Run) -> None:
    run.gauge(loader_depth=ODD, loader_capacity=[8])  # type: ignore[arg-type]


CALLS: list[tuple[Callable[[Run], None], type[Event], dict[str, object], int]] = [
    (_columns, Measured, {"index": None}, 3),
    (_episodes, EpisodeEnded, {"length": None, "metric": None, "env_id": Column.of([0, 1])}, 2),
    (_actions, ActionTaken, {"slot": None, "step": None}, 2),
    (_stage, SeedStageChanged, {"alpha": None, "age": None, "fields": {"extra": "<Raising>"}}, 2),
    (_gate, GateEvaluated, {"score": None, "gate": "G", "message": "<Raising>"}, 1),
    (_crash, EnvCrashed, {"env_id": 1, "step": None, "error": "<Raising>"}, 1),
    (_checkpoint, CheckpointSaved, {"path": "p", "update": None, "size_bytes": None, "duration_s": None}, 3),
    (_line, LogLine, {"message": "<Raising>", "env_id": None}, 1),
    (_phase, PhaseEnded, {"phase": "collect", "update": None}, 1),
    (_gauge, Measured, {"values": {"overwatch.host.loader.limit": Column.scalar(8.0)}}, 1),
]


@pytest.mark.parametrize(
    ("call", "kind", "expected", "refused"), CALLS, ids=lambda one: getattr(one, "__name__", "")
)
def test_an_odd_field_is_rejected_alone(
    call: Callable[[Run], None], kind: type[Event], expected: dict[str, object], refused: int
) -> None:
    """Of every method of a run: what can be taken arrives, and what cannot is counted."""
    with called(LIMITS, "single") as path:
        call(path.run)
        path.read_all()
        (event,) = [one for one in (*path.events, *path.facts) if type(one) is kind]
        assert {name: getattr(event, name) for name in expected} == expected
        assert path.run.close(0.0).refused == refused
