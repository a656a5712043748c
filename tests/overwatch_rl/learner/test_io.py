"""The I/O thread with a real replay server: bounded, honest about its server, and its end has a reason."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from overwatch_rl.learner.io import Io, IoError, Sampling
from overwatch_rl.replay.blocking import BlockingReplayClient
from overwatch_rl.replay.client import ReplayClient, ReplayError
from overwatch_rl.telemetry.meter import Meter
from tests.overwatch_rl.replay.serving import ENCODING, Served, chunk, served

TABLE = "experience"
WAIT_S = 60.0


class Counted(Meter):
    """What was counted."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[str, float] = {}

    def count(self, name: str, n: float = 1, **labels: object) -> None:
        """Keep it."""
        key = " ".join([name, *map(str, labels.values())])
        self.counts[key] = self.counts.get(key, 0) + n


@contextmanager
def reading(address: str, *, depth: int = 2, cursor: int = 0, meter: Meter | None = None) -> Iterator[Io]:
    """A learner's thread that leases 4 steps at a time."""
    sampling = Sampling(table=TABLE, learner="l", steps=4, depth=depth, cursor=(cursor,))
    made = Io(lambda on_state: ReplayClient([address], on_state=on_state), sampling, meter or Meter())
    made.start()
    try:
        yield made
    finally:
        made.close()


@contextmanager
def filled(server: Served, chunks: int) -> Iterator[BlockingReplayClient]:
    """With so many chunks of 4 steps."""
    client = BlockingReplayClient([server.address])
    try:
        client.declare(TABLE, ENCODING)
        client.append(TABLE, [chunk(first=4 * number) for number in range(chunks)])
        yield client
    finally:
        client.close()


def until(is_so: Callable[[], bool]) -> None:
    """Wait for it."""
    ends = time.monotonic() + WAIT_S
    waiter = threading.Event()
    while not is_so():
        assert time.monotonic() < ends
        waiter.wait(0.02)


def leased(client: BlockingReplayClient) -> int | None:
    """Leases that the server knows of."""
    [[stats]] = client.stats()
    return stats.leases


def test_no_more_is_fetched_than_waits(tmp_path: Path) -> None:
    """Of ten leases the queue holds two; one that is taken makes room for one; they come in order."""
    with served(tmp_path) as server, filled(server, 10) as client, reading(server.address) as io:
        until(lambda: io.depth() == 2)
        ahead = leased(client)
        taken = [io.next(WAIT_S) for _ in range(10)]

        assert ahead is not None
        assert ahead <= 4  # two wait here, one is on its way, one is asked for
        assert [one.lease.items[0].chunk.first_step for one in taken if one] == list(range(0, 40, 4))
        assert io.next(0.01) is None
        assert io.encoding == ENCODING


def test_without_depth_nothing_is_fetched_before_it_is_waited_for(tmp_path: Path) -> None:
    """What waits is in the table, where actors see it."""
    with served(tmp_path) as server, filled(server, 4), reading(server.address, depth=0) as io:
        taken = [io.next(WAIT_S) for _ in range(4)]
        assert None not in taken
        assert io.depth() == 0


def test_what_is_safe_is_acknowledged_and_the_next_life_gets_the_rest(tmp_path: Path) -> None:
    """Flagged as served before."""
    with served(tmp_path) as server, filled(server, 5) as client:
        with reading(server.address) as io:
            numbers = [one.lease.number for _ in range(4) if (one := io.next(WAIT_S)) is not None]
            io.acknowledge([numbers[1]])
        with reading(server.address, cursor=numbers[1]) as again:
            first = again.next(WAIT_S)
        [[stats]] = client.stats()

    assert first is not None
    assert [(item.chunk.first_step, item.is_redelivered) for item in first.lease.items] == [(8, True)]
    assert stats.acknowledged == 2
    assert again.resumed is not None
    assert (again.resumed[0].gap, again.resumed[0].is_unknown) == (0, False)


def test_a_server_that_is_away_degrades_and_comes_back(tmp_path: Path) -> None:
    """Killed and started again where it was: what was appended is there, and nothing was lost here."""
    with served(tmp_path) as server, filled(server, 2), reading(server.address) as io:
        assert io.next(WAIT_S) is not None
        assert io.next(WAIT_S) is not None
        server.kill()
        until(lambda: io.away is not None)
        assert io.next(0.01) is None
        with served(tmp_path, port=server.port) as second, filled(second, 0) as client:
            client.append(TABLE, [chunk(first=8)])
            found = io.next(WAIT_S)

            assert found is not None
            assert found.lease.items[0].chunk.first_step == 8
            until(lambda: io.away is None)


def test_its_end_wakes_the_training_thread_with_the_reason(tmp_path: Path) -> None:
    """A table that is not there cannot be leased from: it is reported at once, not waited for."""
    meter = Counted()
    with (
        served(tmp_path, tables=["another"]) as server,
        reading(server.address, meter=meter) as io,
        pytest.raises(IoError, match=r"the I/O thread ended: ReplayError: .*NOT_FOUND"),
    ):
        io.next(WAIT_S)

    assert meter.counts["samples error"] >= 1


def test_control_that_ends_ends_the_thread(tmp_path: Path) -> None:
    """With its reason."""

    async def attend() -> None:
        await asyncio.sleep(0)
        raise ValueError("another life of this run has begun")

    sampling = Sampling(table=TABLE, learner="l", steps=4, depth=2, cursor=(0,))
    with served(tmp_path) as server:
        io = Io(lambda on_state: ReplayClient([server.address], on_state=on_state), sampling, Meter(), attend)
        io.start()
        with pytest.raises(IoError, match="another life of this run has begun"):
            io.next(WAIT_S)
        io.close()


def test_a_learner_that_is_held_back_by_its_own_leases_knows_it(tmp_path: Path) -> None:
    """The table is full of what it has not acknowledged; once it does, experience comes again."""
    with (
        served(tmp_path, tables=["experience:items=4"]) as server,
        filled(server, 4) as client,
        reading(server.address) as io,
    ):
        numbers = [one.lease.number for _ in range(4) if (one := io.next(WAIT_S)) is not None]
        assert io.next(0.01) is None
        assert not io.is_held_back
        with pytest.raises(ReplayError, match="full"):
            client.append(TABLE, [chunk(first=16)], 0.5)
        until(lambda: io.next(0.01) is None and io.is_held_back)
        io.acknowledge([numbers[1]])
        client.append(TABLE, [chunk(first=16)])
        found = io.next(WAIT_S)
        held_back = io.is_held_back

    assert found is not None
    assert not held_back
