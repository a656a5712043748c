"""Who is in no hurry works between requests, and is never put off for good."""

import asyncio
import threading
import time
from concurrent.futures import Future

import pytest

from overwatch.collector.calm import SHARE, Calm, Patience
from overwatch.collector.intake import Body, Intake
from overwatch.collector.tally import Tally
from overwatch.journal import Batch, Made, MemoryJournal, Signal
from tests.overwatch.collector.running import run_started, told


class NeverCalm(Calm):
    """Doors that are always at work, on a clock that stands but for rests and work."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def wait(self, most_s: float) -> None:
        """Wait to the end."""
        self.now += most_s


def test_a_calm_moment_is_taken_at_once() -> None:
    """Where nobody waits for a door, nobody rests: every rest is over before it began."""
    calm = Calm()
    with calm.disturbed():
        pass
    patience = Patience(calm)
    assert sum(patience.rest() for _ in range(100)) < 1.0


def test_a_request_is_waited_for_until_it_is_in() -> None:
    """Of several at once the last one ends the rest."""
    calm, resting, woke = Calm(), threading.Event(), threading.Event()

    def rest() -> None:
        resting.set()
        calm.wait(30)
        woke.set()

    with calm.disturbed():
        with calm.disturbed():
            thread = threading.Thread(target=rest)
            thread.start()
            assert resting.wait(10)
        assert not woke.is_set()
    assert woke.wait(10)
    thread.join()


def test_doors_that_are_never_calm_put_off_nobody_for_good() -> None:
    """Of its time nobody rests more than a share, after a long idleness no more than a moment besides."""
    doors = NeverCalm()
    patience = Patience(doors, lambda: doors.now)
    doors.now = 3600.0
    rested = 0.0
    for _ in range(1000):
        rested += patience.rest()
        doors.now += 0.002
    assert 0.5 * SHARE * 2.0 < rested <= SHARE * (doors.now - 3600.0) + 0.05


def test_a_request_that_fails_leaves_the_doors_calm() -> None:
    """An error on the way in is an end, too."""
    calm = Calm()
    with pytest.raises(ZeroDivisionError), calm.disturbed():
        _ = 1 / 0
    began = time.monotonic()
    calm.wait(30)
    assert time.monotonic() - began < 10


class SlowJournal(MemoryJournal):
    """A journal whose disk takes its time."""

    def __init__(self) -> None:
        super().__init__(time.time_ns)
        self.writing: list[tuple[Future[Batch], Batch]] = []

    def submit(
        self, signal: Signal, body: bytes, items: int | None = None, made: Made | None = None
    ) -> Future[Batch]:
        """Taken, and written once `write` is called."""
        done: Future[Batch] = Future()
        self.writing.append((done, super().submit(signal, body, items, made).result()))
        return done

    def write(self) -> None:
        """What was taken is on the disk."""
        for done, batch in self.writing:
            done.set_result(batch)
        self.writing.clear()


def test_a_request_is_not_in_before_it_is_written() -> None:
    """Who is in no hurry rests while a small body is on its way to the disk, and works once it is there."""
    journal = SlowJournal()
    intake = Intake(journal, Tally())
    intake.open()
    moment = 0.01

    async def rested() -> list[bool]:
        body = Body(signal=Signal.LOGS, data=told("run", [run_started()]), transport="http")
        asking = asyncio.create_task(intake.take(body))
        for _ in range(20):
            await asyncio.sleep(0)
        assert journal.writing
        found = [_waits(intake.calm, moment)]
        journal.write()
        await asking
        return [*found, _waits(intake.calm, moment)]

    assert asyncio.run(rested()) == [True, False]
    intake.close()


def _waits(calm: Calm, moment: float) -> bool:
    """Whether a rest takes so long as it may."""
    began = time.monotonic()
    calm.wait(moment)
    return time.monotonic() - began >= moment
