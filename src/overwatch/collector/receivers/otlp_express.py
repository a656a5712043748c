"""Clients that ask the same again and again, before the web server: their words are not read twice.

Of a request that the web server took in with success, its head is kept: another one of the same connection,
byte for byte the same but for the length of its body, would be judged and read in the same way. Such a body
goes straight to the intake, and its answer straight to the connection.

Rules: only what the web server judged on this very connection, a few seconds ago, with the tokens that hold
now; who is not admitted is told so at once. Whatever is not as plain as that (other words, a body that
lingers or that cannot be inflated, requests that do not wait for answers, no room) is the web server's, from
its first byte on. Runs in the event loop only. Must not know what a body means.
"""

import asyncio
import logging
import re
import time
from collections.abc import Callable
from email.utils import formatdate
from enum import Enum, auto
from typing import Final, NamedTuple, TypeAlias, assert_never, cast

from aiohttp import hdrs, web
from aiohttp.http import HttpVersion11

from overwatch.collector.crowd import Crowd
from overwatch.collector.intake import Accepted, Body, Intake, Reason, RefusedError
from overwatch.collector.limits import Hold, NoRoomError, Room
from overwatch.collector.receivers.bodies import BadGzipError, Inflater, TooLargeError
from overwatch.collector.receivers.judged_head import JudgedHead
from overwatch.journal import Signal

FRESH_S: Final = 10.0
"""How long a judgement holds: so often a request goes to the web server, which closes what idles for long."""
LATE_S: Final = 0.5
"""A body that takes longer is the web server's, with its deadlines."""
INFLATED: Final = 1 << 20
"""What inflates to more bytes is the web server's, which does it in slices."""
_MOST_HEADS: Final = 4
_MOST_HEAD_BYTES: Final = 8 << 10
_END: Final = b"\r\n\r\n"
_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,9})[ \t]*\r\n", re.IGNORECASE)
_ODD: Final = (hdrs.EXPECT, hdrs.TRANSFER_ENCODING, hdrs.UPGRADE, hdrs.TRAILER)
Said: TypeAlias = Accepted | RefusedError
"""What became of a body."""

_log = logging.getLogger("overwatch.collector")


class Manners(NamedTuple):
    """What the door does with bodies, whoever reads them."""

    transport: str
    limit: int
    """Largest body in bytes."""
    most: int
    """Bodies that may be read at once."""
    say: Callable[[Signal, Said], web.Response]
    """An answer in protobuf."""
    epoch: Callable[[], int]
    """Another number whenever judgements of before do not hold any more."""


class Express:
    """All connections of one door."""

    def __init__(self, manners: Manners, intake: Intake, room: Room) -> None:
        self.manners = manners
        self.intake = intake
        self.room = room
        self.reading = 0
        """Bodies that are being read or taken in, here and by the web server."""
        self.served = 0
        """Requests that did not need the web server."""
        self._own = 0
        self._rested = asyncio.Event()
        self._lines: dict[asyncio.BaseTransport, _Line] = {}
        self._okay = (0, b"")

    def before(self, inner: asyncio.Protocol, crowd: Crowd) -> asyncio.Protocol:
        """Stand before the web server's end of a connection."""
        return _Line(self, inner, crowd)

    async def rest(self, within_s: float) -> None:
        """Return once no request is being answered here, or after so many seconds."""
        if self._own:
            self._rested.clear()
            try:
                await asyncio.wait_for(self._rested.wait(), within_s)
            except TimeoutError:
                _log.warning("%d requests were not answered in time", self._own)

    def enter(self, transport: asyncio.BaseTransport, line: "_Line") -> None:
        """A connection was made."""
        self._lines[transport] = line

    def leave(self, transport: asyncio.BaseTransport) -> None:
        """A connection ended."""
        self._lines.pop(transport, None)

    def begin(self) -> None:
        """A body is being read here."""
        self.reading += 1
        self._own += 1

    def end(self) -> None:
        """It is not any more."""
        self.reading -= 1
        self._own -= 1
        if not self._own:
            self._rested.set()

    def judged(self, request: web.Request, signal: Signal | None) -> None:
        """The web server has made an answer: of success to a body of `signal` as protobuf, or another one."""
        line = None if request.transport is None else self._lines.get(request.transport)
        if line is not None:
            line.judged(request, signal)

    def words(self, signal: Signal, said: Said) -> bytes:
        """An answer on the wire."""
        plain = isinstance(said, Accepted) and not said.rejected and not said.message
        now = int(time.time())
        if plain and self._okay[0] == now:
            return self._okay[1]
        answer = self.manners.say(signal, said)
        body = answer.body if isinstance(answer.body, bytes) else b""
        headers = dict(answer.headers)
        headers |= {hdrs.CONTENT_LENGTH: str(len(body)), hdrs.DATE: formatdate(now, usegmt=True)}
        lines = [f"HTTP/1.1 {answer.status} {answer.reason}", *(f"{k}: {v}" for k, v in headers.items())]
        words = "\r\n".join(lines).encode() + _END + body
        if plain:
            self._okay = now, words
        return words


