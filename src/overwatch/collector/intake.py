"""The one way in: check a body, journal it, count it. An answer of success is given only after that.

Owns the seam between transports and the journal, and what a body may cost: its parts are counted before they
are made; a small body is decoded where it came, in the event loop or in a thread of gRPC's, large ones in one
thread, one at a time. While memory is short, or the fold has seconds of work, nothing is taken in.

What was made of a small body goes with it through the journal (`Made`), so that a body is decoded once while
the fold keeps up; of a shape that is known it goes instead of the body, which is not held once it is written.
Shapes are learned where the fold asks, and read by the listeners too. Must not know HTTP or gRPC, nor what
records mean.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from enum import Enum
from typing import Final

from overwatch.collector.limits import LimitsConfig, MemoryLimiter
from overwatch.collector.signals import WIRES
from overwatch.collector.tally import Tally
from overwatch.journal import Batch, Journal, JournalFullError, Made, Signal
from overwatch.otlp import jsonl, protobuf
from overwatch.otlp.decode import Counts, Decoded, MalformedBody, counts_of, decode
from overwatch.otlp.shapes import Shapes

_log: Final = logging.getLogger("overwatch.collector")
RETRY_AFTER_S: Final = 2
"""How long a sender should wait when there is no room, in seconds."""
_CLOSED: Final = "the collector is not accepting"
SMALL_BYTES: Final = 32 << 10
"""Bodies up to this size are decoded where they come: to wake a thread and to wait for it takes longer.

What is made of them goes with them: records take much memory."""
_RECORDS: Final = 8
"""As many times the size of a body its records take, about; of a known shape they take a fifth of it."""
LARGE_BYTES: Final = 256 << 10
"""Bodies of more bytes than this wait for each other."""


class Reason(Enum):
    """Why a request was refused."""

    MALFORMED = "malformed"
    TOO_LARGE = "too_large"
    FULL = "full"
    STOPPING = "stopping"
    BUSY = "busy"
    MEMORY = "memory"
    FAULT = "fault"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """One request as it came."""

    signal: Signal
    data: bytes
    transport: str
    json: bool = False
    """Whether it is JSON, not protobuf."""
    peer: str = ""
    """The address that sent it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checked:
    """A body that can be journalled, as protobuf."""

    body: Body
    data: bytes
    counts: Counts
    made: Made | None

    @property
    def answer(self) -> Accepted:
        """The answer to its sender once it is journalled."""
        return Accepted(rejected=self.counts.rejected, message=self.counts.message)


class Decoding:
    """Decoders and the shapes that they know; safe from any thread."""

    def __init__(self) -> None:
        self._shapes = Shapes()
        self._large = threading.Lock()

    def recognise(self, signal: Signal, body: bytes) -> Decoded | None:
        """As `decode`, of a body whose shape is known, in no time; else `None`."""
        return self._shapes.read(body) if signal is Signal.METRICS else None

    def decode(self, signal: Signal, body: bytes) -> Decoded:
        """What is in a body of no known shape, large ones one at a time; raises `MalformedBody`."""
        with self._large if len(body) > LARGE_BYTES else nullcontext():
            return decode(signal, body)

    def take(self, batch: Batch) -> Decoded:
        """What is in a batch; for the fold's thread. Raises `MalformedBody`."""
        made = None if batch.made is None else batch.made.what
        if isinstance(made, Decoded) and batch.made is not None and batch.made.instead:
            return made
        if not isinstance(made, Decoded):
            made = self.recognise(batch.signal, batch.body)
            if made is not None:
                return made
            made = self.decode(batch.signal, batch.body)
        if batch.signal is Signal.METRICS:
            self._shapes.study(batch.body)
        return made


