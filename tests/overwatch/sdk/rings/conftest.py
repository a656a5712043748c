"""Ring sets that are removed when a test is over, and the two ways a short way may be had."""

import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from overwatch.sdk.rings import compiled
from overwatch.sdk.rings.file import RingFile
from overwatch.sdk.rings.ringset import RingLimits, RingSet
from overwatch.sdk.rings.source import RingSource

SMALL = RingLimits(numbers_bytes=32 << 10, facts_bytes=16 << 10, forms_bytes=4 << 10, backlog_bytes=64 << 10)

MakeRings = Callable[..., RingSet]


def drained(source: RingSource) -> list[Any]:
    """What a reader is told, all of it released."""
    items = source.read()
    for item in items:
        source.done(item)
    assert source.malformed == 0
    return [item.said for item in items]


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


@pytest.fixture(scope="module", params=["compiled", "python"])
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """How functions for records are made meanwhile."""
    if request.param == "compiled" and compiled.COMPILED is None:
        reason = "nothing was compiled: Overwatch was installed without a C compiler, or with an older source"
        if os.environ.get("OVERWATCH_REQUIRE_REAL") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "python":
            patch.setattr(compiled, "COMPILED", None)
        yield request.param
