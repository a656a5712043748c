"""Messages arrive at a real server, are tried again, never follow a redirect and give no secret away."""

import dataclasses
import errno
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from overwatch.collector.context import Context
from overwatch.collector.exporters.notices import Notice, Notices, NotifierConfig
from overwatch.collector.exporters.notifier import Notifier
from overwatch.collector.exporters.webhook import WebhookConfig
from overwatch.collector.setting_types import Secret
from overwatch.fold import FAST_NS, Frame
from overwatch.snapshot import Finding, Subject
from tests.overwatch.serve.framed import Frames, busy_run

_FRAME = busy_run(Frames())


class Received:
    """What a webhook's server saw."""

    def __init__(self) -> None:
        self.url = ""
        self.statuses = [200]
        self.retry_after: str | None = None
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
            if received.retry_after is not None:
                self.send_header("retry-after", received.retry_after)
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


class Books:
    """What a notifier counted, and the health that it reported."""

    def __init__(self) -> None:
        self.arrived = self.gone = 0
        self.errors: list[str] = []
        self._changed = threading.Condition()

    def add(self, name: str, amount: int, exporter: str) -> None:  # noqa: ARG002 as its tally
        """Count, as the tally does."""
        with self._changed:
            self.arrived += amount if "sent" in name else 0
            self.gone += amount if "lost" in name else 0
            self._changed.notify_all()

    def watch(self, _: str, goes_on: Callable[[], bool]) -> None:
        """Watch its thread, as the health does."""
        self.goes_on = goes_on

    def recovered(self, _: str) -> None:
        """One arrived."""

    def failed(self, _: str, error: str) -> None:
        """Why one did not."""
        with self._changed:
            self.errors.append(error)
            self._changed.notify_all()

    def wait(self, what: Callable[["Books"], object]) -> None:
        """Until the books state it."""
        with self._changed:
            assert self._changed.wait_for(lambda: what(self), 15), vars(self)


class Kept:
    """A memory that may refuse."""

    def __init__(self, data: bytes | None = None) -> None:
        self.data = data
        self.error: OSError | None = None

    def read(self) -> bytes | None:
        """What is there."""
        self._fail()
        return self.data

    def write(self, data: bytes) -> None:
        """Keep it."""
        self._fail()
        self.data = data

    def _fail(self) -> None:
        if self.error is not None:
            raise self.error


def notifying(config: NotifierConfig, books: Books, memory: Kept | None = None) -> Notifier:
    """A notifier that reports to `books`."""
    journal = SimpleNamespace(note=lambda _: memory)
    context = SimpleNamespace(tally=books, health=books, journal=journal)
    return Notifier(config, cast("Context", context), "webhook")


@contextmanager
def sending(hook: WebhookConfig, books: Books, memory: Kept | None = None) -> Iterator[Notifier]:
    """A notifier to a webhook that is closed in the end."""
    webhook = notifying(hook, books, memory)
    webhook.start()
    try:
        yield webhook
    finally:
        webhook.close()
        webhook.close()


def hook(url: str, **how: Any) -> WebhookConfig:
    """The section of a webhook."""
    return WebhookConfig(url=Secret(url), **how)


def crashed(*envs: int, ticks: int = 0) -> Frame:
    """A frame so many ticks after the first, in which these envs have crashed and nothing else is wrong."""
    frame = _FRAME
    findings = tuple(
        Finding(
            id=f"env-crashed:env:{env}",
            code="env-crashed",
            severity="critical",
            subject=Subject(scope="env", id=str(env)),
            since=0.0,
            message=f"env {env} crashed",
        )
        for env in envs
    )
    snapshots = {key: msgspec.structs.replace(one, findings=findings) for key, one in frame.snapshots.items()}
    return dataclasses.replace(frame, snapshots=snapshots, tick=frame.tick + ticks * FAST_NS)


def stated(received: Received) -> list[tuple[object, object]]:
    """What the server received, in order."""
    return [(body["status"], cast("dict[str, object]", body["finding"])["id"]) for body in received.bodies]


def test_findings_arrive_with_the_headers_that_were_given() -> None:
    """Each finding of a frame is one message."""
    books = Books()
    with receiver() as received:
        with sending(hook(received.url, headers={"x-token": Secret("hush")}), books) as webhook:
            webhook.publish(busy_run(Frames()))
            received.wait(1)
        assert {body["status"] for body in received.bodies} == {"started"}
        assert all(headers["x-token"] == "hush" for headers in received.headers)
        assert (books.arrived, books.gone) == (len(received.bodies), 0)


def test_a_busy_server_is_tried_again_and_a_refusing_one_is_not() -> None:
    """503 and then 200 is one delivery; 404 is a loss that names no secret."""
    books = Books()
    with receiver() as received:
        received.statuses = [503, 200]
        with sending(hook(received.url, shape="slack"), books) as webhook:
            webhook.publish(crashed(1))
            received.wait(1)
            webhook.publish(crashed(1))
            books.wait(lambda books: books.arrived)
        assert received.bodies[0] == received.bodies[1]
        assert (books.arrived, books.gone) == (1, 0)
        assert ["HTTP 503" in error for error in books.errors] == [True]

    books = Books()
    with receiver() as received:
        received.statuses = [404]
        with sending(hook(received.url), books) as webhook:
            webhook.publish(crashed(1))
            books.wait(lambda books: books.gone)
            webhook.publish(crashed(1))
        assert len(received.bodies) == books.gone == 1
        assert all("HTTP 404" in error and "secret" not in error for error in books.errors)


