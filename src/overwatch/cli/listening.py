"""Hearing OTLP at an address, over HTTP or gRPC, for commands that look at what is sent.

Rules: loopback or any address that is asked for, for as long as the command runs; a body is at most 64 MiB
after decompression; what cannot be read is refused as OTLP asks. Nothing is kept: this is no collector.
"""

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

from overwatch.collector.receivers.bodies import BadGzipError, TooLargeError, inflated
from overwatch.journal import Signal
from overwatch.otlp import wire
from overwatch.otlp.jsonl import MalformedJson, from_json

MAX_BYTES: Final = 64 << 20
_PATHS: Final = {"/v1/logs": Signal.LOGS, "/v1/metrics": Signal.METRICS, "/v1/traces": Signal.TRACES}
_SERVICES: Final = {
    Signal.LOGS: "opentelemetry.proto.collector.logs.v1.LogsService",
    Signal.METRICS: "opentelemetry.proto.collector.metrics.v1.MetricsService",
    Signal.TRACES: "opentelemetry.proto.collector.trace.v1.TraceService",
}
_BINARY: Final = "application/x-protobuf"
_JSON: Final = "application/json"


class ListeningError(ValueError):
    """An address that cannot be listened at."""


class Heard(NamedTuple):
    """One request."""

    signal: Signal
    message: wire.Request


Take = Callable[[Heard], None]


@contextlib.contextmanager
def listen(place: str, take: Take) -> Iterator[str]:
    """Hand over what is sent to `http://HOST:PORT` or `grpc://HOST:PORT`; gives the address with its port.

    `take` is called from several threads. Raises `ListeningError`.
    """
    host, port = _address(place)
    serve = _serve_grpc if place.startswith("grpc://") else _serve_http
    with serve(host, port, take) as bound:
        yield f"{place.partition('://')[0]}://{f'[{host}]' if ':' in host else host}:{bound}"


def _address(place: str) -> tuple[str, int]:
    try:
        parts = urlsplit(place)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or port is None or (parts.path not in ("", "/")):
        raise ListeningError(f"{place!r} is no address; write http://127.0.0.1:4318 or grpc://127.0.0.1:4317")
    return host, port


@contextlib.contextmanager
def _serve_http(host: str, port: int, take: Take) -> Iterator[int]:
    class Door(_Door):
        taken = staticmethod(take)

    try:
        server = ThreadingHTTPServer((host, port), Door)
    except OSError as error:
        raise ListeningError(
            f"cannot listen at {host}:{port}: {error.strerror or error}; use another port"
        ) from error
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, name="live-check", daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Door(BaseHTTPRequestHandler):
    """OTLP over HTTP/1.1."""

    taken: Take
    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_POST(self) -> None:
        """Take one request."""
        kind = _PATHS.get(self.path.partition("?")[0])
        content = self.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind is None:
            self._refuse(HTTPStatus.NOT_FOUND, f"{self.path} is none of {', '.join(_PATHS)}")
        elif content not in (_BINARY, _JSON):
            self._refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"send {_BINARY} or {_JSON}, not {content!r}")
        else:
            self._take(kind, content)

    def _take(self, kind: Signal, content: str) -> None:
        try:
            body = self._body()
            message = wire.parse(kind, from_json(kind, body) if content == _JSON else body)
        except TooLargeError as error:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str(error))
        except (BadGzipError, MalformedJson, wire.MalformedBody, ValueError) as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))
        else:
            self.taken(Heard(kind, message))
            self._answer(HTTPStatus.OK, content, b"{}" if content == _JSON else b"")

    def _body(self) -> bytes:
        length = int(self.headers.get("Content-Length", ""))
        if length > MAX_BYTES:
            raise TooLargeError(f"the request is larger than {MAX_BYTES} bytes; send smaller batches")
        body = self.rfile.read(length)
        if self.headers.get("Content-Encoding", "").lower() != "gzip":
            return body
        return inflated(body, MAX_BYTES)

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self.close_connection = True
        self._answer(status, _BINARY, Status(message=why).SerializeToString())

    def _answer(self, status: HTTPStatus, content: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """A command's output is its findings."""


@contextlib.contextmanager
def _serve_grpc(host: str, port: int, take: Take) -> Iterator[int]:
    import grpc

    def export(kind: Signal) -> Callable[[bytes, grpc.ServicerContext], bytes]:
        def handle(body: bytes, context: grpc.ServicerContext) -> bytes:
            try:
                take(Heard(kind, wire.parse(kind, body)))
            except wire.MalformedBody as error:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            return b""

        return handle

    handlers = tuple(
        grpc.method_handlers_generic_handler(
            service, {"Export": grpc.unary_unary_rpc_method_handler(export(kind))}
        )
        for kind, service in _SERVICES.items()
    )
    options = (("grpc.max_receive_message_length", MAX_BYTES), ("grpc.so_reuseport", 0))
    server = grpc.server(ThreadPoolExecutor(4), handlers=handlers, options=options)
    try:
        bound = server.add_insecure_port(f"{f'[{host}]' if ':' in host else host}:{port}")
    except RuntimeError as error:
        raise ListeningError(f"cannot listen at {host}:{port}; use another port") from error
    server.start()
    try:
        yield bound
    finally:
        server.stop(1).wait()
