"""The journal on disk: order, restarts, what an acknowledgement is worth, full and failing disks."""

import errno
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count, pairwise
from pathlib import Path

import pytest

from overwatch.journal import (
    Batch,
    Durability,
    DurableJournal,
    Folder,
    JournalFullError,
    JournalLimits,
    Lag,
    LogVersionError,
    Made,
    Place,
    Signal,
)
from overwatch.journal.reading import PENDING_BYTES
from tests.overwatch.journal.faults import Fault, FaultyFiles

SMALL = JournalLimits(segment_bytes=2048, held_bytes=1 << 20, disk_bytes=1 << 20)


class Opened:
    """A journal and its folder."""

    def __init__(
        self,
        path: Path,
        *,
        fault: Fault | None = None,
        limits: JournalLimits = SMALL,
        now: Callable[[], int] = time.time_ns,
    ) -> None:
        self.stated: list[str | None] = []
        self.folder = Folder(path, lambda fd: FaultyFiles(fd, fault or Fault()))
        self.journal = DurableJournal(self.folder, now, limits, report=self.stated.append)

    def __enter__(self) -> DurableJournal:
        return self.journal

    def __exit__(self, *_: object) -> None:
        self.journal.close()
        self.folder.close()


def bodies(batches: list[Batch]) -> list[bytes]:
    """What the batches hold."""
    return [batch.body for batch in batches]


def fill(journal: DurableJournal, first: int, last: int, size: int = 100) -> list[bytes]:
    """Append numbered bodies."""
    made = [f"{number} ".encode().ljust(size, b".") for number in range(first, last)]
    for body in made:
        journal.append(Signal.LOGS, body)
    return made


def test_what_was_accepted_is_read_in_order_and_again_by_the_next_life(tmp_path: Path) -> None:
    """Bodies, signals, numbers and stamps are the same after a restart, from wherever a reader was."""
    with Opened(tmp_path / "j", now=count(1000, 10).__next__) as journal:
        cursor = journal.cursor("a", 1)
        sent = fill(journal, 0, 60)
        journal.append(Signal.METRICS, b"")
        first = cursor.wait(0)
    assert bodies(first) == [*sent, b""]
    assert all(earlier.stamp < later.stamp for earlier, later in pairwise(first))

    with Opened(tmp_path / "j", now=count(5).__next__) as journal:
        again = journal.cursor("a", 31)
        assert list(again.earlier()) == first[30:]
        assert journal.append(Signal.LOGS, b"new").stamp > first[-1].stamp
        assert bodies(again.wait(0)) == [b"new"]
        assert journal.opened_at == 62


