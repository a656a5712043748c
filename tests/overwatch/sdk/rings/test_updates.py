"""`run.update` into a ring: the same updates as the long way makes, and never a value asked."""

import math
import signal
import time
from collections.abc import Mapping
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overwatch.sdk.conflate import Folded
from overwatch.sdk.frames import Update
from overwatch.sdk.rings.encoders import MAX_FORMS, Latest, UpdateWriter
from overwatch.sdk.rings.ringset import RingSet
from overwatch.sdk.rings.source import RingSource
from overwatch.sdk.values import RefusedError
from tests.overwatch.sdk.rings.conftest import drained


class Trainer:
    """A run as far as a writer knows it."""

    def __init__(self, rings: RingSet) -> None:
        self.rings = rings
        self.latest = Latest()
        self.slow: list[tuple[int | None, dict[str, Any]]] = []
        self.waiting: list[int] = []
        self.source = RingSource(rings.path)
        self.writer = UpdateWriter(rings, self.latest, self._resolve, self._slow, self.waiting)
        self.update: Any = self.writer.update

    def _resolve(self, name: str) -> str:
        if name.startswith("bad"):
            raise RefusedError(name)
        return f"full.{name.removesuffix('_again')}"

    def _slow(self, update: int | None, values: Mapping[str, Any]) -> None:
        self.slow.append((update, dict(values)))

    def stated(self) -> list[Any]:
        """What came out."""
        return drained(self.source)


@pytest.fixture
def trainer(rings: RingSet) -> Trainer:
    """A trainer that has reported nothing."""
    return Trainer(rings)


@pytest.fixture
def warm(trainer: Trainer) -> Trainer:
    """A trainer whose names `kl` and `loss` are known."""
    trainer.update(kl=0.0, loss=0.0)
    trainer.stated()
    return trainer


def values_of(stated: list[Any]) -> list[dict[str, float]]:
    """The numbers of each update."""
    assert all(isinstance(one, Update) for one in stated)
    return [one.values for one in stated]


def test_every_call_arrives_as_it_was_given(trainer: Trainer) -> None:
    """The first calls and later ones, other names, more and fewer names, another order."""
    for index in range(5):
        trainer.update(update=index, kl=index + 0.5, loss=1.0)
    trainer.update(kl=1.0)
    trainer.update(kl=1.0, loss=2.0, more=3.0)
    trainer.update(loss=2.0, kl=1.0)
    stated = trainer.stated()
    assert [(one.index, one.values) for one in stated] == [
        *((index, {"full.kl": index + 0.5, "full.loss": 1.0}) for index in range(5)),
        (None, {"full.kl": 1.0}),
        (None, {"full.kl": 1.0, "full.loss": 2.0, "full.more": 3.0}),
        (None, {"full.kl": 1.0, "full.loss": 2.0}),
    ]
    assert [one.at for one in stated] == sorted(one.at for one in stated)
    assert trainer.slow == []


PLAIN = [
    -1.5, math.inf, -math.inf, 0.0, 5e-324, 1, -7, 2**53 + 1, 10**300, True,
    np.float64(0.1), np.float32(0.1), np.float16(0.1), np.int64(-3), np.uint8(200), np.bool_(1),
]  # fmt: skip


@pytest.mark.parametrize("number", PLAIN, ids=lambda number: type(number).__name__)
def test_plain_numbers_go_the_short_way(warm: Trainer, number: float) -> None:
    """Floats, ints and NumPy's scalars, also among each other, arrive as doubles."""
    warm.update(kl=number, loss=0.5)
    assert values_of(warm.stated()) == [{"full.kl": float(number), "full.loss": 0.5}]
    assert warm.slow == []


def test_nan_arrives(warm: Trainer) -> None:
    """NaN is what the trainer produced."""
    warm.update(kl=math.nan, loss=0.5)
    assert math.isnan(values_of(warm.stated())[0]["full.kl"])


