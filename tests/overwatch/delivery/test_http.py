"""Requests over HTTP: what each reply means, and what no collector can do to us."""

import gzip
import socket
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from google.rpc.status_pb2 import Status

from overwatch.delivery import Destination, destination
from overwatch.delivery.answer import Answer, Verdict
from overwatch.delivery.transport import OtlpTransport
from overwatch.journal import Signal
from overwatch.sdk.exporter.queues import Request
from tests.overwatch.delivery.evil import OK, SOON_S, Call, evil, reply, serving
from tests.overwatch.sdk.sink import http_sink, partial_success
from tests.ports import free_port

LONG_S = 30.0


def request(order: int = 1, body: bytes = b"", signal: Signal = Signal.LOGS) -> Request:
    """A request with a body."""
    return Request(order=order, signal=signal, body=body, is_fact=False, records=1, last_seq=order)


def to(endpoint: str, env: dict[str, str] | None = None) -> Destination:
    """Logs to an endpoint."""
    return destination(Signal.LOGS, endpoint, env or {})


def query(
    endpoint: str, *, env: dict[str, str] | None = None, body: bytes = b"", within_s: float = LONG_S
) -> Answer:
    """One request to an endpoint."""
    transport = OtlpTransport({Signal.LOGS: to(endpoint, env)})
    try:
        return transport.send(request(body=body), time.monotonic() + within_s)
    finally:
        transport.close()


def answered(text: bytes) -> Answer:
    """The answer when a server sends this and hangs up."""

    def script(call: Call) -> None:
        call.receive()
        call.emit(text)

    with evil(script) as server:
        return query(server.endpoint)


def test_a_taken_request_arrives_as_it_was_encoded() -> None:
    """Path, type and body are OTLP's; the three signals share one kept connection."""
    with evil(serving(OK)) as server:
        base = {
            signal: destination(signal, server.endpoint, {})
            for signal in (Signal.LOGS, Signal.METRICS, Signal.TRACES)
        }
        transport = OtlpTransport(base)
        for signal in base:
            answer = transport.send(
                request(body=signal.value.encode(), signal=signal), time.monotonic() + LONG_S
            )
            assert answer == Answer(verdict=Verdict.TAKEN)
        transport.close()
        assert [(requested.path, requested.body) for requested in server.requested] == [
            ("/v1/logs", b"logs"),
            ("/v1/metrics", b"metrics"),
            ("/v1/traces", b"traces"),
        ]
        assert server.connections == 1
        headers = server.requested[0].headers
        assert headers["content-type"] == "application/x-protobuf"
        assert headers["host"] == f"127.0.0.1:{server.port}"
        assert headers["user-agent"].startswith("Overwatch-OTLP-Exporter-Python/")


def test_compression_and_headers_come_from_the_environment() -> None:
    """Gzip where it is asked for; headers percent-decoded, never those that are the exporter's own."""
    env = {
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
        "OTEL_EXPORTER_OTLP_LOGS_HEADERS": "Authorization=Bearer%20abc, x-tenant=a=b,content-length=7",
    }
    with evil(serving(OK)) as server:
        assert query(server.endpoint, env=env, body=b"x" * 5000).verdict is Verdict.TAKEN
        requested = server.requested[0]
        assert gzip.decompress(requested.body) == b"x" * 5000
        assert len(requested.body) < 100
        assert requested.headers["content-encoding"] == "gzip"
        assert requested.headers["authorization"] == "Bearer abc"
        assert requested.headers["x-tenant"] == "a=b"


