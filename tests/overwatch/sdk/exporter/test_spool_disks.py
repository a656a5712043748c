"""The spool on disks in trouble: what is kept in memory, what is at risk, and what is counted as lost."""

import errno
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from overwatch.sdk.exporter.queues import Request
from overwatch.sdk.exporter.spool import Spool, SpoolLimits
from tests.overwatch.journal.faults import Fault, FaultyFiles
from tests.overwatch.sdk.exporter.test_spool import SMALL, _balances, _crashed, _drain, _put

pytestmark = pytest.mark.usefixtures("closed_spools")


def _full(fault: Fault) -> None:
    fault.room = 100


def _read_only(fault: Fault) -> None:
    fault.refused, fault.error = {"write", "open", "cut", "rename", "remove"}, errno.EROFS


@pytest.mark.parametrize("trouble", [_full, _read_only])
def test_a_disk_that_takes_nothing_is_survived_in_memory(
    tmp_path: Path, trouble: Callable[[Fault], None]
) -> None:
    """No exception: memory while it lasts, then the disk again; all is delivered in order."""
    fault = Fault()
    spool = Spool(tmp_path / "spool", SMALL, files=lambda fd: FaultyFiles(fd, fault))
    first = [_put(spool, is_fact=number % 2 == 0) for number in range(4)]
    trouble(fault)
    held = [_put(spool, b"y" * 500, is_fact=number % 2 == 0) for number in range(6)]
    assert spool.degraded
    assert spool.trouble is not None
    assert "not kept" in spool.trouble
    assert _balances(spool)
    done = spool.take(0)
    assert done == first[0]
    spool.landed(done, 0)
    assert spool.spooled == {"facts": 3, "numbers": 4}

    fault.room, fault.refused = None, set()
    last = _put(spool)
    assert not spool.degraded
    assert spool.spooled == {"facts": 9, "numbers": 11}
    spool = _crashed(spool, tmp_path / "a")
    assert _drain(spool) == [*first[1:], *held, last]
    assert spool.books.dropped == {}


def test_only_what_is_in_memory_is_at_risk_on_a_full_disk(tmp_path: Path) -> None:
    """What was on disk before stays kept, exactly; all of it is found by the next process."""
    fault = Fault()
    spool = Spool(tmp_path / "spool", SMALL, files=lambda fd: FaultyFiles(fd, fault))
    kept = [_put(spool, is_fact=number % 2 == 0, records=3) for number in range(4)]
    assert spool.books.at_risk == 0
    _full(fault)
    for number in range(5):
        _put(spool, b"y" * 500, is_fact=number % 2 == 0, records=2)

    assert (spool.degraded, spool.books.waiting, spool.books.at_risk, spool.room) == (True, 22, 10, None)
    assert _drain(_crashed(spool, tmp_path / "a")) == kept


def test_all_is_at_risk_in_a_folder_that_is_lost(tmp_path: Path) -> None:
    """What no later process finds is not called kept."""
    spool = Spool(tmp_path / "spool", SMALL)
    assert spool.room is not None
    _put(spool, records=3)
    (tmp_path / "spool").rename(tmp_path / "elsewhere")
    _put(spool, records=2)

    assert (spool.degraded, spool.books.at_risk) == (True, 5)


def test_memory_is_bounded_in_the_same_order(tmp_path: Path) -> None:
    """While the disk is in trouble the oldest numbers in memory go first, facts last, all counted."""
    fault = Fault(refused={"open"}, error=errno.EACCES)
    limits = SpoolLimits(memory_bytes=1000, retry_s=0.0)
    spool = Spool(tmp_path / "spool", limits, files=lambda fd: FaultyFiles(fd, fault))
    facts = [_put(spool, b"f" * 100, is_fact=True, records=2) for _ in range(3)]
    assert spool.degraded
    numbers = [_put(spool, b"n" * 100, records=3) for _ in range(20)]

    assert spool.books.waiting_bytes == 1000
    assert spool.books.dropped == {"spool_full": 13 * 3}
    assert _drain(spool) == [*facts, *numbers[13:]]
    more = [_put(spool, b"f" * 100, is_fact=True, records=2) for _ in range(15)]
    _put(spool, b"n", records=1)
    assert spool.books.dropped == {"spool_full": 13 * 3 + 5 * 2 + 1}
    assert _drain(spool) == more[5:]
    assert _balances(spool)


