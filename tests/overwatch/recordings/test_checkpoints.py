"""Files of checkpoints beside a recording: how many stay, how they are written, and what is not read."""

from itertools import pairwise
from pathlib import Path

from overwatch.aggregator import Checkpoint
from overwatch.fold import SLOW_NS
from overwatch.recordings.checkpoints import (
    EVERY_NS,
    FOLDER,
    OF_AGE,
    OF_BUDGET,
    Leaving,
    Left,
    bytes_left,
    left_in,
    read_left,
    thinned,
)

T = 1_800_000_000 * SLOW_NS
HOUR_NS = 3600 * SLOW_NS


def left(tick: int) -> Left:
    """One at a tick."""
    return Left(tick=tick, began=1, position=9, ticks=5, build="a" * 32)


def taken(tick: int, fold: bytes = b"fold") -> Checkpoint:
    """What a collector keeps at a tick."""
    return Checkpoint(tick=tick, position=9, batches=8, ticks=5, fold=fold)


def test_old_ones_are_few_and_never_far_apart_for_their_age() -> None:
    """Over a day, one more each two minutes: the newest as they came, and the first."""
    kept: list[Left] = []
    for tick in range(T, T + 24 * HOUR_NS, EVERY_NS):
        kept = thinned([*kept, left(tick)], tick)
    now = kept[-1].tick

    assert kept[0].tick == T
    assert len(kept) < 300
    assert all(
        two.tick - one.tick <= max(EVERY_NS, (now - one.tick) // OF_AGE) for one, two in pairwise(kept)
    )
    recent = [one.tick for one in kept if now - one.tick < 2 * HOUR_NS]
    assert all(two - one == EVERY_NS for one, two in pairwise(recent))


def test_one_is_left_in_each_period_over_restarts(tmp_path: Path) -> None:
    """Of those that a collector keeps for itself; its next life goes on with the period."""
    done: list[int] = []
    for life in range(2):
        leaving = Leaving(tmp_path, 1 << 40)
        ticks = range(T + life * 600 * SLOW_NS, T + (life + 1) * 600 * SLOW_NS, 30 * SLOW_NS)
        done += [tick for tick in ticks if leaving.take(taken(tick))]

    assert [one.tick for one in left_in(tmp_path)] == done == list(range(T, T + 1200 * SLOW_NS, EVERY_NS))
    assert left_in(tmp_path)[0] == Left(
        tick=T, began=1, position=9, ticks=5, build=left_in(tmp_path)[0].build
    )


def test_all_of_them_stay_within_their_share_of_the_budget(tmp_path: Path) -> None:
    """Beyond it the time between two grows; one that is too large alone does not stay."""
    leaving = Leaving(tmp_path, 100 * OF_BUDGET)
    for number in range(100):
        leaving.take(taken(T + number * EVERY_NS))
    ticks = [one.tick for one in left_in(tmp_path)]

    assert 4 < len(ticks) < 100
    assert bytes_left(tmp_path) <= 100
    assert (ticks[0], ticks[-1]) == (T, T + 99 * EVERY_NS)
    small = Leaving(tmp_path / "small", 3 * OF_BUDGET)
    assert small.take(taken(T))
    assert left_in(tmp_path / "small") == []


def test_a_file_is_whole_and_its_owners_alone(tmp_path: Path) -> None:
    """What a killed life had not finished goes with the next."""
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / ".part-abc").write_bytes(b"fo")
    Leaving(tmp_path, 1 << 40).take(taken(T))
    (path,) = (tmp_path / FOLDER).iterdir()

    assert path.stat().st_mode & 0o777 == 0o600
    assert read_left(tmp_path, left_in(tmp_path)[0]) == b"fold"


def test_one_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    """A file may come from anywhere."""
    Leaving(tmp_path, 1 << 40).take(taken(T))
    (left,) = left_in(tmp_path)
    with (tmp_path / FOLDER / left.name).open("r+b") as file:
        file.truncate(1 << 43)

    assert read_left(tmp_path, left) is None
