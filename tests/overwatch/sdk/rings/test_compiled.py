"""Compiled functions write what Python writes, byte for byte, and hold nothing and nobody up."""

import gc
import importlib
import math
import os
import subprocess
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any
from uuid import uuid4
from zlib import crc32

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overwatch.sdk.conflate import Folded
from overwatch.sdk.rings import compiled
from overwatch.sdk.rings.columns import FastColumns, Home
from overwatch.sdk.rings.fast import Fast
from overwatch.sdk.rings.layout import HEAD, Kind, checksum, end_of, seed, tag
from overwatch.sdk.rings.ringset import RingLimits, RingSet
from overwatch.sdk.rings.source import RingSource
from overwatch.sdk.rings.stamped import place_of_index, room, stamp, start
from overwatch.sdk.rings.written import Latest
from tests.overwatch.sdk.rings.conftest import SMALL, MakeRings, drained

KL, ENTROPY = "overwatch.policy.kl_divergence", "overwatch.policy.entropy"


@pytest.fixture(scope="module")
def built() -> ModuleType:
    """The compiled module."""
    if compiled.COMPILED is None:
        reason = "nothing was compiled: Overwatch was installed without a C compiler, or with an older source"
        if os.environ.get("OVERWATCH_REQUIRE_REAL") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return compiled.COMPILED


class Trainer:
    """Says updates of some names, and columns, through functions made one way."""

    def __init__(self, rings: RingSet, monkeypatch: pytest.MonkeyPatch, module: ModuleType | None) -> None:
        monkeypatch.setattr(compiled, "COMPILED", module)
        self.rings = rings
        self.source = RingSource(rings.path)
        self.fast = Fast(rings, Latest(), str, self._slow, self._install)
        self.update: Any = self.fast.update
        self.columns = FastColumns(rings, str, self._slow, home=Home(self._general, self._install_envs, ()))
        self.envs: Any = self._general
        self.others = 0

    def _slow(self, *_: Any) -> None:
        raise AssertionError("nothing here is unusual")

    def _install(self, update: Any) -> None:
        self.update = update

    def _general(self, /, *, env_id: Any = None, step: Any = None, **columns: Any) -> None:
        self.others += 1
        self.columns.put(env_id, step, columns)

    def _install_envs(self, envs: Any) -> None:
        self.envs = envs

    def warm_up(self, values: Mapping[str, float]) -> None:
        """Have the function made."""
        for _ in range(2):
            self.update(**values)
        self.said()

    def said(self) -> list[Any]:
        """What came out."""
        return drained(self.source)

    def newest(self) -> bytes:
        """The bytes of the last record, without what only fills it up."""
        ring = self.rings.numbers.ring
        size = int.from_bytes(ring.view[self._before : self._before + 4], "little")
        assert ring.off == ring.data + end_of(ring.word)
        return bytes(ring.view[self._before : self._before + size])

    def say(self, **given: Any) -> bytes:
        """Say one update; its bytes."""
        self._before = self.rings.numbers.ring.off
        self.update(**given)
        return self.newest()

    def show(self, **given: Any) -> bytes:
        """Say columns; their bytes."""
        self._before = self.rings.numbers.ring.off
        self.envs(**given)
        return self.newest()


@given(st.binary(max_size=9000), st.integers(0, 2**30))
def test_sums_are_those_of_python(built: ModuleType, payload: bytes, begin: int) -> None:
    """Of no bytes and of many."""
    assert built.checksum(payload, begin) == checksum(payload, begin)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 79, 80, 128, 255, 256, 257, 4095, 4096, 4097, 1 << 17])
def test_sums_of_every_kind_are_those_of_python(built: ModuleType, size: int) -> None:
    """Where the way of summing changes."""
    payload = np.random.default_rng(size).bytes(size)
    assert built.checksum(payload, size) == checksum(payload, size)


INDICES = [None, 0, 1, 127, 128, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**63 - 1]
NEGATIVE = [-1, -32, -33, -128, -129, -32768, -32769, -(2**31), -(2**31) - 1, -(2**63)]


@pytest.mark.parametrize("names", [1, 2, 12, 13, 14, 26, 27, 40, 64])
@pytest.mark.parametrize("index", [*INDICES, *NEGATIVE])
def test_an_update_is_written_as_python_would_write_it(
    built: ModuleType, rings: RingSet, monkeypatch: pytest.MonkeyPatch, names: int, index: int | None
) -> None:
    """Head, sum and payload, of few and many names and of an index of any size."""
    values = {f"n{place}": (-1) ** place * math.exp(place) for place in range(names)}
    trainer = Trainer(rings, monkeypatch, built)
    trainer.warm_up(values)
    assert type(trainer.update).__name__ == "Shortcut"
    found = trainer.say(update=index, **values)

    payload, word = found[HEAD.size :], rings.numbers.ring.word
    at, told = stamp(payload, names)
    expected = msgspec.msgpack.encode((*values.values(), at, index))
    which = tag(int(Kind.STAMPED), trainer.fast._known[tuple(values)].number, names)  # type: ignore[union-attr]
    total = crc32(expected, start(which))
    head = HEAD.pack(HEAD.size + room(names), total, word, 0, 0, which)
    assert found == head + expected + bytes(room(names) - len(expected))
    assert told == index
    assert place_of_index(names) < len(payload)
    (said,) = trainer.said()
    assert (said.index, said.values) == (index, values)