class Requested:
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
    [Requested(), OwnFloat(1.0), None, "1.00000", b"1.000000", [1.0], 10**400, np.complex64(1.0), np.ones(1)],
    ids=lambda value: type(value).__name__,
)
def test_everything_else_goes_the_long_way_unasked(trainer: Trainer, value: object) -> None:
    """A value that is no plain number reaches `slow` as it is, whether its names are known or not."""
    trainer.update(update=1, kl=value, loss=0.5)
    trainer.update(update=2, kl=0.5, loss=value)
    trainer.update(update=3, kl=0.5, loss=0.5, more=value)
    assert [(index, list(values)) for index, values in trainer.slow] == [
        (1, ["kl", "loss"]), (2, ["kl", "loss"]), (3, ["kl", "loss", "more"]),
    ]  # fmt: skip
    assert trainer.slow[0][1]["kl"] is trainer.slow[1][1]["loss"] is trainer.slow[2][1]["more"] is value


@pytest.mark.parametrize("index", [True, 1.0, "7", 1 << 70, np.int64(3), Requested()])
def test_a_number_of_the_update_that_is_no_small_int_goes_the_long_way(warm: Trainer, index: Any) -> None:
    """`slow` judges it."""
    warm.update(update=index, kl=0.5, loss=0.5)
    assert warm.slow == [(index, {"kl": 0.5, "loss": 0.5})]
    assert warm.stated() == []


def test_the_owner_knows_the_last_update(warm: Trainer) -> None:
    """Each call sets it, also to none."""
    warm.update(update=41, kl=0.5, loss=0.5)
    assert warm.latest.update == 41
    warm.update(kl=0.5, loss=0.5)
    assert warm.latest.update is None


ODD = ["return", "type", "Exception", "a.b", "self", "_put", "__debug__", "ﬁ", "é", "", "x y", "'"]


@pytest.mark.parametrize("name", ODD)
def test_names_that_are_no_parameters_are_no_trouble(trainer: Trainer, name: str) -> None:
    """Keywords, dots, the method's own names and foreign letters are names as any other."""
    stated = {name: 1.5, "kl": 0.5}
    for _ in range(3):
        trainer.update(**stated)
    trainer.update(update=7, **stated)
    trainer.update(kl=2.5)
    trainer.update(kl=2.5, more=3.5, **{name: 1.0})
    trainer.update(kl="text", **{name: 1.0})
    full = {f"full.{key}": value for key, value in stated.items()}
    assert trainer.slow == [(None, {"kl": "text", name: 1.0})]
    more = {"full.kl": 2.5, f"full.{name}": 1.0, "full.more": 3.5}
    assert values_of(trainer.stated()) == [full, full, full, full, {"full.kl": 2.5}, more]


def test_a_name_that_is_no_text_goes_the_long_way(trainer: Trainer) -> None:
    """A lone surrogate cannot be written; `slow` states it."""
    for _ in range(3):
        trainer.update(**{"\ud800": 1.5})
    assert len(trainer.slow) == 3


def test_names_that_are_refused_or_meet_go_the_long_way(trainer: Trainer) -> None:
    """A refused name, or two names of one metric, are for `slow`, each time."""
    for _ in range(3):
        trainer.update(kl=1.0, bad=2.0)
        trainer.update(kl=1.0, kl_again=2.0)
    assert len(trainer.slow) == 6
    assert trainer.stated() == []


def test_names_that_are_new_while_another_writes_are_learnt_later(trainer: Trainer) -> None:
    """The long way takes them until the ring is free for their form."""
    token = trainer.rings.numbers.ring.token
    token.clear()
    trainer.update(kl=1.0)
    token.append(None)
    trainer.update(kl=2.0)
    assert trainer.slow == [(None, {"kl": 1.0})]
    assert values_of(trainer.stated()) == [{"full.kl": 2.0}]


def test_an_update_without_numbers_goes_the_long_way(trainer: Trainer) -> None:
    """There is nothing to make a form of."""
    trainer.update(update=3)
    assert trainer.slow == [(3, {})]


