"""Processes that are kept running: one that ends is started again, the sooner the longer it ran.

Rules: a server that is started again listens where it listened; what a process prints goes into a file of its
own; all of them end with this process. Must not know what they do.
"""

import queue as queues
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from overwatch_rl.handover.children import Child

FIRST_S: Final = 0.5
LONGEST_S: Final = 5.0
"""Pauses before a process is started again: from the first to the longest, twice as long each time."""
STEADY_S: Final = 30.0
"""One that ran so long begins with the first pause again."""
MOST: Final = 10
"""Times in a row that a process may end; the cluster ends with the next."""
USAGE: Final = 2
"""Status of a command that cannot be used as it was given: it is not started again."""


class GaveUpError(RuntimeError):
    """A process that does not stay; its last words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One process."""

    name: str
    words: tuple[str, ...]
    module: str = "overwatch_rl.cli"
    niceness: int = 0
    address: re.Pattern[str] | None = None
    """Finds where a server listens in the line with which it begins."""
    is_main: bool = False
    """Whether the cluster is done when it is."""
    end_s: float = 10.0
    """So long its end may take."""


@dataclass(slots=True)
class _Running:
    part: Part
    words: list[str]
    log: IO[str]
    child: Child | None = None
    began: float = 0.0
    due: float = 0.0
    """When it is to be started."""
    ends: int = 0
    """In a row."""
    address: str | None = None
    is_done: bool = False


class Supervisor:
    """Starts parts, one after the other, and keeps them."""

    def __init__(self, logs: Path, report: Callable[[str, str], None]) -> None:
        """`report` is given the name of a part and a line that it printed, or that is about it."""
        logs.mkdir(parents=True, exist_ok=True)
        self._logs = logs
        self._report = report
        self._running: dict[str, _Running] = {}
        self.restarts = 0

    def start(self, part: Part, patience_s: float = 60.0) -> str | None:
        """Start one, and wait for its address where it has one. Raises `GaveUpError`.

        One of a name that did not start may be started again, with other words.
        """
        if (before := self._running.pop(part.name, None)) is not None:
            before.log.close()
        log = (self._logs / f"{part.name}.log").open("a", encoding="utf-8")
        one = self._running[part.name] = _Running(part=part, words=list(part.words), log=log)
        self._spawn(one)
        until = time.monotonic() + patience_s
        while part.address is not None and one.address is None:
            if self._status(one) is not None or time.monotonic() > until:
                words = self._last_words(one)
                if one.child is not None:
                    one.child.end()
                    one.child = None
                raise GaveUpError(words)
            self._drain(one, 0.1)
        return one.address

    def pid(self, name: str) -> int | None:
        """Of the process as it runs now."""
        child = self._running[name].child
        return None if child is None else child.process.pid

    def pids(self) -> list[int]:
        """Of all processes that run now."""
        return [one.child.process.pid for one in self._running.values() if one.child is not None]

    def look(self) -> bool:
        """Take what was printed, start again what has ended; whether the main part is done."""
        now = time.monotonic()
        for one in self._running.values():
            self._drain(one, 0.0)
            if one.child is not None and (status := self._status(one)) is not None:
                one.child.end()
                self._drain(one, 0.0)
                self._ended(one, status, now)
            if one.child is None and not one.is_done and now >= one.due:
                self._spawn(one)
        return all(one.is_done for one in self._running.values() if one.part.is_main)

    def close(self) -> None:
        """End all, the last that was started first."""
        for one in reversed(list(self._running.values())):
            if one.child is not None:
                one.child.end(one.part.end_s)
                self._drain(one, 0.0)
            one.log.close()

    def _spawn(self, one: _Running) -> None:
        part = one.part
        one.child = Child(part.name, one.words, module=part.module, niceness=part.niceness)
        one.began = time.monotonic()

    def _status(self, one: _Running) -> int | None:
        return None if one.child is None else one.child.process.poll()

    def _ended(self, one: _Running, status: int, now: float) -> None:
        if status == 0:
            one.is_done, one.child = True, None
            return
        if status == USAGE:
            raise GaveUpError(self._last_words(one))
        one.ends = 1 if now - one.began >= STEADY_S else one.ends + 1
        if one.ends > MOST:
            raise GaveUpError(self._last_words(one))
        pause = min(FIRST_S * 2 ** (one.ends - 1), LONGEST_S)
        one.due, one.child = now + pause, None
        self.restarts += 1
        self._report(one.part.name, f"ended with status {status}; it is started again in {pause:g} s")

    def _drain(self, one: _Running, timeout: float) -> None:
        if one.child is None:
            return
        while True:
            try:
                line = one.child.lines.get(timeout=timeout) if timeout else one.child.lines.get_nowait()
            except queues.Empty:
                break
            if line is None:
                break
            one.log.write(line + "\n")
            if one.part.address is not None and (found := one.part.address.search(line)):
                one.address = found[1]
                one.words = [word.replace("127.0.0.1:0", _place(found[1])) for word in one.words]
            self._report(one.part.name, line)
        one.log.flush()

    def _last_words(self, one: _Running) -> str:
        tail = () if one.child is None else one.child.tail
        return f"{one.part.name} does not run: " + ("\n".join(tail) or f"see {one.log.name}")


def _place(address: str) -> str:
    """Host and port of an address.

    >>> _place("http://127.0.0.1:8200")
    '127.0.0.1:8200'
    """
    return address.rpartition("//")[2]
