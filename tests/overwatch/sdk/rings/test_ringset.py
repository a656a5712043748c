"""Two rings and what waits beside them: facts are held, updates fold, and every record has its place."""

import errno
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from overwatch.catalog import Scope
from overwatch.events import Column, LogLine, Measured, Severity
from overwatch.sdk.conflate import Folded
from overwatch.sdk.frames import Update
from overwatch.sdk.rings.ringset import FACTS, NUMBERS, RingLimits, RingSet, part_of, places
from overwatch.sdk.rings.source import Item, RingSource
from tests.overwatch.sdk.rings.conftest import MakeRings

DEADLINE_S = 20.0
KL = "overwatch.policy.kl_divergence"


def fact(at: int, message: str = "a fact", subsystem: str = "trainer") -> LogLine:
    """A line of log."""
    return LogLine(at=at, severity=Severity.INFO, message=message, subsystem=subsystem)


def update(at: int, value: float = 0.01) -> Update:
    """An update of one number."""
    return Update(at=at, values={KL: value}, index=at)


def columns(at: int, rows: int = 100) -> Measured:
    """Env numbers."""
    ids = Column.of(range(rows))
    return Measured(at=at, scope=Scope.ENV, keys={"env_id": ids}, values={"overwatch.env.reward": ids})


def drain(source: RingSource) -> list[Item]:
    """Everything that is there, released."""
    items: list[Item] = []
    while found := source.read():
        for item in found:
            source.done(item)
        items += found
    return items


def drain_until(source: RingSource, enough: Callable[[list[Item]], bool]) -> list[Item]:
    """Read until there is enough, or fail at the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    items = drain(source)
    while not enough(items):
        assert time.monotonic() < deadline, f"only {len(items)} records came"
        time.sleep(0.001)
        items += drain(source)
    return items


def check(rings: RingSet, items: list[Item], unread: int = 0) -> None:
    """The account holds: accepted is delivered, unread, waiting or dropped."""
    account = rings.account()
    assert account.published == sum(item.count for item in items) + unread
    assert account.accepted == account.published + account.waiting + sum(account.dropped.values())


def test_both_rings_are_read_by_the_clock_of_the_trainer(rings: RingSet) -> None:
    """Facts and numbers come out in the order of their times, as they went in."""
    stated = [update(1), fact(2), columns(3), fact(4), update(5), fact(6)]
    for frame in stated:
        rings.put(frame)
    source = RingSource(rings.path)
    items = source.read()
    assert [item.content for item in items] == stated
    check(rings, items)


def test_facts_that_find_no_room_are_held_in_order(rings: RingSet) -> None:
    """Facts go to memory while nobody reads; the helper sends them as room comes, without a further call."""
    for at in range(300):
        rings.put(fact(at))
    assert rings.account().waiting > 50
    items = drain_until(RingSource(rings.path), lambda items: len(items) >= 300)
    assert [item.content for item in items] == [fact(at) for at in range(300)]
    check(rings, items)


def test_facts_beyond_the_bound_are_counted(make_rings: MakeRings) -> None:
    """What neither ring nor memory can hold is dropped under its own reason, and nothing else."""
    rings = make_rings(RingLimits(numbers_bytes=16384, facts_bytes=12288, forms_bytes=0, backlog_bytes=1000))
    for at in range(200):
        rings.put(fact(at))
    account = rings.account()
    assert account.accepted == 200
    assert set(account.dropped) == {"backlog_full"}
    held = 200 - account.dropped["backlog_full"]
    items = drain_until(RingSource(rings.path), lambda items: len(items) >= held)
    assert [item.content for item in items] == [fact(at) for at in range(held)]
    check(rings, items)


def test_a_fact_that_is_too_large_is_refused_by_its_own_reason(rings: RingSet) -> None:
    """The largest fact is a quarter of its ring; its neighbours are unharmed."""
    rings.put(fact(1))
    rings.put(fact(2, message="x" * 20_000))
    rings.put(fact(3))
    items = drain(RingSource(rings.path))
    assert [item.content for item in items] == [fact(1), fact(3)]
    assert rings.account().dropped == {"too_large": 1}
    check(rings, items)


def test_updates_that_find_no_room_are_folded_into_one(rings: RingSet) -> None:
    """No update is lost: those that met a full ring come as one record with their extremes and count."""
    for at in range(1000):
        rings.put(update(at, 0.2 if at == 900 else 0.01))
    source = RingSource(rings.path)
    items = drain_until(source, lambda items: sum(item.count for item in items) == 1000)
    folded = [item.content for item in items if isinstance(item.content, Folded)]
    plain = [item.content for item in items if isinstance(item.content, Update)]
    assert plain == [update(at) for at in range(len(plain))]
    assert sum(one.n for one in folded) == 1000 - len(plain)
    assert max(one.values[KL].high or 0.0 for one in folded) == 0.2
    assert sum(one.values[KL].criticals for one in folded) == 1
    assert folded[-1].index == 999
    assert source.unsaid == 0
    assert rings.account().dropped == {}
    check(rings, items)


def test_columns_that_find_no_room_are_dropped_and_counted(rings: RingSet) -> None:
    """Env columns cannot be folded; facts do not suffer from them."""
    for at in range(100):
        rings.put(columns(at))
        rings.put(fact(at))
    source = RingSource(rings.path)
    items = drain_until(source, lambda _: rings.account().waiting == 0) + drain(source)
    facts = [item.content for item in items if isinstance(item.content, LogLine)]
    assert facts == [fact(at) for at in range(100)]
    assert set(rings.account().dropped) == {"ring_full"}
    check(rings, items)


def test_a_burst_of_twenty_thousand_facts_loses_none(tmp_path: Path) -> None:
    """At default sizes nothing is lost, even while nobody reads."""
    rings = RingSet("burst", folders=[tmp_path])
    for at in range(20_000):
        rings.put(fact(at, message=f"episode {at} ended with a return of {at / 7}"))
    assert rings.account().dropped == {}
    items = drain_until(RingSource(rings.path), lambda items: len(items) >= 20_000)
    assert [item.content.at for item in items if isinstance(item.content, LogLine)] == list(range(20_000))
    check(rings, items)
    rings.close(0.0)


def test_a_helper_that_dies_is_replaced(rings: RingSet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that runs out in the helper costs no fact; another helper sends what is held."""
    settled, failures = rings._settled, iter([True, True])

    def failing() -> bool:
        if next(failures, False):
            raise MemoryError
        return settled()

    monkeypatch.setattr(rings, "_settled", failing)
    for at in range(300):
        rings.put(fact(at))
    items = drain_until(RingSource(rings.path), lambda items: len(items) >= 300)
    assert [item.content for item in items] == [fact(at) for at in range(300)]
    assert not any(failures)