def test_partial_success_is_taken_with_its_count() -> None:
    """What the collector did not keep is reported, and is no reason to send again."""
    with http_sink() as sink:
        sink.reply = partial_success(3)
        answer = query(sink.endpoint)
        assert (answer.verdict, answer.rejected, answer.detail) == (Verdict.TAKEN, 3, "too many")
        assert sink.requests == 1


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_busy_collector_may_be_asked_again(status: int) -> None:
    """The four statuses of OTLP."""
    answer = answered(reply(f"{status} Busy"))
    assert (answer.verdict, answer.code) == (Verdict.AGAIN, str(status))


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 413, 500, 501])
def test_every_other_failure_is_final(status: int) -> None:
    """It is reported by its code and the collector's own words."""
    body = Status(message="bad \x1b[2Jthing").SerializeToString()
    answer = answered(reply(f"{status} No", "Content-Type: application/x-protobuf", body=body))
    assert (answer.verdict, answer.code) == (Verdict.REFUSED, str(status))
    assert answer.detail == f"HTTP {status} No: bad  [2Jthing"


def test_retry_after_is_read_in_both_forms_and_bounded() -> None:
    """Seconds or a date, by the collector's own clock where it sends it; a minute at most."""
    now = datetime.now(UTC)
    away = format_datetime(now + timedelta(hours=5, seconds=7), usegmt=True)
    theirs = format_datetime(now + timedelta(hours=5), usegmt=True)
    waits = {
        "1": 1.0,
        "1000000000": 60.0,
        "1e9": 60.0,
        "-5": 0.0,
        "nan": None,
        "soon": None,
        away: 7.0,
        format_datetime(now - timedelta(hours=5), usegmt=True): 0.0,
    }
    for value, expected in waits.items():
        stated = reply("503 Busy", f"Retry-After: {value}", f"Date: {theirs}")
        assert answered(stated).retry_after_s == expected, value
    assert answered(reply("429 Busy", f"Retry-After: {away}")).retry_after_s == 60.0
    assert answered(reply("400 Bad", "Retry-After: 3")).retry_after_s is None


def test_a_redirect_is_not_followed_and_learns_no_token() -> None:
    """The other host is named, without what stands in its URL, and is never called."""
    env = {"OTEL_EXPORTER_OTLP_HEADERS": "authorization=secret"}
    with evil(serving(OK)) as other:
        place = f"Location: http://user:pass@127.0.0.1:{other.port}/v1/logs?key=hidden"
        for status in ("301 Moved", "302 Found", "307 Temporary", "308 Permanent"):
            with evil(serving(reply(status, place))) as server:
                answer = query(server.endpoint, env=env)
                assert (answer.verdict, answer.code) == (Verdict.REFUSED, status[:3])
                assert f"127.0.0.1:{other.port}" in answer.detail
                assert not {word for word in ("user", "pass", "hidden", "secret") if word in answer.detail}
        assert other.connections == 0


def test_a_closed_port_is_no_refusal() -> None:
    """Nobody listens yet: try again."""
    answer = query(f"http://127.0.0.1:{free_port()}")
    assert (answer.verdict, answer.code) == (Verdict.AGAIN, "connection")


def hung(call: Call) -> None:
    """Reads, and never answers."""
    call.receive()
    call.hold()


def deaf(call: Call) -> None:
    """Never even reads."""
    call.hold()


def slow_reader(call: Call) -> None:
    """Reads a kilobyte a second."""
    call.read_slowly(1000)


def slow_head(call: Call) -> None:
    """Status and headers at a crawl."""
    call.receive()
    call.dribble(b"HTTP/1.1 200 OK\r\n" + b"X-Slow: yes\r\n" * 1000, 0.02)


