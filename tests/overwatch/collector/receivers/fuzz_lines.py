"""The OTLP/HTTP door in process, over connections without sockets, and what clients say on them.

One door answers plain requests ahead of the web server, another has the web server alone: what a connection
says must come to the same at both. Every seed gives the same connections.
"""

import asyncio
import random
import re
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol, cast

from aiohttp import web

from overwatch.collector.auth import Role
from overwatch.collector.crowd import Crowd, CrowdConfig
from overwatch.collector.guard import Entry, Guard, SecurityConfig
from overwatch.collector.health import Health
from overwatch.collector.intake import Body, Intake
from overwatch.collector.limits import LimitsConfig, Room
from overwatch.collector.net import Address
from overwatch.collector.receivers.otlp_http import HttpConfig, OtlpHttp, denied
from overwatch.collector.signals import WIRES
from overwatch.collector.tally import Tally
from overwatch.journal import MemoryJournal, Signal
from tests.overwatch.collector.receivers import fuzz_http
from tests.overwatch.collector.receivers.fuzzing import PROTOBUF, Input, corpus, flipped
from tests.overwatch.collector.test_fuzz_doors import mutated

UNLIKE: Final = re.compile(rb"\r\n(date|server): [^\r]*", re.IGNORECASE)
"""Headers in which answers may differ."""
STATUS: Final = re.compile(rb"HTTP/1\.1 (\d{3}) ")
LIMIT: Final = 1 << 14
"""Largest body, small enough to be met."""
STEADY: Final = 0.7
"""Share of clients that say the same again and again."""
HOST: Final = b"Host: 127.0.0.1\r\n"
ODD: Final = (
    b"Connection: close\r\n",
    b"Expect: 100-continue\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: identity\r\n",
    b"Content-Length: 3\r\n",
    b"Content-Length : 3\r\n",
    b"content-length:7\r\n",
    b"Content-Length: +7\r\n",
    b"Content-Length: 0x7\r\n",
    b"Content-Length: 99999999\r\n",
    b"X-Folded: a\r\n b\r\n",
    b"X-Content-Length: 5\r\n",
    b"Upgrade: h2c\r\nConnection: Upgrade\r\n",
    b"Trailer: Host\r\n",
    b"Host: other.example\r\n",
    b"Content-Encoding: gzip\r\n",
    b"\x00: \xff\r\n",
)
"""Headers that make others of a request, or should."""


class _Busy(Protocol):
    """The loop's own list of what is due."""

    _ready: deque[object]


async def idle() -> None:
    """Return once nothing is due any more in this loop."""
    loop = cast("_Busy", asyncio.get_running_loop())
    while True:
        await asyncio.sleep(0)
        if not loop._ready:
            return