@pytest.mark.parametrize("step", [None, 0, -1, 2**62 - 1, -(2**62) + 1])
@pytest.mark.parametrize("column", [(2, "f4"), (7, "i1"), (192, "f4"), (600, "f8"), (4096, "f4")])
def test_columns_are_written_as_python_would_write_them(
    built: ModuleType,
    make_rings: MakeRings,
    monkeypatch: pytest.MonkeyPatch,
    column: tuple[int, str],
    step: int,
) -> None:
    """Head, sum and payload, of short and of long columns, also of every third number."""
    rows, dtype = column
    rings = make_rings(RingLimits(numbers_bytes=1 << 20, facts_bytes=12288, forms_bytes=8192))
    columns = {"a": np.arange(3 * rows).astype(dtype)[::3], "b": np.linspace(-1.0, 1.0, rows)}
    trainer = Trainer(rings, monkeypatch, built)
    for _ in range(2):
        trainer.envs(a=np.arange(rows).astype(dtype), b=columns["b"])
    trainer.said()
    found = trainer.show(step=step, **columns)
    assert trainer.others == 2

    length, total, word, at, index, which = HEAD.unpack(found[: HEAD.size])
    payload = b"".join(column.tobytes() for column in columns.values())
    assert found[HEAD.size :] == payload
    assert (length, word, index) == (HEAD.size + len(payload), rings.numbers.ring.word, step or 0)
    assert total == checksum(payload, seed(at, index, which))
    (said,) = trainer.said()
    assert said.values["b"].array().tolist() == columns["b"].tolist()


@pytest.mark.parametrize(("count", "rows"), [(1, 4000), (2, 700), (40, 100), (64, 300), (3, 1025)])
def test_long_payloads_of_few_and_of_many_columns_are_copied_whole(
    built: ModuleType, make_rings: MakeRings, monkeypatch: pytest.MonkeyPatch, count: int, rows: int
) -> None:
    """Wherever a column begins and ends in what is summed and in what is not."""
    rings = make_rings(RingLimits(numbers_bytes=1 << 20, facts_bytes=12288, forms_bytes=8192))
    dice = np.random.default_rng(rows)
    columns = {f"c{place}": dice.random(rows).astype("f4") for place in range(count)}
    trainer = Trainer(rings, monkeypatch, built)
    for step in range(5):
        trainer.envs(step=step, **columns)
    assert trainer.others == 2
    *_, said = trainer.said()
    assert [column.data for column in said.values.values()] == [one.tobytes() for one in columns.values()]


NUMBERS = st.one_of(st.floats(), st.sampled_from([0.0, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 1.0, 5.0]))
ROWS = st.lists(st.tuples(NUMBERS, NUMBERS), min_size=20, max_size=60)


@given(ROWS, st.integers(0, 70))
def test_what_is_folded_in_place_is_what_python_folds(
    built: ModuleType, rows: list[tuple[float, float]], other_at: int
) -> None:
    """Extremes, breaches, what is not finite and the last value; also when another form comes between."""
    said = {}
    for module in (built, None):
        with pytest.MonkeyPatch.context() as monkeypatch:
            rings = RingSet(uuid4().hex, SMALL)
            try:
                trainer = Trainer(rings, monkeypatch, module)
                said[module is None] = _folded(trainer, rows, other_at)
            finally:
                rings.unlink()
                rings.close(0.0)
    assert str(said[False]) == str(said[True])


def _folded(trainer: Trainer, rows: list[tuple[float, float]], other_at: int) -> list[object]:
    """What is told of rows that meet a ring full of others."""
    rings = trainer.rings
    rings._wake = lambda: None  # type: ignore[method-assign]
    rings.numbers._wake = lambda: None  # no helper: what is folded when depends on nobody's clock
    trainer.warm_up({KL: 0.0, ENTROPY: 0.0})
    filled = 0
    while not rings.numbers.folded:
        trainer.update(update=-1, **{KL: 0.0, ENTROPY: 0.0})
        filled += 1
    for index, (kl, entropy) in enumerate(rows):
        if index == other_at:
            trainer.fast.update(update=index, **{ENTROPY: entropy})
        trainer.update(update=index, **{KL: kl, ENTROPY: entropy})
    found = trainer.said()
    assert rings.numbers.flush()
    found += trainer.said()
    folded = [one for one in found if isinstance(one, Folded)]
    assert sum(one.n for one in folded) == rings.numbers.folded
    assert rings.account().dropped == {}
    return [msgspec.structs.replace(one, at=0) for one in folded]


