"""Updates folded as rows hold exactly what they hold one by one, whatever lies between them."""

import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import msgspec
import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from overwatch.events import Event, LogLine, Measured, Severity
from overwatch.sdk.exporter.record_events import is_plain, non_finite, unpacked
from overwatch.sdk.exporter.window import Passed, Window
from overwatch.sdk.frames import Update
from overwatch.sdk.rings.encoders import ColumnWriter, Latest, UpdateWriter
from overwatch.sdk.rings.file import FORM, HEADER_BYTES, W_PUBLISHED, checksum, end_of
from overwatch.sdk.rings.records import Form
from overwatch.sdk.rings.ringset import RingLimits, RingSet
from overwatch.sdk.rings.source import Item, RingSource

LIMITS = RingLimits(numbers_bytes=512 << 10, facts_bytes=64 << 10, forms_bytes=16 << 10)
POLICY = "overwatch.policy"
NAMES = {
    "a": (f"{POLICY}.kl_divergence", f"{POLICY}.entropy", "mine"),
    "b": (f"{POLICY}.entropy", f"{POLICY}.grad_norm"),
    "wide": tuple(f"n{i}" for i in range(70)),
}
REWARD = "overwatch.env.reward"


class Trainer:
    """Emits records of every kind."""

    def __init__(self, rings: RingSet) -> None:
        self._rings = rings
        self._update = UpdateWriter(rings, Latest(), str, lambda *_: None).update
        self._envs = ColumnWriter(rings, str).write

    def emit(self, kind: str, number: int, value: float, index: int | None) -> None:
        """One record."""
        if kind in NAMES:
            values = {name: value + place for place, name in enumerate(NAMES[kind])}
            self._update(update=index, **values)
        elif kind in ("envs", "others"):
            rows = np.arange(8, dtype="f8") + number
            rows[3] = value
            name = REWARD if kind == "envs" else "overwatch.env.metric"
            assert self._envs(None, index, {name: rows})
        elif kind == "named":
            assert self._envs(np.arange(4) + number % 2, index, {REWARD: np.full(4, value, dtype="f4")})
        elif kind == "frame":
            self._rings.put(Update(at=number, values={"mine": value}, index=index))
        else:
            self._rings.put(LogLine(at=number, severity=Severity.INFO, message=str(number), subsystem="x"))


@dataclass
class Reader:
    """Reads like the exporter, and folds like it."""

    source: RingSource
    in_rows: bool
    window: Window = field(default_factory=Window)
    facts: list[Event] = field(default_factory=list)
    count: int = 0

    def read(self, limit: int) -> list[Item]:
        """What there is."""
        found: list[Item] = []
        while items := self.source.read(limit):
            found += items
            for one in items:
                self._take(one)
        return found

    def _take(self, one: Item) -> None:
        self.count += one.count
        if self.in_rows and isinstance(one.content, Update) and is_plain(one.content):
            self.window.add_update(one.content, size=one.size)
            return
        for event in unpacked(one.content, None):
            self.window.add(event, size=one.size)
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


@contextmanager
def both(rings: RingSet) -> Iterator[tuple[Reader, Reader]]:
    """One that takes each update in its long form, and one that takes rows."""
    sources = RingSource(rings.path), RingSource(rings.path)
    try:
        yield Reader(sources[0], in_rows=False), Reader(sources[1], in_rows=True)
    finally:
        for source in sources:
            source.close()


def plain(passed: Passed) -> object:
    """Something that compares, NaN too."""
    return msgspec.msgpack.encode(passed)


def same(one: Reader, other: Reader) -> None:
    """Both hold the same."""
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
def test_rows_hold_what_their_records_hold(
    rounds: list[list[tuple[list[str], int, float, int | None]]], limit: int, odd: int, wrong: float
) -> None:
    """In windows, facts, counts and sizes; over laps of the ring, and with values that are not finite."""
    with ring_sets() as rings, both(rings) as (one, other):
        trainer, number = Trainer(rings), 0
        for round_of in rounds:
            for pattern, times, value, step in round_of:
                for _ in range(times):
                    for kind in pattern:
                        number += 1
                        is_odd = odd and number % (odd * 20) == 0
                        index = None if step is None else 1000 + step * number
                        trainer.emit(kind, number, wrong if is_odd else value + number / 1000, index)
            read = one.read(limit), other.read(limit)
            assert rings.account().dropped == {}
            same(one, other)
            for reader, items in zip((one, other), read, strict=True):
                for item in items:
                    reader.source.done(item)
        assert one.count == number


@given(st.integers(0, 10_000), st.integers(0, 255))
def test_a_damaged_record_is_passed_over_either_way(seed: int, byte: int) -> None:
    """Whatever byte of whatever record: the others are read, and it is counted."""
    with ring_sets() as rings, both(rings) as (one, other):
        trainer = Trainer(rings)
        for number in range(60):
            trainer.emit(("a", "envs", "wide")[number % 3], number, 0.1, number)
        file = rings.numbers.ring.file
        end = end_of(file.words[W_PUBLISHED])
        place = file.data + random.Random(seed).randrange(end)  # noqa: S311 a place, not a secret
        file.view[place] = byte
        for _ in range(6):
            one.read(1024)
            other.read(1024)
        same(one, other)
        assert one.source.waiting == other.source.waiting == 0


def test_a_form_that_lies_makes_its_records_malformed() -> None:
    """Records whose form is of another count of names are counted, each of them."""
    with ring_sets() as rings:
        trainer = Trainer(rings)
        for number in range(40):
            trainer.emit("a", number, 0.1, number)
        file = rings.numbers.ring.file
        form = msgspec.msgpack.encode(Form(names=("only",)))
        FORM.pack_into(file.view, HEADER_BYTES, len(form), checksum(form, 0))
        file.view[HEADER_BYTES + FORM.size : HEADER_BYTES + FORM.size + len(form)] = form
        source = RingSource(rings.path)
        assert source.read() == []
        assert source.malformed == 40
        source.close()


def test_names_that_two_forms_have_are_reported_as_they_came_last() -> None:
    """However the forms change places, the last value is that of the last record."""
    with ring_sets() as rings, both(rings) as (one, other):
        trainer = Trainer(rings)
        for number in range(20):
            for kind in ("a", "b", "envs") if number < 10 else ("b", "a", "envs"):
                trainer.emit(kind, number, 0.1 * (kind == "a") + number, number)
        one.read(1024)
        other.read(1024)
        same(one, other)
