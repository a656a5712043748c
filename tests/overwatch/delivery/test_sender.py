"""Delivery in order whatever the collector does, with an account that adds up and deadlines that hold."""

import contextlib
import logging
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from overwatch.delivery.answer import Answer, Verdict
from overwatch.delivery.sender import DeliveryLog, Pace, Sender
from overwatch.journal import Signal
from overwatch.sdk.exporter.queues import Request
from tests.overwatch.delivery.evil import OK, SOON_S, Call, evil, reply, serving
from tests.overwatch.delivery.test_grpc import hung as mute
from tests.overwatch.delivery.test_grpc import slow as crawling
from tests.overwatch.delivery.test_http import LONG, SLOW
from tests.overwatch.delivery.waiting import DEADLINE_S, SIGNALS, Waiting, request, sending
from tests.overwatch.sdk.sink import grpc_sink, http_sink, partial_success
from tests.ports import free_port

FAST = Pace(first_s=0.02, longest_s=0.1)
GRPC = {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}


def stated(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What a person reads."""
    return [record.getMessage() for record in caplog.records if record.name == "overwatch.exporter"]


def test_requests_of_all_signals_land_in_order() -> None:
    """One stream, over one connection."""
    source = Waiting()
    with evil(serving(OK)) as server, sending(source, server.endpoint) as sender:
        for order in range(1, 31):
            source.put(request(order, signal=SIGNALS[order % 3]))
        assert sender.drain(DEADLINE_S)
        assert source.delivered == list(range(1, 31))
        assert [requested.body for requested in server.requested] == [b"%d" % order for order in range(1, 31)]
        assert server.connections == 1


@pytest.mark.parametrize("env", [{}, GRPC], ids=["http", "grpc"])
def test_signals_may_go_over_different_protocols(env: dict[str, str]) -> None:
    """Logs over one, metrics over the other."""
    source = Waiting()
    other = {} if env else GRPC
    words = {
        "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": other.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        **env,
    }
    with http_sink() as by_http, grpc_sink() as by_grpc:
        words["OTEL_EXPORTER_OTLP_LOGS_ENDPOINT"] = by_grpc.endpoint if env else f"{by_http.endpoint}/v1/logs"
        words["OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"] = (
            f"{by_http.endpoint}/v1/metrics" if env else by_grpc.endpoint
        )
        words["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] = "http://127.0.0.1:1"
        with sending(source, None, words) as sender:
            source.put(request(1, b"", Signal.LOGS))
            source.put(request(2, b"", Signal.METRICS))
            assert sender.drain(DEADLINE_S)
        logs, metrics = (by_grpc, by_http) if env else (by_http, by_grpc)
        assert [path for path, _ in logs.bodies] == ["/v1/logs"]
        assert [path for path, _ in metrics.bodies] == ["/v1/metrics"]


@pytest.mark.parametrize("env", [{}, GRPC], ids=["http", "grpc"])
def test_a_collector_that_is_not_there_is_waited_for(
    env: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is lost, and nothing is reported more than once."""
    source, port = Waiting(20), free_port()
    with sending(source, f"http://127.0.0.1:{port}", env, FAST) as sender:
        assert not sender.drain(0.5)
        assert source.pending == 20
        assert len(stated(caplog)) == 1
        assert "does not take telemetry" in stated(caplog)[0]
        if env:
            return
        with evil(serving(OK), port=port):
            assert sender.drain(DEADLINE_S)
    assert source.delivered == list(range(1, 21))
    assert [line.partition(" takes ")[2] for line in stated(caplog)] == ["", "telemetry again"]


STUCK = [*SLOW, *LONG]


@pytest.mark.parametrize("script", STUCK, ids=lambda script: script.__name__)
def test_a_drain_ends_in_time_and_returns_the_truth(script: Callable[[Call], None]) -> None:
    """Hung, slow or evil: `drain` is false while something waits, and late by a moment at most."""
    source = Waiting()
    source.put(request(1, bytes(32 << 20)))
    with evil(script) as server, sending(source, server.endpoint) as sender:
        server.wait(lambda it: it.connections)
        late = []
        for _ in range(3):
            begun = time.monotonic()
            done = sender.drain(0.3)
            late.append(time.monotonic() - begun - 0.3)
            assert done == (source.pending == 0)
            if done:
                assert source.dropped == {"refused_reply": 1}
        assert max(late) <= SOON_S
        assert not source.delivered


@pytest.mark.parametrize("script", [mute, crawling], ids=lambda script: script.__name__)
def test_a_drain_over_grpc_ends_in_time(script: Callable[[Call], None]) -> None:
    """As over HTTP; and so does a stop."""
    source = Waiting(1)
    with evil(script) as server, sending(source, server.endpoint, GRPC) as sender:
        server.wait(lambda it: it.connections)
        late = []
        for _ in range(3):
            begun = time.monotonic()
            assert not sender.drain(0.3)
            late.append(time.monotonic() - begun - 0.3)
        assert max(late) <= SOON_S
        begun = time.monotonic()
        assert sender.stop(5.0)
        assert time.monotonic() - begun < SOON_S
    assert source.pending == 1


@pytest.mark.parametrize("script", SLOW, ids=lambda script: script.__name__)
def test_a_stop_ends_a_try_in_flight(script: Callable[[Call], None]) -> None:
    """And what was not delivered still waits."""
    source = Waiting()
    source.put(request(1, bytes(32 << 20)))
    with evil(script) as server, sending(source, server.endpoint) as sender:
        server.wait(lambda it: it.connections)
        begun = time.monotonic()
        assert sender.stop(5.0)
        assert time.monotonic() - begun < SOON_S
        assert source.pending == 1


def test_a_drain_cuts_a_hanging_try_off_for_a_new_one() -> None:
    """A collector in trouble that answers again is not missed for an old connection's sake."""
    calls = iter(range(1000))

    def script(call: Call) -> None:
        number = next(calls)
        if number == 0:
            serving(reply("503 Busy", "Connection: close"))(call)
        elif number == 1:
            call.receive()
            call.hold()
        serving(OK)(call)

    source, env = Waiting(3), {"OTEL_EXPORTER_OTLP_TIMEOUT": "60"}
    with evil(script) as server, sending(source, server.endpoint, env) as sender:
        server.wait(lambda it: len(it.requested) == 2)
        assert sender.drain(DEADLINE_S)
        assert source.delivered == [1, 2, 3]


def test_a_drain_cuts_no_try_because_the_one_before_was_refused() -> None:
    """A refusal is an answer: the collector is there, and what is under way is sent once."""
    go_on = threading.Event()

    def script(call: Call) -> None:
        call.receive()
        call.emit(reply("500 No"))
        call.receive()
        go_on.wait(DEADLINE_S)
        call.emit(OK)
        call.hold()

    source = Waiting(2)
    with evil(script) as server, sending(source, server.endpoint) as sender:
        server.wait(lambda it: len(it.requested) == 2)
        assert not sender.drain(0.3)
        go_on.set()
        assert sender.drain(DEADLINE_S)
        assert len(server.requested) == 2


def test_a_lost_reply_sends_the_same_bytes_again() -> None:
    """At least once, in order: the collector knows records that it has by their numbers."""
    replies = iter(range(1000))

    def script(call: Call) -> None:
        while call.receive() is not None:
            if next(replies) % 2 == 0 or not call.emit(OK):
                return

    source = Waiting(10)
    with evil(script) as server, sending(source, server.endpoint, pace=FAST) as sender:
        assert sender.drain(DEADLINE_S)
        seen = [int(requested.body) for requested in server.requested]
    assert source.delivered == list(range(1, 11))
    assert seen == sorted(seen)
    assert len(seen) > 10


@pytest.mark.parametrize(
    ("first", "waits_s"),
    [
        (reply("429 Slow", "Retry-After: 1"), 1.0),
        (reply("503 Busy", "Retry-After: 1", "Date: Sat, 21 Nov 2026 11:00:00 GMT"), 1.0),
        (
            reply(
                "503 Busy",
                "Retry-After: Sat, 21 Nov 2026 11:00:01 GMT",
                "Date: Sat, 21 Nov 2026 11:00:00 GMT",
            ),
            1.0,
        ),
    ],
    ids=["429", "503", "date"],
)
def test_a_collector_is_left_alone_as_long_as_it_asks(first: bytes, waits_s: float) -> None:
    """Even while draining."""
    source = Waiting(1)
    with evil(serving(first, OK)) as server, sending(source, server.endpoint, pace=FAST) as sender:
        assert sender.drain(DEADLINE_S)
        assert server.stamps[1] - server.stamps[0] >= waits_s
        assert len(server.requested) == 2


def test_a_drain_does_not_wait_for_what_a_collector_asks() -> None:
    """An hour is asked for: the drain ends in time."""
    source = Waiting(1)
    busy = reply("429 Slow", "Retry-After: 3600")
    with evil(serving(busy)) as server, sending(source, server.endpoint) as sender:
        server.wait(lambda it: it.requested)
        begun = time.monotonic()
        assert not sender.drain(0.2)
        assert time.monotonic() - begun < SOON_S
        assert len(server.requested) == 1


def test_pauses_grow_to_their_limit_and_what_is_asked_is_kept() -> None:
    """0.2 s, doubled to 5 s, a fifth of jitter; `Retry-After` x within [x, 1.2 x] and a minute."""
    pace = Pace()
    for tries, middle in ((1, 0.2), (2, 0.4), (3, 0.8), (6, 5.0), (10**6, 5.0)):
        pauses = [pace.pause_s(tries, None) for _ in range(200)]
        assert 0.8 * middle <= min(pauses) < max(pauses) <= 1.2 * middle
    for requested_s in (0.5, 1.0, 30.0, 59.0):
        waits = [pace.pause_s(1, requested_s) for _ in range(200)]
        assert requested_s <= min(waits) <= max(waits) <= min(1.2 * requested_s, 60.0)
    assert pace.pause_s(1, 1e9) == 60.0
    assert pace.pause_s(1, 0.0) <= 0.24
    with pytest.raises(ValueError, match="first <= longest"):
        Pace(first_s=6.0)


@pytest.mark.parametrize("status", [400, 403, 404, 413, 500])
def test_a_refused_request_is_tried_once_and_counted_by_its_code(status: int) -> None:
    """And the next one goes its way."""
    source = Waiting(2)
    with evil(serving(reply(f"{status} No"), OK)) as server, sending(source, server.endpoint) as sender:
        assert sender.drain(DEADLINE_S)
        assert len(server.requested) == 2
    assert source.dropped == {f"refused_{status}": 1}
    assert source.delivered == [2]


@pytest.mark.parametrize("rejected", [1, 3])
def test_a_token_that_is_not_accepted_yet_loses_nothing(rejected: int) -> None:
    """A server that learns of a new token after us gets every request, in order, once it does."""
    source = Waiting(2)
    replies = [reply("401 Unauthorized")] * rejected
    with evil(serving(*replies, OK, OK)) as server, sending(source, server.endpoint) as sender:
        assert sender.drain(DEADLINE_S)
    assert (source.dropped, source.delivered) == ({}, [1, 2])


def test_a_token_that_is_not_accepted_over_grpc_loses_nothing() -> None:
    """As over HTTP."""
    source = Waiting(1)
    with grpc_sink() as sink:
        sink.status = lambda number: 401 if number == 1 else 200
        with sending(source, sink.endpoint, GRPC) as sender:
            assert sender.drain(DEADLINE_S)
    assert (source.dropped, source.delivered) == ({}, [1])


def test_a_token_that_is_never_accepted_is_given_up_from_then_on() -> None:
    """The time counts from the first refusal of the token, not anew for each request."""
    source = Waiting(3)
    with evil(serving(reply("401 Unauthorized"))) as server:
        pace = Pace(first_s=0.01, longest_s=0.01, token_s=0.05)
        with sending(source, server.endpoint, None, pace) as sender:
            assert sender.drain(DEADLINE_S)
        assert len(server.requested) > 3
    assert source.dropped == {"refused_401": 3}


def test_a_refusal_over_grpc_is_counted_by_its_code() -> None:
    """As over HTTP."""
    source = Waiting(1)
    with grpc_sink() as sink:
        sink.status = lambda _: 400
        with sending(source, sink.endpoint, GRPC) as sender:
            assert sender.drain(DEADLINE_S)
        assert sink.requests == 1
    assert source.dropped == {"refused_invalid_argument": 1}


def test_what_a_collector_did_not_keep_is_counted_exactly_and_logged_sparingly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Never sent again; logged at the first and at each doubling."""
    source = Waiting(16)
    partly_kept = reply("200 OK", body=partial_success(2))
    with evil(serving(partly_kept)) as server, sending(source, server.endpoint) as sender:
        assert sender.drain(DEADLINE_S)
        assert len(server.requested) == 16
    assert source.rejected == 32
    assert [int(line.split()[5]) for line in stated(caplog)] == [2, 4, 8, 16, 32]


def test_a_fortune_that_changes_to_and_fro_is_not_a_storm(caplog: pytest.LogCaptureFixture) -> None:
    """Every second request fails: a person reads two lines."""
    source = Waiting(50)
    replies = [reply("503 Busy"), OK] * 50
    with evil(serving(*replies)) as server, sending(source, server.endpoint, pace=FAST) as sender:
        assert sender.drain(DEADLINE_S)
    assert len(source.delivered) == 50
    assert len(stated(caplog)) == 2


def test_a_log_handler_that_speaks_to_the_sender_makes_no_loop() -> None:
    """What the sender logs may itself become a request: once, not for ever."""
    source = Waiting(5)

    class Handler(logging.Handler):
        def emit(self, _: logging.LogRecord) -> None:
            source.put(request(1000 + source.accepted))

    logger, handler = logging.getLogger("overwatch.exporter"), Handler()
    logger.addHandler(handler)
    try:
        with evil(serving(reply("400 Bad"))) as server, sending(source, server.endpoint, pace=FAST) as sender:
            assert sender.drain(DEADLINE_S)
    finally:
        logger.removeHandler(handler)
    assert source.accepted == 6


class Broken:
    """A transport with a fault of its own."""

    def __init__(self, faults: float) -> None:
        self.left = faults

    def send(self, _request: Request, _deadline: float) -> Answer:
        """Fail so often."""
        self.left -= 1
        if self.left >= 0:
            raise RuntimeError("a fault")
        return Answer(verdict=Verdict.TAKEN)

    def close(self) -> None:
        """Nothing to close."""


@pytest.mark.parametrize(("faults", "delivered", "dropped"), [(2, [1, 2], {}), (5, [2], {"unsendable": 1})])
def test_a_fault_of_our_own_ends_no_delivery(
    faults: float, delivered: list[int], dropped: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    """It is tried again, then passed over, counted, and logged once."""
    source, broken = Waiting(2), Broken(faults)
    sender = Sender(source, lambda: broken, DeliveryLog("somewhere"), FAST)
    sender.start()
    assert sender.drain(DEADLINE_S)
    assert sender.stop()
    assert (source.delivered, dict(source.dropped), sender.faults) == (delivered, dropped, faults)
    assert sum("error of the exporter" in line for line in stated(caplog)) == 1


def test_progress_is_reported_and_its_fault_is_outlived() -> None:
    """A callback that fails costs nothing but a count."""
    source, reported = Waiting(3), threading.Semaphore(0)

    def progress() -> None:
        reported.release()
        raise OSError("no account")

    sender = Sender(source, lambda: Broken(-math.inf), DeliveryLog("somewhere"), FAST)
    sender.start(progress)
    for _ in range(3):
        assert reported.acquire(timeout=DEADLINE_S)
    assert sender.drain(DEADLINE_S)
    assert sender.stop()
    assert source.delivered == [1, 2, 3]


def test_a_request_is_given_up_when_patience_ends() -> None:
    """Each is tried for its time, the next one after it; they are lost with that reason, not refused."""
    source = Waiting(2)
    with (
        evil(serving(reply("503 Service Unavailable"))) as server,
        sending(source, server.endpoint, pace=Pace(first_s=0.02, longest_s=0.04, patience_s=0.2)) as sender,
    ):
        assert sender.drain(DEADLINE_S)
        assert len(server.requested) >= 4
    assert (source.delivered, dict(source.dropped)) == ([], {"expired": 2})


def test_without_patience_a_request_is_tried_once() -> None:
    """A patience of nothing is one try."""
    source = Waiting(2)
    with (
        evil(serving(reply("503 Service Unavailable"))) as server,
        sending(source, server.endpoint, pace=Pace(patience_s=0)),
    ):
        # A drain cuts what is under way, and that does not count as its try.
        assert source.wait_empty(DEADLINE_S)
        assert len(server.requested) == 2
    assert dict(source.dropped) == {"expired": 2}


def test_pauses_grow_by_the_factor_that_was_asked_for() -> None:
    """Without jitter they are exact: half as long again each time, up to the longest."""
    pace = Pace(first_s=1.0, longest_s=3.0, multiplier=1.5, jitter=0.0)
    assert [pace.pause_s(tries, None) for tries in range(1, 6)] == [1.0, 1.5, 2.25, 3.0, 3.0]


COLLECTORS = {
    "http": "from tests.overwatch.delivery.evil import *\nmade = evil(serving(OK), port={port})",
    "grpc": "from tests.overwatch.sdk.sink import grpc_sink\nmade = grpc_sink()",
}


@contextlib.contextmanager
def collector_process(protocol: str = "http", port: int = 0) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A collector in a process of its own, and its URL."""
    made = COLLECTORS[protocol].format(port=port)
    script = f"import sys\n{made}\nwith made as it:\n    print(it.endpoint, flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().decode().strip()
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no job control here")
@pytest.mark.parametrize("env", [{}, GRPC], ids=["http", "grpc"])
def test_a_stopped_collector_gets_everything_in_order_once_it_goes_on(env: dict[str, str]) -> None:
    """`kill -STOP`: requests wait; `kill -CONT`: they land, in order, without pauses."""
    source = Waiting()
    words = env | {"OTEL_EXPORTER_OTLP_TIMEOUT": "0.5"}
    with (
        collector_process("grpc" if env else "http") as (process, endpoint),
        sending(source, endpoint, words) as sender,
    ):
        source.put(request(1, b""))
        assert sender.drain(DEADLINE_S)
        os.kill(process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        for order in range(2, 302):
            source.put(request(order, b""))
        late = []
        for _ in range(3):
            begun = time.monotonic()
            assert not sender.drain(0.4)
            late.append(time.monotonic() - begun - 0.4)
        assert max(late) <= SOON_S
        assert source.pending == 300
        os.kill(process.pid, signal.SIGCONT)
        assert sender.drain(DEADLINE_S)
    assert source.delivered == list(range(1, 302))


def test_a_killed_collector_loses_nothing_that_it_did_not_answer() -> None:
    """`kill -9` amid a stream, and a new one on the same port."""
    port, source = free_port(), Waiting(2000)
    with sending(source, f"http://127.0.0.1:{port}", pace=FAST) as sender:
        with collector_process(port=port) as (process, _):
            deadline = time.monotonic() + DEADLINE_S
            while len(source.delivered) < 50 and time.monotonic() < deadline:
                sender.drain(0.01)
            process.kill()
        with collector_process(port=port):
            assert sender.drain(DEADLINE_S)
    assert source.delivered == list(range(1, 2001))
