"""Findings as messages: when each is sent, tried again and given up, whatever carries it.

Rules: a receiver that is away or busy is tried again with growing pauses, and then gets what stands by then;
a message that it refuses is lost, counted. What arrived is remembered over a restart. The aggregator never
waits for any of it. Must not know how findings are made, nor how a message travels.
"""

import logging
import threading
import time
from typing import TYPE_CHECKING, Final

import msgspec

from overwatch.collector.context import Context
from overwatch.collector.exporters.notices import Notices, NotifierConfig, Reported

if TYPE_CHECKING:
    from overwatch.aggregator import Frame

_SENT: Final = "overwatch_exporter_sent_notices"
_LOST: Final = "overwatch_exporter_lost_notices"
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 30.0
_MOST_COUNTED: Final = 10
_CLOSE_S: Final = 5.0
_reported: Final = msgspec.json.Decoder(list[Reported]).decode
_log = logging.getLogger("overwatch.collector")


class Notifier:
    """A frame sink that sends findings: `webhook`, `command`, by their sections."""

    def __init__(self, config: NotifierConfig, context: Context, name: str) -> None:
        self._config = config
        self._name, self._tally, self._health = name, context.tally, context.health
        for series in (_SENT, _LOST):
            self._tally.add(series, 0, exporter=name)
        self._memory = context.journal.note(name)
        """Where it is `None`, the next life sends again what stands."""
        self._notices = Notices(config, self._remembered())
        self._frame: Frame | None = None
        """The newest frame that was not looked at."""
        self._missed = 0
        self._failures = 0
        """Tries in a row that did not arrive."""
        self._faults = 0
        """Frames that met an error of ours."""
        self._again_at = 0.0
        """Monotonic, when the server may be tried again."""
        self._work = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="notifier", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()
        self._health.watch(self._name, self._thread.is_alive)

    def publish(self, frame: "Frame") -> None:
        """Have the frame looked at; returns at once."""
        with self._work:
            self._frame = frame
            self._work.notify()

    def close(self) -> None:
        """Send what is due of the last frame, for a few seconds at most; a second call does nothing."""
        with self._work:
            if self._stopping or not self._thread.is_alive():
                return
            self._stopping = True
            self._work.notify()
        self._thread.join(_CLOSE_S)

    stop = close

    def _run(self) -> None:
        while (frame := self._next()) is not None:
            try:
                self._send(frame)
            except Exception as error:  # noqa: BLE001 the border of the thread: logged, and tried again later
                if not self._faults:
                    _log.error("a notifier met an error of ours; it goes on", exc_info=error)
                self._faults += 1
                self._failed(f"an error of ours, {self._faults} so far: {type(error).__name__}")
                self._again_at = time.monotonic() + _LONGEST_PAUSE_S

    def _next(self) -> "Frame | None":
        """The newest frame once the server may be tried; when closing at once, and `None` after it."""
        with self._work:
            while not self._stopping:
                pause_s = self._again_at - time.monotonic()
                if self._frame is not None and pause_s <= 0:
                    break
                self._work.wait(pause_s if pause_s > 0 else None)
            frame, self._frame = self._frame, None
            return frame

    def _send(self, frame: "Frame") -> None:
        """Send what is due, up to the first that has to be tried again: a newer frame has what is left."""
        due = self._notices.due(frame)
        if self._notices.missed > self._missed:
            self._lost(self._notices.missed - self._missed)
            self._missed = self._notices.missed
        for notice in due:
            trouble, again_s = self._config.deliver(notice)
            if trouble:
                self._failed(f"{self._config.shown}: {trouble}")
            if again_s is not None:
                pause_s = min(_FIRST_PAUSE_S * 2.0**self._failures, _LONGEST_PAUSE_S)
                self._again_at = time.monotonic() + max(again_s, pause_s)
                self._failures = min(self._failures + 1, _MOST_COUNTED)
                return
            self._failures = 0
            self._notices.sent(notice)
            if trouble:
                self._lost(1)
            else:
                self._tally.add(_SENT, 1, exporter=self._name)
                self._health.recovered(self._name)
            self._remember()

    def _lost(self, count: int) -> None:
        """So many will never be sent: refused, or over before they could be."""
        self._tally.add(_LOST, count, exporter=self._name)

    def _failed(self, error: str) -> None:
        self._health.failed(self._name, error)

    def _remembered(self) -> list[Reported]:
        """The border to the memory: without it, what stands is sent again."""
        try:
            data = None if self._memory is None else self._memory.read()
            return [] if data is None else _reported(data)
        except (OSError, msgspec.MsgspecError) as error:
            _log.warning("what was sent cannot be read, it is sent again: %s", error)
            return []

    def _remember(self) -> None:
        """The same border: what cannot be kept is sent again by the next life."""
        if self._memory is None:
            return
        try:
            self._memory.write(msgspec.json.encode(self._notices.reported))
        except OSError as error:
            self._failed(f"what was sent cannot be kept: {error.strerror or error}")
