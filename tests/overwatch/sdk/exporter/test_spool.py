"""The spool: order, budget, restarts, disks in trouble, and books that always balance."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import deque
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overwatch.journal import FolderBusyError, Signal
from overwatch.sdk.exporter.queues import Request
from overwatch.sdk.exporter.spool import Spool, SpoolLimits
from tests.overwatch.journal.faults import Fault, FaultyFiles

pytestmark = pytest.mark.usefixtures("closed_spools")
SMALL = SpoolLimits(segment_bytes=4096, retry_s=0.0)


def _put(spool: Spool, body: bytes = b"body", *, is_fact: bool = False, records: int = 1) -> Request:
    last_seq = spool.next_seq - 1 + records
    ring = "facts" if is_fact else "numbers"
    return spool.put(
        Signal.LOGS,
        body,
        is_fact=is_fact,
        records=records,
        last_seq=last_seq,
        rings={ring: last_seq},
    )


def _drain(spool: Spool) -> list[Request]:
    """Everything that waits, delivered."""
    landed = []
    while (request := spool.take(0)) is not None:
        spool.landed(request, 0)
        landed.append(request)
    return landed


def _balances(spool: Spool) -> bool:
    return spool.books.accepted == spool.books.delivered + spool.books.waiting + sum(
        spool.books.dropped.values()
    )


def _crashed(spool: Spool, path: Path, limits: SpoolLimits = SMALL) -> Spool:
    """What the next process finds after this one was killed: the folder as it is now, under a new path."""
    shutil.copytree(spool._path, path)
    spool.close()
    return Spool(path, limits)


def test_requests_come_out_in_the_order_in_which_they_went_in(tmp_path: Path) -> None:
    """Facts and numbers are merged by their order, unchanged; one stays until it is settled."""
    spool = Spool(tmp_path / "spool", SMALL)
    put = [
        spool.put(
            list(Signal)[number % 3],
            os.urandom(number * 100),
            is_fact=number % 3 == 0,
            records=number,
            last_seq=number * 10,
            rings={},
        )
        for number in range(20)
    ]

    assert [request.order for request in put] == list(range(1, 21))
    assert spool.take(0) == spool.take(0) == put[0]
    assert _drain(spool) == put
    assert spool.is_empty
    assert (spool.books.accepted, spool.books.delivered, spool.books.waiting) == (190, 190, 0)
    assert spool.take(0) is None


def test_a_request_is_settled_once(tmp_path: Path) -> None:
    """Settling what was not taken, or twice, is an error of the caller and changes no book."""
    spool = Spool(tmp_path / "spool", SMALL)
    request = _put(spool)
    with pytest.raises(ValueError, match="was not taken"):
        spool.landed(request, 0)
    assert spool.take(0) == request
    spool.landed(request, 0)
    with pytest.raises(ValueError, match="was not taken"):
        spool.lost(request, "refused")
    assert (spool.books.delivered, spool.books.dropped) == (1, {})


def test_what_became_of_records_is_counted_and_survives_a_restart(tmp_path: Path) -> None:
    """Delivered, rejected and refused records are exact, before and after a crash and a clean end."""
    spool = Spool(tmp_path / "spool", SMALL)
    for records in (5, 7, 2, 4):
        _put(spool, records=records, is_fact=records == 7)
    spool.landed(spool.take(0), 3)  # type: ignore[arg-type]
    spool.lost(spool.take(0), "refused_400")  # type: ignore[arg-type]

    for again in (_crashed(spool, tmp_path / "a"), None):
        found = again or Spool(tmp_path / "a", SMALL)
        assert (found.books.accepted, found.books.delivered, found.books.waiting) == (18, 2, 6)
        assert found.books.dropped == {"rejected": 3, "refused_400": 7}
        found.close()


def test_numbers_go_on_after_a_restart_even_when_all_was_delivered(tmp_path: Path) -> None:
    """Order, `overwatch.seq` and ring positions continue, also when the files were trimmed long ago."""
    spool = Spool(tmp_path / "spool", SMALL)
    assert (spool.next_seq, spool.spooled) == (1, {})
    for number in range(100):
        _put(spool, b"x" * 500, is_fact=number % 5 == 0, records=3)
    seq, rings = spool.next_seq, spool.spooled
    assert seq == 301
    assert rings == {"facts": 288, "numbers": 300}
    assert len(_drain(spool)) == 100
    assert sum(path.stat().st_size for path in (tmp_path / "spool").glob("*.ow1")) < 3 * 4096

    spool = _crashed(spool, tmp_path / "b")
    assert (spool.next_seq, spool.spooled, spool.is_empty) == (seq, rings, True)
    for cursor in (tmp_path / "b").glob("*.cursor"):
        cursor.write_bytes(b"damaged" * 2000)
    spool = _crashed(spool, tmp_path / "c")
    assert (spool.next_seq, spool.spooled) == (seq, rings)
    assert _put(spool).order == 101


def test_the_oldest_numbers_go_first_and_facts_last(tmp_path: Path) -> None:
    """Over the budget old numbers make room for numbers and facts; only facts make room for facts."""
    spool = Spool(tmp_path / "spool", SpoolLimits(budget_bytes=20_000, segment_bytes=2048))
    body = b"x" * 900
    facts = [_put(spool, body, is_fact=True, records=2) for _ in range(5)]
    numbers = [_put(spool, body, records=3) for _ in range(30)]
    kept = spool.books.waiting_bytes
    assert kept <= 20_000
    gone = spool.books.dropped["spool_full"] // 3
    assert gone > 10
    assert spool.books.dropped == {"spool_full": gone * 3}

    more = [_put(spool, body, is_fact=True, records=2) for _ in range(30)]
    assert spool.books.waiting_bytes <= 20_000
    _put(spool, body, records=3)
    left = _drain(spool)
    assert all(request.is_fact for request in left)
    assert left == [*facts, *more][-len(left) :]
    assert len(left) > 12
    assert spool.books.dropped == {"spool_full": 31 * 3 + (35 - len(left)) * 2}
    assert len(numbers) == 30
    assert _balances(spool)
    assert sum(path.stat().st_size for path in (tmp_path / "spool").glob("*.ow1")) <= 20_000 + 2 * 2048


def test_drops_are_the_same_after_a_restart(tmp_path: Path) -> None:
    """What was dropped for want of room stays dropped and counted when the process dies."""
    limits = SpoolLimits(budget_bytes=10_000, segment_bytes=2048)
    spool = Spool(tmp_path / "spool", limits)
    for _ in range(40):
        _put(spool, b"x" * 900, records=3)
    before = (spool.books.accepted, spool.books.waiting, spool.books.dropped)
    spool = _crashed(spool, tmp_path / "a", limits)

    assert (spool.books.accepted, spool.books.waiting, spool.books.dropped) == before
    assert len(_drain(spool)) * 3 == before[1]


def test_a_request_over_the_budget_is_dropped_alone(tmp_path: Path) -> None:
    """A body that can never fit pushes nothing else out."""
    spool = Spool(tmp_path / "spool", SpoolLimits(budget_bytes=5000))
    kept = _put(spool)
    _put(spool, b"x" * 5000, records=9, is_fact=True)

    assert spool.books.dropped == {"spool_full": 9}
    assert _drain(spool) == [kept]


def test_a_request_on_its_way_is_never_dropped(tmp_path: Path) -> None:
    """When room is needed the taken request leaves the disk; it is counted once, as what became of it."""
    limits = SpoolLimits(budget_bytes=5000, segment_bytes=1024)
    spool = Spool(tmp_path / "spool", limits)
    _put(spool, b"x" * 900, records=7)
    taken = spool.take(0)
    assert taken is not None
    for _ in range(20):
        _put(spool, b"x" * 900)
        assert _balances(spool)

    assert spool.take(0) == taken
    spool.landed(taken, 0)
    assert spool.books.delivered == 7
    assert 0 < spool.books.dropped["spool_full"] < 20
    assert _balances(spool)
    after = spool.take(0)
    assert after is not None
    assert after.order > taken.order


def test_files_deleted_from_the_folder_are_counted(tmp_path: Path) -> None:
    """Segments that somebody removed cost their records, by number; new ones are kept."""
    spool = Spool(tmp_path / "spool", SMALL)
    for _ in range(20):
        _put(spool, b"x" * 1000, records=3)
    for file in (tmp_path / "spool").glob("*.ow1"):
        file.unlink()
    last = _put(spool)

    assert last in _drain(spool)
    assert spool.books.dropped["spool_lost"] >= 3 * 12
    assert _balances(spool)


def test_what_was_counted_as_lost_is_not_delivered_later(tmp_path: Path) -> None:
    """Requests that could not be read for a while stay lost when they can be read again."""
    spool = Spool(tmp_path / "spool", SMALL)
    for _ in range(3):
        _put(spool, records=2)
    [file] = (tmp_path / "spool").glob("numbers-*.ow1")
    away = file.rename(tmp_path / "away")
    assert spool.take(0) is None
    assert spool.books.dropped == {"spool_lost": 6}
    away.rename(file)
    last = _put(spool)

    assert _drain(spool) == [last]
    assert spool.books.dropped == {"spool_lost": 6}
    assert _balances(spool)


def test_a_damaged_request_is_counted_by_its_records(tmp_path: Path) -> None:
    """A flipped bit costs the touched request, and exactly its records are counted as lost."""
    spool = Spool(tmp_path / "spool")
    put = [_put(spool, b"x" * 300, records=number) for number in range(1, 8)]
    [file] = (tmp_path / "spool").glob("numbers-*.ow1")
    size = file.stat().st_size
    for part in range(6):
        spool = _crashed(spool, tmp_path / str(part))
        [file] = (tmp_path / str(part)).glob("numbers-*.ow1")
        clean = file.read_bytes()
        damaged = bytearray(clean)
        damaged[size * (2 * part + 1) // 14] ^= 4
        file.write_bytes(damaged)
        reader = Spool(shutil.copytree(tmp_path / str(part), tmp_path / f"{part}-damaged"), SMALL)
        kept = _drain(reader)
        [lost] = [request for request in put if request not in kept]
        assert reader.books.dropped == {"spool_lost": lost.records}
        assert _balances(reader)
        file.write_bytes(clean)


def test_a_lost_cursor_delivers_again_what_is_kept(tmp_path: Path) -> None:
    """At least once: the spool begins again at the oldest request that it has, states it, and balances."""
    spool = Spool(tmp_path / "spool", SMALL)
    put = [_put(spool, records=2) for _ in range(6)]
    for _ in range(3):
        spool.landed(spool.take(0), 0)  # type: ignore[arg-type]
    for cursor in (tmp_path / "spool").glob("*.cursor"):
        cursor.write_bytes(b"damaged")
    again = _crashed_without_saving(spool, tmp_path / "a")

    assert _balances(again)
    assert _drain(again) == put
    assert again.books.accepted == again.books.delivered == 12


def _crashed_without_saving(spool: Spool, path: Path) -> Spool:
    shutil.copytree(spool._path, path)
    return Spool(path, SMALL)


def test_another_process_is_kept_out(tmp_path: Path) -> None:
    """A second spool in the folder is refused by the holder's number; after a close it may go on."""
    spool = Spool(tmp_path / "spool")
    with pytest.raises(FolderBusyError, match=f"process {os.getpid()}"):
        Spool(tmp_path / "spool")
    spool.close()
    Spool(tmp_path / "spool").close()


