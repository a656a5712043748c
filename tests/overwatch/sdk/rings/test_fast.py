"""The short way of `run.update`: the same frames as the long way, and never a value asked."""

import math
import signal
import time
from collections import deque
from collections.abc import Mapping
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overwatch.sdk.conflate import Folded
from overwatch.sdk.frames import Update
from overwatch.sdk.rings.fast import MAX_FORMS, Fast
from overwatch.sdk.rings.ringset import RingSet
from overwatch.sdk.rings.source import RingSource
from overwatch.sdk.rings.written import Latest
from overwatch.sdk.values import RefusedError
from tests.overwatch.sdk.rings.conftest import drained

pytestmark = pytest.mark.usefixtures("way")


class Trainer:
    """A run as far as the short way knows it."""

    def __init__(self, rings: RingSet) -> None:
        self.rings = rings
        self.latest = Latest()
        self.slow: list[tuple[int | None, dict[str, Any]]] = []
        self.written = 0
        self.source = RingSource(rings.path)
        self.fast = Fast(rings, self.latest, self._resolve, self._slow, self._install)
        self.update: Any = self.fast.update

    def _resolve(self, name: str) -> str:
        if name.startswith("bad"):
            raise RefusedError(name)
        return f"full.{name.removesuffix('_again')}"

    def _slow(self, update: int | None, values: Mapping[str, Any]) -> None:
        self.slow.append((update, dict(values)))

    def _install(self, written: Any) -> None:
        self.written += 1
        self.update = written

    def said(self) -> list[Any]:
        """What came out."""
        return drained(self.source)


@pytest.fixture
def trainer(rings: RingSet) -> Trainer:
    """A trainer whose short way is new."""
    return Trainer(rings)


@pytest.fixture
def warm(trainer: Trainer) -> Trainer:
    """A trainer whose function for `kl` and `loss` is written."""
    for _ in range(3):
        trainer.update(kl=0.0, loss=0.0)
    assert trainer.written == 1
    trainer.said()
    return trainer


def values_of(said: list[Any]) -> list[dict[str, float]]:
    """The numbers of each update."""
    assert all(isinstance(one, Update) for one in said)
    return [one.values for one in said]


def test_every_call_says_the_same_whichever_way_it_goes(trainer: Trainer) -> None:
    """The first calls, the written function, other names, more and fewer names: all arrive as given."""
    for index in range(5):
        trainer.update(update=index, kl=index + 0.5, loss=1.0)
    trainer.update(kl=1.0)
    trainer.update(kl=1.0, loss=2.0, more=3.0)
    trainer.update(loss=2.0, kl=1.0)
    said = trainer.said()
    assert [(one.index, one.values) for one in said] == [
        *((index, {"full.kl": index + 0.5, "full.loss": 1.0}) for index in range(5)),
        (None, {"full.kl": 1.0}),
        (None, {"full.kl": 1.0, "full.loss": 2.0, "full.more": 3.0}),
        (None, {"full.kl": 1.0, "full.loss": 2.0}),
    ]
    assert [one.at for one in said] == sorted(one.at for one in said)
    assert trainer.slow == []
    assert trainer.written == 1


PLAIN = [
    -1.5, math.inf, -math.inf, 0.0, 5e-324, 1, -7, 2**53 + 1, 10**300, True,
    np.float64(0.1), np.float32(0.1), np.float16(0.1), np.int64(-3), np.uint8(200), np.bool_(1),
]  # fmt: skip


@pytest.mark.parametrize("number", PLAIN, ids=lambda number: type(number).__name__)
def test_plain_numbers_go_the_short_way(warm: Trainer, number: float) -> None:
    """Floats, ints and NumPy's scalars, also among each other, arrive as doubles."""
    warm.update(kl=number, loss=0.5)
    assert values_of(warm.said()) == [{"full.kl": float(number), "full.loss": 0.5}]
    assert warm.slow == []


def test_nan_arrives(warm: Trainer) -> None:
    """NaN is what the trainer produced."""
    warm.update(kl=math.nan, loss=0.5)
    assert math.isnan(values_of(warm.said())[0]["full.kl"])


class Asked:
    """A value like a tensor on a device: to ask it is to wait."""

    def __float__(self) -> float:
        raise AssertionError("the value was asked")

    __array__ = __index__ = __bool__ = __len__ = __iter__ = __str__ = __repr__ = __float__  # type: ignore[assignment]


class OwnFloat(float):
    """A float with a way of its own."""

    def __float__(self) -> float:
        raise AssertionError("the value was asked")


@pytest.mark.parametrize(
    "value",
    [Asked(), OwnFloat(1.0), None, "1.00000", b"1.000000", [1.0], 10**400, np.complex64(1.0), np.ones(1)],
    ids=lambda value: type(value).__name__,
)
def test_everything_else_goes_the_long_way_unasked(trainer: Trainer, value: object) -> None:
    """A value that is no plain number reaches `slow` as it is, before and after the function is written."""
    trainer.update(update=1, kl=value, loss=0.5)
    for _ in range(3):
        trainer.update(kl=0.0, loss=0.0)
    trainer.update(update=2, kl=0.5, loss=value)
    trainer.update(update=3, kl=0.5, loss=0.5, more=value)
    assert trainer.written == 1
    assert [(index, list(values)) for index, values in trainer.slow] == [
        (1, ["kl", "loss"]), (2, ["kl", "loss"]), (3, ["kl", "loss", "more"]),
    ]  # fmt: skip
    assert trainer.slow[0][1]["kl"] is trainer.slow[1][1]["loss"] is trainer.slow[2][1]["more"] is value