def test_a_full_ring_is_added_up_without_python(
    built: ModuleType, rings: RingSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After some updates no more entries are made, until the ring has room again."""
    trainer = Trainer(rings, monkeypatch, built)
    rings.numbers._wake = lambda: None
    trainer.warm_up({KL: 0.0})
    while len(rings.numbers._unfolded) < 15:
        trainer.update(update=1, **{KL: 1.0})
    with monkeypatch.context() as patch:
        made: list[int] = []
        kept = rings.numbers.put
        patch.setattr(rings.numbers, "put", lambda entry: (made.append(1), kept(entry)))
        for index in range(500):
            trainer.update(update=index, **{KL: 1.0})
        assert len(made) <= 1
    assert trainer.said()
    trainer.update(update=7, **{KL: 2.0})
    *_, folded, last = trainer.said()
    assert isinstance(folded, Folded)
    assert folded.index == 499
    assert (last.index, last.values) == (7, {KL: 2.0})


def test_a_call_holds_on_to_nothing(
    built: ModuleType, rings: RingSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand calls of each kind leave every count of references as it was; the functions can go."""
    trainer = Trainer(rings, monkeypatch, built)
    values, column, strided = {KL: 0.5, ENTROPY: 1.5}, np.arange(8.0), np.arange(16.0)[::2]
    trainer.warm_up(values)
    for _ in range(2):
        trainer.envs(a=column)
    chute, index = rings.numbers, 10**6
    watched = [
        None,
        chute.ring,
        chute.ring.token,
        chute.aside,
        column,
        strided,
        values[KL],
        index,
        trainer.update,
    ]

    def counts() -> list[int]:
        gc.collect()
        return [sys.getrefcount(one) for one in watched]

    def call() -> None:
        trainer.update(update=index, **values)
        trainer.envs(step=3, a=column)
        trainer.envs(step=3, a=strided)

    for _ in range(3):
        call()
        trainer.said()
    # Others in this process let go of `None` too, once in a while; a call that holds on does so every time.
    moved = []
    for _ in range(3):
        before = counts()
        for _ in range(1000):
            call()
        trainer.said()
        call()
        trainer.said()
        moved.append([abs(one - other) for one, other in zip(before, counts(), strict=True)])
    assert all(min(each) < 50 for each in zip(*moved, strict=True)), moved
    watched.clear()
    held = sys.getrefcount(chute.ring)
    trainer.update = trainer.envs = trainer.fast = trainer.columns = None  # type: ignore[assignment]
    gc.collect()
    left = sys.getrefcount(chute.ring)
    assert left == held - 2


@pytest.mark.parametrize(
    "change",
    [
        {"names": ()}, {"names": tuple(map(str, range(65)))}, {"names": (1, 2)}, {"ring": object()},
        {"length": 39}, {"size": 8}, {"published": 512}, {"released": -1}, {"counter": 512}, {"prime": 0},
        {"stuck": memoryview(bytearray(8))}, {"tally": memoryview(bytearray(64))}, {"token": ()},
        {"latest": object()},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_sizes_that_no_record_has_are_refused(
    built: ModuleType, rings: RingSet, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    """What could write beside a ring is never made."""
    given: dict[str, Any] = {}
    keep = type("Keep", (), {"update": staticmethod(lambda **all_of: given.update(all_of))})
    trainer = Trainer(rings, monkeypatch, keep)  # type: ignore[arg-type]
    for _ in range(2):
        trainer.update(kl=1.0, loss=2.0)
    built.update(**given)
    with pytest.raises((ValueError, TypeError, AttributeError)):
        built.update(**given | change)


def test_without_a_compiled_module_python_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for, not built, or built from an older source."""
    monkeypatch.setenv("OVERWATCH_PURE_PYTHON", "1")
    assert compiled._found() is None
    monkeypatch.delenv("OVERWATCH_PURE_PYTHON")
    older = ModuleType("overwatch.sdk.rings._compiled")
    older.EDITION = compiled.EDITION - 1  # type: ignore[attr-defined]
    monkeypatch.setattr(compiled, "import_module", lambda _: older)
    assert compiled._found() is None

    def absent(name: str) -> ModuleType:
        raise ImportError(name)

    monkeypatch.setattr(compiled, "import_module", absent)
    assert compiled._found() is None
    monkeypatch.setattr(compiled, "import_module", importlib.import_module)


def test_a_child_of_a_trainer_writes_nothing(built: ModuleType) -> None:
    """A forked child that calls a compiled function leaves the parent's ring alone."""
    code = """
import os, overwatch.sdk.rings.compiled as c
from overwatch.sdk.rings.fast import Fast
from overwatch.sdk.rings.ringset import RingLimits, RingSet
from overwatch.sdk.rings.written import Latest
assert c.COMPILED is not None
rings = RingSet(f"child{os.getpid()}")
made = []
fast = Fast(rings, Latest(), str, lambda *_: None, made.append)
for _ in range(2):
    fast.update(kl=1.0)
made[0](kl=1.0)
child = os.fork()
if not child:
    rings.abandon()
    made[0](kl=2.0)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(rings.numbers.ring.published)
rings.close(0.0)
made[0](kl=3.0)
rings.unlink()
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "3\n"