class _At(Enum):
    """Whose turn it is on a connection."""

    IDLE = auto()
    """A request may begin."""
    BODY = auto()
    """Of a request of ours not all has come."""
    TAKEN = auto()
    """A request of ours is being taken in."""
    REFUSED = auto()
    """A request of ours was answered before all of its body has come."""
    THEIRS = auto()
    """The web server is at a request, whose end is known."""
    PASSED = auto()
    """Everything is the web server's from here on."""


class _Line(asyncio.Protocol):
    """One connection."""

    def __init__(self, express: Express, inner: asyncio.Protocol, crowd: Crowd) -> None:
        self._express = express
        self._inner = inner
        self._crowd = crowd
        self._at = _At.IDLE
        self._transport: asyncio.Transport | None = None
        self._peer = ""
        self._heads: list[JudgedHead] = []
        self._head = b""
        """Of the request that the web server is at."""
        self._left = 0
        """Bytes of its body, or of that of a refused request, that have not come."""
        self._judged_at = 0.0
        self._raw: list[bytes] = []
        """What came of a request of ours, and where its body begins and ends."""
        self._begin = self._came = self._end = 0
        self._signal = Signal.METRICS
        self._hold = Hold(express.room)
        self._inflater: Inflater | None = None
        self._late: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._early: list[bytes] = []
        """What came while a request of ours was taken in."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self._peer = str(peer[0]) if isinstance(peer, tuple) and peer else ""
        self._express.enter(transport, self)
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._express.leave(self._transport)
        self._transport = None
        if self._at is _At.BODY:
            self._let_go()
        self._at = _At.PASSED
        self._inner.connection_lost(exc)

    def eof_received(self) -> bool | None:
        if self._at is _At.BODY:
            self._hand_over()
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def data_received(self, data: bytes) -> None:
        match self._at:
            case _At.IDLE:
                if not self._recognised(data):
                    self._follow(data)
            case _At.BODY:
                self._raw.append(data)
                self._grow(data)
            case _At.TAKEN:
                self._early.append(data)
                if self._transport is not None:
                    self._transport.pause_reading()
            case _At.REFUSED:
                self._left -= len(data)
                if self._left <= 0:
                    self._at = _At.IDLE
                if self._left < 0:
                    self.data_received(data[self._left :])
            case _At.THEIRS:
                self._left -= len(data)
                # Who does not wait for an answer would get ours before the web server's.
                self._at = _At.PASSED if self._left < 0 else _At.THEIRS
                self._inner.data_received(data)
            case _At.PASSED:
                self._inner.data_received(data)
            case _:
                assert_never(self._at)

    def judged(self, request: web.Request, signal: Signal | None) -> None:
        """The web server has made its answer."""
        if self._at is not _At.THEIRS:
            return
        if self._left or not request.keep_alive or request.version != HttpVersion11:
            self._at = _At.PASSED
            return
        self._at = _At.IDLE
        found = _LENGTH.findall(self._head)
        odd = any(name in request.headers for name in _ODD) or len(found) != 1
        if signal is not None and not odd:
            self._keep(signal, gzipped=hdrs.CONTENT_ENCODING in request.headers)

    def _keep(self, signal: Signal, *, gzipped: bool) -> None:
        match = _LENGTH.search(self._head)
        if match is None:
            return
        before, after = self._head[: match.start(1)], self._head[match.end(1) :]
        others = [head for head in self._heads if head[:2] != (before, after)]
        epoch = self._express.manners.epoch()
        self._heads = [JudgedHead(before, after, signal, gzipped, epoch), *others][:_MOST_HEADS]
        self._judged_at = time.monotonic()

    def _recognised(self, data: bytes) -> bool:
        """Begin a request of ours, if it is one."""
        express, transport = self._express, self._transport
        if transport is None or not self._heads or time.monotonic() - self._judged_at > FRESH_S:
            return False
        for head in self._heads:
            found = head.length(data)
            if found is not None:
                break
        else:
            return False
        manners = express.manners
        free = express.reading < manners.most and not transport.get_write_buffer_size()
        fits = found[0] <= manners.limit and head.epoch == manners.epoch()
        if not free or not fits:
            return False
        if not express.intake.admits(self._peer):
            return self._turned_away(transport, head.signal, sum(found) - len(data))
        self._crowd.begin(transport)
        express.begin()
        self._at, self._signal, self._raw = _At.BODY, head.signal, [data]
        self._begin, self._came, self._end = found[1], 0, found[0]
        self._hold = Hold(express.room, self._peer)
        self._inflater = Inflater(min(manners.limit, INFLATED)) if head.gzipped else None
        self._grow(data[self._begin :] if self._inflater is not None else memoryview(data)[self._begin :])
        return True

    def _turned_away(self, transport: asyncio.Transport, signal: Signal, left: int) -> bool:
        """Answer a request that is not admitted, and pass over the rest of its body: it must cost little."""
        express = self._express
        if left < 0:
            return False
        try:
            express.intake.admit(express.manners.transport, self._peer)
        except RefusedError as error:
            self._crowd.begin(transport)
            transport.write(express.words(signal, error))
            express.served += 1
            self._crowd.end(transport)
            self._at, self._left = _At.REFUSED if left else _At.IDLE, left
            return True
        return False

    def _grow(self, data: bytes | memoryview) -> None:
        """More of a body of ours has come."""
        over = self._came + len(data) - self._end
        self._came += len(data)
        if over > 0:
            self._hand_over()
            return
        try:
            if self._inflater is None:
                self._hold.grow(len(data))
            else:
                self._hold.grow(self._inflater.feed(bytes(data)))
            if over == 0:
                self._take(self._whole())
            elif self._late is None:
                self._late = asyncio.get_running_loop().call_later(LATE_S, self._hand_over)
        except (TooLargeError, BadGzipError, NoRoomError):
            self._hand_over()

    def _whole(self) -> bytes:
        if self._inflater is not None:
            return self._inflater.finish()
        first, *rest = self._raw
        return b"".join((memoryview(first)[self._begin :], *rest))

    def _take(self, data: bytes) -> None:
        self._cancel()
        self._raw, self._inflater, self._at = [], None, _At.TAKEN
        express = self._express
        body = Body(signal=self._signal, data=data, transport=express.manners.transport, peer=self._peer)
        try:
            if not express.intake.take_at_once(body, self._answer):
                self._task = asyncio.get_running_loop().create_task(self._wait_for(body))
        except Exception as error:  # noqa: BLE001 as `_refused_by` says
            self._answer(self._refused_by(error, body))

    async def _wait_for(self, body: Body) -> None:
        try:
            said: Said = await self._express.intake.take(body)
        except Exception as error:  # noqa: BLE001 as `_refused_by` says
            said = self._refused_by(error, body)
        self._answer(said)

    def _refused_by(self, error: Exception, body: Body) -> RefusedError:
        """The border of a request of ours: a fault is logged, counted, and told in OTLP's words."""
        if isinstance(error, RefusedError):
            return error
        _log.error("a request of %s failed", body.signal.value, exc_info=error)
        what = "the collector failed; its log says why"
        return self._express.intake.refuse(Reason.FAULT, what, body.transport)

    def _answer(self, said: Said) -> None:
        express, transport = self._express, self._transport
        self._hold.end()
        express.end()
        express.served += 1
        if transport is None:
            return
        self._at = _At.IDLE
        transport.write(express.words(self._signal, said))
        self._crowd.end(transport)
        if self._early:
            early, self._early = self._early, []
            transport.resume_reading()
            self._at = _At.PASSED
            for piece in early:
                self._inner.data_received(piece)

    def _hand_over(self) -> None:
        """Leave a request of ours to the web server, from its first byte on."""
        first, *rest = self._raw
        self._let_go()
        self._at = _At.IDLE
        self._follow(first)
        for piece in rest:
            self.data_received(piece)

    def _let_go(self) -> None:
        self._cancel()
        self._raw, self._inflater = [], None
        self._hold.end()
        self._express.end()

    def _cancel(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _follow(self, data: bytes) -> None:
        """A request begins that is the web server's; go along with it to its end, if that can be told."""
        end = data.find(_END, 0, _MOST_HEAD_BYTES)
        self._head = data[: end + len(_END)] if end > 0 else b""
        match = _LENGTH.search(self._head)
        self._left = -1 if match is None else int(match.group(1)) + len(self._head) - len(data)
        self._at = _At.PASSED if self._left < 0 else _At.THEIRS
        self._inner.data_received(data)
