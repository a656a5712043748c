"""Bodies as lines of OTLP/JSON for who writes many: log records of known shapes by template, many at once.

The frame around the records (resources, scopes, where each record begins) is walked; what is written in any
other than the one plain way is left to the general path as a whole, a strange record alone.

Rules: gives exactly what `jsonl.to_json` would. What is learned is bounded. Used from one thread. Must not
know what a body says.
"""

from typing import Final

import msgspec
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from overwatch.journal import Signal
from overwatch.otlp.frames import FIRST, SECOND, OddError, Place, framed, messages
from overwatch.otlp.groups import LEAST, Groups
from overwatch.otlp.jsonl import text_of, to_json
from overwatch.otlp.line_template import learn_line
from overwatch.otlp.varint import varint

LARGEST_BYTES: Final = 4 << 20
"""Larger requests are left to the general path, which takes less memory."""


class LineTemplates:
    """Writes lines; remembers shapes."""

    def __init__(self) -> None:
        self._groups: Groups[bytes] = Groups(learn_line)
        self.known = 0
        """Records that were written by template."""

    def to_json(self, signal: Signal, body: bytes) -> bytes:
        """As `jsonl.to_json`; raises `MalformedBody`."""
        if signal is not Signal.LOGS or len(body) > LARGEST_BYTES:
            return to_json(signal, body)
        try:
            resources = [self._resource(body, *place) for place in messages(body, 0, len(body))]
        except (OddError, DecodeError):
            return to_json(signal, body)
        return b'{"resourceLogs":[%b]}' % b",".join(resources) if resources else b"{}"

    def _resource(self, body: bytes, start: int, stop: int) -> bytes:
        head, items, schema = framed(body, start, stop)
        scopes = [self._scope(body, *place) for place in items]
        resource = [] if head is None else [b'"resource":' + text_of(Resource.FromString(head))]
        return _object(resource, b"scopeLogs", scopes, schema)

    def _scope(self, body: bytes, start: int, stop: int) -> bytes:
        head, items, schema = framed(body, start, stop)
        if len(items) < LEAST:
            # A few records are written as fast without looking for their shapes.
            raise OddError
        scope = [] if head is None else [b'"scope":' + text_of(InstrumentationScope.FromString(head))]
        return _object(scope, b"logRecords", self._records(body, items), schema)

    def _records(self, body: bytes, places: list[Place]) -> list[bytes]:
        """The text of each record of a scope; raises `DecodeError`, or `OddError` where none is known."""
        texts = self._groups.read(body, places)
        self._groups.learn()
        if not texts:
            raise OddError
        self.known += len(texts)
        return [texts.get(start) or self._strange(body[start:stop]) for start, stop in places]

    def _strange(self, record: bytes) -> bytes:
        """A record in its frame, so that it may be nested as deep as in any request; raises `DecodeError`."""
        whole = record
        for tag in (SECOND, SECOND, FIRST):
            whole = bytes([tag]) + varint(len(whole)) + whole
        request = ExportLogsServiceRequest.FromString(whole)
        return text_of(request.resource_logs[0].scope_logs[0].log_records[0])


def _object(head: list[bytes], name: bytes, items: list[bytes], schema: bytes) -> bytes:
    """An object whose fields are in the order of their numbers; raises `OddError`."""
    listed = [b'"%b":[%b]' % (name, b",".join(items))] if items else []
    try:
        last = [b'"schemaUrl":' + msgspec.json.encode(schema.decode())] if schema else []
    except UnicodeDecodeError:
        raise OddError from None
    return b"{%b}" % b",".join([*head, *listed, *last])
