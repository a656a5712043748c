"""Log records are written as OpenTelemetry's encoder writes them, to the byte."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.sdk._logs import LogRecordLimits, ReadableLogRecord
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from overwatch.sdk.exporter import logbytes
from overwatch.sdk.exporter.logbytes import LogBytes

RESOURCE = Resource({"service.name": "a", "rank": 3, "on": True}, "https://example.org/schema")
SCOPE = InstrumentationScope("overwatch", "1.0", "https://example.org/other", {"a": 1})

texts = st.text(max_size=200)
plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(),
    texts,
    st.binary(max_size=200),
)
values = st.recursive(
    plain,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(texts, inner, max_size=4),
    ),
    max_leaves=20,
)
spans = st.builds(
    lambda trace, span, flags: set_span_in_context(
        NonRecordingSpan(SpanContext(trace, span, is_remote=True, trace_flags=TraceFlags(flags))), Context()
    ),
    st.integers(1, (1 << 128) - 1),
    st.integers(1, (1 << 64) - 1),
    st.sampled_from([0, 1]),
)
records = st.builds(
    LogRecord,
    timestamp=st.integers(0, (1 << 64) - 1),
    observed_timestamp=st.integers(0, (1 << 64) - 1),
    context=st.one_of(st.just(Context()), spans),
    severity_text=st.one_of(st.none(), texts),
    severity_number=st.one_of(st.none(), st.sampled_from(SeverityNumber)),
    body=values,
    attributes=st.dictionaries(texts.filter(bool), plain, max_size=6),
    event_name=st.one_of(st.none(), texts),
)


def readable(record: LogRecord, resource: Resource = RESOURCE) -> ReadableLogRecord:
    """A record as an exporter gets it."""
    return ReadableLogRecord(record, resource, SCOPE, LogRecordLimits())


def by_opentelemetry(batch: Sequence[ReadableLogRecord]) -> bytes:
    """What is to be written."""
    return encode_logs(batch).SerializeToString()


@given(st.lists(records, min_size=1, max_size=4))
def test_any_plain_records_are_the_same_bytes(found: list[LogRecord]) -> None:
    """Every kind of value, nested, empty or none, long and short; without OpenTelemetry's help."""
    batch = [readable(record) for record in found]
    encoder = LogBytes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logbytes, "_plain", None)
        assert encoder.encode(batch) == by_opentelemetry(batch)
        assert encoder.encode(batch[:1]) == by_opentelemetry(batch[:1])


class _Text(str):
    """Text of a kind of its own."""

    __slots__ = ()


@pytest.mark.parametrize("odd", [_Text("text"), {1: "a key that is no text"}, bytearray(b"bytes"), range(3)])
def test_values_of_other_kinds_are_opentelemetrys(odd: Any) -> None:
    """What is written then is its own, too."""
    batch = [readable(LogRecord(timestamp=1, context=Context(), body=odd))]
    assert LogBytes().encode(batch) == by_opentelemetry(batch)


@pytest.mark.parametrize("odd", [1 << 63, "\ud800", object()])
def test_what_opentelemetry_refuses_is_refused(odd: Any) -> None:
    """With its own error."""
    batch = [readable(LogRecord(timestamp=1, context=Context(), body=odd))]
    with pytest.raises(Exception) as theirs:  # noqa: PT011 whatever it is
        by_opentelemetry(batch)
    with pytest.raises(type(theirs.value)):
        LogBytes().encode(batch)


def test_another_producer_is_described_anew() -> None:
    """One after the other, and both in one batch."""
    other = Resource({"service.name": "b"})
    one, two = (readable(LogRecord(timestamp=1, context=Context()), of) for of in (RESOURCE, other))
    encoder = LogBytes()
    for batch in ([one], [two], [one, two], [one]):
        assert encoder.encode(batch) == by_opentelemetry(batch)
