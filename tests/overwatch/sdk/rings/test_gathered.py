"""Many records read at once say exactly what they say one by one, whatever lies between them."""

import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from overwatch.catalog import Scope
from overwatch.events import Event, LogLine, Measured, Severity, scalars
from overwatch.sdk.exporter.nonfinite import non_finite
from overwatch.sdk.exporter.window import Passed, Window
from overwatch.sdk.frames import Update
from overwatch.sdk.rings.columns import FastColumns, Home
from overwatch.sdk.rings.fast import Fast
from overwatch.sdk.rings.gathered import Updates
from overwatch.sdk.rings.layout import FORM, HEADER_BYTES, W_PUBLISHED, checksum, end_of
from overwatch.sdk.rings.records import Form
from overwatch.sdk.rings.ringset import RingLimits, RingSet
from overwatch.sdk.rings.source import Item, RingSource
from overwatch.sdk.rings.stretch import LEAST
from overwatch.sdk.rings.written import Latest

pytestmark = pytest.mark.usefixtures("way")

LIMITS = RingLimits(numbers_bytes=512 << 10, facts_bytes=64 << 10, forms_bytes=16 << 10)
POLICY = "overwatch.policy"
NAMES = {
    "a": (f"{POLICY}.kl_divergence", f"{POLICY}.entropy", "mine"),
    "b": (f"{POLICY}.entropy", f"{POLICY}.grad_norm"),
    "wide": tuple(f"n{i}" for i in range(70)),
}
REWARD = "overwatch.env.reward"


class Trainer:
    """Says things in every way that there is."""

    def __init__(self, rings: RingSet) -> None:
        self._rings = rings
        self._updates: dict[str, Any] = {}
        self._envs: Any = None
        self._fast = {kind: self._made(kind) for kind in NAMES}
        self._columns = FastColumns(rings, str, lambda *_: None, home=Home(self._general, self._install, ()))
        self._envs = self._general

    def _made(self, kind: str) -> Fast:
        def install(written: Any) -> None:
            self._updates[kind] = written

        fast = Fast(self._rings, Latest(), str, lambda *_: None, install)
        self._updates[kind] = fast.update
        return fast

    def _general(self, *, env_id: Any = None, step: Any = None, lane: Any = None, **columns: Any) -> None:
        assert lane is None
        self._columns.put(env_id, step, columns)

    def _install(self, written: Any) -> None:
        self._envs = written

    def say(self, kind: str, number: int, value: float, index: int | None) -> None:
        """One record."""
        if kind in NAMES:
            values = {name: value + place for place, name in enumerate(NAMES[kind])}
            self._updates[kind](update=index, **values)
        elif kind in ("envs", "others"):
            rows = np.arange(8, dtype="f8") + number
            rows[3] = value
            self._envs(step=index, **{REWARD if kind == "envs" else "overwatch.env.metric": rows})
        elif kind == "named":
            ids = np.arange(4) + number % 2
            self._envs(env_id=ids, step=index, **{REWARD: np.full(4, value, dtype="f4")})
        elif kind == "frame":
            self._rings.put(Update(at=number, values={"mine": value}, index=index))
        else:
            self._rings.put(LogLine(at=number, severity=Severity.INFO, message=str(number), subsystem="x"))


@dataclass
class Reader:
    """Reads like the exporter, and folds like it."""

    source: RingSource
    window: Window = field(default_factory=Window)
    facts: list[Event] = field(default_factory=list)
    count: int = 0
    at_once: int = 0

    def read(self, limit: int) -> list[Item]:
        """What there is."""
        found: list[Item] = []
        while items := self.source.read(limit):
            found += items
        for item in found:
            self.count += item.count
            self._take(item)
        return found

    def _take(self, item: Item) -> None:
        said = item.said
        if isinstance(said, tuple):
            self.at_once += item.count
            assert item.size == sum(part.size for part in said)
            for part in said:
                if isinstance(part, Updates):
                    self.window.add_updates(part)
                else:
                    self.window.add(part.newest, size=part.size, counted=part.n)
            return
        event: Any = said
        if isinstance(said, Update):
            values = scalars(said.values)
            event = Measured(at=said.at, scope=Scope.POLICY, values=values, index=said.index)
        self.window.add(event, size=item.size)
        if isinstance(event, Measured):
            self.facts += non_finite(event)