def test_a_signal_handler_may_speak_in_the_middle_of_a_record(rings: RingSet) -> None:
    """Facts of a handler that interrupts the same thread anywhere are neither lost nor do they harm."""
    stated = 0

    def speak(_number: int, _frame: FrameType | None) -> None:
        nonlocal stated
        stated += 1
        rings.put(fact(stated, subsystem="handler"))

    source = RingSource(rings.path)
    before = signal.signal(signal.SIGALRM, speak)
    items: list[Item] = []
    own = 0
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        deadline = time.monotonic() + DEADLINE_S
        while stated < 200:
            assert time.monotonic() < deadline
            own += 1
            rings.put(fact(own))
            items += drain(source)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    items += drain_until(source, lambda _: rings.account().waiting == 0) + drain(source)
    speakers = [item.content for item in items if isinstance(item.content, LogLine)]
    assert sorted(line.at for line in speakers if line.subsystem == "handler") == list(range(1, stated + 1))
    assert [line.at for line in speakers if line.subsystem == "trainer"] == list(range(1, own + 1))
    check(rings, items)


class _InterruptError(BaseException):
    """As KeyboardInterrupt, but only ours."""


def test_an_interruption_anywhere_leaves_the_rings_sound(rings: RingSet) -> None:
    """An exception thrown into any place of `put` costs at most that record; none is read twice."""
    source = RingSource(rings.path)

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise _InterruptError

    before = signal.signal(signal.SIGALRM, interrupt)
    items: list[Item] = []
    thrown = at = 0
    deadline = time.monotonic() + DEADLINE_S
    try:
        while thrown < 300:
            assert time.monotonic() < deadline
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0001)
                while True:
                    at += 1
                    rings.put(update(at) if at % 2 else fact(at))
            except _InterruptError:
                thrown += 1
            items += drain(source)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    rings.put(fact(at + 1))
    items += drain_until(source, lambda _: rings.account().waiting == 0) + drain(source)
    times = [item.content.at for item in items if isinstance(item.content, LogLine)]
    assert len(set(times)) == len(times)
    assert times[-1] == at + 1
    assert source.malformed == 0
    check(rings, items)


def test_many_threads_lose_nothing(make_rings: MakeRings) -> None:
    """Sixteen threads speak at once; each one's facts arrive once."""
    rings = make_rings(
        RingLimits(numbers_bytes=64 << 10, facts_bytes=64 << 10, forms_bytes=0, backlog_bytes=4 << 20)
    )
    source = RingSource(rings.path)

    def speak(name: str) -> None:
        for at in range(500):
            rings.put(fact(at, subsystem=name))
            rings.put(update(at))

    threads = [threading.Thread(target=speak, args=(f"t{i}",)) for i in range(16)]
    for thread in threads:
        thread.start()
    items = drain_until(source, lambda items: sum(item.count for item in items) >= 16_000)
    for thread in threads:
        thread.join()
    for name in (f"t{i}" for i in range(16)):
        stated = [
            i.content.at for i in items if isinstance(i.content, LogLine) and i.content.subsystem == name
        ]
        assert sorted(stated) == list(range(500))
    assert rings.account().dropped == {}
    check(rings, items)


