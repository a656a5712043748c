"""Ring sets that are removed when a test is over."""

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from overwatch.sdk.rings.ringset import RingLimits, RingSet

SMALL = RingLimits(numbers_bytes=32 << 10, facts_bytes=16 << 10, forms_bytes=4 << 10, backlog_bytes=64 << 10)

MakeRings = Callable[..., RingSet]


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