def made_of(body: bytes, decoded: Decoded, *, known: bool) -> Made | None:
    """What goes with a body whose shape was `known`, or was not; `None` where it takes much memory."""
    if known:
        return Made(what=decoded, cost=len(body) // 5, instead=True)
    return Made(what=decoded, cost=_RECORDS * len(body)) if len(body) <= SMALL_BYTES else None


class Intake:
    """Accepts bodies for one journal; safe from any thread."""

    def __init__(
        self,
        journal: Journal,
        tally: Tally,
        limits: LimitsConfig | None = None,
        decoding: Decoding | None = None,
        settle: Callable[[], None] = lambda: None,
    ) -> None:
        """`decoding` is the fold's, where there is one; a thread that computes calls `settle` first."""
        self._is_folded = decoding is not None
        self._decoding = decoding or Decoding()
        self._journal = journal
        self._tally = tally
        self._limits = limits or LimitsConfig()
        self._small = min(SMALL_BYTES, self._limits.large_body_size)
        """Bodies up to so many bytes are checked where they came."""
        self._memory = MemoryLimiter(self._limits)
        self._fold_lag_s: Callable[[], float] = lambda: 0.0
        self._settle = settle
        self._large: ThreadPoolExecutor | None = None
        self._open = False
        self._warned: set[tuple[Signal, str]] = set()
        """Of which signals and transports a rejection was logged."""

    def open(self) -> None:
        """Begin to accept."""
        self._large = ThreadPoolExecutor(1, "large-bodies", self._settle)
        self._open = True

    def close(self) -> None:
        """Refuse from now on; what was accepted stays accepted."""
        self._open = False
        if self._large is not None:
            self._large.shutdown(wait=False)

    def know(self, signal: Signal, transport: str) -> None:
        """Make the counters of a signal and transport known at 0."""
        items = WIRES[signal].items
        for verb in ("accepted", "refused"):
            self._tally.add(f"otelcol_receiver_{verb}_{items}", 0, receiver="otlp", transport=transport)

    def heed(self, fold_lag_s: Callable[[], float]) -> None:
        """Refuse while the fold has seconds of work; `fold_lag_s` is how many it has."""
        self._fold_lag_s = fold_lag_s

    def admit(self, transport: str) -> None:
        """Whether a body may be read at all; raises `RefusedError`."""
        if not self._open:
            raise self.refuse(Reason.STOPPING, _CLOSED, transport)
        problem = self._memory.problem()
        if problem is not None:
            raise self.refuse(Reason.MEMORY, problem, transport)
        lagging = self._lagging()
        if lagging is not None:
            raise self.refuse(Reason.BUSY, lagging, transport)

    @property
    def problem(self) -> str | None:
        """Why an open intake accepts nothing; `None` while it accepts."""
        return self._memory.problem() or self._journal.problem

    @property
    def overload(self) -> str | None:
        """Why senders must retry later; `None` while none must."""
        return self.problem or self._lagging()

    def _lagging(self) -> str | None:
        lag_s = self._fold_lag_s()
        return f"the fold needs {lag_s:.1f} s for what waits" if lag_s > self._limits.max_fold_lag_s else None

    async def take(self, body: Body) -> Accepted:
        """Accept a body from the event loop. Raises `RefusedError`.

        What is journalled is counted, whether or not its sender waits for the answer.
        """
        known = self._known(body)
        if self._is_quick(body, known):
            checked = self._check(body, known)
        else:
            checked = await asyncio.wrap_future(self._checked_apart(body))
        try:
            await asyncio.wrap_future(self._submit(checked))
        except JournalFullError as error:
            raise self.refuse(Reason.FULL, str(error), body.transport) from error
        return checked.answer

    def take_blocking(self, body: Body) -> Accepted:
        """The same from a thread that may wait."""
        known = self._known(body)
        quick = self._is_quick(body, known)
        checked = self._check(body, known) if quick else self._checked_apart(body).result()
        try:
            self._submit(checked).result()
        except JournalFullError as error:
            raise self.refuse(Reason.FULL, str(error), body.transport) from error
        return checked.answer

    def _known(self, body: Body) -> Decoded | None:
        """What is in a body of a known shape."""
        return None if body.json else self._decoding.recognise(body.signal, body.data)

    def _is_quick(self, body: Body, known: Decoded | None) -> bool:
        return known is not None or len(body.data) <= self._small

    def _checked_apart(self, body: Body) -> "Future[_Checked]":
        """As `_check`, once the large bodies before it are checked."""
        try:
            if self._large is not None:
                return self._large.submit(self._check_later, body)
        except RuntimeError as error:
            raise self.refuse(Reason.STOPPING, _CLOSED, body.transport) from error
        raise self.refuse(Reason.STOPPING, _CLOSED, body.transport)

    def _submit(self, checked: _Checked) -> Future[Batch]:
        """Hand a body to the journal; raises `RefusedError`."""
        try:
            written = self._journal.submit(
                checked.body.signal, checked.data, checked.counts.items, checked.made
            )
        except JournalFullError as error:
            self._count(checked, accepted=False)
            raise self.refuse(Reason.FULL, str(error), checked.body.transport) from error
        written.add_done_callback(lambda done: self._count(checked, accepted=done.exception() is None))
        return written

    def _count(self, checked: _Checked, *, accepted: bool) -> None:
        body, counts = checked.body, checked.counts
        name = f"otelcol_receiver_{'accepted' if accepted else 'refused'}_{WIRES[body.signal].items}"
        self._tally.add(name, counts.items, receiver="otlp", transport=body.transport)
        if accepted:
            self._tally.add("overwatch_receiver_rejected_items", counts.rejected, signal=body.signal.value)
        if accepted and counts.rejected and (body.signal, body.transport) not in self._warned:
            self._warned.add((body.signal, body.transport))
            _log.warning(
                "%d of %d items of %s by %s from %s are rejected: %s (further ones are counted only)",
                counts.rejected, counts.items, body.signal.value, body.transport, body.peer or "?",
                counts.message,
            )  # fmt: skip

    def _check_later(self, body: Body) -> _Checked:
        """As `_check`, if a body that waited may still be taken in."""
        self.admit(body.transport)
        return self._check(body)

    def _check(self, body: Body, known: Decoded | None = None) -> _Checked:
        """The body as protobuf, and what is in it, unless that is known; raises `RefusedError`."""
        data, limit = body.data, self._limits.max_elements
        try:
            if known is None:
                if body.json:
                    protobuf.check_json(data, limit)
                    data = jsonl.from_json(body.signal, data)
                protobuf.check_protobuf(body.signal, data, limit)
            decoded = known or self._decoding.decode(body.signal, data)
        except protobuf.TooManyElements as error:
            raise self.refuse(Reason.TOO_LARGE, str(error), body.transport) from error
        except (MalformedBody, jsonl.MalformedJson) as error:
            raise self.refuse(Reason.MALFORMED, str(error), body.transport) from error
        is_known = known is not None
        made = made_of(data, decoded, known=is_known) if self._is_folded else None
        return _Checked(body=body, data=data, counts=counts_of(decoded), made=made)

    def refuse(self, reason: Reason, message: str, transport: str) -> RefusedError:
        """Count a refusal; returns the error to raise."""
        self._tally.add("overwatch_receiver_refused_requests", 1, reason=reason.value, transport=transport)
        return RefusedError(reason, message)