def test_batches_that_are_gone_before_a_reader_comes_are_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A reader whose place is before the oldest file missed what was between; a new one missed nothing."""
    with Opened(tmp_path / "j") as journal:
        fill(journal, 0, 6)
        journal.place("a").save(Place(position=7))
    for segment in (tmp_path / "j").glob("journal-*"):
        segment.unlink()
    with Opened(tmp_path / "j") as journal:
        fill(journal, 6, 8)
        late, new = journal.cursor("late", 3), journal.cursor("new", 0)

        assert (
            bodies(late.wait(0)) == bodies(new.wait(0)) == [f"{n} ".encode().ljust(100, b".") for n in (6, 7)]
        )
    assert (late.lost, new.lost) == (4, 0)
    assert "reader late passes over 4 batches" in caplog.text


def test_requests_that_come_together_are_synced_together(tmp_path: Path) -> None:
    """While one sync is under way the others gather, so that many senders share the next one."""
    fault = Fault()
    with Opened(tmp_path / "j", fault=fault) as journal, ThreadPoolExecutor(16) as senders:
        cursor = journal.cursor("a", 1)
        before = fault.calls
        list(senders.map(lambda n: journal.append(Signal.LOGS, bytes([n % 250])), range(400)))
        assert len(cursor.wait(0)) == 400
        assert fault.calls - before < 800


def test_stamps_rise_over_a_restart_with_a_clock_that_went_back(tmp_path: Path) -> None:
    """Neither a batch nor a sealed tick of the life before is overtaken."""
    with Opened(tmp_path / "j", now=lambda: 500) as journal:
        journal.append(Signal.LOGS, b"1")
    folder = Folder(tmp_path / "j")
    journal = DurableJournal(folder, lambda: 3, SMALL, floor=(1, 900))
    assert journal.append(Signal.LOGS, b"2").stamp == 901
    journal.close()
    folder.close()


def test_a_sealed_tick_gets_no_later_batch_while_others_write(tmp_path: Path) -> None:
    """Whatever is stamped at or before a tick is in what sealing it returns, under load too."""
    with Opened(tmp_path / "j") as journal:
        cursor = journal.cursor("a", 1)
        stop = threading.Event()

        def send() -> int:
            sent = 0
            while not stop.is_set():
                journal.append(Signal.LOGS, b"x" * 50)
                sent += 1
            return sent

        with ThreadPoolExecutor(4) as senders:
            sending = [senders.submit(send) for _ in range(4)]
            taken: list[Batch] = []
            for _ in range(50):
                tick = time.time_ns()
                batches = cursor.seal(tick)
                assert all(batch.stamp <= tick for batch in batches)
                assert not taken or not batches or taken[-1].stamp < batches[0].stamp
                taken += batches
            stop.set()
            total = sum(sent.result() for sent in sending)
        taken += cursor.wait(0)
        assert [batch.sequence for batch in taken] == list(range(1, total + 1))


def test_a_reader_that_falls_behind_reads_from_the_files_and_catches_up(tmp_path: Path) -> None:
    """More than memory may hold is kept on disk, given in pieces, and nothing is missed or doubled."""
    roomy = JournalLimits(segment_bytes=4 << 20, held_bytes=1 << 30)
    with Opened(tmp_path / "j", limits=roomy) as journal:
        slow, quick = journal.cursor("slow", 1), journal.cursor("quick")
        size = PENDING_BYTES // 20
        got: list[int] = []
        for _ in range(50):
            journal.append(Signal.LOGS, bytes(size))
            assert len(quick.wait(0)) == 1
        assert journal.held_bytes == 50 * size
        while batches := slow.wait(0):
            got += [batch.sequence for batch in batches]
        journal.append(Signal.LOGS, b"after")
        got += [batch.sequence for batch in slow.wait(0)]
        assert got == list(range(1, 52))
        assert len(quick.wait(0)) == 1
        assert journal.held_bytes == 0
        assert slow.lost == 0


def test_a_reader_that_fell_behind_reads_from_memory_again_while_more_comes(tmp_path: Path) -> None:
    """It need not wait for a pause: what memory has is not read from the files; order and count hold."""
    roomy = JournalLimits(segment_bytes=4 << 20, held_bytes=1 << 30)
    with Opened(tmp_path / "j", limits=roomy) as journal:
        cursor = journal.cursor("fold", made=True)
        made = Made(what="report", cost=1)
        size = PENDING_BYTES // 20
        sent = [journal.submit(Signal.LOGS, bytes(size), 1, made).result() for _ in range(50)]
        got = cursor.seal(sent[-2].stamp)
        # Only who reads from memory has what was made of a batch.
        assert got[0].made is None
        for _ in range(5):
            sent += [journal.submit(Signal.LOGS, b"more", 1, made).result() for _ in range(3)]
            newest = cursor.seal(sent[-2].stamp)
            assert [batch.made for batch in newest] == [made] * 3
            got += newest
        got += cursor.wait(0)
        assert [batch.sequence for batch in got] == [batch.sequence for batch in sent]
        assert {batch.items for batch in got} == {1}
        assert journal.held_bytes == cursor.lost == 0


def test_what_was_made_of_a_body_is_for_who_takes_it(tmp_path: Path) -> None:
    """Instead of the body where that will do, so that more can wait in memory; others get the body."""
    roomy = JournalLimits(segment_bytes=4 << 20, held_bytes=1 << 30)
    with Opened(tmp_path / "j", limits=roomy) as journal:
        fold, file = journal.cursor("fold", made=True), journal.cursor("file")
        beside, instead = Made(what="beside", cost=8), Made(what="instead", cost=8, instead=True)
        large = bytes(PENDING_BYTES // 2)
        for body, made in ((b"body", beside), *[(large, instead)] * 4):
            journal.submit(Signal.LOGS, body, 1, made).result()
        assert journal.backlog == {"fold": 4 + 4 * len(large), "file": 4 + 4 * len(large)}
        first, *rest = fold.seal(time.time_ns())
        assert (first.body, first.made, first.size) == (b"body", beside, 4)
        assert [(batch.body, batch.made, batch.size) for batch in rest] == [(b"", instead, len(large))] * 4
        taken = file.seal(time.time_ns())
        assert not any(batch.made for batch in taken)
        assert bodies(taken) == [b"body", *[large] * 4]
        assert journal.backlog == {"fold": 0, "file": 0}


def test_files_go_once_every_reader_let_go_of_them(tmp_path: Path) -> None:
    """A reader that must find its batches again after a restart holds them until it states it."""
    with Opened(tmp_path / "j") as journal:
        keeping, passing = journal.cursor("keeping", 1), journal.cursor("passing")
        fill(journal, 0, 100)
        keeping.wait(0)
        passing.wait(0)
        assert journal.first_sequence == 1
        keeping.keep(50)
        until(lambda: 30 < journal.first_sequence <= 50)
        size = journal.disk_bytes
        keeping.keep(101)
        until(lambda: journal.disk_bytes < size)


def test_a_reader_presses_by_what_it_has_not_read_or_not_let_go_of(tmp_path: Path) -> None:
    """The shares of the room for what waits and of the disk are those of the reader's own batches."""
    limits = JournalLimits(segment_bytes=2048, held_bytes=4000, disk_bytes=16 << 10)
    with Opened(tmp_path / "j", limits=limits) as journal:
        quick, keeper = journal.cursor("quick"), journal.cursor("keeper", 1)
        fill(journal, 0, 30)
        assert journal.lag("keeper").batches == 30
        assert journal.lag("keeper").unread == 3000 / 4000
        quick.wait(0)
        keeper.wait(0)
        assert journal.lag("keeper").unread == 0
        for first in range(30, 90, 10):
            fill(journal, first, first + 10)
            quick.wait(0)
            keeper.wait(0)
        assert journal.lag("keeper").kept == journal.disk_bytes / (16 << 10) > 0.5
        assert journal.lag("quick").kept <= 2048 / (16 << 10)
        keeper.keep(keeper.position)
        assert journal.lag("keeper").kept == journal.lag("quick").kept
        assert journal.lag("nobody") == Lag()


