"""Group commit by itself: one sync for what waits together, a refusing disk, an owner that fails."""

import errno
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from overwatch.journal import Durability, Folder, GroupCommit, Log
from tests.overwatch.collector.running import eventually
from tests.overwatch.journal.faults import Fault, FaultyFiles


class Words:
    """Writes words, and notes what became of each."""

    def __init__(self) -> None:
        self.settled: list[tuple[str, Exception | None]] = []
        self.groups: list[int] = []
        self.changed = threading.Condition()
        self.held = threading.Event()
        """Cleared while the thread is kept from writing."""
        self.held.set()
        self.commit: GroupCommit[str]

    def begin(self, group: Sequence[str]) -> None:
        """Wait until it may write."""
        assert self.held.wait(10)
        if group:
            self.groups.append(len(group))

    def write(self, item: str) -> None:
        """One record a word."""
        if item == "mistake":
            raise KeyError(item)
        self.commit.append(1, 0, item.encode())

    def settle(self, group: Sequence[tuple[str, Exception | None]], doubt: Exception | None) -> None:
        """Note it."""
        assert doubt is None or all(error is not None for _, error in group)
        with self.changed:
            self.settled += group
            self.changed.notify_all()

    def needed(self) -> int:
        """All of it."""
        return 1

    def wait(self, look: Callable[[], bool]) -> None:
        """Until the thread came so far."""
        with self.changed:
            assert self.changed.wait_for(look, 10)

    def kept(self) -> list[str]:
        """What was acknowledged."""
        return [word for word, error in self.settled if error is None]


@contextmanager
def opened(
    path: Path, fault: Fault, stated: list[str | None], durability: Durability = Durability.FSYNC
) -> Iterator[tuple[Words, Log]]:
    """A log behind a fault, and who writes to it."""
    folder = Folder(path, lambda fd: FaultyFiles(fd, fault))
    log = Log(folder, "words")
    words = Words()

    def report(text: str | None) -> None:
        with words.changed:
            stated.append(text)
            words.changed.notify_all()

    words.commit = GroupCommit(log, words, durability, report)
    words.commit.start()
    yield words, log
    words.commit.close()
    log.close()
    folder.close()


def payloads(log: Log) -> list[str]:
    """What lies in the log."""
    return [record.payload.decode() for record in log.read()]


def test_what_waits_together_is_synced_once_and_settled_in_order(tmp_path: Path) -> None:
    """Two syncs, of the file and of its name, for a hundred items that came while one was written."""
    fault = Fault()
    with opened(tmp_path / "j", fault, []) as (words, log):
        words.commit.submit("first")
        words.wait(lambda: words.kept() == ["first"])
        words.held.clear()
        words.commit.submit("held")
        before = fault.calls
        for number in range(100):
            words.commit.submit(str(number))
        words.held.set()
        words.wait(lambda: len(words.settled) == 102)
        assert sum(words.groups) == 102
        assert len(words.groups) <= 4
        assert fault.calls - before == 101 + len(words.groups) - 1
        assert words.kept() == payloads(log) == ["first", "held", *(str(number) for number in range(100))]


def test_a_refused_item_has_its_error_and_the_disk_is_tried_again(tmp_path: Path) -> None:
    """Without another item the refusal ends once there is room, and that is reported."""
    fault, stated = Fault(), []
    with opened(tmp_path / "j", fault, stated) as (words, log):
        words.commit.submit("kept")
        words.wait(lambda: stated == [None])
        fault.room = 0
        words.commit.submit("refused")
        words.wait(lambda: len(stated) == 2)
        assert words.commit.refusal is not None
        assert isinstance(words.settled[1][1], OSError)
        assert words.settled[1][1].errno == errno.ENOSPC
        fault.room = None
        words.wait(lambda: stated[-1] is None)
        assert words.commit.refusal is None
        assert payloads(log) == ["kept"]


@pytest.mark.parametrize("durability", Durability)
def test_a_failed_sync_refuses_all_of_it_but_in_fast(tmp_path: Path, durability: Durability) -> None:
    """What `fast` acknowledges survives the process only, which it does."""
    fault, stated = Fault(refused={"sync"}), []
    with opened(tmp_path / "j", fault, stated, durability) as (words, _):
        words.commit.submit("doubtful")
        words.wait(lambda: bool(words.settled))
        assert (words.kept() == ["doubtful"]) == (durability is Durability.FAST)
        words.wait(lambda: any(text and "in doubt" in text for text in stated))
        fault.refused = set()


def test_an_owner_that_fails_blocks_no_caller(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The group of the mistake is refused, the log names it, and the thread goes on."""
    with opened(tmp_path / "j", Fault(), []) as (words, _):
        words.commit.submit("mistake")
        words.wait(lambda: bool(words.settled))
        assert isinstance(words.settled[0][1], KeyError)
        words.commit.submit("after")
        words.wait(lambda: words.kept() == ["after"])
        assert words.commit.is_running
    assert "could not write" in caplog.text


def test_the_time_of_the_disk_is_known_and_a_slow_one_is_logged_now_and_then(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a commit is under way and after it; of seven slow ones three are logged."""
    monkeypatch.setattr("overwatch.journal.commits._SLOW_S", 0.0)
    with opened(tmp_path / "j", Fault(), []) as (words, _):
        assert words.commit.pace == (0, 0.0, 0.0)
        words.held.clear()
        words.commit.submit("held")
        eventually(lambda: words.commit.pace.waiting_s > 0)
        before = words.commit.pace.waiting_s
        eventually(lambda: words.commit.pace.waiting_s > before)
        words.held.set()
        for number in range(7):
            eventually(lambda done=number + 1: words.commit.pace.commits == done)
            assert words.commit.pace.waiting_s == 0.0
            assert words.commit.pace.took_s > before
            if number < 6:
                words.commit.submit(str(number))
    assert caplog.text.count("the disk is slow") == 3


def test_closing_settles_what_waits(tmp_path: Path) -> None:
    """Whoever submitted before the end has an answer."""
    with opened(tmp_path / "j", Fault(), []) as (words, _):
        words.held.clear()
        for number in range(10):
            words.commit.submit(str(number))
        words.held.set()
    assert words.kept() == [str(number) for number in range(10)]
    assert not words.commit.is_running
