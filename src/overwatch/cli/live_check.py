"""`overwatch catalog live-check`: do the names that are sent keep to the registry.

Rules: any mixture of recordings, files of OTLP JSON lines, standard input and addresses to listen at. Status
0 when nothing reaches `--fail-on`, 1 when something does, 2 when nothing could be read, 130 when Ctrl-C came
before anything did. An address is listened at over HTTP or gRPC for as long as the command runs; a body is at
most 64 MiB after decompression; what cannot be read is refused as OTLP requires. Nothing is kept: this is no
collector.
"""

import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final
from urllib.parse import urlsplit

import click
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

from overwatch.cli.interrupts import STATUS
from overwatch.cli.recordings import BadInputError
from overwatch.cli.streams import format_option, until_unread
from overwatch.conventions import Advice, LiveCheck, Report, registry
from overwatch.deflate import BadGzipError, TooLargeError, inflated
from overwatch.journal import Signal
from overwatch.os_signals import received
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
_SCHEMES: Final = ("http://", "grpc://")
_AT_ONCE: Final = 64
_NEVER: Final = "none"
_RANKS: Final = (Advice.INFORMATION, Advice.IMPROVEMENT, Advice.VIOLATION)


@click.command("live-check")
@click.argument("places", nargs=-1, required=True, metavar="PATH|ADDRESS...")
@click.option("--seconds", type=click.FloatRange(min=0.1), help="Listen this long; until Ctrl-C without.")
@format_option("text", "json")
@click.option(
    "--fail-on", type=click.Choice([*(advice.value for advice in Advice), _NEVER]),
    default=Advice.VIOLATION.value, show_default=True, help="Least finding that makes the status 1.",
)  # fmt: skip
def live_check(places: tuple[str, ...], seconds: float | None, fmt: str, fail_on: str) -> None:
    """Check telemetry against the registry of names.

    PATH is a recording's folder, a file of OTLP JSON lines, or - for standard input; ADDRESS is where to
    listen for OTLP, http://HOST:PORT or grpc://HOST:PORT.
    """
    check = LiveCheck(registry())
    unread = 0
    for place in places:
        if not place.startswith(_SCHEMES):
            unread += _file(check, place)
    number = _stream(check, [place for place in places if place.startswith(_SCHEMES)], seconds)
    report = check.report
    if not report.items and number == signal.SIGINT:
        sys.exit(STATUS)
    if not report.items:
        raise BadInputError(
            f"no OTLP was found in {', '.join(places)}"
            + (f"; {unread} lines or batches could not be read" if unread else "; send some while it listens")
        )
    with until_unread():
        click.echo(
            json.dumps(_as_json(report, unread), indent=2) if fmt == "json" else _as_text(report, unread)
        )
    sys.exit(1 if _fails(report, fail_on) else 0)


def _file(check: LiveCheck, place: str) -> int:
    """Check what lies at a path; returns how much of it could not be read."""
    from overwatch.feeds.inputs import open_input
    from overwatch.feeds.recording import Recording, RecordingError

    unread = 0
    try:
        recording = open_input(Path(place))
        if not isinstance(recording, Recording):
            raise BadInputError(f"{place} holds snapshots alone; give what was received, as OTLP")
        for segment in recording.segments():
            for first in range(0, len(segment.entries), _AT_ONCE):
                for batch in recording.read(segment.entries[first : first + _AT_ONCE]):
                    try:
                        if batch.signal is not Signal.START:
                            check.take(wire.parse(batch.signal, batch.body))
                    except wire.MalformedBody:
                        unread += 1
    except (RecordingError, OSError) as error:
        raise BadInputError(str(error)) from error
    return unread + recording.bad_lines + recording.bad_batches


def _stream(check: LiveCheck, places: list[str], seconds: float | None) -> int | None:
    """Listen until the time is over, or until a signal comes, whose number this is."""
    if not places:
        return None
    lock, over = threading.Lock(), SimpleQueue[int]()

    def take(message: wire.Request) -> None:
        with lock:
            check.take(message)

    with ExitStack() as stack:
        try:
            for place in places:
                click.echo(f"listening at {stack.enter_context(listen(place, take))}", err=True)
        except ListeningError as error:
            raise BadInputError(str(error)) from error
        stack.enter_context(received((signal.SIGINT, signal.SIGTERM), over.put))
        with suppress(Empty):
            return over.get(timeout=seconds)
    return None


def _fails(report: Report, fail_on: str) -> bool:
    if fail_on == _NEVER:
        return False
    least = _RANKS.index(Advice(fail_on))
    return any(report.count(advice) for advice in _RANKS[least:])


def _as_json(report: Report, unread: int) -> dict[str, Any]:
    known, met = report.registered
    covered, held = report.coverage
    return {
        "items": dict(report.items),
        "unread": unread,
        "names": met,
        "registered": known,
        "registered_share": known / met if met else None,
        "registry": held,
        "registry_coverage": covered / held,
        "unregistered": {kind: sorted(names) for kind, names in report.strange.items()},
        "advice": {advice.value: report.count(advice) for advice in Advice},
        "findings": [
            {
                "advice": one.advice.value,
                "id": one.id,
                "signal": one.signal,
                "message": one.message,
                "times": n,
            }
            for one, n in _ordered(report)
        ],
        "findings_not_kept": report.overflow,
    }


def _as_text(report: Report, unread: int) -> str:
    known, met = report.registered
    covered, held = report.coverage
    lines = [
        f"{one.advice.value:11}  {one.signal}: {one.message} ({one.id}, {n} times)"
        for one, n in _ordered(report)
    ]
    if report.overflow:
        lines.append(f"and {report.overflow} findings more")
    looked = ", ".join(f"{n:,} {what}" for what, n in report.items.items())
    lines.append(f"looked at {looked}" + (f"; {unread} lines or batches could not be read" if unread else ""))
    lines.append(f"{known} of {met} names that were sent are registered ({known / max(met, 1):.1%})")
    lines.append(f"{covered} of {held} names of the registry were sent ({covered / held:.0%})")
    lines.append(", ".join(f"{report.count(advice)} {advice.value}s" for advice in Advice))
    return "\n".join(lines)


def _ordered(report: Report) -> list[tuple[Any, int]]:
    return sorted(
        report.findings.items(),
        key=lambda item: (-_RANKS.index(item[0].advice), item[0].signal, item[0].message),
    )


class ListeningError(ValueError):
    """An address that cannot be listened at."""


Take = Callable[[wire.Request], None]


@contextmanager
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


@contextmanager
def _serve_http(host: str, port: int, take: Take) -> Iterator[int]:
    class Listener(_Receiver):
        taken = staticmethod(take)

    try:
        server = ThreadingHTTPServer((host, port), Listener)
    except OSError as error:
        raise ListeningError(
            f"cannot listen at {host}:{port}: {error.strerror or error}; use another port"
        ) from error
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="live-check", daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Receiver(BaseHTTPRequestHandler):
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
            self.taken(message)
            self._answer(HTTPStatus.OK, content, b"{}" if content == _JSON else b"")

    def _body(self) -> bytes:
        length = int(self.headers.get("Content-Length", ""))
        if length > MAX_BYTES:
            raise TooLargeError(MAX_BYTES)
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


@contextmanager
def _serve_grpc(host: str, port: int, take: Take) -> Iterator[int]:
    import grpc

    def export(kind: Signal) -> Callable[[bytes, grpc.ServicerContext], bytes]:
        def handle(body: bytes, context: grpc.ServicerContext) -> bytes:
            try:
                take(wire.parse(kind, body))
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
