"""One thread that gives requests to a collector.

Rules: requests go in order, one at a time, without a pause while more wait; a collector that is away is
tried again with growing pauses for as long as patience lasts; what it refuses is counted by its code and
passed over. A token that is not accepted is tried again for some minutes, against OTLP's letter: a collector
may know a new token a moment after us, or revoke the old one a moment before. Whatever fails, this thread
goes on. Must not know what a request holds.
"""

import contextvars
import logging
import math
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar, assert_never

from overwatch.delivery.answer import CLOSED, Answer, Parcel, Verdict
from overwatch.delivery.transport import OtlpTransport

log: Final = logging.getLogger("overwatch.exporter")

P = TypeVar("P", bound=Parcel)

_IDLE_S: Final = 0.2
_CLOSED_SOURCE_S: Final = 0.01
"""Between two looks at a source that does not wait any more."""
_JITTER: Final = 0.2
_MOST_GROWTH: Final = 64
_MOST_FAULTS: Final = 5
_REPEAT_S: Final = 10.0
"""Least time between two lines about the same trouble."""
_UNAUTHENTICATED: Final = frozenset({"401", "unauthenticated"})
REFUSED: Final = "refused"
"""Why a request is lost that a server will never take, with the server's code."""
EXPIRED: Final = "expired"
"""Why a request is lost that was tried for as long as patience lasts."""


class Source(Protocol[P]):
    """Where requests wait; the sender is its only taker, one request at a time."""

    def take(self, timeout_s: float) -> P | None:
        """The oldest request, waiting so long for one."""

    def landed(self, request: P, rejected: int) -> None:
        """The collector has it, but for so many records."""

    def lost(self, request: P, reason: str) -> None:
        """It is given up."""

    def wait_empty(self, timeout_s: float) -> bool:
        """Wait until all requests have landed or are lost; whether they have."""


class Overseer(Protocol):
    """Is given how the collector takes it, and may give up."""

    def note(self, answer: Answer) -> None:
        """Take an answer; on the sender's thread."""

    def gives_up(self) -> str | None:
        """Why the request that is tried is to be given up at once; `None` to go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast a collector that is away is tried again."""

    first_s: float = 0.2
    """The first pause, and each while draining."""
    longest_s: float = 5.0
    """What the pauses, each twice the one before, grow to."""
    ceiling_s: float = 60.0
    """The longest that a collector may ask for."""
    multiplier: float = 2.0
    """How much longer each pause is than the one before."""
    jitter: float = _JITTER
    """The share by which a pause may be shorter or longer, so that many senders do not come at once."""
    patience_s: float = math.inf
    """How long one request is tried; `0` is once."""
    token_s: float = 300.0
    """How long requests are tried from the first one on whose token was not accepted."""

    def __post_init__(self) -> None:
        """Raise `ValueError` for pauses out of order."""
        if not 0 < self.first_s <= self.longest_s <= self.ceiling_s < math.inf:
            raise ValueError(f"pauses must be 0 < first <= longest <= ceiling, not {self}")
        if not (1 <= self.multiplier < math.inf and 0 <= self.jitter < 1 and self.patience_s >= 0):
            raise ValueError(f"pauses must grow, jitter be a share, patience no less than 0: {self}")

    def pause_s(self, tries: int, asked_s: float | None) -> float:
        """The pause after so many failed tries, or what the collector asked for and up to a fifth more."""
        if asked_s:
            return min(max(asked_s, self.first_s) * random.uniform(1.0, 1.0 + _JITTER), self.ceiling_s)  # noqa: S311 jitter, not a secret
        pause = self.first_s
        for _ in range(min(tries - 1, _MOST_GROWTH)):
            pause = min(pause * self.multiplier, self.longest_s)
        return pause * random.uniform(1.0 - self.jitter, 1.0 + self.jitter)  # noqa: S311 jitter, not a secret


