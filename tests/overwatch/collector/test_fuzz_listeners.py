"""Mutated requests at each door, in process: whatever comes is answered, never with a fault, and folds.

A few thousand a door in every run, a million with `long`. The corpus is what producers really send, and
what has broken servers before.
"""

import asyncio
import gzip
import http.client
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from overwatch.collector.intake import Body, Intake, Reason, RefusedError
from overwatch.collector.limits import LimitsConfig
from overwatch.collector.signals import WIRES
from overwatch.collector.tally import Tally
from overwatch.deflate import BadGzipError, TooLargeError, inflated
from overwatch.fold import Fold, next_tick
from overwatch.journal import MemoryJournal, Signal
from overwatch.otlp.jsonl import to_json
from tests.overwatch.collector.running import reported, run_started, running, update
from tests.overwatch.collector.test_otlp_conformance import one_bad_log, span, two_bad_points
from tests.overwatch.otlp.test_protobuf import empties

SHORT, LONG = 3000, 1_000_000
"""Mutations of each signal in each encoding, six in all; both doors take bodies in by the same way."""
ROUND = 500
"""Requests between two ticks of the fold."""
REFUSED = frozenset({Reason.MALFORMED, Reason.TOO_LARGE})
ANSWERED = frozenset({200, 400, 403, 404, 405, 408, 411, 413, 415, 417, 431, 501, 505})
"""What a door may answer to a mutated request; 403 is to a strange host."""

CORPUS: dict[Signal, list[bytes]] = {
    Signal.LOGS: [
        reported("run-fuzz", [run_started(), update(0.01), update(0.02, 2)]),
        one_bad_log(),
        empties(50),
    ],
    Signal.METRICS: [two_bad_points(), empties(20)],
    Signal.TRACES: [span(), b""],
}
EDGES = (
    b"", b"\x00", b"\xff" * 10, b"\x80" * 11, b"\x0a",
    b"\x0b", b"\x0c", b"NaN", b"null", b"1e999", b"-0", b"\\ud800",
)  # fmt: skip
"""Pieces that have broken parsers: varints without an end, groups, words of other formats."""


def mutated(chance: random.Random, body: bytes) -> bytes:
    """A body with a few of its bytes flipped, cut, doubled, moved or replaced."""
    data = bytearray(body)
    for _ in range(chance.randint(1, 6)):
        at = chance.randint(0, len(data))
        match chance.randrange(6):
            case 0 if data:
                data[at % len(data)] ^= 1 << chance.randrange(8)
            case 1:
                del data[at : at + chance.randint(0, 8)]
            case 2:
                data[at:at] = data[at : at + chance.randint(0, 64)]
            case 3:
                data[at:at] = chance.choice(EDGES)
            case 4 if data:
                data[at % len(data)] = chance.randrange(256)
            case _:
                data[at : at + chance.randint(0, 4)] = chance.randbytes(chance.randint(0, 4))
    return bytes(data)


def inputs(seed: int, count: int, bodies: list[bytes]) -> Iterator[bytes]:
    """The corpus, and then mutations of it; a mutation that was taken is no better than another."""
    chance = random.Random(seed)  # noqa: S311 a test's own chance
    yield from bodies
    for _ in range(count):
        yield mutated(chance, chance.choice(bodies))


class Tower:
    """An intake with a fold behind it, without a socket or a thread."""

    def __init__(self) -> None:
        self._stamp = 10**18
        journal = MemoryJournal(self._now, 1 << 28)
        self._cursor = journal.cursor("fold")
        self._intake = Intake(journal, Tally(), LimitsConfig(limit_mib=1 << 20))
        self._intake.open()
        self._loop = asyncio.new_event_loop()
        self._fold = Fold()

    def _now(self) -> int:
        self._stamp += 1_000_000
        return self._stamp

    def send(self, signal: Signal, data: bytes, *, json: bool) -> bool:
        """Whether a body was accepted; one that is refused for anything but itself fails the test."""
        try:
            self._loop.run_until_complete(
                self._intake.take(Body(signal=signal, data=data, transport="http", json=json))
            )
        except RefusedError as refused:
            if refused.reason in REFUSED:
                return False
            raise
        return True

    def close(self) -> None:
        """Take nothing in any more."""
        self._intake.close()
        self._loop.close()

    def tick(self) -> None:
        """Fold and judge what was accepted; a record that cannot be folded is counted, not raised."""
        tick = next_tick(self._stamp)
        self._fold.advance(tick, self._cursor.seal(tick), ())


