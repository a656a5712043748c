"""What became of the batches for one target: counted under otelcol's names, told by health and the log.

Rules: what is accepted is delivered, waits in the journal, or is counted as dropped with a reason; losses are
said at the first and each time their number has doubled. Must not know queues or connections.
"""

import logging
import threading
from typing import Final, assert_never

from overwatch.collector.context import Context
from overwatch.collector.exporters.forward_queue import Shipment
from overwatch.collector.signals import WIRES
from overwatch.delivery.request import Answer, Verdict
from overwatch.journal import Signal
from overwatch.otlp.decode import count_items

REJECTED: Final = "rejected"
"""Why items of a request are gone that the target took but for these."""
_REFUSALS_IN_A_ROW: Final = 3
"""After so many a target is in trouble: one bad request says nothing of the others."""

_log = logging.getLogger("overwatch.collector")


class Account:
    """The books of one exporter, and the overseer of its senders; safe from any thread."""

    def __init__(self, name: str, shown: str, context: Context) -> None:
        self._name = name
        self._shown = shown
        self._tally = context.tally
        self._health = context.health
        self._lock = threading.Lock()
        self._gone: dict[str, int] = {}
        self._said: dict[str, int] = {}
        self._refusals = 0
        self._faults = 0
        self._last_said = ""
        """What the target said of its last refusal."""
        self.in_trouble = False
        """Whether the last answer was no answer."""
        self.is_pressed = False
        """Whether what fails is to be given up for the journal's sake."""

    def know(self, signals: frozenset[Signal]) -> None:
        """Make the counters known at 0."""
        self._tally.add("overwatch_exporter_faults", 0, exporter=self._name)
        for signal in signals:
            for verb in ("sent", "send_failed", "enqueue_failed"):
                self._count(verb, signal, 0)

    def note(self, answer: Answer) -> None:
        """A target's answer."""
        match answer.verdict:
            case Verdict.TAKEN:
                self._refusals, self.in_trouble = 0, False
                self._last_said = answer.detail
                self._health.recovered(self._part)
            case Verdict.REFUSED:
                self._refusals, self.in_trouble = self._refusals + 1, False
                self._last_said = answer.detail
                if self._refusals >= _REFUSALS_IN_A_ROW:
                    self._health.failed(self._part, f"{self._shown} refuses: {answer.detail}")
            case Verdict.AGAIN:
                self.in_trouble = True
                self._health.failed(self._part, f"{self._shown}: {answer.detail}")
            case _:
                assert_never(answer.verdict)

    def fault(self, error: Exception) -> None:
        """An error of our own, met and outlived."""
        self._tally.add("overwatch_exporter_faults", 1, exporter=self._name)
        if not self._faults:
            _log.error("%s: an error of its own; forwarding goes on", self._name, exc_info=error)
        self._faults += 1

    def gives_up(self) -> str | None:
        """What fails goes when the journal needs the room."""
        return "no_room" if self.is_pressed else None

    def sent(self, done: Shipment, rejected: int) -> None:
        """The target has it, but for so many items."""
        items = count_items(done.signal, done.body)
        lost = min(rejected, items)
        self._count("sent", done.signal, items - lost)
        if lost:
            self._count("send_failed", done.signal, lost)
            self._lose(done.signal, lost, REJECTED)

    def failed(self, gone: Shipment, reason: str) -> None:
        """It was tried and given up."""
        items = count_items(gone.signal, gone.body)
        self._count("send_failed", gone.signal, items)
        self._lose(gone.signal, items, reason)

    def dropped(self, gone: Shipment, reason: str) -> None:
        """It was given up while it waited."""
        items = count_items(gone.signal, gone.body)
        self._count("enqueue_failed", gone.signal, items)
        self._lose(gone.signal, items, reason)

    @property
    def _part(self) -> str:
        return f"exporter:{self._name}"

    def _count(self, verb: str, signal: Signal, items: int) -> None:
        self._tally.add(f"otelcol_exporter_{verb}_{WIRES[signal].items}", items, exporter=self._name)

    def _lose(self, signal: Signal, items: int, reason: str) -> None:
        self._tally.add(
            "overwatch_exporter_dropped_items", items, exporter=self._name, reason=reason, signal=signal.value
        )
        with self._lock:
            gone = self._gone[reason] = self._gone.get(reason, 0) + items
            if gone < 2 * self._said.get(reason, 0):
                return
            self._said[reason] = gone
        _log.warning(
            "%s: %d items for %s are lost (%s) %s", self._name, gone, self._shown, reason, self._last_said
        )
