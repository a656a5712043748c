"""The written function of `run.envs` says what the other ways say, and leaves to them what is not its own."""

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from overwatch.catalog import Scope
from overwatch.events import Column, Measured
from overwatch.sdk.rings.columns import Envs, FastColumns, Home
from overwatch.sdk.rings.ringset import RingLimits, RingSet
from overwatch.sdk.rings.source import RingSource
from overwatch.sdk.rings.written import MAX_CHAIN
from tests.overwatch.sdk.rings.conftest import MakeRings, drained

pytestmark = pytest.mark.usefixtures("way")


class Trainer:
    """A run as far as the short way knows it."""

    def __init__(self, rings: RingSet) -> None:
        self.rings = rings
        self.source = RingSource(rings.path)
        self.waiting: list[object] = []
        self.written = 0
        self.through: list[dict[str, Any]] = []
        """Calls of the general way."""
        self.slow: list[tuple[Any, Any, Mapping[str, Any]]] = []
        self.envs: Envs = self.general
        self.columns = FastColumns(
            rings,
            lambda name: f"full.{name}",
            lambda *given: self.slow.append(given),
            home=Home(self.general, self.install, self.waiting),
        )

    def general(self, /, *, env_id: Any = None, step: Any = None, lane: Any = None, **columns: Any) -> None:
        """As `Run.envs`."""
        self.through.append({"env_id": env_id, "step": step, "lane": lane, **columns})
        if lane is None and not self.waiting:
            self.columns.put(env_id, step, columns)
        else:
            self.slow.append((env_id, step, columns))

    def install(self, envs: Envs) -> None:
        """As `Run` does."""
        self.written += 1
        self.envs = envs

    def said(self) -> list[Any]:
        """What came out."""
        return drained(self.source)


@pytest.fixture
def trainer(make_rings: MakeRings) -> Trainer:
    """A trainer with room for some columns."""
    return Trainer(make_rings(RingLimits(numbers_bytes=1 << 20, facts_bytes=12288, forms_bytes=8192)))


@pytest.fixture
def warm(trainer: Trainer) -> Trainer:
    """A trainer whose function for `a` and `b`, eight float64 and eight float32, is written."""
    for _ in range(2):
        trainer.envs(a=np.zeros(8), b=np.zeros(8, dtype="f4"))
    trainer.said()
    trainer.through.clear()
    assert trainer.written == 1
    return trainer


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "i4", "i2", "i1", "u4", "u2", "u1", "?"])
@pytest.mark.parametrize("rows", [2, 7, 192, 4096])
def test_a_written_function_says_what_the_general_way_says(trainer: Trainer, dtype: str, rows: int) -> None:
    """Of every dtype and length, with a step and without."""
    array, other = (np.arange(rows) % 100).astype(dtype), np.linspace(0.0, 1.0, rows)
    for step in (3, 3, 3, None):
        trainer.envs(step=step, b=other, a=array)
    assert (trainer.written, len(trainer.through)) == (1, 2)
    said = trainer.said()
    assert [one.index for one in said] == [3, 3, 3, None]
    for one in said:
        assert one == Measured(
            at=one.at,
            scope=Scope.ENV,
            keys={"env_id": Column.of(np.arange(rows, dtype="i4"))},
            values={"full.a": Column.of(array), "full.b": Column.of(other)},
            index=one.index,
        )
    assert [one.at for one in said] == sorted(one.at for one in said)


class _Own(np.ndarray[Any, Any]):
    """An array with ways of its own."""


A, B = np.ones(8), np.ones(8, dtype="f4")


@pytest.mark.parametrize(
    "given",
    [
        {"a": A},
        {"b": B},
        {"a": A, "b": B, "c": A},
        {"b": B, "a": A, "env_id": np.arange(8)},
        {"a": A, "b": B, "lane": "cuda:0"},
        {"a": A, "b": B, "step": np.int64(3)},
        {"a": A, "b": B, "step": 1 << 70},
        {"a": A, "b": A},
        {"a": A, "b": np.ones(9, dtype="f4")},
        {"a": np.ones(9), "b": np.ones(9, dtype="f4")},
        {"a": np.ones((8, 1)), "b": B},
        {"a": np.ones(8, dtype=">f8"), "b": B},
        {"a": np.ones(8).view(_Own), "b": B},
        {"a": np.ones(8, dtype="M8[s]"), "b": B},
        {"a": [1.0] * 8, "b": B},
        {"a": 1.0, "b": B},
        {"a": None, "b": B},
        {},
    ],
)
def test_what_a_function_was_not_written_for_goes_the_general_way(
    warm: Trainer, given: dict[str, Any]
) -> None:
    """Untouched, and with everything that was given."""
    warm.envs(**given)
    (through,) = warm.through
    assert {name: value for name, value in through.items() if value is not None} == {
        name: value for name, value in given.items() if value is not None
    }
    assert all(through[name] is value for name, value in given.items())


def test_columns_that_are_not_in_one_piece_arrive(warm: Trainer) -> None:
    """Every second number, and numbers backwards."""
    warm.envs(a=np.arange(16.0)[::2], b=np.arange(8, dtype="f4")[::-1])
    (said,) = warm.said()
    assert said.values["full.a"].array().tolist() == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0]
    assert said.values["full.b"].array().tolist() == [7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0]


