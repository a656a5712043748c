"""Numbers that a double can hold and nobody means: every run is judged, and every view goes over the wire."""

import random

import pytest

from overwatch import codec
from overwatch.catalog import BY_NAME, Scope
from overwatch.catalog.machine import THROTTLE
from overwatch.events import Column, EpisodeEnded, Event, Measured, PhaseEnded
from overwatch.fold import Fold
from overwatch.snapshot import View
from tests.fakes import SECOND, START_NS
from tests.overwatch.test_fold_any import KEYS, _batch

WORDS = {"overwatch.slot.stage": ("training", "blending", "pruned"), THROTTLE.name: ("none", "thermal")}
EMITTED = 0.8
"""Share of all values that are emitted at each tick."""
VALUES: dict[str, list[float]] = {
    "huge": [1.7e308],
    "huge of either sign": [1.7e308, -1.7e308],
    "huge and near": [9e307, 1e308, 1.1e308],
    "squares too large": [1e154, -1e154, 1e200, -1e200],
    "tiny": [0.0, 5e-324, 1e-323],
    "tiny of either sign": [5e-324, 1e-310, -2e-308, 1e-300],
    "none at all": [float("nan"), float("inf"), float("-inf")],
    "anything": [float("nan"), 1.7e308, -9e307, 5e-324, float("inf"), 0.0, 1.0, -1.0],
}


def _measured(chance: random.Random, values: list[float], scope: Scope, at: int, index: int) -> Measured:
    """Most rows of a scope, of four subjects where it has any."""
    length = 4 if scope in KEYS else 1
    reported: dict[str, Column] = {}
    for name in (row.name for row in BY_NAME.values() if row.scope is scope):
        if name in WORDS:
            reported[name] = Column.of_labels(chance.choices(WORDS[name], k=length))
        elif chance.random() < EMITTED:
            reported[name] = Column.of(chance.choices(values, k=length))
    keys = {
        name: Column.of(range(length)) if name == "env_id" else Column.of_labels("abcd")
        for name in KEYS.get(scope, ())
    }
    return Measured(at=at, scope=scope, keys=keys, values=reported, index=index)


def _second(chance: random.Random, values: list[float], at: int, index: int) -> list[Event]:
    returns, num = Column.of(chance.choices(values, k=4)), Column.of(range(4))
    return [
        *(_measured(chance, values, scope, at, index) for scope in Scope),
        EpisodeEnded(at=at, env_id=num, episode_return=returns, metric=returns),
        PhaseEnded(at=at, phase="update", duration_s=abs(chance.choice(values)), update=index),
    ]


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_no_number_keeps_a_run_from_being_judged(values: list[float]) -> None:
    """Half a minute of them, in everything that can be emitted; what is read back is what was shown."""
    chance = random.Random(7)  # noqa: S311 a test's own chance
    fold, seq = Fold(), 1
    for index in range(30):
        at = START_NS + index * SECOND
        events = _second(chance, values, at, index)
        tick = at + SECOND // 2
        frame = fold.advance(tick, [_batch(tick - 1, events, seq)], [(None, View(env_id=1))])
        seq += len(events)
        assert (frame.tower.unjudged, frame.tower.last_problem if frame.tower.unjudged else None) == (0, None)
        for snapshot in frame.snapshots.values():
            assert codec.decode(codec.encode(snapshot)).run.run_id == "run-1"
    assert Fold.load(fold.dump()).dump() == fold.dump()