@pytest.mark.parametrize("index", [True, 1.0, "7", 1 << 70, np.int64(3), Asked()])
def test_a_number_of_the_update_that_is_no_small_int_goes_the_long_way(warm: Trainer, index: Any) -> None:
    """`slow` judges it."""
    warm.update(update=index, kl=0.5, loss=0.5)
    assert warm.slow == [(index, {"kl": 0.5, "loss": 0.5})]
    assert warm.said() == []


def test_the_owner_knows_the_last_update(warm: Trainer) -> None:
    """Each call sets it, also to none."""
    warm.update(update=41, kl=0.5, loss=0.5)
    assert warm.latest.update == 41
    warm.update(kl=0.5, loss=0.5)
    assert warm.latest.update is None


ODD = [
    "return",
    "type",
    "Exception",
    "a.b",
    "_ow_ring",
    "_ow_0",
    "__debug__",
    "ﬁ",
    "é",
    "self",
    "now",
    "",
    "x y",
    "'",
]


@pytest.mark.parametrize("name", ODD)
def test_names_that_are_no_parameters_are_no_trouble(trainer: Trainer, name: str) -> None:
    """Keywords, dots, the function's own names and foreign letters go the short way as well."""
    said = {name: 1.5, "kl": 0.5}
    for _ in range(3):
        trainer.update(**said)
    assert trainer.written == 1
    trainer.update(update=7, **said)
    trainer.update(kl=2.5)
    trainer.update(kl=2.5, more=3.5, **{name: 1.0})
    trainer.update(kl="text", **{name: 1.0})
    full = {f"full.{key}": value for key, value in said.items()}
    assert trainer.slow == [(None, {"kl": "text", name: 1.0})]
    more = {"full.kl": 2.5, f"full.{name}": 1.0, "full.more": 3.5}
    assert values_of(trainer.said()) == [full, full, full, full, {"full.kl": 2.5}, more]


def test_a_name_that_is_no_text_goes_the_long_way(trainer: Trainer) -> None:
    """A lone surrogate cannot be written; `slow` says so."""
    for _ in range(3):
        trainer.update(**{"\ud800": 1.5})
    assert len(trainer.slow) == 3


def test_names_that_are_refused_or_meet_go_the_long_way(trainer: Trainer) -> None:
    """A refused name, or two names of one metric, are for `slow`, each time."""
    for _ in range(3):
        trainer.update(kl=1.0, bad=2.0)
        trainer.update(kl=1.0, kl_again=2.0)
    assert len(trainer.slow) == 6
    assert trainer.said() == []


def test_names_that_are_new_while_another_writes_are_learnt_later(trainer: Trainer) -> None:
    """The long way takes them until the ring is free for their form."""
    token = trainer.rings.numbers.ring.token
    token.clear()
    trainer.update(kl=1.0)
    token.append(None)
    trainer.update(kl=2.0)
    assert trainer.slow == [(None, {"kl": 1.0})]
    assert values_of(trainer.said()) == [{"full.kl": 2.0}]


def test_an_update_without_numbers_goes_the_long_way(trainer: Trainer) -> None:
    """There is nothing to make a form of."""
    trainer.update(update=3)
    assert trainer.slow == [(3, {})]


def test_ever_new_names_do_not_fill_memory(trainer: Trainer) -> None:
    """When the room for forms is used up, the long way takes the rest."""
    for step in range(MAX_FORMS + 100):
        trainer.update(**{f"name_{step}": 1.0})
    trainer.said()
    assert len(trainer.slow) > 100
    assert len(trainer.fast._known) == MAX_FORMS


NAMES = st.text("abc", max_size=3)
UPDATES = st.dictionaries(NAMES, st.floats(allow_nan=False), min_size=1, max_size=20)


@given(st.lists(UPDATES, max_size=30))
def test_any_course_of_calls_arrives(calls: list[dict[str, float]]) -> None:
    """Whatever names and numbers in whatever order, more than fifteen included: all arrive."""
    rings = RingSet("any" + str(id(calls)))
    try:
        trainer = Trainer(rings)
        for call in calls:
            trainer.update(**call)
        names = [{f"full.{name}": number for name, number in call.items()} for call in calls]
        assert values_of(trainer.said()) == names
    finally:
        rings.unlink()
        rings.close(0.0)