def test_a_closed_spool_takes_and_gives_nothing(tmp_path: Path) -> None:
    """Late requests are counted, takers return at once, and `wait_empty` returns the truth."""
    spool = Spool(tmp_path / "spool")
    _put(spool)
    taker = threading.Thread(target=spool.wait_empty, args=(60.0,))
    taker.start()
    spool.close(discard=True)
    taker.join(10.0)

    assert not taker.is_alive()
    assert spool.take(60.0) is None
    assert not spool.wait_empty(60.0)
    _put(spool, records=4)
    assert spool.books.dropped == {"closed": 4}
    assert _balances(spool)
    assert (tmp_path / "spool").exists()


def test_an_empty_spool_can_be_removed_with_its_folder(tmp_path: Path) -> None:
    """After everything has landed `close` with `discard` leaves nothing on disk."""
    spool = Spool(tmp_path / "spool")
    _put(spool)
    _drain(spool)
    spool.close(discard=True)

    assert list(tmp_path.iterdir()) == []
    assert spool.is_empty


def test_one_puts_while_another_takes(tmp_path: Path) -> None:
    """Two threads at once: every request is delivered once, in order."""
    spool = Spool(tmp_path / "spool", SMALL)
    landed: list[Request] = []

    def deliver() -> None:
        while len(landed) < 400 and (request := spool.take(30.0)) is not None:
            spool.landed(request, 0)
            landed.append(request)

    taker = threading.Thread(target=deliver)
    taker.start()
    put = [_put(spool, b"x" * (number % 50), is_fact=number % 4 == 0) for number in range(400)]
    assert spool.wait_empty(60.0)
    taker.join(60.0)
    assert landed == put


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.booleans(), st.integers(0, 5), st.integers(0, 3000)),
        st.tuples(st.sampled_from(["take", "landed", "landed", "lost", "crash", "reopen"])),
    ),
    max_size=60,
)


