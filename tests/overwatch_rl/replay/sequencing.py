"""A table of sequences under a clock that the test moves, and what must hold of it whatever happens."""

from collections import Counter
from random import Random
from typing import Final

import numpy as np

from overwatch_rl.protos.replay.v1.replay_pb2 import ClearRequest, Version
from overwatch_rl.replay.base import Capacity, LeaseOf, Refused, TableConfig, Taken, Wait
from overwatch_rl.replay.chunk import Chunk, Column, Encoding, End
from overwatch_rl.replay.sequences import Sequences

ENCODING: Final = Encoding((Column("value", "int64"), Column("tag", "uint8", (40,))))
SECOND: Final = 10**9


def chunk_of(
    number: int,
    steps: int = 2,
    *,
    env: str = "a",
    place: tuple[int, int] = (0, 0),
    end: End = "cut",
    version: tuple[int, int] = (1, 1),
) -> Chunk:
    """A chunk whose every byte states which it is; `place` is its episode and first step."""
    return Chunk(
        run="run",
        env=env,
        episode=place[0],
        first_step=place[1],
        steps=steps,
        lineage=version[0],
        version=version[1],
        end=end,
        columns={
            "value": np.full(steps, number, "<i8").tobytes(),
            "tag": np.full((steps, 40), number % 251, np.uint8).tobytes(),
        },
    )


def number_of(chunk: Chunk) -> int:
    """Which chunk it is; all of it shows the same."""
    decoded = ENCODING.decode(chunk)
    number = int(decoded["value"][0])
    assert (decoded["value"] == number).all()
    assert (decoded["tag"] == number % 251).all()
    return number


def numbers(lease: LeaseOf | None) -> list[int]:
    """Which chunks a lease has."""
    assert lease is not None
    return [number_of(item.chunk) for item in lease.items]


def memory(*, items: int = 1_000, remover: str = "refuse") -> TableConfig:
    """A table of so many chunks."""
    return TableConfig(
        name="t",
        remover=remover,
        capacity=Capacity(items=items, bytes=1 << 20),
        lease_s=60.0,
    )


class Driven:
    """A table, its calls and its clock."""

    def __init__(self, config: TableConfig) -> None:
        self.table = Sequences(config, ENCODING)
        self.now = SECOND
        self.sent = 0

    def send(self, *chunks: Chunk) -> Taken | Wait | Refused:
        """Append chunks."""
        return self.table.append(chunks, self.now)

    def fill(self, count: int, steps: int = 2) -> None:
        """Append so many chunks, each in a request."""
        for _ in range(count):
            assert isinstance(self.send(chunk_of(self.sent, steps)), Taken)
            self.sent += 1

    def lease(self, steps: int, after: int = 0, learner: str = "l") -> LeaseOf | None:
        """A lease."""
        return self.table.lease(learner, steps, after, self.now)

    def check(self) -> None:
        """All sums hold, and an empty table holds nothing."""
        stats = self.table.stats()
        assert stats.queued is not None
        assert stats.leased is not None
        assert stats.acknowledged is not None
        assert stats.items == stats.queued + stats.leased
        assert stats.accepted == stats.items + stats.acknowledged + sum(stats.removed.values())
        assert sum(stats.envs.values()) == stats.steps
        assert (stats.items, stats.steps, stats.bytes).count(0) in (0, 3)


class Player:
    """Two learners and three environments that do whatever may be done, at random."""

    def __init__(self, life: Driven, chance: Random) -> None:
        self.life, self.chance = life, chance
        self.next = 0
        self.places = dict.fromkeys("abc", (0, 0))
        self.got = {"l": 0, "m": 0}
        """The last lease of each learner."""
        self.cursor = {"l": 0, "m": 0}
        self.served: Counter[int] = Counter()
        self.unflagged: list[int] = []

    def play(self, steps: int) -> None:
        """So many calls."""
        for _ in range(steps):
            self.life.now += self.chance.randrange(20 * SECOND)
            doing = (self._send, self._send, self._send, self._lease, self._lease, self._end, self._other)
            self.chance.choice(doing)()

    def _send(self) -> None:
        chunks = []
        env = self.chance.choice("abc")
        for _ in range(self.chance.randrange(1, 4)):
            episode, step = self.places[env]
            steps = self.chance.randrange(1, 5)
            end: End = self.chance.choice(["cut", "cut", "terminated"])
            version = (1, self.chance.randrange(4))
            chunks.append(
                chunk_of(self.next, steps, env=env, place=(episode, step), end=end, version=version)
            )
            self.next += 1
            is_next = end == "terminated" or self.chance.random() < 0.05
            self.places[env] = (episode + 1, 0) if is_next else (episode, step + steps)
        self.life.send(*chunks)

    def _lease(self) -> None:
        learner = self.chance.choice("lm")
        lease = self.life.lease(self.chance.randrange(1, 12), self.got[learner], learner)
        if lease is None:
            return
        if self.chance.random() < 0.9:
            # Else the reply is lost, and the next call gets the same lease.
            assert lease.number > self.got[learner]
            self.got[learner] = lease.number
        for item in lease.items:
            number = number_of(item.chunk)
            if self.served[number] and not item.is_redelivered:
                self.unflagged.append(number)
            self.served[number] += 1

    def _end(self) -> None:
        learner = self.chance.choice("lm")
        upto = self.chance.randrange(self.cursor[learner], self.got[learner] + 1)
        self.cursor[learner] = upto
        self.life.table.acknowledge(learner, upto)

    def _other(self) -> None:
        table, now = self.life.table, self.life.now
        learner = self.chance.choice("lm")
        match self.chance.randrange(5):
            case 0:
                table.expire(now)
            case 1:
                table.extend(learner, now)
            case 2:
                answer = table.resume(learner, self.cursor[learner])
                self.got[learner] = answer.next_number - 1
                assert answer.gap == 0
                assert not answer.is_unknown
            case 3:
                which = self.chance.choice(
                    [
                        ClearRequest(older_than=Version(lineage=1, number=1)),
                        ClearRequest(beyond=Version(lineage=1, number=2)),
                        ClearRequest(env_id="a", before_timestamp=max(0, now - 60 * SECOND)),
                        ClearRequest(keep_last=5),
                    ]
                )
                table.remove(which)
            case _:
                return