class Sender(Generic[P]):
    """Takes from a source, gives to a collector."""

    def __init__(
        self,
        source: Source[P],
        open_transport: Callable[[], OtlpTransport],
        overseer: Overseer,
        pace: Pace | None = None,
    ) -> None:
        self._source = source
        self._open = open_transport
        self._pace = pace or Pace()
        self._transport = open_transport()
        self._overseer = overseer
        self._changed = threading.Condition()
        self._is_stopping = False
        self._drains = 0
        self._is_cut = False
        self._denied_at: float | None = None
        """Since when the token is not accepted."""
        self._in_trouble = False
        """The last try came to no end; a refusal is one."""
        self._progress: Callable[[], None] = lambda: None
        run = contextvars.copy_context().run
        self._thread = threading.Thread(target=run, args=(self._run,), name="overwatch-sender", daemon=True)
        self.faults = 0
        """Errors of our own, met and outlived."""

    def start(self, progress: Callable[[], None] = lambda: None) -> None:
        """Begin; `progress` is called, on the sender's thread, after each request."""
        self._progress = progress
        self._thread.start()

    def drain(self, timeout_s: float) -> bool:
        """Send what waits without long pauses; whether all of it has landed or is lost in time.

        The sender goes on afterwards. A try that hangs on a collector in trouble is cut off for a new one.
        """
        deadline = time.monotonic() + timeout_s
        with self._changed:
            self._drains += 1
            in_trouble = self._in_trouble
            self._is_cut = self._is_cut or in_trouble
            stuck = self._transport
            self._changed.notify_all()
        if in_trouble:
            stuck.close()
        try:
            return self._source.wait_empty(max(deadline - time.monotonic(), 0.0))
        finally:
            with self._changed:
                self._drains -= 1

    def stop(self, timeout_s: float = 1.0) -> bool:
        """End the thread, and with it a try in flight; what was not delivered stays in the source."""
        with self._changed:
            self._is_stopping = True
            transport = self._transport
            self._changed.notify_all()
        transport.close()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._is_stopping:
            try:
                request = self._source.take(_IDLE_S)
                if request is None:
                    self._rest(_CLOSED_SOURCE_S, may_hurry=False)
                else:
                    self._deliver(request)
                    self._progress()
            except Exception as error:  # noqa: BLE001 the border: telemetry ends with the process, not before
                self._fault(error)
                self._rest(self._pace.first_s, may_hurry=False)

    def _deliver(self, request: P) -> None:
        tries = faults = 0
        begun = time.monotonic()
        while not self._is_stopping:
            self._renew()
            answer = self._try(request)
            self._in_trouble = answer.verdict is Verdict.AGAIN
            tries += 1
            faults += answer is _FAULT
            if faults >= _MOST_FAULTS:
                self._source.lost(request, "unsendable")
                return
            if answer not in (CLOSED, _FAULT):
                self._overseer.note(answer)
            if self._waits_for_token(answer) and self._wait(tries, answer, begun) is None:
                continue
            match answer.verdict:
                case Verdict.TAKEN:
                    self._source.landed(request, answer.rejected)
                    return
                case Verdict.REFUSED:
                    reason = f"{REFUSED}_{answer.code}" if answer.code else REFUSED
                    self._source.lost(request, reason)
                    return
                case Verdict.AGAIN:
                    given_up = self._wait(tries, answer, begun)
                    if given_up is not None:
                        self._source.lost(request, given_up)
                        return
                case _:
                    assert_never(answer.verdict)

    def _waits_for_token(self, answer: Answer) -> bool:
        """Whether the token was not accepted, and not for long."""
        if answer.code not in _UNAUTHENTICATED:
            if answer.verdict is not Verdict.AGAIN:
                self._denied_at = None
            return False
        now = time.monotonic()
        self._denied_at = now if self._denied_at is None else self._denied_at
        return now - self._denied_at < self._pace.token_s

    def _try(self, request: Parcel) -> Answer:
        try:
            return self._transport.send(request, math.inf)
        except Exception as error:  # noqa: BLE001 the border: one request must not end the others' delivery
            self._fault(error)
            return _FAULT

    def _renew(self) -> None:
        with self._changed:
            if self._is_stopping or not self._is_cut:
                return
            cut, self._transport, self._is_cut = self._transport, self._open(), False
        cut.close()

    def _wait(self, tries: int, answer: Answer, begun: float) -> str | None:
        """Pause before the next try, or give why there is none."""
        asked_s = answer.retry_after_s
        pause_s = self._pace.pause_s(1 if self._drains else tries, asked_s)
        if answer is not CLOSED and time.monotonic() + pause_s - begun > self._pace.patience_s:
            return EXPIRED
        self._rest(pause_s, may_hurry=not asked_s)
        return self._overseer.gives_up()

    def _rest(self, pause_s: float, *, may_hurry: bool) -> None:
        """Wait; not when stopping, and, where the pause is only ours, not when a drain begins or has cut."""
        with self._changed:
            drains = self._drains
            self._changed.wait_for(
                lambda: self._is_stopping or (may_hurry and (self._drains > drains or self._is_cut)), pause_s
            )

    def _fault(self, error: Exception) -> None:
        self.faults += 1
        if self.faults == 1:
            log.error("an error of the exporter itself; delivery goes on", exc_info=error)


_FAULT: Final = Answer(verdict=Verdict.AGAIN, code="fault", detail="an error of the exporter")


class DeliveryLog:
    """An overseer that logs each change once, and nothing while it changes to and fro; it never gives up."""

    def __init__(self, shown: str | None) -> None:
        """`shown` is what a collector in trouble is called; `None` logs only what it did not keep."""
        self._is_up: bool | None = None
        self._shown = shown
        self._logged_at: dict[str, float] = {}
        self._logged_down = False
        self._rejected = 0
        self._rejected_logged = 0

    def note(self, answer: Answer) -> None:
        """Take an answer."""
        is_up = answer.verdict is Verdict.TAKEN
        if is_up is not self._is_up:
            if not is_up:
                self._log_down(answer)
            elif self._logged_down:
                log.warning("the collector at %s takes telemetry again", self._shown)
                self._logged_down = False
            self._is_up = is_up
        if answer.rejected:
            self._log_rejected(answer)

    def gives_up(self) -> str | None:
        """Telemetry waits for as long as the process lives."""
        return None

    def _log_down(self, answer: Answer) -> None:
        now = time.monotonic()
        if self._shown is None:
            return
        if now - self._logged_at.get(answer.code, -math.inf) >= _REPEAT_S:
            self._logged_at[answer.code] = now
            self._logged_down = True
            log.warning(
                "the collector at %s does not take telemetry (%s); it is kept on disk: `overwatch collect` "
                "receives it, `overwatch sync` sends it later",
                self._shown,
                answer.detail,
            )

    def _log_rejected(self, answer: Answer) -> None:
        """At the first, and then each time the number has doubled."""
        self._rejected += answer.rejected
        if self._rejected >= 2 * self._rejected_logged:
            self._rejected_logged = self._rejected
            log.warning("the collector did not keep %d records: %s", self._rejected, answer.detail)
