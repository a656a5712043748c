"""`run.envs` into a ring: the same measurement as the long way makes of the same arrays."""

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from overwatch.catalog import Scope
from overwatch.events import Column, Measured
from overwatch.sdk.frames import Update
from overwatch.sdk.rings.encoders import ColumnWriter
from overwatch.sdk.rings.ringset import RingLimits, RingSet
from overwatch.sdk.rings.source import RingSource
from tests.overwatch.sdk.rings.conftest import MakeRings, drained


class Trainer:
    """A run as far as a writer knows it."""

    def __init__(self, rings: RingSet) -> None:
        self.rings = rings
        self.source = RingSource(rings.path)
        self.slow: list[tuple[Any, Any, Mapping[str, Any]]] = []
        self.writer = ColumnWriter(rings, lambda name: f"full.{name}")

    def envs(self, env_id: Any, step: Any, columns: Mapping[str, Any]) -> None:
        """As `Run.envs`."""
        if not self.writer.write(env_id, step, columns):
            self.slow.append((env_id, step, columns))

    def stated(self) -> list[Any]:
        """What came out."""
        return drained(self.source)


@pytest.fixture
def trainer(make_rings: MakeRings) -> Trainer:
    """A trainer with room for some columns."""
    return Trainer(make_rings(RingLimits(numbers_bytes=1 << 20, facts_bytes=12288, forms_bytes=8192)))


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "i4", "i2", "i1", "u4", "u2", "u1", "?"])
@pytest.mark.parametrize("rows", [2, 7, 192, 4096])
def test_columns_arrive_as_the_long_way_would_send_them(trainer: Trainer, dtype: str, rows: int) -> None:
    """Of every dtype and length, with the ids that are meant."""
    array = (np.arange(rows) % 100).astype(dtype)
    other = np.linspace(0.0, 1.0, rows)
    trainer.envs(None, 3, {"a": array, "b": other})
    (stated,) = trainer.stated()
    assert stated == Measured(
        at=stated.at,
        scope=Scope.ENV,
        keys={"env_id": Column.of(np.arange(rows, dtype="i4"))},
        values={"full.a": Column.of(array), "full.b": Column.of(other)},
        index=3,
    )
    assert trainer.slow == []


def test_ids_that_are_given_are_keys(trainer: Trainer) -> None:
    """Whole numbers of any width; the same columns without ids are another form."""
    reward = np.array([1.0, 2.0])
    trainer.envs(np.array([7, 9], dtype="u2"), None, {"reward": reward})
    trainer.envs(None, None, {"reward": reward})
    with_ids, without = trainer.stated()
    assert with_ids.keys == {"env_id": Column.of(np.array([7, 9], dtype="u2"))}
    assert without.keys == {"env_id": Column.of(np.arange(2, dtype="i4"))}
    assert with_ids.values == without.values == {"full.reward": Column.of(reward)}
    assert with_ids.index is None


class _Own(np.ndarray[Any, Any]):
    """An array with ways of its own."""


@pytest.mark.parametrize(
    ("env_id", "column"),
    [
        (None, [1.0, 2.0]),
        (None, 1.0),
        (None, np.ones((2, 2))),
        (None, np.arange(4.0)[::2]),
        (None, np.ones(2, dtype=">f8")),
        (None, np.ones(2, dtype="f2")),
        (None, np.ones(2, dtype="c16")),
        (None, np.array(["a", "b"])),
        (None, np.array([object(), None])),
        (None, np.ones(2, dtype="M8[s]")),
        (None, np.ones(2).view(_Own)),
        (None, np.ones(1)),
        (None, np.ones(0)),
        (None, np.array(1.0)),
        (np.array([0.0, 1.0]), np.ones(2)),
        ([0, 1], np.ones(2)),
        (np.array([0, 1, 2]), np.ones(2)),
    ],
)
def test_everything_else_goes_the_long_way(trainer: Trainer, env_id: Any, column: Any) -> None:
    """What is not an exact, plain column is left as it is."""
    trainer.envs(env_id, 1, {"a": column})
    assert len(trainer.slow) == 1
    assert trainer.slow[0][0] is env_id
    assert trainer.slow[0][2]["a"] is column
    assert trainer.stated() == []


