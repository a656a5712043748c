"""A real server in a thread, for clients that block; and a proxy that cuts or changes its replies."""

import asyncio
import contextlib
import http.client
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

from overwatch_rl.rollouts.calls import Target
from overwatch_rl.rollouts.client import Happened, Settings
from overwatch_rl.rollouts.consumer import Consumer
from tests.overwatch_rl.rollouts.serving import Served, serving

PATIENCE_S = 30.0
Alter = Callable[[str, dict[str, Any]], dict[str, Any] | None]
"""From the path and the reply of the server to what the client gets; `None` cuts the connection instead."""


@contextlib.contextmanager
def in_thread(**settings: Any) -> Iterator[Served]:
    """Serve from a loop in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = serving(**settings)
    try:
        yield asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(PATIENCE_S)
    finally:
        asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), loop).result(PATIENCE_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE_S)
        loop.close()


@contextlib.contextmanager
def consuming(url: str, **trainer: Any) -> Iterator[Consumer]:
    """A trainer's client that has registered and asked for its first batch."""
    with contextlib.closing(Consumer(Target(url=url, patience_s=PATIENCE_S))) as consumer:
        begin(consumer, **trainer)
        yield consumer


def begin(consumer: Consumer, **trainer: Any) -> None:
    """Register a trainer of batches of 4 sequences, and ask for the first one."""
    named = {"wandb_group": "group", "wandb_project": "project", "batch_size": 4, "max_token_len": 64}
    consumer.register(**{**named, **trainer})
    assert isinstance(consumer.try_batch(), dict)


def handler_settings(url: str, **changed: Any) -> Settings:
    """A handler of groups of 2 that looks at the queue often."""
    return Settings(url=url, name="maths", group_size=2, poll_s=0.01, patience_s=PATIENCE_S, **changed)


class Watched:
    """Everything that a handler reports; `on` calls something when a kind comes for the first time."""

    def __init__(self, **on: Callable[[], None]) -> None:
        self._on = on
        self.all: list[Happened] = []

    def __call__(self, happened: Happened) -> None:
        """Keep it."""
        self.all.append(happened)
        call = self._on.pop(happened.kind, None)
        if call is not None:
            call()

    @property
    def kinds(self) -> list[str]:
        """What happened, in order."""
        return [happened.kind for happened in self.all]


@contextlib.contextmanager
def proxied(url: str, alter: Alter, span: Callable[[str | None], None] = lambda _: None) -> Iterator[str]:
    """The address of a proxy to a server; `span` is given the `traceparent` of each request."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(url, alter, span))
    server.daemon_threads = False
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(PATIENCE_S)


def _handler(
    url: str, alter: Alter, span: Callable[[str | None], None]
) -> type[http.server.BaseHTTPRequestHandler]:
    class Proxy(http.server.BaseHTTPRequestHandler):
        """One request, passed on; the connection ends with it."""

        def do_GET(self) -> None:
            self._pass_on()

        def do_POST(self) -> None:
            self._pass_on()

        def log_message(self, *_: object) -> None:
            """Quiet."""

        def _pass_on(self) -> None:
            span(self.headers.get("traceparent"))
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = urlsplit(url)
            with contextlib.closing(http.client.HTTPConnection(parts.hostname or "", parts.port)) as line:
                headers = {name: value for name, value in self.headers.items() if name != "Accept-Encoding"}
                line.request(self.command, self.path, body or None, headers)
                response = line.getresponse()
                reply = alter(self.path, json.loads(response.read()))
            if reply is None:
                self.close_connection = True
                return
            data = json.dumps(reply).encode()
            self.send_response(response.status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return Proxy
