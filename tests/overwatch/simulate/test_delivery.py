"""Simulated runs on the wire: numbered, in order, and an exact account of what did not arrive."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from overwatch.delivery.sender import Pace
from overwatch.journal import Signal
from overwatch.otlp.decode import decode
from overwatch.simulate import Reported, Script, Settings, Teller
from overwatch.simulate.delivery import MOST_WAITING, Sender
from tests.overwatch.simulate.runs import START
from tests.overwatch.simulate.runs import reported as events_of
from tests.ports import free_port


class Listener(HTTPServer):
    """A server that answers as the test sets and keeps what it took."""

    def __init__(self, port: int, answer: Callable[[int], int]) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.answer = answer
        self.tries = 0
        self.taken: list[bytes] = []


class _Handler(BaseHTTPRequestHandler):
    server: Listener

    def do_POST(self) -> None:
        """Take one request."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.tries += 1
        status = self.server.answer(self.server.tries)
        if status == 200:
            self.server.taken.append(body)
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def listening(answer: Callable[[int], int], port: int = 0) -> Iterator[Listener]:
    """A server on a thread of its own."""
    listener = Listener(port, answer)
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield listener
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()


@contextmanager
def sending(port: int, most: int = MOST_WAITING) -> Iterator[Sender]:
    """A sender that tries often."""
    sender = Sender(f"http://127.0.0.1:{port}/", Pace(first_s=0.01, longest_s=0.05, token_s=0.0), most)
    sender.start()
    try:
        yield sender
    finally:
        sender.close()


def _requests(count: int) -> list[Reported]:
    return [Reported(at=i, records=2, body=b"%d" % i) for i in range(count)]


def test_requests_arrive_in_order() -> None:
    """Everything, once, in the order given."""
    with listening(lambda _: 200) as listener, sending(listener.server_port) as sender:
        for reported in _requests(20):
            sender.put(reported)
        assert sender.wait_empty(10)

        assert listener.taken == [b"%d" % i for i in range(20)]
        assert (sender.delivered, dict(sender.losses), sender.trouble) == (40, {}, None)


@pytest.mark.parametrize("status", [429, 503])
def test_a_collector_that_is_busy_is_asked_again(status: int) -> None:
    """The same request is tried until it is taken; the next one waits for it."""
    with listening(lambda tries: status if tries in (2, 3) else 200) as listener:
        with sending(listener.server_port) as sender:
            for reported in _requests(3):
                sender.put(reported)
            assert sender.wait_empty(10)

        assert listener.taken == [b"0", b"1", b"2"]
        assert listener.tries == 5
        assert sender.delivered == 6


def test_a_request_that_is_refused_is_counted_and_passed_over() -> None:
    """A 400 settles a request; those after it arrive."""
    with (
        listening(lambda tries: 400 if tries == 2 else 200) as listener,
        sending(listener.server_port) as sender,
    ):
        for reported in _requests(3):
            sender.put(reported)
        assert sender.wait_empty(10)

        assert listener.taken == [b"0", b"2"]
        assert dict(sender.losses) == {"refused with 400": 2}


def test_a_collector_that_comes_late_gets_everything() -> None:
    """While nobody answers requests wait, the trouble is reported; then they arrive in order."""
    port = free_port()
    with sending(port) as sender:
        for reported in _requests(5):
            sender.put(reported)
        deadline = time.monotonic() + 10
        while sender.trouble is None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert sender.trouble is not None
        with listening(lambda _: 200, port) as listener:
            assert sender.wait_empty(10)

            assert listener.taken == [b"%d" % i for i in range(5)]


def test_what_is_left_at_the_end_is_counted() -> None:
    """A collector that never answers: every record is on the account of the lost."""
    with sending(free_port()) as sender:
        for reported in _requests(4):
            sender.put(reported)
        assert not sender.wait_empty(0.05)

    assert sender.delivered == 0
    assert dict(sender.losses) == {"not delivered in time": 8}


def test_waiting_is_bounded() -> None:
    """What does not fit beside what waits is lost at once, and counted."""
    with sending(free_port(), most=3) as sender:
        for reported in _requests(5):
            sender.put(reported)

    assert dict(sender.losses) == {"too much was waiting": 4, "not delivered in time": 6}


@pytest.mark.parametrize("wrong", ["127.0.0.1:4318", "grpc://host:4317", "http://", "http://host:port"])
def test_an_address_that_is_none_is_refused(wrong: str) -> None:
    """The message shows what an address looks like."""
    with pytest.raises(ValueError, match=r"write it like http://127\.0\.0\.1:4318"):
        Sender(wrong)


def test_requests_decode_to_the_events_in_order() -> None:
    """Nothing is lost or changed on the way; numbers run from 1; the producer is one of ours."""
    settings = Settings(gpus=2, envs=4, slots=3, seconds=5)
    requests = list(Teller("r", "e").report(Script(settings, START).moments()))
    decoded = [decode(Signal.LOGS, request.body) for request in requests]
    records = [record for each in decoded for record in each.records]

    assert [record.event for record in records] == events_of(settings)
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    assert {(r.origin.run_id, r.origin.ours, r.origin.rank) for r in records} == {("r", True, 0)}
    assert [request.records for request in requests] == [len(each.records) for each in decoded]
    assert [request.at for request in requests] == [each.records[-1].event.at for each in decoded]


def test_a_request_covers_a_tenth_of_a_second() -> None:
    """However high the rate, a collector gets ten requests a second and one for the end."""
    settings = Settings(gpus=1, envs=2, slots=1, seconds=2, rate_hz=200.0)

    assert len(list(Teller("r", "e").report(Script(settings, START).moments()))) == 21


def test_the_largest_requests_fit_a_collector() -> None:
    """No body comes near the 4 MiB that a collector takes, and all slots are sent."""
    settings = Settings(gpus=32, envs=2048, slots=16, seconds=1, rate_hz=1.0)
    requests = list(Teller("r", "e").report(Script(settings, START).moments()))

    assert max(len(request.body) for request in requests) < 3 << 20
    assert sum(len(request.body) for request in requests) > 65_536 * 16 * 10
