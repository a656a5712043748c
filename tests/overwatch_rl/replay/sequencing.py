"""A table of sequences under a clock that the test moves, and what must hold of it whatever happens."""

from collections import Counter
from concurrent.futures import Future
from pathlib import Path
from random import Random
from typing import Final

import numpy as np

from overwatch_rl.replay.base import (
    Capacity,
    Durability,
    LeaseOf,
    Refused,
    TableConfig,
    Taken,
    Wait,
    Which,
    Writer,
)
from overwatch_rl.replay.chunk import Chunk, Column, Encoding, End
from overwatch_rl.replay.fold import State
from overwatch_rl.replay.operations import Amount, Item
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


def memory(selector: str = "fifo", *, items: int = 1_000, remover: str = "refuse") -> TableConfig:
    """A table in memory."""
    return TableConfig(
        name="t",
        selector=selector,
        remover=remover,
        capacity=Capacity(items=items, bytes=1 << 20),
        lease_s=60.0,
    )


def on_disk(folder: Path, level: Durability = Durability.FAST, **capacity: int | None) -> TableConfig:
    """A durable table."""
    sizes = {"items": 1_000, "bytes": 1 << 20, **capacity}
    return TableConfig(name="t", durability=level, folder=folder, capacity=Capacity(**sizes), lease_s=60.0)  # type: ignore[arg-type]


class Driven:
    """One life of a table, its calls and what they promise. `close` it."""

    def __init__(self, config: TableConfig, segment_bytes: int = 16 << 10) -> None:
        self.table = Sequences(config, ENCODING, segment_bytes)
        self.now = max(self.table.store.last_at, SECOND)
        self.sent = 0
        self.safe: list[Future[None]] = []

    def send(self, *chunks: Chunk, writer: Writer | None = None) -> Taken | Wait | Refused:
        """Append chunks."""
        answer = self.table.append(chunks, writer, self.now)
        if isinstance(answer, Taken):
            self.safe.append(answer.safe)
        return answer

    def fill(self, count: int, steps: int = 2) -> None:
        """Append so many chunks, each in a request."""
        for _ in range(count):
            assert isinstance(self.send(chunk_of(self.sent, steps)), Taken)
            self.sent += 1

    def lease(self, steps: int, after: int = 0, learner: str = "l") -> LeaseOf | None:
        """A lease."""
        return self.table.lease(learner, steps, after, self.now)

    def wait(self) -> None:
        """Until all that was sent is safe."""
        for future in self.safe:
            future.result(20)
        self.safe.clear()

    def close(self) -> None:
        """End this life well."""
        self.table.close()


def check(state: State) -> None:
    """All sums hold, and each chunk is at one place."""
    account = state.account
    leased = [
        n for learner in state.learners.values() for lease in learner.leases.values() for n in lease.items
    ]
    queued = [item for unit in state.queue.all() for item in unit]
    assert Counter(leased + queued) == Counter(list(state.items))
    assert account.queued == _sum([state.items[item] for item in queued])
    assert account.leased == _sum([state.items[item] for item in leased])
    gone = [account.acknowledged, *account.removed.values()]
    for name in ("items", "steps", "bytes"):
        parts = [account.queued, account.leased, *gone]
        assert getattr(account.accepted, name) == sum(getattr(part, name) for part in parts)
    assert [unit[-1] for unit in state.queue.units] == sorted(unit[-1] for unit in state.queue.units)
    assert set(state.lapsed) <= set(queued)
    assert set(state.deliveries) <= set(state.items)


def _sum(items: list[Item]) -> Amount:
    amount = Amount()
    for item in items:
        amount.add(item)
    return amount


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
        self.requests: Counter[str] = Counter()
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
        self.requests[env] += 1
        writer = Writer(id=env, number=self.requests[env])
        answer = self.life.send(*chunks, writer=writer)
        if isinstance(answer, Taken) and self.chance.random() < 0.1:
            again = self.life.send(*chunks, writer=writer)
            assert isinstance(again, Taken)
            assert again.is_repeat

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
        self.life.table.acknowledge(learner, upto, self.life.now)

    def _other(self) -> None:
        table, now = self.life.table, self.life.now
        learner = self.chance.choice("lm")
        match self.chance.randrange(5):
            case 0:
                table.expire(now)
            case 1:
                table.extend(learner, now)
            case 2:
                answer = table.resume(learner, self.cursor[learner], now)
                self.got[learner] = answer.next_number - 1
                assert answer.gap == 0
                assert not answer.is_unknown
            case 3:
                which = self.chance.choice(
                    [
                        Which(reason="stale", older_than=(1, 1)),
                        Which(reason="abandoned", beyond=(1, 2)),
                        Which(env="a", before=now - 60 * SECOND),
                        Which(keep_last=5),
                    ]
                )
                table.remove(which, now)
            case _:
                return
