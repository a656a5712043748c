"""`python -m overwatch.sdk.exporter`: started by the SDK, reads frames from standard input.

Rules: Ctrl-C and termination are the trainer's to handle; this process ends when its input does or its
parent dies, within the deadline that the trainer gave, even if the collector never answers.
"""

import logging
import os
import signal
import sys
import time
from typing import Final

from overwatch.sdk.exporter.account import Account
from overwatch.sdk.exporter.endpoint import Signal, Target, target
from overwatch.sdk.exporter.envs import global_envs
from overwatch.sdk.exporter.instruments import Instruments
from overwatch.sdk.exporter.intake import Intake
from overwatch.sdk.exporter.outlet import outlet
from overwatch.sdk.exporter.queue import SendQueue
from overwatch.sdk.exporter.resource import host_name, resource, revision
from overwatch.sdk.exporter.sampler import Sampler
from overwatch.sdk.exporter.sender import Sender
from overwatch.sdk.exporter.station import Station, started
from overwatch.sdk.frames import Close, Dropped, Frame, FrameError, Hello, Progress, Update

log: Final = logging.getLogger("overwatch.exporter")

ORPHAN_S: Final = 5.0
"""How long the rest may take when the trainer went without a farewell."""
_METRICS_S: Final = 1.0


def main() -> int:
    """Run until the trainer is done; the exit code."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    logging.basicConfig(format="overwatch: %(message)s", stream=sys.stderr, level=logging.WARNING)
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    account = Account()
    intake = Intake(0)
    stream = intake.frames()
    hello = next((item[0] for item in stream if item is not None), None)
    if not isinstance(hello, Hello):
        log.error("the first frame is no greeting; this process is started by overwatch.sdk, not by hand")
        return 2
    exporter = Exporter(hello, account)
    deadline = None
    try:
        for item in stream:
            if item is None:
                exporter.tick(intake.malformed)
            elif isinstance(item[0], Close):
                deadline = item[0].deadline
            else:
                exporter.take(*item)
    except FrameError as error:
        log.warning("%s; nothing more is read", error)
    exporter.finish(time.monotonic() + ORPHAN_S if deadline is None else deadline, intake.malformed)
    return 0


class Exporter:
    """Everything between the trainer's frames and the collector."""

    def __init__(self, hello: Hello, account: Account) -> None:
        self._account = account
        self._env_offset = hello.started.env_offset
        found, node = revision(), host_name()
        described = resource(hello, found, node)
        logs = target("logs", hello.endpoint)
        self._queue = SendQueue()
        self._sender = Sender(self._queue, lambda: outlet(logs), logs.shown)
        self._instruments = Instruments(
            described, _unless_off("metrics", hello.endpoint), _unless_off("traces", hello.endpoint)
        )
        self._station = Station(described, self._queue, self._instruments)
        self._station.say(started(hello, node=node, sha=found.sha, dirty=found.dirty))
        self._sender.start(self._write_account)
        self._sampler = Sampler(hello.run_id, self._station.say) if hello.sample else None
        if self._sampler is not None:
            self._sampler.start()

    def take(self, frame: Frame, size: int) -> None:
        """One frame of the trainer."""
        try:
            if not isinstance(frame, Hello | Update | Dropped | Close):
                frame = global_envs(frame, self._env_offset)
            self._station.take(frame, size)
        except (ValueError, TypeError, LookupError, OverflowError) as error:
            self._station.malformed += 1
            log.warning("a %s could not be said: %s", type(frame).__name__, error)

    def tick(self, malformed: int) -> None:
        """A moment without frames: tell what was dropped."""
        self._station.tell_drops(malformed)

    def finish(self, deadline: float, malformed: int) -> None:
        """Send what waits until `deadline` (monotonic seconds), then write the last account."""
        if self._sampler is not None:
            self._sampler.stop()
        self._station.tell_drops(malformed, now=True)
        self._sender.drain(deadline - time.monotonic())
        self._instruments.flush(min(max(deadline - time.monotonic(), 0.0), _METRICS_S))
        self._write_account(malformed=malformed, final=True)

    def _write_account(self, *, malformed: int = 0, final: bool = False) -> None:
        delivered, dropped = self._queue.delivered, dict(self._queue.dropped)
        invalid = malformed + self._station.malformed
        if invalid:
            dropped["invalid"] = invalid
        if final and (pending := self._queue.pending):
            dropped["undelivered"] = pending
        self._account.write(Progress(delivered=delivered, dropped=dropped, final=final))


def _unless_off(signal_name: Signal, endpoint: str | None) -> Target | None:
    """The target of a signal that the environment has not switched off."""
    if os.environ.get(f"OTEL_{signal_name.upper()}_EXPORTER", "").strip().lower() == "none":
        return None
    return target(signal_name, endpoint)


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)
