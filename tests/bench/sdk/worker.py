"""A trainer that obeys commands: `python worker.py EMITTER ENDPOINT FOLDER REST_CORE TRAINER_CORE`.

Reads one JSON command a line and answers with one line. The emitter's threads and processes are born on the
rest core; then the training thread alone moves to the trainer core. Imports only the standard library and
its neighbour, so that it runs in any Python.
"""

import ctypes
import gc
import itertools
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from emitters import EMITTERS, Emitter

CHUNK = 64 << 10
SCRATCH = 8 << 20
_clock = time.perf_counter_ns


class Work:
    """What a trainer does between two calls; a piece takes about as long as another."""

    def __init__(self) -> None:
        self.spin = 1
        self.piece: Callable[[], object] = void_piece

    def choose(self, kind: str) -> str:
        """Take up a kind of work; what it is. Where there is no torch, `torch` is arithmetic."""
        if kind == "torch":
            try:
                self.piece = self._torch()
            except ImportError:
                kind = "arithmetic"
        if kind != "torch":
            self.piece = self._arithmetic(CHUNK if kind == "cold" else 0)
        return kind

    def _torch(self) -> Callable[[], object]:
        """Layers of a small policy, one after the other, on one thread."""
        import torch

        torch.set_num_threads(1)
        layers = [torch.randn(64, 64) / 8 for _ in range(16)]
        rows = torch.randn(64, 64)
        place = 0

        @torch.no_grad()
        def piece() -> object:
            nonlocal place
            found = rows
            for _ in range(self.spin):
                place = (place + 1) % 16
                found = torch.tanh(found @ layers[place])
            return found

        return piece

    def _arithmetic(self, chunk: int) -> Callable[[], object]:
        """Arithmetic that holds the interpreter; with a chunk, memory that leaves no cache warm."""
        source, target = bytearray(os.urandom(SCRATCH)), memoryview(bytearray(SCRATCH))
        place = 0

        def piece() -> object:
            nonlocal place
            found = 0.5
            for _ in range(self.spin):
                found = found * 0.999 + 0.001
            if chunk:
                place = (place + chunk) % SCRATCH
                target[place : place + chunk] = source[place : place + chunk]
            return found

        return piece

    def calibrate(self, piece_ns: int) -> int:
        """Set how much of it a piece is, so that it takes so long."""
        for spin in (1, 100, None, None, None):
            self.spin = spin or self.spin
            took = []
            for _ in range(200):
                began = _clock()
                self.piece()
                took.append(_clock() - began)
            middle = sorted(took)[100]
            if spin is None:
                self.spin = max(round(self.spin * piece_ns / middle), 1)
        return self.spin


def void_piece() -> None:
    """No work yet."""


class Worker:
    """One emitter and its trainer."""

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter
        self._work = Work()
        self._source = bytes(SCRATCH)
        self._target = memoryview(bytearray(SCRATCH))

    def hello(self) -> object:
        """What is measured."""
        return {"version": self._emitter.version, "calls": sorted(self._emitter.calls)}

    def time(self, call: str, calls: int, is_cold: bool = False) -> object:  # noqa: FBT001, FBT002 from JSON
        """Nanoseconds of each of so many calls, and the clock's own; on end, or each with cold caches."""
        one = self._emitter.calls[call]
        took, empty = [0] * calls, [0] * calls
        walk = self._walk if is_cold else void_piece
        for i in range(calls):
            walk()
            began = _clock()
            one(i)
            took[i] = _clock() - began
        for i in range(calls):
            began = _clock()
            empty[i] = _clock() - began
        return {"took": took, "floor": sorted(empty)[calls // 2], "dropped": self._emitter.dropped()}

    def _walk(self) -> None:
        """Go through more memory than the caches nearest to a core hold."""
        self._target[:] = self._source

    def work(self, kind: str, piece_ns: int) -> object:
        """Take up a kind of work, in pieces of so long."""
        return {"work": self._work.choose(kind), "spin": self._work.calibrate(piece_ns)}

    def loop(self, call: str | None, updates: int, pieces: int) -> object:
        """Train so many updates: how long updates with their calls took, gaps between pieces, and calls.

        The first update warms up after a rest: of updates and gaps those behind its call are reported.
        """
        one: Callable[[int], object] = void if call is None else self._emitter.calls[call]
        piece = self._work.piece
        stamps, ends, costs, errors = [_clock()], [], [], 0
        before = resource.getrusage(resource.RUSAGE_THREAD)
        for update in range(updates):
            for _ in range(pieces):
                piece()
                stamps.append(_clock())
            began = _clock()
            try:
                one(update)
            except Exception:  # noqa: BLE001 that none reaches training is what is measured
                errors += 1
            ended = _clock()
            costs.append(ended - began)
            ends.append(ended)
        after = resource.getrusage(resource.RUSAGE_THREAD)
        return {
            "updates": [later - earlier for earlier, later in itertools.pairwise(ends)],
            "gaps": [later - earlier for earlier, later in itertools.pairwise(stamps[pieces + 1 :])],
            "costs": costs,
            "errors": errors,
            "total": ends[-1] - stamps[0],
            "switched": after.ru_nivcsw - before.ru_nivcsw,
        }

    def live(self, call: str, seconds: float, pieces: int) -> object:
        """Train for so long; how many updates."""
        one, piece = self._emitter.calls[call], self._work.piece
        deadline, updates = time.monotonic() + seconds, 0
        while time.monotonic() < deadline:
            for _ in range(pieces):
                piece()
            one(updates)
            updates += 1
        return {"updates": updates, "dropped": self._emitter.dropped()}

    def burst(self, call: str, calls: int, wait_s: float) -> object:
        """So many calls on end: how long they took, and whether all reached the collector in time."""
        one = self._emitter.calls[call]
        began = _clock()
        for i in range(calls):
            one(i)
        took = _clock() - began
        return {"took": took, "delivered": self._emitter.flush(wait_s), "dropped": self._emitter.dropped()}

    def fill(self, seconds: float) -> object:
        """Use up what may wait."""
        return {"came": self._emitter.fill(seconds)}

    def stop(self) -> object:
        """Stop the process that sends."""
        self._signal(signal.SIGSTOP)
        return {}

    def state(self) -> object:
        """What did not go the usual way."""
        return {"dropped": self._emitter.dropped(), "pid": self._emitter.pid()}

    def close(self) -> object:
        """End it."""
        self._signal(signal.SIGCONT)
        self._emitter.close()
        return {}

    def _signal(self, number: int) -> None:
        pid = self._emitter.pid()
        if pid is not None:
            os.kill(pid, number)


def void(_: int) -> None:
    """The call of a trainer without telemetry."""


def die_with_parent() -> None:
    """A worker never outlives the benchmark."""
    ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL)


def main(arguments: list[str]) -> int:
    """Serve until the input ends; 3 where the library is not installed."""
    name, endpoint, folder, rest, trainer = arguments
    die_with_parent()
    os.sched_setaffinity(0, {int(rest)})
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        emitter = EMITTERS[name](endpoint, folder)
    except ImportError as error:
        sys.stderr.write(f"{error}\n")
        return 3
    os.sched_setaffinity(0, {int(trainer)})
    worker = Worker(emitter)
    for line in sys.stdin:
        command: dict[str, Any] = json.loads(line)
        gc.collect()
        out.write(json.dumps(getattr(worker, command.pop("do"))(**command)) + "\n")
        out.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
