"""Events survive the wire: encode, then decode, is the identity."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs, SeverityNumber
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

import overwatch
from overwatch.catalog import KL, Scope
from overwatch.events import Column, LogLine, Measured, Origin, Record, Severity, scalars
from overwatch.journal import Signal
from overwatch.otlp import encode, wire
from overwatch.otlp.decode import decode
from overwatch.otlp.value import Value
from tests.fakes import START_NS
from tests.overwatch.otlp.attributes import to_any, to_pairs
from tests.overwatch.otlp.strategies import EVENTS, INTS, RECORDS, nan_bits

ORIGIN = Origin(run_id="r", ours=True, epoch="e")


def there_and_back(*records: Record) -> tuple[Record, ...]:
    """The records after a trip over the wire, which must be free of problems."""
    decoded = decode(Signal.LOGS, encode.request(records, {}))
    assert (decoded.problems, decoded.unattributed, decoded.unmapped) == ((), 0, 0)
    return decoded.records


@settings(deadline=None)
@given(st.lists(RECORDS, max_size=4))
def test_every_event_of_every_origin_survives_the_wire(records: list[Record]) -> None:
    """Nothing is lost, added or changed, for any event, origin and number."""
    assert list(there_and_back(*records)) == records


@settings(deadline=None)
@given(EVENTS)
def test_the_same_event_always_gives_the_same_bytes(event: object) -> None:
    """Two encodings of one event are equal."""
    record = Record(origin=ORIGIN, event=event, seq=1)
    assert encode.request([record], {}) == encode.request([record], {})


TEXTS = st.text(max_size=200)
PLAIN = st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats() | TEXTS | st.binary()
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


@settings(deadline=None)
@given(
    st.dictionaries(TEXTS, VALUES, max_size=6), VALUES, st.integers(0, (1 << 64) - 1), st.none() | INTS, TEXTS
)
def test_bytes_are_those_that_protobuf_writes(
    attributes: dict[str, Value], body: Value, at: int, seq: int | None, name: str
) -> None:
    """Of any value of an attribute, any time and any body; ids too."""
    pieces = encode.Pieces(
        event_name=name, severity=9, attributes=attributes, body=body, trace_id=b"t" * 16, span_id=b"s" * 8
    )
    written = encode.as_bytes(pieces, at, seq)
    numbered = attributes if seq is None else {**attributes, wire.SEQ: seq}
    log = LogRecord(
        time_unix_nano=at,
        observed_time_unix_nano=at,
        event_name=name,
        severity_number=SeverityNumber.SEVERITY_NUMBER_INFO,
        attributes=to_pairs(numbered),
        body=None if body is None else to_any(body),
        trace_id=b"t" * 16,
        span_id=b"s" * 8,
    )
    assert written == log.SerializeToString()
    scope_logs = ScopeLogs(
        scope=InstrumentationScope(name=wire.OURS, version=overwatch.__version__),
        log_records=[log],
        schema_url=wire.SCHEMA_URL,
    )
    whole = ExportLogsServiceRequest(
        resource_logs=[
            ResourceLogs(
                resource=Resource(attributes=to_pairs(attributes)), scope_logs=[scope_logs], schema_url=name
            )
        ]
    )
    assert encode.resource_logs(attributes, [written], name) == whole.SerializeToString()


@pytest.mark.parametrize("value", ["\ud800", 1 << 63, object()], ids=["surrogate", "65 bits", "object"])
def test_what_protobuf_cannot_write_is_an_error(value: Value) -> None:
    """A value is never cut or guessed."""
    with pytest.raises((ValueError, TypeError)):
        encode.as_bytes(encode.Pieces(event_name="e", severity=9, attributes={"a": value}), START_NS)


def test_one_update_is_one_double_attribute_a_value() -> None:
    """Scalar numbers travel under their full names, NaN included, without a body."""
    values = scalars({KL.name: 0.0123, "overwatch.policy.value_loss": math.nan})
    pieces = encode.encode(Measured(at=START_NS + 5, scope=Scope.POLICY, index=7, values=values))
    assert pieces.event_name == "overwatch.measured"
    assert pieces.body is None
    assert pieces.attributes["overwatch.scope"] == "policy"
    assert pieces.attributes["overwatch.index"] == 7
    assert pieces.attributes[KL.name] == 0.0123
    assert math.isnan(pieces.attributes["overwatch.policy.value_loss"])


def test_columns_travel_packed_in_the_body() -> None:
    """Numbers of many subjects are one kvlist of keys and values."""
    env_id = Column(dtype="<i4", data=bytes(8))
    pieces = encode.encode(
        Measured(
            at=START_NS + 5,
            scope=Scope.ENV,
            keys={"env_id": env_id},
            values={"x": Column.of_labels(["a", None])},
        )
    )
    assert pieces.attributes == {"overwatch.scope": "env"}
    assert pieces.body == {
        "keys": {"env_id": {"dtype": "<i4", "data": bytes(8)}},
        "values": {"x": {"dtype": "<i4", "data": b"\0\0\0\0\xff\xff\xff\xff", "labels": ["a"]}},
    }


def test_a_nan_with_unusual_bits_keeps_them() -> None:
    """A NaN that a double attribute could not carry to the bit travels packed."""
    event = Measured(at=START_NS + 5, scope=Scope.POLICY, values={KL.name: nan_bits()})
    assert there_and_back(Record(origin=ORIGIN, event=event))[0].event == event


def test_a_value_under_a_reserved_name_travels_packed() -> None:
    """A value named like one of our attributes is not taken for it."""
    event = Measured(at=START_NS + 5, scope=Scope.RUN, values=scalars({wire.SCOPE: 1.0, wire.SEQ: 2.0}))
    assert there_and_back(Record(origin=ORIGIN, event=event, seq=3))[0].event == event


def test_severity_is_the_lowest_number_of_its_range() -> None:
    """The four severities have OTLP's numbers 5, 9, 13, 17."""
    numbers = [encode.encode(LogLine(at=START_NS + 1, severity=s, message="m")).severity for s in Severity]
    assert numbers == [5, 9, 13, 17]


def test_a_request_takes_more_resource_attributes() -> None:
    """Attributes given to `request` add to the origin's and override them."""
    record = Record(origin=ORIGIN, event=LogLine(at=START_NS + 1, severity=Severity.INFO, message="m"))
    body = encode.request([record], {"rl.run.id": "other", "host.name": "h"})
    assert decode(Signal.LOGS, body).records[0].origin.run_id == "other"