@settings(deadline=None)
@given(steps=STEPS)
def test_the_books_balance_whatever_happens(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[object, ...]]
) -> None:
    """With room for all: the spool is a queue, crashes or not, and every count is that of the model."""
    root = tmp_path_factory.mktemp("spool")
    names = (root / str(number) for number in count())
    spool = Spool(next(names), SMALL)
    waiting: deque[Request] = deque()
    accepted = delivered = lost = 0
    taken: Request | None = None
    for step in steps:
        match step:
            case ("put", bool(is_fact), int(records), int(size)):
                waiting.append(_put(spool, b"x" * size, is_fact=is_fact, records=records))
                accepted += records
            case ("take",):
                taken = spool.take(0)
                assert taken == (waiting[0] if waiting else None)
            case ("landed" | "lost",) if taken is not None:
                if step[0] == "landed":
                    spool.landed(taken, 1)
                    delivered += max(taken.records - 1, 0)
                    lost += min(taken.records, 1)
                else:
                    spool.lost(taken, "refused")
                    lost += taken.records
                waiting.popleft()
                taken = None
            case ("crash",):
                spool, taken = _crashed(spool, next(names)), None
            case ("reopen",):
                spool.close()
                spool, taken = Spool(spool._path, SMALL), None
            case _:
                pass
        assert (spool.books.accepted, spool.books.delivered, sum(spool.books.dropped.values())) == (
            accepted,
            delivered,
            lost,
        )
        assert spool.books.waiting == sum(request.records for request in waiting)
    assert _drain(spool) == list(waiting)
    spool.close()


