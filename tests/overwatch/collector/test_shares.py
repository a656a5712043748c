"""Who is told to come back while the fold has too much to do: who sends most, and nobody else."""

import asyncio
import time

import pytest

from overwatch.collector.intake import Body, Intake, Reason, RefusedError
from overwatch.collector.limits import LimitsConfig
from overwatch.collector.shares import FoldPace, Shares
from overwatch.collector.tally import Tally
from overwatch.journal import MemoryJournal, Signal
from tests.overwatch.collector.running import run_started, told

MIB = 1 << 20


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.at


def test_who_sends_more_than_the_mean_is_large() -> None:
    """A flood is, the ten that send little are not; who is alone is."""
    shares = Shares(Clock())
    shares.spend("flood", 1000)
    assert shares.is_large("flood")
    for number in range(10):
        shares.spend(f"good-{number}", 50)
    assert shares.is_large("flood")
    assert not any(shares.is_large(f"good-{number}") for number in range(10))
    assert not shares.is_large("new")


def test_who_sends_much_crowds_others_if_there_are_any() -> None:
    """A flood does, beside one that sends little; who is alone crowds nobody."""
    shares = Shares(Clock())
    shares.spend("flood", 1000)
    assert not shares.crowds("flood")
    shares.spend("good", 50)
    assert shares.crowds("flood")
    assert not shares.crowds("good")


def test_what_was_sent_long_ago_is_forgotten() -> None:
    """After some seconds a share begins anew."""
    clock = Clock()
    shares = Shares(clock)
    shares.spend("flood", 1000)
    clock.at = 2.5
    shares.spend("good", 10)
    assert shares.is_large("flood")
    clock.at = 7.0
    assert not shares.is_large("flood")


def test_peers_beyond_those_that_are_told_apart_are_one() -> None:
    """A flood of addresses costs bounded memory, and is large together."""
    shares = Shares(Clock())
    for number in range(10_000):
        shares.spend(f"peer-{number}", 10)
    assert len(shares._sent) <= 4097


def test_the_fold_tells_how_long_what_waits_will_take() -> None:
    """From the CPU that the last ticks took for their bytes; little that waits is no matter."""
    journal = MemoryJournal(time.time_ns, 1 << 30)
    pace = FoldPace(journal.cursor("fold"), lambda: journal.backlog["fold"])
    journal.append(Signal.LOGS, bytes(MIB))
    assert pace.behind_s() == 0
    assert len(pace.seal(time.time_ns())) == 1
    spent = time.thread_time()
    while time.thread_time() - spent < 0.2:
        pass
    assert pace.seal(time.time_ns()) == []
    assert pace.behind_s() == 0
    for _ in range(20):
        journal.append(Signal.LOGS, bytes(MIB))
    assert 2 <= pace.behind_s() <= 8


def test_a_fold_that_is_at_one_tick_for_long_is_behind() -> None:
    """Even where nothing was learnt yet, and nothing waits besides."""
    journal = MemoryJournal(time.time_ns, 1 << 30)
    pace = FoldPace(journal.cursor("fold"), lambda: journal.backlog["fold"])
    journal.append(Signal.LOGS, bytes(2 * MIB))
    pace.seal(time.time_ns())
    pace._taken_at -= 60
    assert pace.behind_s() >= 60


def test_who_sends_most_is_refused_while_the_fold_is_behind_and_others_are_taken_in() -> None:
    """With a code and a reason that its sender may act on; all are taken in once the fold keeps up."""
    lag_s = [60.0]
    intake = Intake(MemoryJournal(time.time_ns, 1 << 30), Tally(), LimitsConfig(max_fold_lag_s=3))
    intake.heed(lambda: lag_s[0])
    intake.open()

    async def send(peer: str, times: int) -> None:
        for _ in range(times):
            intake.admit("http", peer)
            data = told(f"run-{peer}", [run_started()])
            await intake.take(Body(signal=Signal.LOGS, data=data, transport="http", peer=peer))

    asyncio.run(send("good", 1))
    with pytest.raises(RefusedError, match=r"60\.0 s") as refused:
        asyncio.run(send("flood", 20))
    assert refused.value.reason is Reason.BUSY
    lag_s[0] = 1.0
    asyncio.run(send("flood", 20))
    lag_s[0] = 60.0
    asyncio.run(send("good", 5))
    intake.close()
