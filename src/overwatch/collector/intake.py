"""The one way in: check a body, journal it, count it. An answer of success is given only after that.

Owns the seam between transports and the journal. Must not know HTTP or gRPC.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from overwatch.collector.signals import WIRES
from overwatch.collector.tally import Tally
from overwatch.journal import Journal, JournalFullError, Signal
from overwatch.otlp import validate
from overwatch.otlp.decode import MalformedBody

RETRY_AFTER_S: Final = 2
"""How long a sender should wait when there is no room, in seconds."""


class Reason(Enum):
    """Why a request was refused."""

    MALFORMED = "malformed"
    TOO_LARGE = "too_large"
    FULL = "full"
    STOPPING = "stopping"
    BUSY = "busy"


class RefusedError(Exception):
    """A request that was not accepted; nothing of it was kept."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A request that was journalled."""

    rejected: int
    """Items in it that cannot be used."""
    message: str


class Intake:
    """Accepts bodies for one journal; safe from any thread."""

    def __init__(self, journal: Journal, tally: Tally) -> None:
        self._journal = journal
        self._tally = tally
        self._open = False

    def open(self) -> None:
        """Begin to accept."""
        self._open = True

    def close(self) -> None:
        """Refuse from now on; what was accepted stays accepted."""
        self._open = False

    def know(self, signal: Signal, transport: str) -> None:
        """Make the counters of a signal and transport known at 0."""
        items = WIRES[signal].items
        for verb in ("accepted", "refused"):
            self._tally.add(f"otelcol_receiver_{verb}_{items}", 0, receiver="otlp", transport=transport)

    def accept(self, signal: Signal, body: bytes, transport: str) -> Accepted:
        """Journal one protobuf body; raises `RefusedError`."""
        if not self._open:
            raise self._refused(Reason.STOPPING, "the collector is not accepting", transport)
        try:
            counts = validate.count(signal, body)
        except MalformedBody as error:
            raise self._refused(Reason.MALFORMED, str(error), transport) from error
        items = WIRES[signal].items
        labels = {"receiver": "otlp", "transport": transport}
        try:
            self._journal.append(signal, body)
        except JournalFullError as error:
            self._tally.add(f"otelcol_receiver_refused_{items}", counts.items, **labels)
            raise self._refused(Reason.FULL, str(error), transport) from error
        self._tally.add(f"otelcol_receiver_accepted_{items}", counts.items, **labels)
        self._tally.add("overwatch_receiver_rejected_items", counts.rejected, signal=signal.value)
        return Accepted(rejected=counts.rejected, message=counts.message)

    def refuse(self, reason: Reason, message: str, transport: str) -> RefusedError:
        """Count a refusal that a transport decided; returns the error to raise."""
        return self._refused(reason, message, transport)

    def _refused(self, reason: Reason, message: str, transport: str) -> RefusedError:
        self._tally.add("overwatch_receiver_refused_requests", 1, reason=reason.value, transport=transport)
        return RefusedError(reason, message)