TROUBLE = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.booleans(), st.integers(0, 5), st.integers(0, 1500)),
        st.tuples(st.just("room"), st.none() | st.integers(0, 3000)),
        st.tuples(st.just("refuse"), st.sets(st.sampled_from(["write", "cut", "open", "remove", "sync"]))),
        st.tuples(st.sampled_from(["take", "landed", "lost", "crash", "delete"])),
    ),
    max_size=60,
)


@settings(deadline=None)
@given(steps=TROUBLE)
def test_the_books_balance_on_a_disk_in_trouble_too(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[object, ...]]
) -> None:
    """Full disks, refused calls, crashes, a deleted folder: no exception, no record miscounted."""
    root = tmp_path_factory.mktemp("spool")
    fault = Fault(error=errno.EIO)
    limits = SpoolLimits(budget_bytes=6000, memory_bytes=2500, segment_bytes=2048, retry_s=0.0)
    names = (root / str(number) for number in count())

    def opened(path: Path) -> Spool:
        return Spool(path, limits, files=lambda fd: FaultyFiles(fd, fault))

    path = next(names)
    spool = opened(path)
    accepted = 0
    taken: Request | None = None
    for step in steps:
        match step:
            case ("put", bool(is_fact), int(records), int(size)):
                _put(spool, b"x" * size, is_fact=is_fact, records=records)
                accepted += records
            case ("room", room):
                fault.room = room  # type: ignore[assignment]
            case ("refuse", set(calls)):
                fault.refused = calls
            case ("take",):
                again = spool.take(0)
                assert taken is None or again == taken
                taken = again
            case ("landed",) if taken is not None:
                spool.landed(taken, 1)
                taken = None
            case ("lost",) if taken is not None:
                spool.lost(taken, "refused")
                taken = None
            case ("delete",):
                shutil.rmtree(path, ignore_errors=True)
            case ("crash",):
                old, path = path, next(names)
                if old.exists():
                    shutil.copytree(old, path)
                spool.close()
                spool, taken = opened(path), None
                accepted = spool.books.accepted
            case _:
                pass
        assert _balances(spool)
        assert spool.books.accepted == accepted
        assert spool.books.waiting_bytes <= 6000
    fault.room, fault.refused = None, set()
    _put(spool)
    seen = [request.order for request in _drain(spool)]
    assert seen == sorted(set(seen))
    assert _balances(spool)
    assert spool.books.waiting == 0
    _put(spool)
    assert not spool.degraded
    spool.close()


