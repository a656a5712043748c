"""Ring sets that are removed when a test is over."""

import mmap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from overwatch.sdk.rings.file import RingFile
from overwatch.sdk.rings.ringset import RingLimits, RingSet
from overwatch.sdk.rings.source import RingSource

SMALL = RingLimits(numbers_bytes=32 << 10, facts_bytes=16 << 10, forms_bytes=4 << 10, backlog_bytes=64 << 10)

MakeRings = Callable[..., RingSet]


def drained(source: RingSource) -> list[Any]:
    """What a reader receives, all of it released."""
    items = source.read()
    for item in items:
        source.done(item)
    assert source.malformed == 0
    return [item.content for item in items]


@pytest.fixture(autouse=True)
def closed_files(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Closes every ring file that a test opened: a map holds a descriptor until it is closed."""
    opened: list[RingFile] = []
    begin = RingFile.__init__

    def recorded(self: RingFile, path: Path, memory: mmap.mmap) -> None:
        begin(self, path, memory)
        opened.append(self)

    monkeypatch.setattr(RingFile, "__init__", recorded)
    yield
    for file in opened:
        file.close()


@pytest.fixture
def make_rings(tmp_path: Path) -> Iterator[MakeRings]:
    """Makes small ring sets in the test's own folder."""
    made: list[RingSet] = []

    def make(limits: RingLimits = SMALL) -> RingSet:
        rings = RingSet(uuid4().hex, limits, folders=[tmp_path])
        made.append(rings)
        return rings

    yield make
    for rings in made:
        rings.abandon()
        rings.unlink()


@pytest.fixture
def rings(make_rings: MakeRings) -> RingSet:
    """One small ring set."""
    return make_rings()