class Wire(asyncio.Transport):
    """A connection that remembers what the door says."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.heard = bytearray()
        self.open = True
        self.protocol: asyncio.BaseProtocol = asyncio.Protocol()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Hear what the door says."""
        self.heard += data

    def get_write_buffer_size(self) -> int:
        """The client reads at once."""
        return 0

    def is_closing(self) -> bool:
        """Whether it ended."""
        return not self.open

    def close(self) -> None:
        """End, and tell who listens."""
        if self.open:
            self.open = False
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def abort(self) -> None:
        """As `close`."""
        self.close()

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Who listens."""
        return self.protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """As the web server may wish."""
        self.protocol = protocol

    def pause_reading(self) -> None:
        """What comes is kept by who reads it."""

    def resume_reading(self) -> None:
        """As above."""

    def is_reading(self) -> bool:
        """Always."""
        return True


class _Recorder(Intake):
    """An intake that tells which bodies were taken."""

    taken: list[tuple[Signal, bool, bytes]]

    def _count(self, checked: object, *, accepted: bool) -> None:
        body = cast("_Checked", checked).body
        if accepted:
            self.taken.append((body.signal, body.json, body.data))


class _Checked(Protocol):
    body: Body


@dataclass(slots=True)
class Came:
    """What came of one connection."""

    said: bytes
    """All answers, without what may differ."""
    taken: list[tuple[Signal, bool, bytes]]
    ended: bool

    @property
    def statuses(self) -> list[int]:
        """Of all answers."""
        return [int(found) for found in STATUS.findall(self.said)]


class Door:
    """One OTLP/HTTP door; `ahead` where plain requests do not need the web server."""

    def __init__(self, *, ahead: bool) -> None:
        self._intake = _Recorder(MemoryJournal(lambda: 1), Tally(), LimitsConfig(limit_mib=1 << 20))
        self._intake.taken = []
        config = HttpConfig(endpoint="127.0.0.1:0", max_request_body_size=LIMIT)
        self.http = OtlpHttp(config, self._intake, frozenset(WIRES), Room(1 << 24, 1 << 23), lambda: 0)
        self._ahead = ahead
        self._crowd = Crowd(CrowdConfig())
        guard = Guard(SecurityConfig(), Health(), Tally())
        entry = Entry(name="otlp", reads=Role.INGEST, acts=Role.INGEST, answer=denied, bodies=True)
        app = guard.protect(self.http.app(), entry, Address(host="127.0.0.1", port=4318))
        self._crowd.watch(app)
        self._runner = web.AppRunner(app, access_log=None, auto_decompress=False, handler_cancellation=True)

    async def open(self) -> None:
        """Begin to accept."""
        await self._runner.setup()
        self._intake.open()

    async def close(self) -> None:
        """End; whoever still works here is told."""
        self._intake.close()
        await self._runner.cleanup()

    async def hear(self, pieces: list[tuple[bytes, bool]]) -> Came:
        """A connection that says these pieces; after some of them it waits until all is quiet."""
        server, wire = self._runner.server, Wire()
        assert server is not None
        inner = server()
        before = self.http.express.before(inner, self._crowd) if self._ahead else inner
        protocol = self._crowd.around(lambda: before)()
        wire.protocol = protocol
        self._intake.taken = []
        protocol.connection_made(wire)
        for piece, waits in pieces:
            if wire.open:
                protocol.data_received(piece)
            if waits:
                await idle()
        await idle()
        ended = not wire.open
        if wire.open:
            protocol.eof_received()
            await idle()
            wire.close()
        await idle()
        return Came(UNLIKE.sub(b"", bytes(wire.heard)), self._intake.taken, ended)


def connections(seed: int) -> Iterator[list[bytes]]:
    """What clients say on a connection, request by request, without an end."""
    chance = random.Random(seed)  # noqa: S311 a test's own chance
    known = [sent for sent in corpus() if len(sent.body) < LIMIT]
    plain = [sent for sent in known if sent.kind == PROTOBUF]
    while True:
        # Who says the same again and again, with a strange word between, and who says this and that.
        steady = chance.random() < STEADY
        few = chance.sample(plain if steady else known, 1 if steady else 2)
        rest = (_request(chance, chance.choice(few), steady=steady) for _ in range(chance.randint(1, 12)))
        yield [*(fuzz_http.whole(sent) for sent in few if steady), *rest]


def _request(chance: random.Random, sent: Input, *, steady: bool) -> bytes:
    """One request: honest as it is, with another body, with odd words, or mutated anywhere."""
    match chance.randrange(60 if steady else 12):
        case 0:
            return mutated(chance, fuzz_http.whole(sent))
        case 1:
            return _odd(chance, fuzz_http.whole(sent))
        case 2:
            return _chunked(chance, sent)
        case 3:
            return fuzz_http.whole(sent._replace(body=bytes(chance.choice((0, 1, LIMIT, LIMIT + 1)))))
        case 4:
            return _lying(chance, sent)
        case 5 | 6 | 7:
            return fuzz_http.whole(sent._replace(body=mutated(chance, sent.body)))
        case 8 | 9:
            return fuzz_http.whole(sent._replace(body=flipped(chance, sent.body)))
        case _:
            return fuzz_http.whole(sent)


def _lying(chance: random.Random, sent: Input) -> bytes:
    """A request whose body is a little longer or shorter than it says."""
    words = fuzz_http.whole(sent)
    return words + chance.randbytes(chance.randint(1, 4)) if chance.random() < 0.5 else words[:-1]


def _odd(chance: random.Random, words: bytes) -> bytes:
    """A request with a header more, or of another version."""
    match chance.randrange(4):
        case 0:
            return words.replace(b"HTTP/1.1", chance.choice((b"HTTP/1.0", b"HTTP/2.0", b"HTTP/1.1 ")), 1)
        case 1:
            return words.replace(b"\r\n", b"\n", chance.randint(1, 6))
        case _:
            at = chance.choice((b"\r\n", HOST))
            return words.replace(at, at + chance.choice(ODD), 1)


def _chunked(chance: random.Random, sent: Input) -> bytes:
    """A request in chunks, some with sizes that lie."""
    head, _, body = fuzz_http.whole(sent).partition(b"\r\n\r\n")
    cut = chance.randint(0, len(body))
    size = cut + (chance.randint(-2, 2) if chance.random() < 0.2 else 0)
    told = re.sub(rb"Content-Length: \d+", b"Transfer-Encoding: chunked", head)
    parts = b"".join(
        b"%x\r\n%b\r\n" % (length, part) for length, part in ((max(size, 0), body[:cut]),) if part
    )
    rest = b"%x\r\n%b\r\n" % (len(body) - cut, body[cut:]) if cut < len(body) else b""
    return b"%b\r\n\r\n%b%b0\r\n\r\n" % (told, parts, rest)


def cut_up(chance: random.Random, requests: list[bytes]) -> list[tuple[bytes, bool]]:
    """A connection's bytes in pieces, and after which of them the client waits."""
    pieces: list[tuple[bytes, bool]] = []
    hasty, neat = chance.random() < 0.1, chance.random() < 0.6
    if hasty and not neat:
        requests = [b"".join(requests)]
    for number, words in enumerate(requests):
        left = words
        for _ in range(0 if neat and not number else chance.choice((0, 0, 0, 1, 3))):
            at = chance.randint(0, len(left))
            if at:
                pieces.append((left[:at], chance.random() < 0.5))
            left = left[at:]
        if left:
            pieces.append((left, not hasty or chance.random() < 0.5))
    return pieces


@dataclass(slots=True)
class Seen:
    """What came of many connections."""

    requests: int = 0
    connections: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    taken: int = 0
    ahead: int = 0
    """Requests that did not need the web server."""


async def compare(seed: int, count: int) -> Seen:
    """Say so many requests at both doors; fails where what comes of them differs, or where a task does."""
    faults: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    ahead, alone, seen = Door(ahead=True), Door(ahead=False), Seen()
    chance = random.Random(seed)  # noqa: S311 a test's own chance
    for door in (ahead, alone):
        await door.open()
    for requests in connections(seed):
        if seen.requests >= count:
            break
        pieces = cut_up(chance, requests)
        one, other = await ahead.hear(pieces), await alone.hear(pieces)
        assert one == other, f"{pieces!r}\n ahead {one}\n alone {other}"
        assert not faults, f"{pieces!r}\n {faults}"
        seen.requests += len(requests)
        seen.connections += 1
        seen.statuses.update(one.statuses)
        seen.taken += len(one.taken)
    seen.ahead = ahead.http.express.served
    for door in (ahead, alone):
        assert not door.http.express.reading
        await door.close()
    return seen
