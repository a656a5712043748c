"""Real, tiny OTLP servers: over HTTP and gRPC, obedient or not; they keep every body."""

import contextlib
import gzip
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from overwatch.events import Event, Record
from overwatch.journal import Signal
from overwatch.otlp.decode import decode

DEADLINE_S = 15.0


class Sink:
    """What arrived, by path."""

    def __init__(self) -> None:
        self.bodies: list[tuple[str, bytes]] = []
        self.requests = 0
        self.status: Callable[[int], int] = lambda _: 200
        """HTTP status of the n-th request, from 1."""
        self.reply = b""
        self.headers: list[dict[str, str]] = []
        self.endpoint = ""
        self._changed = threading.Condition()

    def arrived(self, path: str, body: bytes, headers: dict[str, str]) -> int:
        """Take a request; its status."""
        with self._changed:
            self.requests += 1
            status = self.status(self.requests)
            self.headers.append(headers)
            if status == 200:
                self.bodies.append((path, body))
            self._changed.notify_all()
            return status

    def records(self) -> list[Record]:
        """The records of all log requests, in order of arrival."""
        with self._changed:
            logs = [body for path, body in self.bodies if path == "/v1/logs"]
        decoded = [decode(Signal.LOGS, body) for body in logs]
        assert not any(found.problems for found in decoded), [f.problems for f in decoded]
        return [record for found in decoded for record in found.records]

    def events(self, kind: type[Event]) -> list[Any]:
        """The events of one kind."""
        return [record.event for record in self.records() if isinstance(record.event, kind)]

    def wait(self, condition: Callable[["Sink"], object]) -> None:
        """Wait until the condition holds of this sink, or fail at the deadline."""
        deadline = time.monotonic() + DEADLINE_S
        while not condition(self):
            with self._changed:
                if not self._changed.wait(deadline - time.monotonic()):
                    break
        assert condition(self), f"not within {DEADLINE_S} s; {self.requests} requests came"


@contextlib.contextmanager
def http_sink(port: int = 0) -> Iterator[Sink]:
    """An OTLP/HTTP server."""
    sink = Sink()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            status = sink.arrived(self.path, body, {k.lower(): v for k, v in self.headers.items()})
            with contextlib.suppress(ConnectionError):
                self.send_response(status)
                self.end_headers()
                self.wfile.write(sink.reply if self.path == "/v1/logs" else b"")

        def log_message(self, *arguments: object) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    sink.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield sink
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


_CODES = {401: grpc.StatusCode.UNAUTHENTICATED, 503: grpc.StatusCode.UNAVAILABLE}


@contextlib.contextmanager
def grpc_sink() -> Iterator[Sink]:
    """An OTLP/gRPC server for logs, metrics and traces."""
    sink = Sink()

    def answer(request: bytes, context: grpc.ServicerContext, path: str) -> bytes:
        status = sink.arrived(path, request, {})
        if status != 200:
            context.abort(_CODES.get(status, grpc.StatusCode.INVALID_ARGUMENT), "no")
        return sink.reply if path == "/v1/logs" else b""

    def handlers(name: str, path: str) -> grpc.GenericRpcHandler:
        method = grpc.unary_unary_rpc_method_handler(lambda body, context: answer(body, context, path))
        return grpc.method_handlers_generic_handler(name, {"Export": method})

    with ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool)
        kinds = {"logs": "Logs", "metrics": "Metrics", "trace": "Trace"}
        for word, kind in kinds.items():
            path = "/v1/traces" if word == "trace" else f"/v1/{word}"
            name = f"opentelemetry.proto.collector.{word}.v1.{kind}Service"
            server.add_generic_rpc_handlers((handlers(name, path),))
        sink.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        try:
            yield sink
        finally:
            server.stop(None).wait()


@contextlib.contextmanager
def silent_server() -> Iterator[str]:
    """A server that takes connections and never answers; its URL."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def spans_of(sink: Sink) -> list[Span]:
    """Every span that came, of all requests, in order."""
    return [
        span
        for path, body in sink.bodies
        if path == "/v1/traces"
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def partial_success(rejected: int) -> bytes:
    """The answer of a collector that kept all but `rejected` records."""
    response = ExportLogsServiceResponse()
    response.partial_success.rejected_log_records = rejected
    response.partial_success.error_message = "too many"
    return response.SerializeToString()


def attribute_count(body: bytes) -> int:
    """The largest number of attributes on one record of a logs request."""
    message = ExportLogsServiceRequest.FromString(body)
    scopes = [scope for resource in message.resource_logs for scope in resource.scope_logs]
    return max(len(record.attributes) for scope in scopes for record in scope.log_records)
