"""A replay server without a wire, in a process that is killed; an actor and a learner that go on regardless.

The process answers a request once it is safe, as the server does. Lives are forked from a process that has
imported everything, so that there can be hundreds of them.
"""

import asyncio
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from overwatch_rl.replay.base import Durability, LeaseOf, Resumed, Taken, Writer
from overwatch_rl.replay.service import Replay
from tests.overwatch_rl.replay.sequencing import ENCODING, chunk_of, number_of, on_disk

_PROCESSES: Final = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["tests.e2e.replay_killing"])
_MOST_OUT: Final = 8
"""Appends that are on their way at a time."""


def _serve(requests: Connection, folder: Path, level: Durability) -> None:
    asyncio.run(_serving(requests, folder, level))


async def _serving(requests: Connection, folder: Path, level: Durability) -> None:
    replay = Replay([on_disk(folder, level, items=1 << 20, bytes=64 << 20, memory_bytes=4_000)])
    replay.declare("t", ENCODING)
    ended = asyncio.get_running_loop().create_future()
    answers: set[asyncio.Task[None]] = set()

    async def answer(name: str, result: Any) -> None:
        await replay.safe("t")
        requests.send((name, result))

    def act() -> None:
        try:
            name, arguments = requests.recv()
        except EOFError:
            ended.set_result(None)
            asyncio.get_running_loop().remove_reader(requests.fileno())
            return
        result = _do(replay, name, arguments)
        task = asyncio.ensure_future(answer(name, result))
        answers.add(task)
        task.add_done_callback(answers.discard)

    asyncio.get_running_loop().add_reader(requests.fileno(), act)
    await ended
    await asyncio.gather(*answers)
    replay.close()


def _do(replay: Replay, name: str, arguments: Any) -> Any:
    if name == "append":
        number, chunks = arguments
        writer = Writer(id="actor", number=number)
        taken = replay.append("t", ENCODING.hash, [chunk_of(chunk) for chunk in chunks], writer)
        return number, isinstance(taken, Taken)
    if name == "lease":
        lease = replay.lease("t", "learner", *arguments)
        return None if lease is None else _plain(lease)
    result: int | Resumed = getattr(replay, name)("t", "learner", arguments)
    return result


def _plain(lease: LeaseOf) -> tuple[int, list[tuple[int, bool]]]:
    return lease.number, [(number_of(item.chunk), item.is_redelivered) for item in lease.items]


class Killing:
    """Lives of a server in one folder, and what was answered in them."""

    def __init__(self, folder: Path, level: Durability, seed: int) -> None:
        self.folder, self.level = folder, level
        self.chance = random.Random(seed)  # noqa: S311 a test's own moments
        self.lives = 0
        self.made = 0
        """Chunks that the actor has sent."""
        self.waiting: dict[int, list[int]] = {}
        """Requests that were not answered, by number: they are sent again."""
        self.request = 0
        self.after = self.cursor = 0
        self.trained: list[int] = []
        self.saved: list[int] = []
        """What the last checkpoint contains."""
        self.served: Counter[int] = Counter()
        self.unflagged: list[int] = []
        self.learner_deaths = 0
        self.redelivered = 0
        self._is_leasing = False

    def live(self, seconds: float | None) -> None:
        """One life: so long from its first answer, then SIGKILL; `None`: until all is trained."""
        is_last = seconds is None
        here, there = _PROCESSES.Pipe()
        process = _PROCESSES.Process(target=_serve, args=(there, self.folder, self.level))
        process.start()
        there.close()
        self.lives += 1
        self._is_leasing = False
        if is_last or self.lives % 3 == 0:
            self._die(here)
        for number, chunks in self.waiting.items():
            here.send(("append", (number, chunks)))
        while not self._step(here, makes_more=not is_last):
            pass
        ends = time.monotonic() + (seconds or 0.0)
        while time.monotonic() < ends or (is_last and (self.waiting or len(self.trained) < self.made)):
            self._step(here, makes_more=not is_last)
        if is_last:
            here.close()
        else:
            os.kill(process.pid or 0, signal.SIGKILL)
            while self._take(here, 1.0):
                pass
            here.close()
        process.join(20)
        assert process.exitcode == (0 if is_last else -signal.SIGKILL)

    def _die(self, here: Connection) -> None:
        """The learner's next life begins at its last checkpoint."""
        self.learner_deaths += 1
        self.trained = list(self.saved)
        here.send(("resume", self.cursor))
        self.after = -1
        while self.after < 0:
            self._take(here, 1.0)

    def _step(self, here: Connection, *, makes_more: bool) -> bool:
        """Ask what is to be asked; whether an answer came."""
        while makes_more and len(self.waiting) < _MOST_OUT:
            self.request += 1
            count = self.chance.randrange(1, 4)
            self.waiting[self.request] = list(range(self.made, self.made + count))
            self.made += count
            here.send(("append", (self.request, self.waiting[self.request])))
        if not self._is_leasing:
            here.send(("lease", (self.chance.randrange(1, 9) if makes_more else 1, self.after)))
            self._is_leasing = True
        if makes_more and self.chance.random() < 0.2:
            self.save(here)
        return self._take(here, 0.002)

    def save(self, here: Connection) -> None:
        """A checkpoint is written; what was trained before it is acknowledged."""
        self.saved, self.cursor = list(self.trained), self.after
        here.send(("acknowledge", self.cursor))

    def _take(self, here: Connection, patience_s: float) -> bool:
        """One answer, if there is one."""
        try:
            if not here.poll(patience_s):
                return False
            name, answer = here.recv()
        except (EOFError, OSError):
            return False
        if name == "append":
            number, is_taken = answer
            assert is_taken
            self.waiting.pop(number, None)
        elif name == "resume":
            self.after = answer.next_number - 1
            assert not answer.gap
            assert not answer.is_unknown
        elif name == "lease":
            self._is_leasing = False
            if answer is not None:
                self._train(*answer)
        return True

    def _train(self, number: int, chunks: list[tuple[int, bool]]) -> None:
        assert number > self.after
        self.after = number
        for chunk, is_redelivered in chunks:
            if self.served[chunk] and not is_redelivered:
                self.unflagged.append(chunk)
            self.served[chunk] += 1
            self.redelivered += is_redelivered
            self.trained.append(chunk)


def kill_over_and_over(killing: Killing, lives: int) -> None:
    """Lives of random length under load, each ended by SIGKILL; then all is leased and the last life ends."""
    for _ in range(lives):
        killing.live(killing.chance.uniform(0.0, 0.05))
    killing.live(None)
