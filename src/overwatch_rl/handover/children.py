"""Commands in processes that end with the one that started them. Must not know what they do."""

import contextlib
import os
import queue as queues
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

_END_S: Final = 10.0
_TAIL: Final = 20


class Child:
    """A command in a process that ends with this one."""

    def __init__(
        self, name: str, words: Sequence[str], *, module: str = "overwatch_rl.cli", niceness: int = 0
    ) -> None:
        """`module` is run with `words`; with a niceness it gives way to others."""
        self.name = name
        self.lines: queues.Queue[str | None] = queues.Queue()
        """What it prints; `None` when it has ended."""
        self.tail: deque[str] = deque(maxlen=_TAIL)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "overwatch_rl.handover.child", module, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # Ctrl-C reaches the trainer, which ends the others in order.
        )
        if niceness:
            os.setpriority(os.PRIO_PROCESS, self.process.pid, niceness)
        self._reader = threading.Thread(target=self._read, daemon=True, name=name)
        self._reader.start()

    def end(self, patience_s: float = _END_S) -> None:
        """Ask it to end, and wait; after so long it is killed."""
        self.process.terminate()
        try:
            self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join()
        if self.process.stdin is not None:
            self.process.stdin.close()

    def _read(self) -> None:
        stream = self.process.stdout
        if stream is None:
            raise AssertionError("the child has no output")
        with stream:
            for line in stream:
                self.tail.append(line.rstrip())
                self.lines.put(line.rstrip())
        self.lines.put(None)


@contextlib.contextmanager
def child(name: str, words: Sequence[str]) -> Iterator[Child]:
    """A command of `overwatch-rl` that runs within."""
    made = Child(name, words)
    try:
        yield made
    finally:
        made.end()