def fuzz(signal: Signal, count: int, *, json: bool) -> None:
    """Send mutations, fold them, and check that some of each sort were among them."""
    bodies = [to_json(signal, body) for body in CORPUS[signal]] if json else CORPUS[signal]
    tower, taken, sent = Tower(), 0, 0
    for data in inputs(count, count, bodies):
        taken += tower.send(signal, data, json=json)
        sent += 1
        if sent % ROUND == 0:
            tower.tick()
    tower.tick()
    tower.close()
    assert len(bodies) <= taken < sent


DOORS = [
    pytest.param(Signal.LOGS, False, id="logs"),
    pytest.param(Signal.METRICS, False, id="metrics"),
    pytest.param(Signal.TRACES, False, id="traces"),
    pytest.param(Signal.LOGS, True, id="logs-json"),
    pytest.param(Signal.METRICS, True, id="metrics-json"),
    pytest.param(Signal.TRACES, True, id="traces-json"),
]


@pytest.mark.parametrize(("signal", "json"), DOORS)
def test_mutated_bodies_are_answered(signal: Signal, *, json: bool) -> None:
    """A mutated body is taken or refused for what it is, and what was taken folds."""
    fuzz(signal, SHORT, json=json)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("signal", "json"), DOORS)
def test_a_million_mutated_bodies_are_answered(signal: Signal, *, json: bool) -> None:
    """The same, a million times each."""
    fuzz(signal, LONG, json=json)


def test_mutated_gzip_is_inflated_or_refused() -> None:
    """Whatever became of a gzip body, it is bytes within the limit or one of two refusals."""
    packed = [gzip.compress(body) for body in CORPUS[Signal.LOGS]] + [gzip.compress(bytes(1 << 16))]
    refused = 0
    for data in inputs(7, SHORT, packed):
        try:
            assert len(inflated(data, 1 << 12)) <= 1 << 12
        except (BadGzipError, TooLargeError):
            refused += 1
    assert refused


def requests_of(body: bytes) -> list[bytes]:
    """Whole HTTP requests, as bytes, with a body in each encoding."""
    text = to_json(Signal.LOGS, body)
    packed = gzip.compress(body)
    return [
        head(len(body), "application/x-protobuf") + body,
        head(len(text), "application/json") + text,
        head(len(packed), "application/x-protobuf", "Content-Encoding: gzip\r\n") + packed,
        head(None, "application/x-protobuf", "Transfer-Encoding: chunked\r\n")
        + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body),
    ]


def head(length: int | None, kind: str, more: str = "") -> bytes:
    """The head of a request to the logs."""
    size = "" if length is None else f"Content-Length: {length}\r\n"
    path = WIRES[Signal.LOGS].path
    return f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\n{more}{size}\r\n".encode()


def test_mutated_requests_get_an_answer_or_the_end_of_the_connection(tmp_path: Path) -> None:
    """Requests mutated anywhere, head and framing included, never make the HTTP door fail."""
    sets = ("receivers.otlp.protocols.http.connections={request_timeout_s: 0.3, read_header_timeout_s: 0.3}",)
    chance = random.Random(3)  # noqa: S311 a test's own chance
    corpus = requests_of(CORPUS[Signal.LOGS][0])
    seen: set[int] = set()
    with running(tmp_path, *sets) as service:
        port = int(str(service.endpoints.otlp_http).rpartition(":")[2])
        for data in [*corpus, *(mutated(chance, chance.choice(corpus)) for _ in range(100))]:
            seen.add(_status(port, data))
        assert (
            service.context.tally.get("overwatch_receiver_refused_requests", reason="fault", transport="http")
            == 0
        )
    assert {200, 400} <= seen
    assert seen <= ANSWERED | {0}


def _status(port: int, data: bytes) -> int:
    """The status of the answer to these bytes, 0 where the connection ended without one."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.connect()
        connection.sock.sendall(data)
        answer = http.client.HTTPResponse(connection.sock)
        answer.begin()
    except (http.client.HTTPException, ConnectionError):
        return 0
    else:
        return answer.status
    finally:
        connection.close()