def test_a_crash_in_trouble_loses_what_was_in_memory_and_its_books_balance(tmp_path: Path) -> None:
    """What the disk has is delivered; the ring positions stop before what was in memory only."""
    fault = Fault()
    spool = Spool(tmp_path / "spool", SMALL, files=lambda fd: FaultyFiles(fd, fault))
    kept = [_put(spool) for _ in range(3)]
    fault.refused = {"write"}
    for _ in range(4):
        _put(spool)
    again = _crashed(spool, tmp_path / "a")

    assert again.spooled == {"numbers": 3}
    assert again.next_seq == 4
    assert _drain(again) == kept
    assert _balances(again)


_LIMITED = """
import resource, sys
from pathlib import Path
from overwatch.journal import Signal
from overwatch.sdk.exporter.spool import Spool, SpoolLimits
spool = Spool(Path(sys.argv[1]), SpoolLimits(retry_s=0.0))
def put(times):
    for _ in range(times):
        seq = spool.next_seq
        spool.put(Signal.LOGS, b"x" * 1000, is_fact=False, records=1, last_seq=seq, rings={})
    print(spool.degraded, spool.books.waiting, spool.books.delivered + sum(spool.books.dropped.values()))
put(5)
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (8500, hard))
put(10)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
put(5)
"""


def test_writes_that_the_kernel_cuts_short_are_cut_back(tmp_path: Path) -> None:
    """A file that may not grow beyond 8500 bytes: a short write, then errors; later all of it is on disk."""
    path = tmp_path / "spool"
    stated = subprocess.run(
        [sys.executable, "-c", _LIMITED, str(path)], check=True, capture_output=True, text=True, timeout=60
    )

    assert stated.stdout.splitlines() == ["False 5 0", "True 15 0", "False 20 0"]
    assert stated.stderr == ""
    assert [request.last_seq for request in _drain(Spool(path))] == list(range(1, 21))


def _life(path: Path, fault: Fault) -> tuple[Spool, list[Request], list[Request]]:
    """A spool's life on a disk with a fault: what was put, what was delivered."""
    limits = SpoolLimits(segment_bytes=1024, retry_s=0.0)
    spool = Spool(path, limits, files=lambda fd: FaultyFiles(fd, fault))
    put, landed = [], []
    for number in range(24):
        put.append(_put(spool, b"x" * 300, is_fact=number % 3 == 0))
        if number % 2 and (request := spool.take(0)) is not None:
            spool.landed(request, 0)
            landed.append(request)
        assert _balances(spool)
    if spool.degraded:  # what waits in memory goes to the disk with the next request
        put.append(_put(spool, b"x" * 300))
    return spool, put, landed


def test_any_call_to_the_disk_may_fail_once_or_for_ever(tmp_path: Path) -> None:
    """For each call in turn: no exception and nothing lost while the process lives; the next one balances."""
    fault = Fault()
    _life(tmp_path / "count", fault)[0].close()
    assert fault.calls > 60
    for nth in range(1, fault.calls + 1):
        for forever in (False, True):
            path = tmp_path / f"{nth}-{forever}"
            spool, put, landed = _life(path, Fault(fail_at=nth, forever=forever))
            again = _crashed(spool, tmp_path / f"{nth}-{forever}-again")
            rest = _drain(again)
            assert _balances(again)
            if not forever:
                assert spool.books.dropped == again.books.dropped == {}
                assert rest[12 - len(put) :] == put[12:]
                assert {request.order for request in (*landed, *rest)} == {one.order for one in put}
            again.close()


@pytest.mark.parametrize("harm", ["deleted", "moved", "link"])
def test_a_folder_taken_away_is_survived(tmp_path: Path, harm: str) -> None:
    """No exception, nothing written where a link leads; what was readable is delivered, the rest counted."""
    path, outside = tmp_path / "spool", tmp_path / "outside"
    outside.mkdir()
    spool = Spool(path, SMALL)
    first = [_put(spool, b"x" * 2000, is_fact=number % 2 == 0) for number in range(8)]
    assert spool.take(0) == first[0]
    if harm == "deleted":
        shutil.rmtree(path)
    else:
        path.rename(tmp_path / "elsewhere")
        if harm == "link":
            path.symlink_to(outside)
    more = [_put(spool, is_fact=number % 2 == 0) for number in range(4)]
    assert _balances(spool)
    assert spool.degraded is (harm != "deleted")

    delivered = _drain(spool)
    assert delivered == ([first[0], *more] if harm == "deleted" else [*first, *more])
    assert spool.books.dropped == ({"spool_lost": 7} if harm == "deleted" else {})
    assert list(outside.iterdir()) == []
    if harm == "link":
        _put(spool)
        assert spool.degraded
        path.unlink()
    last = _put(spool)
    assert not spool.degraded
    spool = _crashed(spool, tmp_path / "a")
    assert _drain(spool)[-1] == last
    assert _balances(spool)