def until(look: Callable[[], bool]) -> None:
    """Wait for what another thread does."""
    deadline = time.monotonic() + 10
    while not look():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_full_journal_refuses_until_there_is_room(tmp_path: Path) -> None:
    """Beyond what readers may leave waiting, and beyond the disk's share, batches are refused."""
    limits = JournalLimits(segment_bytes=1024, held_bytes=4096, disk_bytes=6000)
    with Opened(tmp_path / "j", limits=limits) as journal:
        cursor = journal.cursor("a", 1)
        fill(journal, 0, 4, size=1000)
        with pytest.raises(JournalFullError, match="a body of 1000 bytes does not fit"):
            fill(journal, 4, 5, size=1000)
        assert len(cursor.wait(0)) == 4
        fill(journal, 4, 5, size=1000)
        cursor.wait(0)
        with pytest.raises(JournalFullError, match="on disk that readers or the next start need"):
            fill(journal, 5, 6, size=1000)
        cursor.keep(6)
        until(lambda: journal.disk_bytes < 3000)
        fill(journal, 5, 6, size=1000)


def test_a_full_disk_refuses_and_takes_again_when_there_is_room(tmp_path: Path) -> None:
    """What was accepted stays readable, what was refused is never seen, and no one has to help."""
    fault = Fault()
    opened = Opened(tmp_path / "j", fault=fault)
    with opened as journal:
        cursor = journal.cursor("a", 1)
        sent = fill(journal, 0, 10)
        fault.room = 50
        for _ in range(3):
            with pytest.raises(JournalFullError, match="disk refuses"):
                journal.append(Signal.LOGS, b"refused" * 10)
        assert "No space left" in str(opened.stated[-1])
        assert bodies(cursor.wait(0)) == sent
        fault.room = None
        sent += fill(journal, 10, 20)
        assert opened.stated[-1] is None
        assert bodies(cursor.wait(0)) == sent[10:]
    with Opened(tmp_path / "j") as journal:
        assert bodies(list(journal.cursor("a", 1).earlier())) == sent