def test_ever_new_names_do_not_fill_memory(trainer: Trainer) -> None:
    """When the room for forms is used up, the long way takes the rest."""
    for step in range(MAX_FORMS + 100):
        trainer.update(**{f"name_{step}": 1.0})
    trainer.stated()
    assert len(trainer.slow) > 100
    assert len(trainer.writer._known._found) == MAX_FORMS


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
        assert values_of(trainer.stated()) == names
    finally:
        rings.unlink()
        rings.close(0.0)


def test_a_full_ring_folds_updates(warm: Trainer) -> None:
    """No update is lost, and afterwards records of their own come again."""
    for index in range(1000):
        warm.update(update=index, kl=float(index), loss=1.0)
    stated = warm.stated()
    warm.update(update=1000, kl=1000.0, loss=1.0)
    stated += warm.stated()
    assert sum(one.n if isinstance(one, Folded) else 1 for one in stated) == 1001
    assert isinstance(stated[-2], Folded)
    assert stated[-2].values["full.kl"].last == 999.0
    assert stated[-1].index == 1000
    assert warm.rings.account().dropped == {}


def test_after_the_end_the_method_is_harmless(warm: Trainer) -> None:
    """A trainer that kept it may go on calling it."""
    warm.rings.close(0.0)
    warm.update(kl=1.0, loss=2.0)
    assert warm.slow == []


def test_an_update_overtakes_nothing_that_a_device_computes(warm: Trainer) -> None:
    """While something is waited for, all go the long way."""
    warm.waiting.append(1)
    warm.update(update=1, kl=0.5, loss=1.0)
    warm.update(update=2, kl=1, loss=1.0)
    warm.waiting.clear()
    warm.update(update=3, kl=0.5, loss=1.0)
    assert [index for index, _ in warm.slow] == [1, 2]
    assert [one.index for one in warm.stated()] == [3]


def test_many_names_arrive(trainer: Trainer) -> None:
    """Msgpack begins a longer array in another way."""
    for count in (1, 2, 15, 16, 17, 200):
        values = {f"n{place}": place / 7 for place in range(count)}
        trainer.update(**values)
        trainer.update(**values)
        assert values_of(trainer.stated()) == [{f"full.{name}": value for name, value in values.items()}] * 2
    assert trainer.slow == []


def test_a_payload_that_looks_like_floats_is_not_taken_for_them(warm: Trainer) -> None:
    """Bytes that hold the tags of floats in the right places belong to a value that is none."""
    warm.update(kl=b"\xcb" * 16, loss=0.5)
    warm.update(kl=0.5, loss=b"\xcb" * 16)
    assert len(warm.slow) == 2
    assert warm.stated() == []


def test_an_index_that_only_an_unsigned_number_holds_is_absent(warm: Trainer) -> None:
    """Its numbers arrive."""
    warm.update(update=(1 << 64) - 1, kl=0.5, loss=0.5)
    (stated,) = warm.stated()
    assert stated.index is None
    assert stated.values == {"full.kl": 0.5, "full.loss": 0.5}


class _InterruptError(BaseException):
    """As KeyboardInterrupt, but only ours."""


def test_an_interruption_anywhere_leaves_the_ring_open(warm: Trainer) -> None:
    """It costs at most the update that it met; none is read twice, and others go on being read."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise _InterruptError

    before = signal.signal(signal.SIGALRM, interrupt)
    stated: list[Any] = []
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
            except _InterruptError:
                thrown += 1
            stated += warm.stated()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    assert len(warm.rings.numbers.ring.token) == 1
    warm.update(update=at + 1, kl=0.5, loss=0.5)
    stated += warm.stated()
    reported = [one.index for one in stated if isinstance(one, Update)]
    assert len(set(reported)) == len(reported)
    assert warm.rings.account().dropped == {}
    assert stated[-1].index == at + 1