def test_columns_that_do_not_lie_in_step_arrive(trainer: Trainer, way: str) -> None:
    """Behind seven bytes no float64 begins where the ring has one: in Python the general way takes both."""
    for _ in range(3):
        trainer.envs(a=np.arange(7, dtype="i1"), b=np.arange(7.0))
    assert trainer.written == (way == "compiled")
    assert [one.values["full.b"].array().tolist() for one in trainer.said()] == [[0, 1, 2, 3, 4, 5, 6]] * 3


def test_while_a_device_is_waited_for_the_general_way_is_taken(warm: Trainer) -> None:
    """What is told now must not overtake what was told before."""
    warm.waiting.append(object())
    warm.envs(a=A, b=B)
    warm.waiting.clear()
    warm.envs(a=A, b=B)
    assert len(warm.through) == len(warm.slow) == len(warm.said()) == 1


@pytest.mark.parametrize(
    "name", ["return", "type", "Exception", "a.b", "_ow_ring", "_ow_v0", "ﬁ", "", "x y", "'"]
)
def test_names_that_are_no_parameters_are_no_trouble(trainer: Trainer, name: str) -> None:
    """Keywords, built-in names, dots and the function's own names go the short way as well."""
    given = {name: A, "kl": B}
    for _ in range(3):
        trainer.envs(**given)
    assert (trainer.written, len(trainer.through)) == (1, 2)
    trainer.envs(kl=B)
    said = trainer.said()
    assert [set(one.values) for one in said] == [{f"full.{name}", "full.kl"}] * 3 + [{"full.kl"}]


def test_the_columns_in_use_get_the_function(trainer: Trainer) -> None:
    """Where the length changes for good, the function of the new one follows."""
    for rows in (8, 9):
        for _ in range(300):
            trainer.envs(a=np.ones(rows))
        trainer.through.clear()
        trainer.envs(a=np.ones(rows))
        assert trainer.through == []
        trainer.said()


def test_columns_of_several_kinds_keep_their_functions(trainer: Trainer) -> None:
    """Other names, other numbers and other lengths in turns: none goes the general way any more."""
    kinds: list[dict[str, np.ndarray[Any, Any]]] = [
        {"a": A}, {"a": A.astype("f4")}, {"a": A, "b": B}, {"c": np.ones(9)},
    ]  # fmt: skip
    for _ in range(2):
        for kind in kinds:
            trainer.envs(**kind)
    trainer.said()
    trainer.through.clear()
    for index in range(300):
        kind = kinds[index % len(kinds)]
        trainer.envs(step=index, **kind)
        (said,) = trainer.said()
        assert said.values == {f"full.{name}": Column.of(column) for name, column in kind.items()}
    assert trainer.through == []
    assert trainer.written == len(kinds)


def test_of_more_kinds_than_functions_all_arrive(trainer: Trainer) -> None:
    """However many lengths take turns: no function asks more than a few others."""
    for index in range(400):
        column = np.arange(2.0 + index * 7 % 9)
        trainer.envs(step=index, a=column)
        (said,) = trainer.said()
        assert said.values == {"full.a": Column.of(column)}
    assert len(trainer.columns._chained) <= MAX_CHAIN


def test_what_is_in_the_ring_is_a_copy(warm: Trainer) -> None:
    """The trainer may write to its array at once."""
    array = np.ones(8)
    warm.envs(a=array, b=B)
    array[:] = 2.0
    assert warm.said()[0].values["full.a"] == Column.of(np.ones(8))


def test_a_full_ring_drops_columns_and_counts_them(rings: RingSet) -> None:
    """Later ones arrive."""
    trainer = Trainer(rings)
    for _ in range(100):
        trainer.envs(a=np.ones(100))
    arrived = len(trainer.said())
    assert trainer.written == 1
    assert 0 < arrived < 100
    assert rings.account().dropped == {"ring_full": 100 - arrived}
    trainer.envs(a=np.ones(100))
    assert len(trainer.said()) == 1


def test_columns_too_large_for_the_ring_are_counted(rings: RingSet) -> None:
    """No function is written for them."""
    trainer = Trainer(rings)
    for _ in range(5):
        trainer.envs(a=np.ones(3000))
    assert trainer.written == 0
    assert rings.account().dropped == {"too_large": 5}


def test_columns_that_meet_another_writer_wait_aside(warm: Trainer) -> None:
    """They arrive with the next that is written, whole and in order."""
    token = warm.rings.numbers.ring.token
    token.clear()
    warm.envs(step=1, a=A, b=B)
    token.append(None)
    warm.envs(step=2, a=A * 2, b=B)
    first, second = sorted(warm.said(), key=lambda one: one.index)
    assert first.values == {"full.a": Column.of(A), "full.b": Column.of(B)}
    assert second.values["full.a"] == Column.of(A * 2)


def test_threads_lose_nothing(warm: Trainer) -> None:
    """Whoever writes takes along what lies aside."""

    def tell(thread: int) -> None:
        for step in range(250):
            warm.envs(step=1000 * thread + step, a=A, b=B)

    threads = [threading.Thread(target=tell, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    said = warm.said()
    assert sorted(one.index for one in said) == [
        1000 * thread + step for thread in range(4) for step in range(250)
    ]
    assert warm.rings.account().dropped == {}


def test_after_the_end_a_written_function_is_harmless(warm: Trainer) -> None:
    """A trainer that kept the function may go on calling it."""
    warm.rings.close(0.0)
    warm.envs(a=A, b=B)
    assert warm.slow == []
