"""OTLP exporters that say why a batch failed.

The OpenTelemetry exporters answer only success or failure; what to do next depends on the cause. So each
is watched through its own public seam (an HTTP session, a gRPC interceptor), and its answer is completed.
Must not know queues or retries.
"""

import enum
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import grpc
import msgspec
import requests
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcLogExporter
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpLogExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.logs.v1.logs_service_pb2_grpc import LogsServiceStub
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExporter, LogRecordExportResult

from overwatch.sdk.exporter.endpoint import Target

_RETRYABLE_HTTP: Final = frozenset({408, 429, 502, 503, 504})
_RETRYABLE_GRPC: Final = frozenset(
    {
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    }
)
_MAX_REPLY: Final = 4 << 20


class Verdict(enum.Enum):
    """What became of a batch."""

    TAKEN = "taken"
    AGAIN = "again"
    """The collector is away or busy; the same batch may be sent again."""
    REFUSED = "refused"
    """Sending it again is of no use."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The collector's answer to a batch."""

    verdict: Verdict
    rejected: int = 0
    """Records of a taken batch that the collector did not keep."""
    detail: str = ""


class Outlet(Protocol):
    """Sends batches of log records."""

    def send(self, batch: Sequence[ReadableLogRecord]) -> Answer:
        """Send one batch; waits at most the exporter's own timeout."""

    def close(self) -> None:
        """Stop waiting; what is in flight fails."""

    @property
    def struggling(self) -> bool:
        """Whether the last attempt failed."""


class _Seen:
    """What the last attempt met."""

    def __init__(self) -> None:
        self.retryable = True
        self.rejected = 0
        self.detail = ""
        self.struggling = False
        self.closed = False

    def failed(self, detail: str, *, retryable: bool) -> None:
        self.retryable, self.detail, self.rejected = retryable, detail, 0
        self.struggling = True

    def reached(self) -> None:
        self.retryable, self.detail, self.rejected, self.struggling = True, "", 0, False

    def answered(self, response: ExportLogsServiceResponse) -> None:
        partial = response.partial_success
        self.rejected, self.detail = max(partial.rejected_log_records, 0), partial.error_message

    def begin(self) -> None:
        """Until an attempt is seen, a failure is the batch's own."""
        self.retryable, self.detail, self.rejected = False, "the batch could not be encoded", 0

    def answer(self, result: LogRecordExportResult) -> Answer:
        if result is LogRecordExportResult.SUCCESS:
            return Answer(verdict=Verdict.TAKEN, rejected=self.rejected, detail=self.detail)
        verdict = Verdict.AGAIN if self.retryable or self.closed else Verdict.REFUSED
        return Answer(verdict=verdict, detail=self.detail)


class _WatchedSession(requests.Session):
    """An HTTP session that remembers the last answer."""

    def __init__(self, seen: _Seen) -> None:
        super().__init__()
        self._seen = seen

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        """Send and look."""
        try:
            response = super().send(request, **kwargs)
        except requests.RequestException as error:
            self._seen.failed(type(error).__name__, retryable=True)
            raise
        if response.ok:
            self._seen.reached()
            self._look(response)
        else:
            retryable = response.status_code in _RETRYABLE_HTTP
            self._seen.failed(f"HTTP {response.status_code} {response.reason}", retryable=retryable)
        return response

    def _look(self, response: requests.Response) -> None:
        if response.content and len(response.content) <= _MAX_REPLY:
            with_reply = ExportLogsServiceResponse()
            try:
                with_reply.ParseFromString(response.content)
            except ValueError:
                self._seen.detail = "the answer is no OTLP"
                return
            self._seen.answered(with_reply)


class HttpOutlet:
    """Over HTTP with protobuf bodies."""

    def __init__(self, target: Target) -> None:
        self._seen = _Seen()
        self._exporter: LogRecordExporter = HttpLogExporter(
            endpoint=target.endpoint, session=_WatchedSession(self._seen)
        )

    def send(self, batch: Sequence[ReadableLogRecord]) -> Answer:
        """Send one batch."""
        self._seen.begin()
        return self._seen.answer(self._exporter.export(batch))

    def close(self) -> None:
        """Stop waiting."""
        self._seen.closed = True
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    @property
    def struggling(self) -> bool:
        """Whether the last attempt failed."""
        return self._seen.struggling


class _Watcher(grpc.UnaryUnaryClientInterceptor):  # type: ignore[misc]
    """Remembers the last answer of a channel."""

    def __init__(self, seen: _Seen) -> None:
        self._seen = seen

    def intercept_unary_unary(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
        """Call and look."""
        call = continuation(details, request)
        code = call.code()
        if code is grpc.StatusCode.OK:
            self._seen.reached()
            self._seen.answered(call.result())
        else:
            self._seen.failed(f"gRPC {code.name} {call.details()}", retryable=code in _RETRYABLE_GRPC)
        return call


class _WatchedGrpcExporter(GrpcLogExporter):
    """The gRPC exporter with a watcher on each channel it opens."""

    def __init__(self, seen: _Seen, endpoint: str | None) -> None:
        self._seen = seen
        super().__init__(endpoint=endpoint)

    def _initialize_channel_and_stub(self) -> None:
        super()._initialize_channel_and_stub()  # type: ignore[no-untyped-call]
        watched = grpc.intercept_channel(self._channel, _Watcher(self._seen))
        self._client = LogsServiceStub(watched)  # type: ignore[no-untyped-call, assignment]


class GrpcOutlet:
    """Over gRPC."""

    def __init__(self, target: Target) -> None:
        self._seen = _Seen()
        self._exporter = _WatchedGrpcExporter(self._seen, target.endpoint)

    def send(self, batch: Sequence[ReadableLogRecord]) -> Answer:
        """Send one batch."""
        self._seen.begin()
        return self._seen.answer(self._exporter.export(batch))

    def close(self) -> None:
        """Stop waiting."""
        self._seen.closed = True
        self._exporter.shutdown()

    @property
    def struggling(self) -> bool:
        """Whether the last attempt failed."""
        return self._seen.struggling


def outlet(target: Target) -> Outlet:
    """An outlet to a target."""
    return GrpcOutlet(target) if target.protocol == "grpc" else HttpOutlet(target)