def test_a_disk_that_does_not_answer_refuses_what_comes_and_is_asked_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once that lasts; what was taken in before is kept, and all is well as soon as the disk answers."""
    fault = Fault()
    with Opened(tmp_path / "j", fault=fault) as journal:
        cursor = journal.cursor("a", 1)
        fault.stalled = {"sync"}
        under_way, waiting = (journal.submit(Signal.LOGS, body) for body in (b"one", b"two"))
        assert journal.problem is None
        monkeypatch.setattr("overwatch.journal.durable._STALLED_S", 0.0)
        until(lambda: journal.problem is not None)
        with pytest.raises(JournalFullError, match="disk has not answered for 0 s"):
            journal.submit(Signal.LOGS, b"three")
        assert not under_way.done()
        fault.answers.set()
        assert [under_way.result(10).sequence, waiting.result(10).sequence] == [1, 2]
        until(lambda: journal.problem is None)
        journal.append(Signal.LOGS, b"four")
        assert bodies(cursor.wait(0)) == [b"one", b"two", b"four"]


def test_how_far_a_reader_is_behind_is_known_while_a_write_does_not_end(tmp_path: Path) -> None:
    """The pages of metrics ask for it, in no time."""
    fault = Fault()
    with Opened(tmp_path / "j", fault=fault) as journal, ThreadPoolExecutor() as threads:
        journal.cursor("a", 1)
        fill(journal, 0, 60)
        fault.stalled = {"write"}
        journal.submit(Signal.LOGS, b"held")
        try:
            until(lambda: journal.pace.waiting_s > 0)
            assert threads.submit(journal.lag, "a").result(10).batches == 60
        finally:
            fault.answers.set()


def test_a_failed_sync_acknowledges_nothing_and_is_not_repeated(tmp_path: Path) -> None:
    """A sender has to come back, readers never see the batch, and later ones are durable."""
    fault = Fault(error=errno.EIO)
    with Opened(tmp_path / "j", fault=fault) as journal:
        live = journal.cursor("live", 1)
        fill(journal, 0, 1)
        fault.refused = {"sync"}
        with pytest.raises(JournalFullError, match="in doubt"):
            journal.append(Signal.LOGS, b"doubtful")
        fault.refused = set()
        fill(journal, 1, 2)
        assert [batch.sequence for batch in live.wait(0)] == [1, 3]
        assert [batch.sequence for batch in journal.cursor("late", 1).wait(0)] == [1, 3]
        assert live.wait(0) == []


def test_a_start_is_accepted_on_a_full_disk_and_written_before_the_next_batch(tmp_path: Path) -> None:
    """A collector starts without room, and the order on disk is that which readers saw."""
    fault = Fault(room=0)
    with Opened(tmp_path / "j", fault=fault) as journal:
        cursor = journal.cursor("a", 1)
        start = journal.append(Signal.START, b"{}")
        with pytest.raises(JournalFullError):
            journal.append(Signal.LOGS, b"x")
        assert cursor.wait(0) == [start]
        fault.room = None
        batch = journal.append(Signal.LOGS, b"x")
        assert cursor.wait(0) == [batch]
    with Opened(tmp_path / "j") as journal:
        assert list(journal.cursor("a", 1).earlier()) == [start, batch]


def test_a_number_that_a_reader_has_seen_is_never_used_again(tmp_path: Path) -> None:
    """Where files are lost, numbers go on after every place that a reader kept."""
    with Opened(tmp_path / "j") as journal:
        fill(journal, 0, 5)
        journal.place("a").save(Place(position=6))
    for file in (tmp_path / "j").glob("*.ow1"):
        file.unlink()
    with Opened(tmp_path / "j") as journal:
        assert journal.append(Signal.LOGS, b"x").sequence == 6


@pytest.mark.parametrize("durability", Durability)
def test_power_loss_costs_no_acknowledged_batch_but_what_fast_allows(
    tmp_path: Path, durability: Durability
) -> None:
    """In 200 lives that end so, all that `fsync` acknowledged comes back, once, unaltered, in order."""
    limits = JournalLimits(segment_bytes=1024, durability=durability)
    kept: list[bytes] = []
    lost = 0
    for life in range(200):
        on_disk = {file.name: file.stat().st_size for file in (tmp_path / "j").glob("*.ow1")}
        fault = Fault(sizes=dict(on_disk), ends=dict(on_disk))
        opened = Opened(tmp_path / "j", fault=fault, limits=limits)
        found = bodies(list(opened.journal.cursor("a", 1).earlier()))
        assert found == kept[: len(found)]
        lost += len(kept) - len(found)
        kept = found + fill(opened.journal, life * 10, life * 10 + life % 5 + 1)
        if life % 2 and durability is Durability.FSYNC:
            # Power goes while a batch is on its way.
            fault.refused = {"sync"}
            with pytest.raises(JournalFullError):
                opened.journal.append(Signal.LOGS, b"unacknowledged")
        fault.refused = {"sync"}
        opened.journal.close()
        fault.lose_power(tmp_path / "j")
        opened.folder.close()
    assert (lost == 0) == (durability is Durability.FSYNC)
    assert len(kept) > 0 or durability is Durability.FAST


def test_a_folder_of_layout_1_is_read(tmp_path: Path) -> None:
    """Files that the first version wrote are read by every later one, with the place of their reader."""
    shutil.copytree(Path(__file__).parent / "v1", tmp_path / "j")
    signals = (Signal.LOGS, Signal.METRICS, Signal.TRACES)
    with Opened(tmp_path / "j") as journal:
        start, *rest = journal.cursor("a", 1).earlier()
        assert (start.sequence, start.stamp, start.signal) == (1, 1_700_000_000_000_000_000, Signal.START)
        assert start.body.startswith(b'{"version":')
        assert [batch.sequence for batch in rest] == list(range(2, 11))
        assert [batch.signal for batch in rest] == [signals[batch.sequence % 3] for batch in rest]
        assert bodies(rest) == [b"body %d" % batch.sequence for batch in rest]
        place = journal.place("otlp_file").place
        assert place == Place(position=6, note=b'{"folder":"otlp","marks":{}}')
        assert journal.append(Signal.LOGS, b"new").sequence == 11


def test_a_folder_of_a_newer_layout_is_refused_unharmed(tmp_path: Path) -> None:
    """After a downgrade the journal states it, and the newer version finds all that it had."""
    with Opened(tmp_path / "j") as journal:
        fill(journal, 0, 3)
    (file,) = (tmp_path / "j").glob("*.ow1")
    newer = file.rename(file.with_suffix(".ow2"))
    data = newer.read_bytes()
    folder = Folder(tmp_path / "j")
    with pytest.raises(LogVersionError, match="newer version"):
        DurableJournal(folder, time.time_ns)
    folder.close()
    assert newer.read_bytes() == data
