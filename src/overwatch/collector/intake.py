"""The one way in: check a body, journal it, count it. An answer of success is given only after that.

Owns the seam between transports and the journal, and what a body may cost: its parts are counted before they
are made, small bodies are decoded in the event loop, one at a time. A large one, and any but a tiny one of a
peer that crowds others, waits for a thread, or a process under load, so that nobody else waits for it. Peers
take turns, and who sends most is refused first. Must not know HTTP or gRPC.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from typing import Final

from overwatch.collector.calm import Patience
from overwatch.collector.decoding import SMALL_BYTES, Decoding, made_of
from overwatch.collector.helper import Helper
from overwatch.collector.limits import LimitsConfig, MemoryLimiter
from overwatch.collector.shares import Shares
from overwatch.collector.signals import WIRES
from overwatch.collector.tally import Tally
from overwatch.collector.turns import Turns
from overwatch.journal import Batch, Journal, JournalFullError, Made, Signal
from overwatch.otlp import checking, elements, validate
from overwatch.otlp.__main__ import Asked
from overwatch.otlp.decode import Decoded, MalformedBody
from overwatch.otlp.jsonl import MalformedJson

_log: Final = logging.getLogger("overwatch.collector")
TINY_BYTES: Final = 1024
"""Bodies up to this size are decoded sooner than a turn can be waited for."""
RETRY_AFTER_S: Final = 2
"""How long a sender should wait when there is no room, in seconds."""
_CLOSED: Final = "the collector is not accepting"


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
    """Who sent it; bodies of one peer wait for each other, not for others'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checked:
    """A body that can be journalled, as protobuf."""

    body: Body
    data: bytes
    counts: validate.Counts
    made: Made | None

    @property
    def answer(self) -> Accepted:
        """What its sender is told once it is journalled."""
        return Accepted(rejected=self.counts.rejected, message=self.counts.message)


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
        """Bodies up to so many bytes are checked in the event loop."""
        self._memory = MemoryLimiter(self._limits)
        self._turns, self._shares = Turns(), Shares()
        self._fold_lag_s: Callable[[], float] = lambda: 0.0
        self.calm = self._decoding.calm
        """Whether somebody waits for a body to be taken in."""
        self._settle = settle
        self._patience = Patience(self.calm)
        """Of the thread that checks large bodies, one at a time, and asks the helper."""
        self._helper = Helper("checks large bodies")
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
            with contextlib.suppress(RuntimeError):
                self._large.submit(self._helper.stop)
            self._large.shutdown(wait=False)

    def know(self, signal: Signal, transport: str) -> None:
        """Make the counters of a signal and transport known at 0."""
        items = WIRES[signal].items
        for verb in ("accepted", "refused"):
            self._tally.add(f"otelcol_receiver_{verb}_{items}", 0, receiver="otlp", transport=transport)

    def heed(self, fold_lag_s: Callable[[], float]) -> None:
        """Refuse who sends most while the fold has seconds of work; `fold_lag_s` says how many it has."""
        self._fold_lag_s = fold_lag_s

    def admit(self, transport: str, peer: str | None = None) -> None:
        """Whether a body may be read at all, in the loop that of a `peer`; raises `RefusedError`."""
        found = self._objection(peer)
        if found is not None:
            raise self._refused(*found, transport)

    def admits(self, peer: str) -> bool:
        """Whether `admit` would let a body be read; nothing is counted."""
        return self._objection(peer) is None

    @property
    def problem(self) -> str | None:
        """Why an open intake accepts nothing; `None` while it accepts."""
        return self._memory.problem() or self._journal.problem

    @property
    def overload(self) -> str | None:
        """Why some or all are told to come back later; `None` while nobody is."""
        return self.problem or self._lagging()

    def _lagging(self) -> str | None:
        lag_s = self._fold_lag_s()
        return f"the fold needs {lag_s:.1f} s for what waits" if lag_s > self._limits.max_fold_lag_s else None

    def _objection(self, peer: str | None) -> tuple[Reason, str] | None:
        if not self._open:
            return Reason.STOPPING, _CLOSED
        problem = self._memory.problem()
        if problem is not None:
            return Reason.MEMORY, problem
        if peer is not None and self._shares.is_large(peer):
            lagging = self._lagging()
            if lagging is not None:
                return Reason.BUSY, f"{lagging}, and you sent more of it than others"
        return None

    def take_at_once(self, body: Body, tell: Callable[[Accepted | RefusedError], None]) -> bool:
        """As `take`, without a task: where it takes no time to say what is in it; else false.

        That is of a known shape while no other body waits for a turn, or tiny, of a peer whose turn is next.
        What became of it is told later, in this loop. Raises `RefusedError` where that is known now.
        """
        known, is_free = None, self._turns.is_free
        if is_free and not body.json:
            known = self._decoding.recognise(body.signal, body.data)
        is_tiny = not body.json and len(body.data) <= TINY_BYTES
        if known is None and not (is_tiny and (is_free or self._turns.is_next(body.peer))):
            return False
        self._turns.pass_by(body.peer, len(body.data))
        self._shares.spend(body.peer, len(body.data))
        with contextlib.ExitStack() as waiting:
            if not self._shares.crowds(body.peer):
                waiting.enter_context(self.calm.disturbed())
            checked = self._check(body, known)
            submitted = self._submit(checked)
            disturbed = waiting.pop_all()
        loop = asyncio.get_running_loop()

        def written(done: Future[Batch]) -> None:
            disturbed.close()
            self._count(checked, accepted=done.exception() is None)
            # A loop that was stopped has no connections left to tell.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(lambda: tell(self._outcome(checked, done)))

        submitted.add_done_callback(written)
        return True

    def _outcome(self, checked: _Checked, done: Future[Batch]) -> Accepted | RefusedError:
        error = done.exception()
        if error is None:
            return checked.answer
        reason = Reason.FULL if isinstance(error, JournalFullError) else Reason.FAULT
        return self._refused(reason, str(error), checked.body.transport)

    async def take(self, body: Body) -> Accepted:
        """Accept a body in its peer's turn. Raises `RefusedError`.

        What is journalled is counted, whether or not its sender waits for the answer.
        """
        size = len(body.data)
        self._shares.spend(body.peer, size)
        crowds = not self._turns.is_idle and self._shares.crowds(body.peer)
        known = None if body.json else self._decoding.recognise(body.signal, body.data)
        most = TINY_BYTES if crowds else self._small
        is_quick = known is not None or size <= most
        with contextlib.nullcontext() if crowds or not is_quick else self.calm.disturbed():
            async with self._turns.turn(body.peer, size, heavy=not is_quick):
                checked = self._check(body, known) if is_quick else await self._checked_apart(body)
                written = self._submit(checked)
            written.add_done_callback(lambda done: self._count(checked, accepted=done.exception() is None))
            try:
                await asyncio.wrap_future(written)
            except JournalFullError as error:
                raise self._refused(Reason.FULL, str(error), body.transport) from error
        return checked.answer

    async def _checked_apart(self, body: Body) -> _Checked:
        """As `_check`, while the loop goes on."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._large, self._check_large, body)
        except RuntimeError as error:
            raise self._refused(Reason.STOPPING, _CLOSED, body.transport) from error

    def _submit(self, checked: _Checked) -> Future[Batch]:
        """Hand a body to the journal; raises `RefusedError`."""
        try:
            return self._journal.submit(checked.body.signal, checked.data, checked.counts.items, checked.made)
        except JournalFullError as error:
            self._count(checked, accepted=False)
            raise self._refused(Reason.FULL, str(error), checked.body.transport) from error

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

    def _check_large(self, body: Body) -> _Checked:
        """As `_check`, by the helper if there is one; for the thread of large bodies."""
        self.admit(body.transport)
        asked = Asked.CHECK_JSON if body.json else Asked.CHECK
        # A small one is here because its sender crowds others.
        limit, crowds = self._limits.max_elements, len(body.data) <= self._small
        words = self._helper.ask(asked, body.signal, body.data, limit, is_worth_it=crowds)
        if words is None:
            return self._check(body, patience=self._patience)
        with self._refusing(body):
            sound = checking.heard(words)
            data = body.data if sound.data is None else sound.data
            is_taken = self._is_folded and sound.said is not None
            made = Made(what=sound.said, cost=len(sound.said or b"")) if is_taken else None
            return _Checked(body=body, data=data, counts=sound.counts, made=made)

    def _check(self, body: Body, known: Decoded | None = None, patience: Patience | None = None) -> _Checked:
        """The body as protobuf, and what is in it, unless that is known; raises `RefusedError`."""
        self.admit(body.transport)
        limit, data = self._limits.max_elements, body.data
        with self._refusing(body):
            if known is not None:
                return self._checked(body, data, known, known=True)
            data = checking.as_protobuf(body.signal, data, limit, json=body.json)
            return self._checked(body, data, self._decoding.decode(body.signal, data, patience))

    @contextlib.contextmanager
    def _refusing(self, body: Body) -> Iterator[None]:
        """What is wrong with a body refuses it."""
        try:
            yield
        except elements.TooManyElements as error:
            raise self._refused(Reason.TOO_LARGE, str(error), body.transport) from error
        except (MalformedBody, MalformedJson) as error:
            raise self._refused(Reason.MALFORMED, str(error), body.transport) from error

    def _checked(self, body: Body, data: bytes, decoded: Decoded, *, known: bool = False) -> _Checked:
        made = made_of(body.signal, data, decoded, known=known) if self._is_folded else None
        return _Checked(body=body, data=data, counts=validate.counts_of(decoded), made=made)

    def refuse(self, reason: Reason, message: str, transport: str) -> RefusedError:
        """Count a refusal that a transport decided; returns the error to raise."""
        return self._refused(reason, message, transport)

    def _refused(self, reason: Reason, message: str, transport: str) -> RefusedError:
        self._tally.add("overwatch_receiver_refused_requests", 1, reason=reason.value, transport=transport)
        return RefusedError(reason, message)