def test_a_forked_child_writes_nothing(rings: RingSet) -> None:
    """After `abandon` the child's calls are harmless and the parent's rings are its own."""
    rings.put(fact(1))
    child = os.fork()
    if child == 0:
        rings.abandon()
        for at in range(100, 200):
            rings.put(fact(at))
            rings.put(update(at))
            rings.count_drop("invalid")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    rings.put(fact(2))
    items = drain(RingSource(rings.path))
    assert [item.content for item in items] == [fact(1), fact(2)]
    check(rings, items)


def test_closing_sends_what_the_reader_takes_in_time(rings: RingSet) -> None:
    """While the reader reads, the backlog follows."""
    for at in range(300):
        rings.put(fact(at))
        rings.put(update(at))
    source = RingSource(rings.path)
    items: list[Item] = []
    closing = threading.Thread(target=rings.close, args=(DEADLINE_S,))
    closing.start()
    deadline = time.monotonic() + DEADLINE_S
    while closing.is_alive():
        assert time.monotonic() < deadline
        items += drain(source)
    closing.join()
    items += drain(source)
    assert sum(item.count for item in items) == 600
    assert source.dropped() == {}


def test_closing_without_a_reader_counts_the_rest(rings: RingSet) -> None:
    """What found no room until the end is not sent, and is in the report and in the file."""
    for at in range(500):
        rings.put(fact(at))
        rings.put(update(at))
    account = rings.close(0.0)
    source = RingSource(rings.path)
    items = drain(source)
    assert account.accepted == 1000
    assert account.waiting == 0
    assert account.published == sum(item.count for item in items)
    assert source.dropped()["not_sent"] + account.dropped.get("backlog_full", 0) == 1000 - account.published
    assert source.waiting == 0
    assert source.unsaid == 0


def test_speaking_after_the_end_is_harmless(rings: RingSet) -> None:
    """Calls after `close` do nothing; the account stays as it was, also when closed again."""
    rings.put(fact(1))
    account = rings.close(0.0)
    rings.put(fact(2))
    rings.put(update(2))
    rings.count_drop("invalid")
    assert rings.account() == rings.close(0.0) == account


def test_a_name_cannot_leave_its_folder(tmp_path: Path) -> None:
    """A name with a slash is a mistake of the caller."""
    with pytest.raises(ValueError, match="one part of a path"):
        RingSet("../x", folders=[tmp_path])


def test_a_second_set_of_the_same_name_is_refused(rings: RingSet) -> None:
    """Names are new; the existing rings are untouched."""
    rings.put(fact(1))
    with pytest.raises(FileExistsError):
        RingSet(rings.path.name, folders=[rings.path.parent])
    assert [item.content for item in drain(RingSource(rings.path))] == [fact(1)]


def test_the_next_folder_is_taken_when_the_first_has_no_room(tmp_path: Path) -> None:
    """A folder that is missing, or that others can write to, is passed over."""
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    rings = RingSet("a", folders=[tmp_path / "no" / "such", open_to_all, tmp_path / "own"])
    assert rings.path.parent == tmp_path / "own"
    assert (tmp_path / "own").stat().st_mode & 0o077 == 0
    rings.unlink()
    assert list((tmp_path / "own").iterdir()) == []
    rings.close(0.0)


def test_memory_is_the_first_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rings lie in shared memory where there is any, else in a folder of this user."""
    monkeypatch.delenv("OVERWATCH_RING_DIR")
    first, second = places()
    assert first == Path("/dev/shm")
    assert str(os.geteuid()) in second.name


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A real filesystem of one mebibyte."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting a filesystem needs privileges that this machine does not give")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_filesystem_is_an_error_at_the_start(tiny: Path, tmp_path: Path) -> None:
    """Six mebibytes do not fit into one: `OSError`, nothing left behind; the next folder is taken."""
    with pytest.raises(OSError, match="space") as caught:
        RingSet("a", folders=[tiny])
    assert caught.value.errno == errno.ENOSPC
    assert list(tiny.iterdir()) == []
    rings = RingSet("a", folders=[tiny, tmp_path / "next"])
    assert part_of(rings.path, NUMBERS).exists()
    assert part_of(rings.path, FACTS).exists()
    rings.close(0.0)


def test_a_filesystem_that_fills_up_later_does_no_harm(tiny: Path) -> None:
    """The room is taken at the start, so a ring can be filled when there is none left."""
    limits = RingLimits(numbers_bytes=128 << 10, facts_bytes=128 << 10, forms_bytes=0)
    rings = RingSet("a", limits, folders=[tiny])
    free = os.statvfs(tiny).f_bavail * os.statvfs(tiny).f_frsize
    (tiny / "rest").write_bytes(bytes(free))
    with pytest.raises(OSError, match="space"):
        (tiny / "more").write_bytes(bytes(4096))
    for at in range(2000):
        rings.put(fact(at))
    source = RingSource(rings.path)
    assert len(drain_until(source, lambda items: len(items) >= 2000)) == 2000
    source.close()
    rings.close(0.0)


def test_the_environment_may_name_the_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """For a machine whose memory is not to be used."""
    monkeypatch.setenv("OVERWATCH_RING_DIR", str(tmp_path / "own"))
    rings = RingSet("named")
    assert rings.path == tmp_path / "own" / "named"
    rings.close(0.0)