_PUTTER = """
import sys
from pathlib import Path
from overwatch.journal import Signal
from overwatch.sdk.exporter.spool import Spool, SpoolLimits
spool = Spool(Path(sys.argv[1]), SpoolLimits(segment_bytes=16384))
landed = 0
print("open", spool.next_seq, spool.books.accepted, spool.books.delivered, flush=True)
while True:
    seq = spool.next_seq
    body = b"%d " % seq * 40
    spool.put(Signal.LOGS, body, is_fact=seq % 5 == 0, records=1, last_seq=seq, rings={"ring": seq})
    print("put", seq, flush=True)
    if seq % 3 == 0:
        request = spool.take(0)
        spool.landed(request, 0)
        print("landed", request.last_seq, flush=True)
"""


def test_a_killed_exporter_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """Ten times kill -9 while putting and delivering: every record that was put is delivered, in order."""
    put = landed = 0
    for cycle in range(10):
        with subprocess.Popen(
            [sys.executable, "-c", _PUTTER, str(tmp_path / "spool")], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            opened = process.stdout.readline().split()
            assert opened[0] == "open"
            assert put <= int(opened[1]) - 1 <= put + 1
            assert int(opened[2]) == int(opened[1]) - 1
            assert landed <= int(opened[3]) <= landed + 1
            put, landed = int(opened[1]) - 1, int(opened[3])
            stated = [process.stdout.readline() for _ in range(100 + 31 * cycle)]
            process.send_signal(signal.SIGKILL)
            stated += process.stdout.read().splitlines(keepends=True)
        for line in stated:
            if line.endswith("\n"):
                what, number = line.split()
                put, landed = (int(number), landed) if what == "put" else (put, int(number))
                assert what == "put" or landed <= put
    spool = Spool(tmp_path / "spool")
    total = spool.books.accepted
    assert put <= total <= put + 1
    assert landed <= spool.books.delivered <= landed + 1
    rest = _drain(spool)
    assert [request.last_seq for request in rest] == list(range(total - len(rest) + 1, total + 1))
    assert all(request.body == b"%d " % request.last_seq * 40 for request in rest)
    assert spool.spooled == {"ring": total}
    assert spool.books.delivered == spool.books.accepted
    assert spool.books.dropped == {}
