"""The exporters `otlp` and `otlphttp`: every accepted batch to another OTLP server, as it came.

Rules: a cursor and threads of their own, so that a slow or dead target holds up nothing else; the bytes that
were accepted are the bytes that are sent, several batches in one request where they wait. A batch leaves the
queue when the target has it, when the target rejects it for good, when patience ends, or when the journal
needs the room; all but the first are counted by reason and logged. The place in the journal is kept at each
end, so that a restart sends again only what was on its way. Must not know what the batches mean.
"""

import logging
import threading
import time
from typing import Final, assert_never

from overwatch.collector.context import Context
from overwatch.collector.exporters.forward_config import ForwardConfig
from overwatch.collector.exporters.forward_queue import Passed, Shipment, Turns, shipment
from overwatch.collector.signals import WIRES
from overwatch.delivery import OtlpTransport
from overwatch.delivery.answer import Answer, Verdict
from overwatch.delivery.sender import Sender
from overwatch.journal import Batch, Signal
from overwatch.otlp.decode import count_items

_WAIT_S: Final = 0.1
_SYNC_S: Final = 2.0
"""Time between two places that survive a power loss, in seconds."""
DRAIN_S: Final = 5.0
"""Longest time that sending the rest may take when the collector stops, in seconds."""
_TROUBLE_SHARE: Final = 0.5
"""The share of the journal's room that may wait for a target in trouble."""
_MOST_SHARE: Final = 0.75
"""The same for one that takes, however slowly."""
_LAST_TRY_S: Final = 1.0
"""The same, to a target in trouble, of what would be gone with the process."""

REJECTED: Final = "rejected"
"""Why items of a request are gone that the target took but for these."""
_REFUSALS_IN_A_ROW: Final = 3
"""After so many a target is in trouble: one bad request proves nothing about others."""

_log = logging.getLogger("overwatch.collector")


