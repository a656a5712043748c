"""A queue whose operations a store keeps, under a clock that the test moves."""

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from random import Random
from typing import TypeVar

import msgspec

from overwatch.journal import Files
from overwatch_rl.rollouts import queue
from overwatch_rl.rollouts.answers import Batch, Decision, Limits
from overwatch_rl.rollouts.operations import Accepted, Snapshot, Version
from overwatch_rl.rollouts.state import State
from overwatch_rl.rollouts.store import Store, StoreLimits
from tests.overwatch_rl.rollouts.driven import Driven

A = TypeVar("A")

MANY = Limits(max_queued_batches=10_000)
SMALL = StoreLimits(held_bytes=1 << 20, disk_bytes=4 << 20, segment_bytes=8 << 10)


def payload_of(item: int) -> bytes:
    """The bytes of a group, of its own length."""
    return (b"group %d " % item) * (item % 40 + 1)


def logged(state: State) -> Snapshot:
    """A state but for what is not logged."""
    found = queue.snapshot(state, 0)
    envs = {
        env_id: msgspec.structs.replace(env, seen=0, answered=None, durations=[])
        for env_id, env in found.envs.items()
    }
    return msgspec.structs.replace(found, envs=envs, items=sorted(found.items, key=lambda item: item.id))


class Keeping(Driven):
    """One life of a queue and its store. `close` it, or leave it as a killed process does."""

    def __init__(
        self, path: Path, limits: StoreLimits = SMALL, files: Callable[[int], Files] = Files
    ) -> None:
        super().__init__(MANY)
        self.store = Store(path, self.state, limits, files)
        self.now = max(self.now, self.store.last_at)
        self.last: Future[None] | None = None
        self.kept: list[Future[None]] = []

    def do(self, decision: Decision[A]) -> A:
        """Apply a decision and hand it to the store."""
        answer = super().do(decision)
        self.kept.append(
            self.store.keep(
                (operation, payload_of(operation.id) if isinstance(operation, Accepted) else None)
                for operation in decision.operations
            )
        )
        return answer

    def wait_all(self) -> None:
        """Until all that was done is safe."""
        for future in self.kept:
            future.result(20)
        self.kept.clear()

    def begin(self) -> list[int]:
        """A trainer of batches of 8 and two environments."""
        self.trainer()
        return [self.env(), self.env(group_size=2, name="other")]

    def play(self, envs: list[int], steps: int, chance: Random) -> None:
        """Whatever may happen to a queue, at random; what it holds stays about the same."""
        for _ in range(steps):
            self.now += chance.randrange(1, 10**9)
            is_rich = self.state.account.queued.sequences > 100
            match chance.randrange(8):
                case 0 | 1 | 2 | 3 if not is_rich:
                    place = chance.randrange(2)
                    self.send(envs[place], chance.randrange(1, 4), (4, 2)[place])
                case 0 | 1 | 2 | 3 | 4 | 5 | 6:
                    batch = self.batch(is_explicit=chance.random() < 0.8)
                    if isinstance(batch, Batch) and batch.is_explicit:
                        end = (queue.acknowledge, queue.acknowledge, queue.release)[chance.randrange(3)]
                        self.do(end(self.state, batch.lease, self.now))
                case _:
                    number = self.state.version.number + 1
                    self.do(queue.move_version(self.state, Version(number=number), None, self.now))

    def close(self) -> None:
        """End this life well."""
        self.store.close()


def reopened(path: Path, limits: StoreLimits = SMALL) -> Keeping:
    """The next life."""
    return Keeping(path, limits)
