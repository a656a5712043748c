"""The exporter's middle: a frame comes in, its records go to the queue, numbered.

Rules: every record gets the next number of this epoch when it is said, so a dropped one leaves a gap that
the tower sees. Must not know sockets or the trainer's pipe.
"""

import threading
import time
from typing import Final

import msgspec
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.sdk._logs import (
    LoggerProvider,
    LogRecordLimits,
    LogRecordProcessor,
    ReadableLogRecord,
    ReadWriteLogRecord,
)
from opentelemetry.sdk.resources import Resource

import overwatch
from overwatch.catalog import Scope
from overwatch.catalog.run import SDK_DROPPED
from overwatch.events import Event, Measured, scalars
from overwatch.otlp import wire
from overwatch.otlp.encode import encode
from overwatch.sdk.exporter.instruments import Instruments
from overwatch.sdk.exporter.nonfinite import non_finite
from overwatch.sdk.exporter.queue import SendQueue, Waiting
from overwatch.sdk.frames import Close, Dropped, Frame, Hello, Update

TELL_S: Final = 1.0
"""How often a changed number of drops is told."""
_OWN_SIZE: Final = 512


class QueueProcessor(LogRecordProcessor):
    """OpenTelemetry's door to the queue."""

    def __init__(self, queue: SendQueue) -> None:
        self._queue = queue
        self.ticket = (0, _OWN_SIZE, False, False)
        """Number, size, fact, counted: of the record that is being said, set under the station's lock."""

    def on_emit(self, log_record: ReadWriteLogRecord) -> None:
        """Let a record wait."""
        order, size, fact, counted = self.ticket
        readable = ReadableLogRecord(
            log_record=log_record.log_record,
            resource=log_record.resource or Resource.get_empty(),
            instrumentation_scope=log_record.instrumentation_scope,
            limits=log_record.limits,
        )
        self._queue.put(Waiting(record=readable, order=order, size=size, fact=fact, counted=counted))

    def shutdown(self) -> None:
        """Nothing more comes."""
        self._queue.close()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Wait until nothing waits."""
        return self._queue.wait_empty(timeout_millis / 1000)


class Station:
    """Says events."""

    def __init__(self, resource: Resource, queue: SendQueue, instruments: Instruments) -> None:
        self._queue = queue
        self._instruments = instruments
        self._processor = QueueProcessor(queue)
        limits = LogRecordLimits(
            max_log_record_attributes=LogRecordLimits.UNSET,
            max_log_record_attribute_length=LogRecordLimits.UNSET,
        )
        provider = LoggerProvider(resource=resource, shutdown_on_exit=False, log_record_limits=limits)
        provider.add_log_record_processor(self._processor)
        self._logger = provider.get_logger(wire.OURS, overwatch.__version__)
        self._lock = threading.Lock()
        self._seq = 0
        self._dropped_before = 0
        self._told = -1
        self._told_at = 0.0
        self.malformed = 0
        """Frames of the trainer that could not be said."""

    def take(self, frame: Frame, size: int) -> None:
        """Say what a frame of the trainer holds."""
        match frame:
            case Hello() | Close():
                return
            case Dropped():
                self._dropped_before = frame.total
            case Update():
                values = scalars(frame.values)
                event = Measured(at=frame.at, scope=Scope.POLICY, values=values, index=frame.index)
                self.say(event, size=size, counted=True)
            case _:
                self.say(frame, size=size, counted=True)

    def say(self, event: Event, *, size: int = _OWN_SIZE, counted: bool = False) -> None:
        """Say an event, and the facts that follow from its numbers."""
        self._emit(event, size=size, counted=counted)
        self._instruments.note(event)
        if isinstance(event, Measured):
            for seen in non_finite(event):
                self._emit(seen, size=_OWN_SIZE, counted=False)
                self._instruments.note(seen)

    def tell_drops(self, malformed: int = 0, *, now: bool = False) -> None:
        """Say how many records this side has dropped, when that has changed; `malformed` were no frames."""
        total = self._dropped_before + sum(self._queue.dropped.values()) + self.malformed + malformed
        if total == self._told or (not now and time.monotonic() - self._told_at < TELL_S):
            return
        self._told, self._told_at = total, time.monotonic()
        values = scalars({SDK_DROPPED.name: float(total)})
        self.say(Measured(at=time.time_ns(), scope=Scope.TOWER, values=values))

    def _emit(self, event: Event, *, size: int, counted: bool) -> None:
        pieces = encode(event)
        with self._lock:
            self._seq += 1
            self._processor.ticket = (self._seq, size, not isinstance(event, Measured), counted)
            self._logger.emit(
                LogRecord(
                    timestamp=event.at,
                    severity_number=SeverityNumber(pieces.severity),
                    body=pieces.body,
                    attributes={**pieces.attributes, wire.SEQ: self._seq},
                    event_name=pieces.event_name,
                    trace_id=int.from_bytes(pieces.trace_id),
                    span_id=int.from_bytes(pieces.span_id),
                )
            )


def started(hello: Hello, *, node: str, sha: str | None, dirty: bool | None) -> Event:
    """The start of the run, with what only the machine knows."""
    return msgspec.structs.replace(hello.started, node=node, git_sha=sha, dirty=dirty)
