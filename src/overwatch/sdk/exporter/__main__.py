"""`python -m overwatch.sdk.exporter RINGS`: started by the SDK, reads the rings of its trainer.

Rules: Ctrl-C and termination are the trainer's to handle; this process ends when the trainer says so or
is gone, within the deadline that it gave, even if the collector never answers.
"""

import logging
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Final

from overwatch.sdk.exporter.account import Account
from overwatch.sdk.exporter.adopt import Adopter
from overwatch.sdk.exporter.core import Exporter, open_spool
from overwatch.sdk.frames import Close, FrameError, FrameReader
from overwatch.sdk.greeting import GreetingError, forget_hello, read_hello
from overwatch.sdk.rings.file import RingError
from overwatch.sdk.rings.ringset import remove
from overwatch.sdk.rings.source import RingSource

log: Final = logging.getLogger("overwatch.exporter")

ORPHAN_S: Final = 5.0
"""How long the rest may take when the trainer went without a farewell."""
_READ: Final = 1 << 16


def main(arguments: list[str]) -> int:
    """Run until the trainer is done; the exit code."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    logging.basicConfig(format="overwatch: %(message)s", stream=sys.stderr, level=logging.WARNING)
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    account = Account()
    if len(arguments) != 1:
        log.error("this process is started by overwatch.sdk, not by hand")
        return 2
    rings = Path(arguments[0])
    try:
        hello, source = read_hello(rings), RingSource(rings, alone=True, gathers=True)
        spool = open_spool(hello, rings)
    except (OSError, RingError, GreetingError) as error:
        log.error("telemetry cannot be read: %s", error)  # noqa: TRY400 one line for a person
        return 2
    if not spool.accepted:
        account.go_on()
    exporter = Exporter(hello, source, spool, account.write, Adopter().begin)
    exporter.run(Input(0))
    if exporter.is_emptied:
        remove(rings)
        forget_hello(rings)
    return 0


class Input:
    """The trainer's end as standard input tells it: a farewell, or nothing more."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._parent = os.getppid()
        self._reader = FrameReader()
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)

    def wait(self, timeout_s: float) -> float | None:
        """Wait so long; when to be done (monotonic seconds), `None` while the trainer goes on."""
        if not self._poll.poll(timeout_s * 1000):
            return None if os.getppid() == self._parent else time.monotonic() + ORPHAN_S
        data = os.read(self._fd, _READ)
        try:
            farewells = [frame for frame, _ in self._reader.feed(data) if isinstance(frame, Close)]
        except FrameError:
            return time.monotonic() + ORPHAN_S
        if farewells:
            return farewells[0].deadline
        return None if data else time.monotonic() + ORPHAN_S


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)