def test_after_an_outage_the_server_receives_what_stands() -> None:
    """What came and went meanwhile is counted and stated; nothing comes twice or in a burst."""
    books = Books()
    with receiver() as received:
        received.statuses = [503, 200]
        with sending(hook(received.url), books) as webhook:
            webhook.publish(crashed(1, 2))
            received.wait(1)
            for tick, envs in enumerate(((1, 2, 3), (2, 3), (3,)), start=1):
                webhook.publish(crashed(*envs, ticks=tick))
            books.wait(lambda books: books.arrived)
        assert stated(received) == [
            ("started", "env-crashed:env:1"),
            ("started", "env-crashed:env:3"),
        ]
        assert received.bodies[1]["held_back"] == books.gone == 2


def test_a_server_that_asks_for_time_gets_it() -> None:
    """`Retry-After` holds; closing does not wait for it."""
    books = Books()
    with receiver() as received:
        received.statuses, received.retry_after = [429, 200], "60"
        with sending(hook(received.url), books) as webhook:
            webhook.publish(crashed(1))
            books.wait(lambda books: books.errors)
            assert 50 < webhook._again_at - time.monotonic() <= 60
            webhook.publish(crashed(1, ticks=1))
            assert len(received.bodies) == 1
        # The last frame is tried once more before the webhook ends.
        assert (len(received.bodies), books.arrived) == (2, 1)


def test_a_life_goes_on_where_the_last_one_was() -> None:
    """What arrived is not sent again; what ended meanwhile is sent, and so is what was not delivered."""
    memory, books = Kept(), Books()
    with receiver() as received:
        with sending(hook(received.url), books, memory) as webhook:
            webhook.publish(crashed(1, 2))
            books.wait(lambda books: books.arrived == 2)
        with sending(hook(received.url), books, memory) as webhook:
            webhook.publish(crashed(2, 3))
            books.wait(lambda books: books.arrived == 4)
        assert stated(received)[2:] == [("started", "env-crashed:env:3"), ("ended", "env-crashed:env:1")]


def test_without_a_memory_that_works_it_is_sent_again(caplog: pytest.LogCaptureFixture) -> None:
    """A note that is damaged, cannot be read or cannot be written costs a message twice, never one."""
    for memory in (Kept(b"{"), Kept(b'[{"run_id": 1}]'), Kept()):
        books = Books()
        if memory.data is None:
            memory.error = OSError(errno.EIO, os.strerror(errno.EIO))
        with receiver() as received:
            with sending(hook(received.url), books, memory) as webhook:
                webhook.publish(crashed(1))
                books.wait(lambda books: books.arrived)
            assert stated(received) == [("started", "env-crashed:env:1")]
        assert ("cannot be kept" in "".join(books.errors)) is (memory.error is not None)
    assert caplog.text.count("cannot be read, it is sent again") == 3


def test_an_error_of_ours_is_logged_and_does_not_end_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What it kept from being sent is sent once it is over."""
    monkeypatch.setattr("overwatch.collector.exporters.notifier._LONGEST_PAUSE_S", 0.01)
    real, looked = Notices.due, []

    def due(self: Notices, frame: Frame) -> list[Notice]:
        looked.append(frame)
        if len(looked) == 1:
            raise ZeroDivisionError("this very frame")
        return real(self, frame)

    monkeypatch.setattr(Notices, "due", due)
    books = Books()
    with receiver() as received:
        with sending(hook(received.url), books) as webhook:
            webhook.publish(crashed(1))
            books.wait(lambda books: books.errors)
            webhook.publish(crashed(1, ticks=1))
            books.wait(lambda books: books.arrived)
            assert books.goes_on()
        assert stated(received) == [("started", "env-crashed:env:1")]
    assert "ZeroDivisionError" in books.errors[0]
    assert [record.exc_info is not None for record in caplog.records] == [True]


def test_a_redirect_is_not_followed() -> None:
    """Another server never sees the message."""
    books = Books()
    with receiver() as elsewhere, receiver(location=elsewhere.url) as received:
        received.statuses = [307]
        with sending(hook(received.url), books) as webhook:
            webhook.publish(crashed(1))
            received.wait(1)
        assert elsewhere.bodies == []
        assert books.gone == 1


@pytest.mark.parametrize(
    "url",
    ["", "hooks.example/secret", "ftp://host/secret", "http:///secret", "http://host:99999/secret",
     "http://host/secret→", "http://höst/secret", "http://host/secret x", "http://host/secret\nx"],
)  # fmt: skip
def test_an_address_that_is_none_is_refused_without_saying_it(url: str) -> None:
    """A webhook's address is a secret."""
    with pytest.raises(ValueError, match=r"no http|no URL has") as refused:
        hook(url)
    assert "secret" not in str(refused.value)
    assert "secret" not in repr(hook("https://host/secret"))
