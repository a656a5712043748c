"""The end of a run: by its caller, with its process, or in a forked child; and the report of what it sent.

Rules: nothing raises into training, and an end waits no longer than it may. Must not know what was sent.
"""

import atexit
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Final

import msgspec

from overwatch.events import RunFinished
from overwatch.sdk import exits
from overwatch.sdk.channel import Channel
from overwatch.sdk.ending import COMPLETED, Ending, of_error
from overwatch.sdk.link import Outcome
from overwatch.sdk.values import maybe_text, text

if TYPE_CHECKING:
    from overwatch.sdk.terminal import Terminal

EXIT_S: Final = 2.0
FORKED: Final = "forked"
"""Reason for dropping what a forked child emits on its parent's run."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What became of everything a run emitted; `accepted` is delivered plus kept plus dropped."""

    delivered: bool
    """Every accepted record was taken by the collector."""
    accepted: int
    """Records handed in."""
    dropped: dict[str, int]
    """Records that are gone, by reason."""
    kept: int = 0
    """Records on disk: the next start delivers them, or `overwatch sync`."""
    refused: int = 0
    """Single values that could not be taken, e.g. text for a number."""


class Lifetime:
    """When and how one run ends."""

    def __init__(self, channel: Channel, terminal: "Terminal | None") -> None:
        self._channel = channel
        self._terminal = terminal
        """Where lines for a person go; `None` for a run that prints nothing."""
        self._report: Report | None = None
        self._closing = threading.Lock()
        self.presumed = COMPLETED
        """How it ends unless something else is known."""
        self._handled = id(sys.exc_info()[1])
        """Id of the exception that was being handled when the run began: it is not how the run ends."""
        if channel.link is not None:
            exits.watch(_close_worker)
            self._cells = exits.Cells(channel.link.uses)
            _OPEN.add(self)

    def ending(self) -> Ending:
        """How the run ends here: by the exception that is being handled, else by the noted one."""
        error = sys.exc_info()[1]
        return self.presumed if error is None or id(error) == self._handled else of_error(error)

    def close(self, timeout: float, ending: Ending, *, at_exit: bool = False) -> Report:
        """Deliver what there is and end; a second call returns the first report."""
        if not self._closing.acquire(timeout=max(timeout, 0.0)):
            return Report(delivered=False, accepted=0, dropped={}, refused=self._channel.refused)
        try:
            if self._report is None:
                self._report = self._end(max(timeout, 0.0), ending, at_exit=at_exit)
            return self._report
        finally:
            self._closing.release()

    def _end(self, timeout: float, ending: Ending, *, at_exit: bool) -> Report:
        channel, link = self._channel, self._channel.link
        if link is None:  # no way out: all that was emitted is missing
            dropped = {FORKED: channel.missed} if channel.missed else {}
            return Report(delivered=False, accepted=channel.missed, dropped=dropped, refused=channel.refused)
        deadline = time.monotonic() + timeout
        channel.attempt("close", channel.device.drain, timeout / 4)
        channel.attempt("close", channel.tallies.close)
        channel.attempt("close", lambda: channel.send(_finished(ending)))
        channel.link = None
        _OPEN.discard(self)
        self._cells.close()
        try:
            ended = link.close(max(deadline - time.monotonic(), 0.0), at_exit=at_exit)
        except Exception as error:  # noqa: BLE001 the border: an exit is never spoilt by telemetry
            channel.warn("close", f"closing: {type(error).__name__}: {error}")
            ended = Outcome(accepted=0, delivered=0, kept=0, dropped={"unconfirmed": 1})
        report = Report(
            delivered=not ended.dropped and not ended.kept,
            accepted=ended.accepted,
            dropped=ended.dropped,
            kept=ended.kept,
            refused=channel.refused,
        )
        if self._terminal is not None:
            self._terminal.ended(ending, ended, deadline - time.monotonic())
        return report

    def flush(self, timeout: float) -> bool:
        """Wait until everything emitted so far has reached the collector; whether it did."""
        channel, link, deadline = self._channel, self._channel.link, time.monotonic() + timeout
        if link is None:
            return False
        try:
            channel.device.settle(timeout)
            channel.tallies.send()
            return not channel.device.waiting and link.flush(max(deadline - time.monotonic(), 0.0))
        except Exception as error:  # noqa: BLE001 the border between training and telemetry
            channel.invalid("flush", error)
            return False

    def leave(self, way_out: Ending) -> None:
        """The process ends with this outcome."""
        presumed = way_out if self.presumed == COMPLETED else self.presumed
        self.close(EXIT_S, self._cells.ending or presumed, at_exit=True)

    def abandon(self) -> None:
        """In a forked child: this run belongs to the parent."""
        self._terminal = None
        self._cells.close()
        self._channel.abandon()


def _finished(ending: Ending) -> RunFinished:
    return RunFinished(at=time.time_ns(), outcome=text(ending.outcome), reason=maybe_text(ending.reason))


_OPEN: Final[set[Lifetime]] = set()
"""Runs that are not closed; kept alive so that the exit closes them."""


def _close_all(way_out: Ending) -> None:
    for run in list(_OPEN):
        run.leave(way_out)


@atexit.register
def _close_at_exit() -> None:
    _close_all(exits.way_out())


def _close_worker() -> None:
    """A worker of multiprocessing ends, still handling the exception that it ends with."""
    _close_all(of_error(sys.exc_info()[1]))


def _abandon_all() -> None:
    for run in list(_OPEN):
        run.abandon()
    _OPEN.clear()


os.register_at_fork(after_in_child=_abandon_all)