def test_a_full_ring_folds_what_the_short_way_brings(warm: Trainer) -> None:
    """No update of the written function is lost, and afterwards the short way is open again."""
    for index in range(1000):
        warm.update(update=index, kl=float(index), loss=1.0)
    said = warm.said()
    warm.update(update=1000, kl=1000.0, loss=1.0)
    said += warm.said()
    assert sum(one.n if isinstance(one, Folded) else 1 for one in said) == 1001
    assert isinstance(said[-2], Folded)
    assert said[-2].values["full.kl"].last == 999.0
    assert said[-1].index == 1000
    assert warm.rings.account().dropped == {}


def test_after_the_end_the_written_function_is_harmless(warm: Trainer) -> None:
    """A trainer that kept the function may go on calling it."""
    warm.rings.close(0.0)
    warm.update(kl=1.0, loss=2.0)
    assert warm.slow == []


class Placed:
    """An updater of `kl` and `loss`, and what it left to others."""

    def __init__(self, trainer: Trainer) -> None:
        self.waiting: deque[int] = deque()
        self.others: list[tuple[tuple[Any, ...], int | None]] = []
        made = trainer.fast.updater(("kl", "loss"), self.waiting, self._other)
        assert made is not None
        self.report = made

    def _other(self, *values: Any, update: int | None = None) -> None:
        self.others.append((values, update))


def test_an_updater_says_what_update_says(trainer: Trainer) -> None:
    """By place, with a number and without; in one order with what comes by name."""
    report = Placed(trainer).report
    for index in range(4):
        report(0.5 + index, -1.5, update=index)
        trainer.update(update=index, kl=0.5 + index, loss=-1.5)
    assert trainer.latest.update == 3
    report(0.5, math.inf)
    assert trainer.latest.update is None
    said = trainer.said()
    expected = [(index, 0.5 + index, -1.5) for index in range(4) for _ in range(2)] + [(None, 0.5, math.inf)]
    assert [(one.index, *one.values.values()) for one in said] == expected
    assert [one.at for one in said] == sorted(one.at for one in said)
    assert all(list(one.values) == ["full.kl", "full.loss"] for one in said)


@pytest.mark.parametrize(
    ("values", "update"),
    [
        ((), None), ((0.5,), 1), ((0.5, 1.0, 2.0), 1), ((0.5, 1), None), ((0.5, "12345678"), 1),
        ((Asked(), 0.5), 1), ((0.5, OwnFloat(1.0)), 1), ((0.5, 0.5), True), ((0.5, 0.5), 1 << 70),
        ((0.5, 0.5), np.int64(3)), ((0.5, 0.5), Asked()), ((np.float64(0.5), np.float32(1.0)), 1),
    ],
)  # fmt: skip
def test_an_updater_leaves_everything_odd_to_others(
    trainer: Trainer, values: tuple[Any, ...], update: Any
) -> None:
    """Too few, too many, no floats, a number that is none: as they are, unasked."""
    placed = Placed(trainer)
    placed.report(*values, update=update)
    ((others, index),) = placed.others
    assert len(others) == len(values)
    assert all(one is other for one, other in zip(others, values, strict=True))
    assert index is update
    assert trainer.said() == []


def test_an_updater_overtakes_nothing_that_a_device_computes(trainer: Trainer) -> None:
    """While something is waited for, others take what it is told."""
    placed = Placed(trainer)
    placed.waiting.append(1)
    placed.report(0.5, 1.0, update=1)
    placed.waiting.clear()
    placed.report(0.5, 1.0, update=2)
    assert placed.others == [((0.5, 1.0), 1)]
    assert [one.index for one in trainer.said()] == [2]


def test_an_updater_of_a_full_ring_folds_and_after_the_end_it_is_harmless(trainer: Trainer) -> None:
    """Each of its updates is told or folded."""
    report = Placed(trainer).report
    for index in range(1000):
        report(float(index), 1.0, update=index)
    said = trainer.said()
    report(1000.0, 1.0, update=1000)
    said += trainer.said()
    assert sum(one.n if isinstance(one, Folded) else 1 for one in said) == 1001
    assert trainer.rings.account().dropped == {}
    trainer.rings.close(0.0)
    report(1.0, 2.0)


class _InterruptError(BaseException):
    """As KeyboardInterrupt, but only ours."""


def test_an_interruption_anywhere_in_a_written_function_leaves_the_ring_open(warm: Trainer) -> None:
    """It costs at most the update that it met; none is told twice, and others go on being told."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise _InterruptError

    report = Placed(warm).report
    before = signal.signal(signal.SIGALRM, interrupt)
    said: list[Any] = []
    thrown = at = 0
    deadline = time.monotonic() + 60
    try:
        while thrown < 300:
            assert time.monotonic() < deadline
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0001)
                while True:
                    at += 1
                    warm.update(update=at, kl=0.5, loss=0.5)
                    at += 1
                    report(0.5, 0.5, update=at)
            except _InterruptError:
                thrown += 1
            said += warm.said()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    assert len(warm.rings.numbers.ring.token) == 1
    report(0.5, 0.5, update=at + 1)
    said += warm.said()
    told = [one.index for one in said if isinstance(one, Update)]
    assert len(set(told)) == len(told)
    assert warm.rings.account().dropped == {}
    assert said[-1].index == at + 1
