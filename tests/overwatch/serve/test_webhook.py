"""Messages arrive at a real server, are tried again, never follow a redirect and give no secret away."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from overwatch.serve.webhook import Hook, Webhook
from tests.overwatch.serve.framed import Frames, busy_run


class Received:
    """What a webhook's server saw."""

    def __init__(self) -> None:
        self.url = ""
        self.statuses = [200]
        self.bodies: list[dict[str, object]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.changed = threading.Condition()

    def wait(self, count: int) -> None:
        """Until so many requests came."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.bodies) >= count, 15), self.bodies


@contextmanager
def receiver(location: str | None = None) -> Iterator[Received]:
    """A server of messages; answers with `statuses` in turn, the last one for ever."""
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            with received.changed:
                received.bodies.append(json.loads(body))
                received.headers.append({key.lower(): value for key, value in self.headers.items()})
                received.paths.append(self.path)
                status = received.statuses[min(len(received.bodies), len(received.statuses)) - 1]
                received.changed.notify_all()
            self.send_response(status)
            if location is not None:
                self.send_header("location", location)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    received.url = f"http://127.0.0.1:{server.server_address[1]}/secret-path"
    try:
        yield received
    finally:
        server.shutdown()
        server.server_close()


class Told:
    """What the webhook reported."""

    def __init__(self) -> None:
        self.delivered = self.lost = 0
        self.errors: list[str] = []

    def __call__(self, delivered: int, lost: int, error: str | None) -> None:
        """Count."""
        self.delivered += delivered
        self.lost += lost
        if error is not None:
            self.errors.append(error)


def test_findings_arrive_with_the_headers_that_were_given() -> None:
    """Each finding of a frame is one message."""
    told = Told()
    with receiver() as received:
        webhook = Webhook(Hook(url=received.url, headers={"x-token": "hush"}), told)
        webhook.start()
        webhook.publish(busy_run(Frames()))
        received.wait(1)
        webhook.close()
    assert {body["status"] for body in received.bodies} == {"started"}
    assert all(headers["x-token"] == "hush" for headers in received.headers)
    assert (told.delivered, told.lost) == (len(received.bodies), 0)


def test_a_busy_server_is_tried_again_and_a_refusing_one_is_not() -> None:
    """503 and then 200 is one delivery; 404 is a loss that names no secret."""
    told = Told()
    with receiver() as received:
        received.statuses = [503, 200]
        webhook = Webhook(Hook(url=received.url, shape="slack"), told)
        webhook.start()
        webhook.publish(busy_run(Frames()))
        received.wait(2)
        webhook.close()
        assert received.bodies[0] == received.bodies[1]
        assert told.lost == 0
    with receiver() as received:
        received.statuses = [404]
        webhook = Webhook(Hook(url=received.url), told)
        webhook.start()
        webhook.publish(busy_run(Frames()))
        received.wait(1)
        webhook.close()
    assert told.lost >= 1
    assert all("HTTP 404" in error and "secret" not in error for error in told.errors)


def test_a_redirect_is_not_followed() -> None:
    """Another server never sees the message."""
    told = Told()
    with receiver() as elsewhere, receiver(location=elsewhere.url) as received:
        received.statuses = [307]
        webhook = Webhook(Hook(url=received.url), told)
        webhook.start()
        webhook.publish(busy_run(Frames()))
        received.wait(1)
        webhook.close()
        assert elsewhere.bodies == []
    assert told.lost >= 1


@pytest.mark.parametrize("url", ["", "hooks.example/x", "ftp://host/x", "http:///x"])
def test_an_address_that_is_none_is_refused_without_saying_it(url: str) -> None:
    """A webhook's address is a secret."""
    with pytest.raises(ValueError, match="no http"):
        Hook(url=url)
    assert "secret" not in repr(Hook(url="https://host/secret"))
