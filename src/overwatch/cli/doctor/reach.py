"""A collector: does it take an OTLP request, over the protocol, with the token and TLS of a trainer's sender.

Rules: the request is empty, which OTLP says succeeds, so that a check leaves nothing in anybody's run.
"""

import time
from collections.abc import Iterator
from typing import Final

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from overwatch import discovery
from overwatch.cli.doctor.verdict import Verdict, failure, ok
from overwatch.delivery import OtlpTransport, destination
from overwatch.delivery.answer import Answer, Parcel
from overwatch.delivery.answer import Verdict as Taken
from overwatch.journal import Signal

AREA: Final = "collector"
TIMEOUT_S: Final = 10.0
_FIXES: Final = {
    "401": "set OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20TOKEN; the ingest token is the collector's",
    "403": "this token may not send; use the ingest token",
    "404": "this is no OTLP address; use the port of OTLP/HTTP, 4318 by default",
    "unauthenticated": "set OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20TOKEN",
    "permission_denied": "this token may not send; use the ingest token",
    "unimplemented": "this is no OTLP address; use the port of OTLP/gRPC, 4317 by default",
}


def reach(endpoint: str | None) -> Iterator[Verdict]:
    """A real request to `endpoint`, or to the collector that is announced on this machine."""
    running = discovery.read()
    if endpoint is None and (running is None or running.otlp_http is None):
        yield ok(AREA, "none runs on this machine; `overwatch collect` starts one, --endpoint asks another")
        return
    try:
        to = destination(Signal.LOGS, endpoint)
    except ValueError as error:
        yield failure(
            AREA, f"{endpoint!r}: {error}", "write http://HOST:4318, https://... or http://HOST:4317"
        )
        return
    door = OtlpTransport({Signal.LOGS: to})
    begin = time.monotonic()
    try:
        parcel = Parcel(signal=Signal.LOGS, body=ExportLogsServiceRequest().SerializeToString())
        answer = door.send(parcel, begin + TIMEOUT_S)
    finally:
        door.close()
    took_ms = (time.monotonic() - begin) * 1000
    yield _verdict(f"{to.shown} over {to.protocol}", answer, took_ms)


def _verdict(where: str, answer: Answer, took_ms: float) -> Verdict:
    match answer.verdict:
        case Taken.TAKEN:
            return ok(AREA, f"{where} took an OTLP request in {took_ms:.0f} ms")
        case Taken.AGAIN:
            fix = "start it with `overwatch collect`, or correct host, port and firewall"
            fix = "it is up and busy; try again" if answer.code in ("429", "503") else fix
            return failure(AREA, f"{where} is away: {answer.detail or answer.code}", fix)
        case Taken.REFUSED:
            fix = _FIXES.get(answer.code, "correct the address, the token or the certificates")
            return failure(AREA, f"{where} refuses: {answer.detail or answer.code}", fix)