@pytest.mark.parametrize("step", ["7", 1.0, True, np.int64(3), 1 << 70])
def test_a_step_that_is_no_small_int_goes_the_long_way(trainer: Trainer, step: Any) -> None:
    """It is judged there."""
    trainer.envs(None, step, {"a": np.ones(2)})
    assert len(trainer.slow) == 1


def test_columns_of_several_kinds_take_turns(trainer: Trainer) -> None:
    """Other names, other numbers and other lengths: each arrives as it is."""
    for index in range(40):
        column = np.arange(2.0 + index % 9).astype(("f8", "f4")[index % 2])
        trainer.envs(None, index, {"ab"[index % 3 % 2]: column})
        (stated,) = trainer.stated()
        assert stated.values == {f"full.{'ab'[index % 3 % 2]}": Column.of(column)}
    assert trainer.slow == []


def test_columns_that_meet_another_writer_wait_aside(trainer: Trainer) -> None:
    """They arrive with the next that is written, whole."""
    token = trainer.rings.numbers.ring.token
    trainer.envs(None, 0, {"a": np.ones(8)})
    trainer.stated()
    token.clear()
    trainer.envs(None, 1, {"a": np.ones(8)})
    token.append(None)
    trainer.envs(None, 2, {"a": np.ones(8) * 2})
    stated = sorted(trainer.stated(), key=lambda one: one.index)
    assert [one.values["full.a"].array()[0] for one in stated] == [1.0, 2.0]


def test_threads_lose_nothing(trainer: Trainer) -> None:
    """Whoever writes takes along what lies aside."""

    def report(thread: int) -> None:
        for step in range(250):
            trainer.envs(None, 1000 * thread + step, {"a": np.ones(8)})

    trainer.envs(None, 0, {"a": np.ones(8)})
    trainer.stated()
    threads = [threading.Thread(target=report, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stated = trainer.stated()
    assert sorted(one.index for one in stated) == [
        1000 * thread + step for thread in range(4) for step in range(250)
    ]
    assert trainer.rings.account().dropped == {}


def test_after_the_end_a_writer_is_harmless(trainer: Trainer) -> None:
    """A trainer that kept it may go on calling it."""
    trainer.envs(None, 0, {"a": np.ones(8)})
    trainer.rings.close(0.0)
    trainer.envs(None, 1, {"a": np.ones(8)})
    assert trainer.slow == []


def test_columns_of_different_lengths_go_the_long_way(trainer: Trainer) -> None:
    """It states what is wrong."""
    trainer.envs(None, None, {"a": np.ones(2), "b": np.ones(3)})
    assert len(trainer.slow) == 1


def test_what_is_in_the_ring_is_a_copy(trainer: Trainer) -> None:
    """The trainer may write to its array at once."""
    array = np.ones(8)
    trainer.envs(None, None, {"a": array})
    array[:] = 2.0
    assert trainer.stated()[0].values["full.a"] == Column.of(np.ones(8))


def test_a_full_ring_and_a_column_too_large_are_counted(rings: RingSet) -> None:
    """Columns without room are dropped under their reason, and later ones arrive."""
    trainer = Trainer(rings)
    for _ in range(100):
        trainer.envs(None, None, {"a": np.ones(100)})
    trainer.envs(None, None, {"a": np.ones(3000)})
    arrived = len(trainer.stated())
    assert rings.account().dropped == {"ring_full": 100 - arrived, "too_large": 1}
    trainer.envs(None, None, {"a": np.ones(100)})
    assert len(trainer.stated()) == 1


def test_columns_are_refused_at_once_until_the_reader_has_moved(rings: RingSet) -> None:
    """With updates waiting for room every column is counted as dropped; read on, and the next one arrives."""
    trainer = Trainer(rings)
    update = Update(at=1, values={"overwatch.policy.entropy": 0.5})
    while not rings.numbers.waits:
        rings.put(update)
    before = rings.account()
    for _ in range(50):
        trainer.envs(None, None, {"a": np.ones(10)})
    assert rings.account().dropped == {"ring_full": 50}
    assert rings.account().accepted == before.accepted + 50
    trainer.stated()
    trainer.envs(None, None, {"a": np.ones(10)})
    assert any("full.a" in getattr(stated, "values", {}) for stated in trainer.stated())
    assert rings.account().dropped == {"ring_full": 50}