class OtlpForwarder:
    """Reads the journal, lets senders deliver, keeps the place; over gRPC or HTTP, by its section."""

    def __init__(self, config: ForwardConfig, context: Context, name: str) -> None:
        self._name = name
        self._context = context
        self._queue = config.sending_queue
        self._pace = config.retry_on_failure.pace()
        self._signals = context.exporting(name)
        self._to = config.destinations(self._signals)
        shown = ", ".join(sorted({to.shown for to in self._to.values()}))
        self._stats = DeliveryStats(name, shown, context)
        self._turns = Turns(self._settled, self._queue.queue_size)
        kept = context.journal.place(name)
        place = None if kept is None else kept.place
        if kept is not None and kept.is_lost:
            _log.warning("%s: its place in the journal is lost; all that is kept is sent again", name)
        start = None if kept is None else 0 if place is None else place.position
        self._cursor = context.journal.cursor(name, start)
        self._is_durable = kept is not None
        self._begin = self._cursor.position
        """Batches before this are not ours: they came before there was such an exporter."""
        if kept is not None and place is None and not kept.is_lost:
            self._begin += context.journal.lag(name).batches
        self._passed = Passed(kept, self._cursor.position)
        self._synced_at = 0.0
        self._senders: list[Sender[Shipment]] = []
        self._stopping = threading.Event()
        self._stop_by = float("inf")
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._context.queues[self._name] = lambda: (self._turns.num_bytes, self._fullness())
        self._stats.know(self._signals)
        if self._begin > self._cursor.position:
            self._pass_by(self._begin)
        self._save(sync=True)
        self._thread.start()
        self._context.health.watch(f"exporter:{self._name}", self._thread.is_alive)

    def stop(self) -> None:
        """Send what can be sent shortly; the rest stays in a journal on disk, or is counted as lost."""
        if self._stopping.is_set():
            return
        in_trouble = self._stats.in_trouble
        patience_s = (0.0 if self._is_durable else _LAST_TRY_S) if in_trouble else DRAIN_S
        self._stop_by = time.monotonic() + patience_s
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._turns.wait_empty(max(self._stop_by - time.monotonic(), 0.0))
        for sender in self._senders:
            sender.stop()
        if not self._is_durable:
            self._give_up(self._turns.clear(taken=True), "stopped")
            while self._drop("stopped"):
                self._give_up(self._turns.clear(), "stopped")
        self._save(sync=True)
        self._passed.close()

    def _run(self) -> None:
        self._context.settle()
        goes_on = True
        while goes_on and not (self._stopping.is_set() and time.monotonic() >= self._stop_by):
            try:
                goes_on = self._step()
            except Exception as error:  # noqa: BLE001 the border: a fault of our own ends no forwarding
                self._stats.fault(error)
                self._stopping.wait(_WAIT_S)

    def _step(self) -> bool:
        """Read on, if there is room; whether there is more to come."""
        batches = None
        if self._relieve() and self._turns.wait_room(_WAIT_S):
            batches = self._cursor.wait(0 if self._stopping.is_set() else _WAIT_S)
            beyond = self._beyond(batches)
            self._leave(batches[:beyond], "queue_full")
            self._take(batches[beyond:])
        self._tidy()
        return batches != [] or not self._stopping.is_set()

    def _beyond(self, batches: list[Batch]) -> int:
        """How many of these, the oldest, are more than may wait: many may have come at once."""
        most = self._queue.queue_size
        return 0 if most is None else max(0, min(len(batches), len(self._turns) + len(batches) - most))

    def _take(self, batches: list[Batch]) -> None:
        """Put what is ours into the queue."""
        others = []
        for batch in batches:
            if not self._passed.begin(batch.sequence):
                continue
            if batch.signal not in self._signals:
                others.append(batch.sequence)
                continue
            self._turns.put(shipment(batch))
            if len(self._senders) < min(self._turns.lines, self._queue.num_consumers):
                self._hire()
        self._passed.settle(others)
        self._passed.skip_to(self._cursor.position)

    def _hire(self) -> None:
        """One more sender, with a connection of its own."""
        sender = Sender(self._turns, lambda: OtlpTransport(self._to), self._stats, self._pace)
        self._senders.append(sender)
        sender.start()

    def _fullness(self) -> float:
        """Which share of what may wait does: from 1 on the oldest is given up."""
        lag, most = self._context.journal.lag(self._name), self._queue.queue_size
        batches = 0.0 if most is None else (lag.batches + len(self._turns)) / most
        return max(batches, max(lag.unread, lag.kept) / self._share)

    @property
    def _share(self) -> float:
        return _TROUBLE_SHARE if self._stats.in_trouble else _MOST_SHARE

    def _relieve(self) -> bool:
        """Give up the oldest batches while they press on the journal, or are more than may wait.

        Whether more can be read; not while what is on its way keeps the journal from letting go.
        """
        lag = self._context.journal.lag(self._name)
        share = self._share
        self._stats.is_pressed = lag.unread > share or lag.kept > share
        if self._stats.is_pressed:
            self._give_up(self._turns.clear(), "no_room")
            while lag.unread > share or (lag.kept > share and not len(self._turns)):
                if not self._drop("no_room"):
                    break
                lag = self._context.journal.lag(self._name)
            return lag.kept <= share or self._turns.wait_empty(_WAIT_S)
        most = self._queue.queue_size
        while most is not None and (over := lag.batches + len(self._turns) - most) > 0:
            if not self._drop("queue_full", over):
                break
            lag = self._context.journal.lag(self._name)
        return True

    def _drop(self, reason: str, most: int | None = None) -> bool:
        """Give up some unread batches, no more than `most`; whether there were any."""
        batches = self._cursor.wait(0)
        self._leave(batches[:most], reason)
        self._take([] if most is None else batches[most:])
        self._cursor.keep(self._passed.position)
        return bool(batches)

    def _leave(self, batches: list[Batch], reason: str) -> None:
        """Give up batches that were read."""
        gone = [batch for batch in batches if self._passed.begin(batch.sequence)]
        self._give_up([shipment(batch) for batch in gone if batch.signal in self._signals], reason)
        self._passed.settle([batch.sequence for batch in gone])

    def _pass_by(self, begin: int) -> None:
        """Leave out what came before there was such an exporter."""
        while self._cursor.position < begin and (batches := self._cursor.wait(0)):
            self._take([batch for batch in batches if batch.sequence >= begin])

    def _give_up(self, shipments: list[Shipment], reason: str) -> None:
        for gone in shipments:
            self._stats.dropped(gone, reason)
        self._passed.settle(gone.sequence for gone in shipments)

    def _settled(self, done: Shipment, rejected: int, reason: str | None) -> None:
        """A sender has done with it; on the sender's thread."""
        try:
            self._stats.settled(done, rejected, reason)
        finally:
            self._passed.settle(done.sequences)
            self._save()

    def _tidy(self) -> None:
        """Let the journal go on, and from time to time keep the place safe from a power loss."""
        self._cursor.keep(self._passed.position)
        if time.monotonic() - self._synced_at >= _SYNC_S:
            self._synced_at = time.monotonic()
            self._save(sync=True)

    def _save(self, *, sync: bool = False) -> None:
        """The border to the disk: without a place kept, a restart only sends more again."""
        trouble = None
        try:
            self._passed.save(sync=sync)
        except OSError as error:
            trouble = f"its place is not kept: {error.strerror or error}"
        self._context.health.report(f"{self._name}.place", trouble)


