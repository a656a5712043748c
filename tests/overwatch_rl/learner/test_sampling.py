"""The I/O thread of a learner that samples, against a real replay server."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from overwatch_rl.learner.io import IoError
from overwatch_rl.learner.sampling import SampledIo
from overwatch_rl.replay.base import Capacity, TableConfig
from overwatch_rl.replay.blocking import BlockingReplayClient
from overwatch_rl.replay.client import ReplayClient
from overwatch_rl.replay.settings import table_words
from overwatch_rl.telemetry.meter import Meter
from tests.overwatch_rl.replay.serving import ENCODING, chunk, served

STEPS = TableConfig(
    name="experience", kind="steps", selector="prioritised", remover="oldest",
    capacity=Capacity(items=16), seed=1,
)  # fmt: skip


@contextmanager
def sampling(address: str) -> Iterator[SampledIo]:
    """One that runs."""
    io = SampledIo(lambda on_state: ReplayClient([address], on_state=on_state), STEPS, Meter())
    io.start()
    yield io
    io.close()


def test_priorities_of_steps_that_are_gone_are_counted_as_late(tmp_path: Path) -> None:
    """By their generation; those of a sample before the newest are refused here."""
    with served(tmp_path, tables=(table_words(STEPS),)) as replay, sampling(replay.address) as io:
        writer = BlockingReplayClient([replay.address])
        io.settle()  # nothing waits
        assert io.sample(4, 0.4) is None  # nothing is declared yet
        writer.declare("experience", ENCODING)
        assert io.sample(4, 0.4) is None
        writer.append("experience", [chunk("env-0", steps=8, end="terminated")])
        first, drawn = io.sample(4, 0.4), io.sample(6, 0.4)
        assert first is not None
        assert drawn is not None
        with pytest.raises(ValueError, match="not those of the newest sample"):
            io.update_priorities(first, np.full(4, 2.0))
        for episode in range(1, 4):
            writer.append("experience", [chunk("env-0", episode, steps=8, end="terminated")])
        io.update_priorities(drawn, np.full(6, 2.0))
        io.settle()
        (table,) = writer.stats()[0]
        assert table.late["priority"] == 6
        newest = io.sample(5, 0.4)
        assert newest is not None
        io.update_priorities(newest, np.full(5, 2.0))
        writer.append("experience", [chunk("env-0", 4 + i, steps=8, end="terminated") for i in range(2)])
        assert (again := io.sample(5, 0.4)) is not None
        (table,) = writer.stats()[0]
        writer.close()
        assert (newest.accepted, again.accepted) == (32, 48)
        assert table.late["priority"] == 11  # those that went with a sample, too


def test_a_server_that_is_away_gives_nothing_and_a_thread_that_ended_raises(tmp_path: Path) -> None:
    """Priorities are lost, and that is no error."""
    with served(tmp_path, tables=(table_words(STEPS),)) as replay, sampling(replay.address) as io:
        writer = BlockingReplayClient([replay.address])
        writer.declare("experience", ENCODING)
        writer.append("experience", [chunk(steps=8)])
        drawn = io.sample(4, 0.4)
        assert drawn is not None
        writer.close()
        replay.kill()
        assert io.sample(4, 0.4) is None
        assert io.away is not None
        io.update_priorities(drawn, np.ones(4))
        io.settle()
        io.close()
        with pytest.raises(IoError, match="it was closed"):
            io.sample(4, 0.4)
