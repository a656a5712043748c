"""The division of a disk budget: by what others leave of the volume, floors first."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from overwatch.collector.budget import Part, Volume, budget, fitted, shares

MIB = 1 << 20
JOURNAL = Part(name="journal", floor=64 * MIB, most=2048 * MIB)
RECORDING = Part(name="otlp_file", floor=32 * MIB, most=10240 * MIB)
SNAPSHOTS = Part(name="snapshots", floor=0, most=1024 * MIB)
PARTS = (JOURNAL, RECORDING, SNAPSHOTS)
AMOUNTS = st.integers(0, 1 << 45)


def volume(size_mib: int, free_mib: int | None = None) -> Volume:
    """A volume, empty by default."""
    return Volume(size=size_mib * MIB, free=(size_mib if free_mib is None else free_mib) * MIB)


def test_a_large_volume_gives_every_part_all_that_it_may_have() -> None:
    """On a disk of terabytes the budget is the sum of the limits."""
    large = volume(4 << 20)

    assert budget(large, PARTS, 0) == sum(part.most for part in PARTS)
    assert shares(budget(large, PARTS, 0), PARTS) == {part.name: part.most for part in PARTS}


def test_a_small_volume_is_not_filled_and_every_floor_is_granted() -> None:
    """A tmpfs of 512 MiB: within four fifths of it, each part at its floor or above."""
    granted = shares(budget(volume(512), PARTS, 0), PARTS)

    assert sum(granted.values()) <= 512 * MIB * 0.8
    assert all(granted[part.name] >= part.floor for part in PARTS)
    assert all(share > 0 for share in granted.values())


def test_on_a_tiny_volume_floors_leave_half_to_be_divided() -> None:
    """24 MiB: no part takes all of it."""
    most = budget(volume(24), PARTS, 0)
    granted = shares(most, fitted(most, PARTS))

    assert granted["otlp_file"] > 4 * MIB
    assert granted["journal"] > 4 * MIB
    assert sum(granted.values()) <= most


@given(AMOUNTS, AMOUNTS, st.lists(AMOUNTS, min_size=3, max_size=3))
def test_what_the_parts_write_themselves_changes_no_budget(size: int, free: int, have: list[int]) -> None:
    """And none leaves less than a fifth of what others leave, unless it was more before."""
    empty = Volume(size=size, free=free + sum(have))
    held = [replace(part, bytes=many) for part, many in zip(PARTS, have, strict=True)]

    assert budget(Volume(size=size, free=free), held, 0) == budget(empty, PARTS, 0) <= empty.free * 0.8 + 1
    assert budget(Volume(size=size, free=0), PARTS, size) == min(size, sum(part.most for part in PARTS))


@given(st.lists(st.builds(
    Part, name=st.uuids().map(str), floor=AMOUNTS, most=AMOUNTS,
), max_size=8, unique_by=lambda part: part.name), AMOUNTS)  # fmt: skip
def test_shares_never_exceed_the_room(parts: list[Part], most: int) -> None:
    """Whatever the parts, no more is granted than there is, and nothing below 0."""
    granted = shares(most, parts)

    assert sum(granted.values()) <= most
    assert all(share >= 0 for share in granted.values())