class DeliveryStats:
    """What became of the batches for one target: counts under otelcol's names, health and log.

    What is accepted is delivered, waits in the journal, or is counted as dropped with a reason; losses are
    logged at the first and each time their number has doubled. It oversees the senders; safe from any thread.
    """

    def __init__(self, name: str, shown: str, context: Context) -> None:
        self._name = name
        self._shown = shown
        self._tally = context.tally
        self._health = context.health
        self._lock = threading.Lock()
        self._gone: dict[str, int] = {}
        self._logged: dict[str, int] = {}
        self._refusals = 0
        self._faults = 0
        self._last_detail = ""
        """What the target answered last."""
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
                self._last_detail = answer.detail
                self._health.recovered(self._part)
            case Verdict.REFUSED:
                self._refusals, self.in_trouble = self._refusals + 1, False
                self._last_detail = answer.detail
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

    def settled(self, done: Shipment, rejected: int, reason: str | None) -> None:
        """The target has it, but for so many items; or it was tried and given up for a `reason`."""
        items = count_items(done.signal, done.body)
        lost = min(rejected, items) if reason is None else items
        self._count("sent", done.signal, items - lost)
        if lost:
            self._lost("send_failed", done.signal, lost, reason or REJECTED)

    def dropped(self, gone: Shipment, reason: str) -> None:
        """It was given up while it waited."""
        self._lost("enqueue_failed", gone.signal, count_items(gone.signal, gone.body), reason)

    @property
    def _part(self) -> str:
        return f"exporter:{self._name}"

    def _count(self, verb: str, signal: Signal, items: int) -> None:
        self._tally.add(f"otelcol_exporter_{verb}_{WIRES[signal].items}", items, exporter=self._name)

    def _lost(self, verb: str, signal: Signal, items: int, reason: str) -> None:
        self._count(verb, signal, items)
        self._tally.add(
            "overwatch_exporter_dropped_items", items, exporter=self._name, reason=reason, signal=signal.value
        )
        with self._lock:
            gone = self._gone[reason] = self._gone.get(reason, 0) + items
            if gone < 2 * self._logged.get(reason, 0):
                return
            self._logged[reason] = gone
        _log.warning(
            "%s: %d items for %s are lost (%s) %s", self._name, gone, self._shown, reason, self._last_detail
        )
