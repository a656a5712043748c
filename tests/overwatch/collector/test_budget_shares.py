"""The division of a disk budget: by the volume, floors first, what can be made again yields first."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from overwatch.collector.budget import Part, Volume, budget, fitted, room, shares

MIB = 1 << 20
JOURNAL = Part(name="journal", floor=64 * MIB, most=2048 * MIB, is_needed=True)
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

    assert budget(large, PARTS, None) == sum(part.most for part in PARTS)
    assert shares(room(large, PARTS, None), PARTS) == {part.name: part.most for part in PARTS}


def test_a_small_volume_is_not_filled_and_every_floor_is_granted() -> None:
    """A tmpfs of 512 MiB: within four fifths of it, each part at its floor or above."""
    granted = shares(room(volume(512), PARTS, None), PARTS)

    assert sum(granted.values()) <= 512 * MIB * 0.8
    assert all(granted[part.name] >= part.floor for part in PARTS)
    assert all(share > 0 for share in granted.values())


def test_on_a_tiny_volume_floors_leave_half_to_be_divided() -> None:
    """24 MiB: no part takes all of it."""
    most = budget(volume(24), PARTS, None)
    granted = shares(most, fitted(most, PARTS))

    assert granted["otlp_file"] > 4 * MIB
    assert granted["journal"] > 4 * MIB
    assert sum(granted.values()) <= most


def test_the_budget_that_is_set_holds_whatever_the_volume() -> None:
    """The sum of the shares is what was asked for."""
    granted = shares(room(volume(4 << 20), PARTS, 300 * MIB), PARTS)

    assert 299 * MIB < sum(granted.values()) <= 300 * MIB


def test_what_others_fill_is_taken_from_snapshots_first_and_from_the_journal_last() -> None:
    """With less and less room free, snapshots lose theirs first, then the recording, the journal last."""
    used = tuple(replace(part, bytes=20 * MIB) for part in PARTS)
    gone = []
    for free in range(500, -1, -1):
        granted = shares(room(volume(1024, free), used, None), used)
        gone += [name for name, share in granted.items() if share == 0 and name not in gone]

    assert gone == ["snapshots", "otlp_file"]


@given(st.lists(st.builds(
    Part, name=st.uuids().map(str), floor=AMOUNTS, most=AMOUNTS, bytes=AMOUNTS, is_needed=st.booleans(),
), max_size=8, unique_by=lambda part: part.name), AMOUNTS)  # fmt: skip
def test_shares_never_exceed_the_room(parts: list[Part], most: int) -> None:
    """Whatever the parts, no more is granted than there is, and nothing below 0."""
    granted = shares(most, parts)

    assert sum(granted.values()) <= most
    assert all(share >= 0 for share in granted.values())


@given(AMOUNTS, AMOUNTS, st.lists(AMOUNTS, min_size=3, max_size=3))
def test_room_leaves_some_of_the_volume_to_others(size: int, free: int, have: list[int]) -> None:
    """Parts that fill their room leave the spare of the volume free."""
    parts = [replace(part, bytes=many) for part, many in zip(PARTS, have, strict=True)]
    disk = Volume(size=size, free=min(size, free))
    more = room(disk, parts, None) - sum(have)

    assert more <= max(disk.free - disk.spare, 0)