@contextmanager
def ring_sets() -> Iterator[RingSet]:
    """A ring set in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        rings = RingSet(uuid4().hex, LIMITS, folders=[Path(folder)])
        try:
            yield rings
        finally:
            rings.abandon()
            rings.unlink()


def both(rings: RingSet) -> tuple[Reader, Reader]:
    """One that reads each record, and one that reads many at once."""
    return Reader(RingSource(rings.path)), Reader(RingSource(rings.path, gathers=True))


def plain(passed: Passed) -> object:
    """Something that compares, NaN too."""
    return msgspec.msgpack.encode(passed)


def same(one: Reader, other: Reader) -> None:
    """Both say the same."""
    assert one.count == other.count
    assert one.source.malformed == other.source.malformed
    assert one.window.size_bytes == other.window.size_bytes
    assert plain(one.window.take()) == plain(other.window.take())
    assert msgspec.msgpack.encode(one.facts) == msgspec.msgpack.encode(other.facts)


kinds = st.sampled_from(["a", "a", "b", "wide", "envs", "envs", "others", "named", "frame", "fact"])
values = st.one_of(
    st.floats(-10, 10).map(lambda value: value + 0.0),
    st.sampled_from([0.1, 0.02, 0.5]),
)
stretches = st.tuples(
    st.lists(kinds, min_size=1, max_size=4), st.integers(1, 40), values, st.sampled_from([None, 1, 1, -1])
)


@example(
    rounds=[[(["a", "a", "wide", "wide"], 36, 0.0, None)] * 2 + [(["envs"], 1, 0.0, None)]],
    limit=7, odd=0, wrong=float("nan"),
)  # fmt: skip
@given(
    st.lists(st.lists(stretches, min_size=1, max_size=3), min_size=1, max_size=4),
    st.sampled_from([7, 16, 50, 1024]),
    st.integers(0, 30),
    st.sampled_from([float("nan"), float("inf")]),
)
def test_many_at_once_are_what_they_are_one_by_one(
    rounds: list[list[tuple[list[str], int, float, int | None]]], limit: int, odd: int, wrong: float
) -> None:
    """In windows, facts, counts and sizes; over laps of the ring, and with values that are not finite."""
    with ring_sets() as rings:
        trainer, number = Trainer(rings), 0
        one, other = both(rings)
        for round_of in rounds:
            for pattern, times, value, step in round_of:
                for _ in range(times):
                    for kind in pattern:
                        number += 1
                        is_odd = odd and number % (odd * 20) == 0
                        index = None if step is None else 1000 + step * number
                        trainer.say(kind, number, wrong if is_odd else value + number / 1000, index)
            read = one.read(limit), other.read(limit)
            assert rings.account().dropped == {}
            same(one, other)
            for reader, items in zip((one, other), read, strict=True):
                for item in items:
                    reader.source.done(item)
        released = [reader.source._numbers.released for reader in (one, other)]
        assert released == [rings.numbers.ring.published] * 2


def test_what_lies_behind_the_end_of_a_stretch_says_nothing_of_it() -> None:
    """Where tags do not come last as they came first it ends sooner, and so do its moments."""
    with ring_sets() as rings:
        trainer = Trainer(rings)
        for number, kind in enumerate(["a", *["a", "named"] * 7, "a", "a", "named"], start=1):
            trainer.say(kind, number, 0.1, None)
        one, other = both(rings)
        one.read(50)
        other.read(50)
        assert LEAST <= other.at_once < other.count
        same(one, other)


def test_a_busy_trainer_is_read_at_once() -> None:
    """Twelve numbers and a column in turn: all but the last few records come together."""
    with ring_sets() as rings:
        trainer = Trainer(rings)
        for number in range(200):
            trainer.say("a", number, 0.1, number)
            trainer.say("envs", number, 0.1, number)
        one, other = both(rings)
        one.read(2048)
        other.read(2048)
        assert other.count == 400
        assert other.at_once >= 380
        same(one, other)


@given(st.integers(0, 10_000), st.integers(0, 255))
def test_a_damaged_record_is_passed_over_either_way(seed: int, byte: int) -> None:
    """Whatever byte of whatever record: both read the others, and count it."""
    with ring_sets() as rings:
        trainer = Trainer(rings)
        for number in range(60):
            trainer.say(("a", "envs", "wide")[number % 3], number, 0.1, number)
        file = rings.numbers.ring.file
        end = end_of(file.words[W_PUBLISHED])
        place = file.data + random.Random(seed).randrange(end)  # noqa: S311 a place, not a secret
        file.view[place] = byte
        one, other = both(rings)
        for _ in range(6):
            one.read(1024)
            other.read(1024)
        same(one, other)
        assert one.source.waiting == other.source.waiting == 0


def test_a_record_of_an_earlier_life_comes_alone() -> None:
    """Up to the number that was said before, nothing is read together."""
    with ring_sets() as rings:
        trainer = Trainer(rings)
        for number in range(100):
            trainer.say("envs", number, 0.1, number)
        source = RingSource(rings.path, gathers=True)
        source.single(50)
        items = source.read()
        assert [item.sequence for item in items if item.count == 1][:50] == list(range(1, 51))
        assert sum(item.count for item in items) == 100
        assert any(item.count > 1 for item in items)


def test_a_form_that_lies_is_not_gathered() -> None:
    """Records whose form is of another count of names are malformed, each of them."""
    with ring_sets() as rings:
        trainer = Trainer(rings)
        for number in range(40):
            trainer.say("a", number, 0.1, number)
        file = rings.numbers.ring.file
        form = msgspec.msgpack.encode(Form(names=("only",)))
        FORM.pack_into(file.view, HEADER_BYTES, len(form), checksum(form, 0))
        file.view[HEADER_BYTES + FORM.size : HEADER_BYTES + FORM.size + len(form)] = form
        source = RingSource(rings.path, gathers=True)
        assert source.read() == []
        assert source.malformed == 40


def test_names_that_two_forms_have_are_told_as_they_came_last() -> None:
    """However the forms change places, the last value is that of the last record."""
    with ring_sets() as rings:
        trainer = Trainer(rings)
        one, other = both(rings)
        for number in range(20):
            if number == 3:
                # From here on each kind has one tag, as its function is written.
                one.read(1024)
                other.read(1024)
            for kind in ("a", "b", "envs") if number < 10 else ("b", "a", "envs"):
                trainer.say(kind, number, 0.1 * (kind == "a") + number, number)
        one.read(1024)
        other.read(1024)
        assert other.at_once >= 16
        same(one, other)


def test_steps_that_go_back_are_read_one_by_one() -> None:
    """How many steps there were is counted from record to record."""
    with ring_sets() as rings:
        trainer = Trainer(rings)
        for number in range(100):
            trainer.say("envs", number, 0.1, 50 - number)
        one, other = both(rings)
        one.read(1024)
        other.read(1024)
        assert other.at_once == 0
        same(one, other)
