"""A cursor that counts what its reader takes, under otelcol's names for exporters.

Rules: batches of earlier lives were accepted by another process and are not counted. Must not know readers.
"""

from collections.abc import Iterator

from overwatch.collector.signals import WIRES
from overwatch.collector.tally import Tally
from overwatch.journal import Batch, Cursor, Signal
from overwatch.otlp.decode import items_of


class CountingCursor:
    """A reader's place in a journal; what `seal` and `wait` give counts as sent to `exporter`."""

    def __init__(self, cursor: Cursor, tally: Tally, exporter: str, signals: frozenset[Signal]) -> None:
        self._cursor = cursor
        self._tally = tally
        self._exporter = exporter
        self._signals = signals
        for signal in signals:
            self._add(signal, 0)

    @property
    def position(self) -> int:
        """Sequence number of the next batch to read."""
        return self._cursor.position

    def earlier(self) -> Iterator[Batch]:
        """Unread batches of earlier lives."""
        return self._cursor.earlier()

    def seal(self, tick: int) -> list[Batch]:
        """All unread batches stamped at or before `tick`."""
        return self._counted(self._cursor.seal(tick))

    def wait(self, timeout_s: float) -> list[Batch]:
        """Unread batches; waits up to `timeout_s` seconds for the first."""
        return self._counted(self._cursor.wait(timeout_s))

    def keep(self, position: int) -> None:
        """Say that batches before `position` are not needed again."""
        self._cursor.keep(position)

    def _counted(self, batches: list[Batch]) -> list[Batch]:
        for batch in batches:
            if batch.signal in self._signals:
                self._add(batch.signal, items_of(batch))
        return batches

    def _add(self, signal: Signal, items: int) -> None:
        for verb, amount in (("sent", items), ("send_failed", 0)):
            self._tally.add(f"otelcol_exporter_{verb}_{WIRES[signal].items}", amount, exporter=self._exporter)