def slow_body(call: Call) -> None:
    """A body at a crawl."""
    call.receive()
    call.emit(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n")
    call.dribble(b"x" * 10000, 0.02)


def slow_chunks(call: Call) -> None:
    """One-byte chunks at a crawl."""
    call.receive()
    call.emit(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    call.dribble(b"1\r\nx\r\n" * 5000, 0.02)


def endless_interim(call: Call) -> None:
    """`100 Continue` for ever, at a crawl."""
    call.receive()
    call.dribble(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000, 0.02)


SLOW = [hung, deaf, slow_reader, slow_head, slow_body, slow_chunks, endless_interim]


@pytest.mark.parametrize("script", SLOW, ids=lambda script: script.__name__)
def test_the_deadline_is_of_the_whole_exchange(script: Callable[[Call], None]) -> None:
    """However a collector drags on, the try ends when it should, and may be made again."""
    with evil(script) as server:
        begun = time.monotonic()
        answer = query(server.endpoint, body=bytes(32 << 20), within_s=0.5)
        took = time.monotonic() - begun
    assert (answer.verdict, answer.code) == (Verdict.AGAIN, "timeout")
    assert 0.5 <= took < SOON_S


@pytest.mark.parametrize("script", SLOW, ids=lambda script: script.__name__)
def test_closing_ends_a_try_in_flight(script: Callable[[Call], None]) -> None:
    """From another thread, long before the deadline."""
    with evil(script) as server:
        transport = OtlpTransport({Signal.LOGS: to(server.endpoint)})
        closer = threading.Thread(target=lambda: (server.wait(lambda it: it.connections), transport.close()))
        closer.start()
        answer = transport.send(request(body=bytes(32 << 20)), time.monotonic() + LONG_S)
        closer.join()
        assert (answer.verdict, answer.code) == (Verdict.AGAIN, "closed")
        assert transport.send(request(), time.monotonic() + LONG_S).code == "closed"


def test_the_environments_timeout_bounds_a_try() -> None:
    """`OTEL_EXPORTER_OTLP_TIMEOUT` is in seconds, like OpenTelemetry's Python; thousands are milliseconds."""
    with evil(hung) as server:
        for word in ("0.4", "1000"):
            begun = time.monotonic()
            answer = query(server.endpoint, env={"OTEL_EXPORTER_OTLP_TIMEOUT": word})
            assert answer.code == "timeout"
            assert time.monotonic() - begun < SOON_S


def long_reply(call: Call) -> None:
    """A gigabyte."""
    call.receive()
    call.emit(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n")
    call.pour(bytes(1 << 20), 1 << 30)


def endless_reply(call: Call) -> None:
    """A gigabyte without a length."""
    call.receive()
    call.emit(b"HTTP/1.1 200 OK\r\n\r\n")
    call.pour(bytes(1 << 20), 1 << 30)


def long_chunks(call: Call) -> None:
    """A gigabyte in chunks."""
    call.receive()
    call.emit(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    call.pour(b"100000\r\n" + bytes(1 << 20) + b"\r\n", 1 << 30)


def bomb(call: Call) -> None:
    """64 MiB in 64 kB."""
    call.receive()
    call.emit(reply("200 OK", "Content-Encoding: gzip", body=gzip.compress(bytes(64 << 20))))


def endless_headers(call: Call) -> None:
    """Headers without end."""
    call.receive()
    call.emit(b"HTTP/1.1 200 OK\r\n")
    call.pour(b"X-Header: " + b"y" * 1000 + b"\r\n", 1 << 30)


def one_long_header(call: Call) -> None:
    """A header without end."""
    call.receive()
    call.emit(b"HTTP/1.1 200 OK\r\nX-Header: ")
    call.pour(b"y" * 1000, 1 << 30)


def endless_trailers(call: Call) -> None:
    """Trailers without end."""
    call.receive()
    call.emit(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")
    call.pour(b"X-Trailer: " + b"y" * 1000 + b"\r\n", 1 << 30)


LONG = [long_reply, endless_reply, long_chunks, bomb, endless_headers, one_long_header, endless_trailers]


@pytest.mark.parametrize("script", LONG, ids=lambda script: script.__name__)
def test_a_reply_is_read_up_to_its_cap(script: Callable[[Call], None]) -> None:
    """What is too long is not read on, and the request is not sent again."""
    with evil(script) as server:
        answer = query(server.endpoint)
        assert server.poured < 24 << 20, "what the kernels hold, and our 4 MiB"
    assert (answer.verdict, answer.code) == (Verdict.REFUSED, "reply")


def test_a_long_explanation_of_a_refusal_is_not_read() -> None:
    """The status alone decides."""

    def script(call: Call) -> None:
        call.receive()
        call.emit(b"HTTP/1.1 413 Too Large\r\nContent-Length: 1073741824\r\n\r\n")
        call.pour(bytes(1 << 20), 1 << 30)

    with evil(script) as server:
        answer = query(server.endpoint)
        assert server.poured < 24 << 20
    assert (answer.verdict, answer.code) == (Verdict.REFUSED, "413")


def test_a_refusal_before_the_body_is_sent_is_received() -> None:
    """A collector that answers 413 and reads no further is not asked again."""

    def script(call: Call) -> None:
        call.emit(reply("413 Too Large", "Connection: close"))
        call.hold()

    with evil(script) as server:
        answer = query(server.endpoint, body=bytes(64 << 20))
    assert (answer.verdict, answer.code) == (Verdict.REFUSED, "413")


def test_a_lost_reply_is_no_success() -> None:
    """The body came, the answer did not, or not whole: the same request goes again."""

    def swallow(call: Call) -> None:
        call.receive()

    with evil(swallow) as server:
        assert query(server.endpoint).verdict is Verdict.AGAIN
    for cut in (
        b"",
        b"HTTP/1.1 200",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/x-pro",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n1234",
        b"\x16\x03\x01 what",
    ):
        assert answered(cut).verdict is Verdict.AGAIN, cut


def test_an_answer_that_is_no_otlp_is_still_a_200() -> None:
    """A proxy's page: taken, and stated."""
    answer = answered(reply("200 OK", body=b"<html>"))
    assert (answer.verdict, answer.detail) == (Verdict.TAKEN, "the answer is no OTLP")


def test_a_connection_that_ended_while_idle_is_replaced_unseen() -> None:
    """A collector that hangs up between two requests costs no failed try."""

    def once(call: Call) -> None:
        call.receive()
        call.emit(OK)

    with evil(once) as server:
        transport = OtlpTransport({Signal.LOGS: to(server.endpoint)})
        for order in range(1, 6):
            assert transport.send(request(order), time.monotonic() + LONG_S).verdict is Verdict.TAKEN
        transport.close()
        assert (len(server.requested), server.connections) == (5, 5)


def test_a_name_without_address_is_tried_again() -> None:
    """The resolver's word is not final either."""
    answer = query("http://no-such-host.invalid:4318", within_s=10)
    assert answer.verdict is Verdict.AGAIN
    assert answer.code in ("connection", "timeout")


def test_a_resolver_that_hangs_bounds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline holds while a name is looked up, and one lookup is under way at most."""
    real, release, lookups = socket.getaddrinfo, threading.Event(), []

    def find(host: str, port: int, *how: int, **named: int) -> object:
        if host == "collector.example":
            lookups.append(host)
            release.wait(LONG_S)
            host = "127.0.0.1"
        return real(host, port, *how, **named)

    monkeypatch.setattr(socket, "getaddrinfo", find)
    with evil(serving(OK)) as server:
        transport = OtlpTransport({Signal.LOGS: to(f"http://collector.example:{server.port}")})
        for _ in range(3):
            begun = time.monotonic()
            assert transport.send(request(), begun + 0.2).code == "timeout"
            assert time.monotonic() - begun < SOON_S
        assert lookups == ["collector.example"]
        release.set()
        assert transport.send(request(), time.monotonic() + LONG_S).verdict is Verdict.TAKEN
        transport.close()


def test_a_signal_without_destination_is_refused() -> None:
    """It is counted, not lost in silence."""
    transport = OtlpTransport({})
    answer = transport.send(request(), time.monotonic())
    transport.close()
    assert (answer.verdict, answer.code) == (Verdict.REFUSED, "signal")
