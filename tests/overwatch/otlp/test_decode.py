"""Decoding: what foreign programs and broken ones send."""

import math
import random

import pytest
from hypothesis import given, settings
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import DataPointFlags

from overwatch.catalog import KL, Scope
from overwatch.events import (
    Column,
    EnvsRemoved,
    LogLine,
    Measured,
    NonFiniteSeen,
    Origin,
    PhaseEnded,
    Record,
    Severity,
)
from overwatch.journal import Signal
from overwatch.otlp import wire
from overwatch.otlp.decode import Decoded, MalformedBody, counts_of, decode
from overwatch.otlp.encode import request
from overwatch.otlp.result import timed
from overwatch.otlp.value import Value
from tests.fakes import START_NS
from tests.overwatch.otlp.attributes import to_pairs
from tests.overwatch.otlp.messages import messages

RUN = Origin(run_id="r", ours=True, epoch="e")
PHASE = PhaseEnded(at=START_NS + 5, phase="learn", duration_s=0.5)


def logs(**resource: Value) -> ExportLogsServiceRequest:
    """A request with one resource, one scope and one record at time 5."""
    message = ExportLogsServiceRequest()
    named = message.resource_logs.add()
    named.resource.attributes.extend(to_pairs({k.replace("__", "."): v for k, v in resource.items()}))
    named.scope_logs.add().log_records.add(time_unix_nano=START_NS + 5)
    return message


def first_log(message: ExportLogsServiceRequest) -> object:
    """The request's one record."""
    return message.resource_logs[0].scope_logs[0].log_records[0]


def decode_logs(message: ExportLogsServiceRequest) -> Decoded:
    """Decode a logs message."""
    return decode(Signal.LOGS, message.SerializeToString())


def points(
    name: str, rows: list[tuple[dict[str, Value], float | int]], **resource: Value
) -> ExportMetricsServiceRequest:
    """A gauge of one name with a point for each (attributes, value), at time 5."""
    message = ExportMetricsServiceRequest()
    named = message.resource_metrics.add()
    named.resource.attributes.extend(to_pairs({k.replace("__", "."): v for k, v in resource.items()}))
    gauge = named.scope_metrics.add().metrics.add(name=name).gauge
    for attributes, value in rows:
        point = gauge.data_points.add(time_unix_nano=START_NS + 5, attributes=to_pairs(attributes))
        if isinstance(value, int):
            point.as_int = value
        else:
            point.as_double = value
    return message


def decode_points(message: ExportMetricsServiceRequest) -> Decoded:
    """Decode a metrics message."""
    return decode(Signal.METRICS, message.SerializeToString())


@settings(deadline=None)
@given(messages(ExportLogsServiceRequest.DESCRIPTOR))
def test_any_valid_logs_request_decodes(message: ExportLogsServiceRequest) -> None:
    """Decoding never raises, is deterministic, and accounts for every record."""
    body = message.SerializeToString()
    decoded = decode(Signal.LOGS, body)
    counts = counts_of(decode(Signal.LOGS, body))
    assert repr(decode(Signal.LOGS, body)) == repr(decoded)
    assert len(decoded.records) + len(decoded.problems) + decoded.unattributed == counts.items
    assert counts.rejected == len(decoded.problems)


@settings(deadline=None)
@given(messages(ExportMetricsServiceRequest.DESCRIPTOR))
def test_any_valid_metrics_request_decodes(message: ExportMetricsServiceRequest) -> None:
    """Decoding never raises, is deterministic, and never rejects more than there is."""
    body = message.SerializeToString()
    decoded = decode(Signal.METRICS, body)
    counts = counts_of(decode(Signal.METRICS, body))
    assert repr(decode(Signal.METRICS, body)) == repr(decoded)
    assert counts.rejected + decoded.unattributed + decoded.unmapped <= counts.items


@settings(max_examples=30, deadline=None)
@given(messages(ExportTraceServiceRequest.DESCRIPTOR))
def test_spans_yield_no_records(message: ExportTraceServiceRequest) -> None:
    """Spans are taken and pass by."""
    spans = sum(len(scope.spans) for resource in message.resource_spans for scope in resource.scope_spans)
    assert decode(Signal.TRACES, message.SerializeToString()) == Decoded(items=spans)


def test_random_events_of_ours_with_broken_fields_are_problems_or_events() -> None:
    """Mutilated records of our own kinds never raise and never harm their neighbours."""
    seeded = random.Random(7)  # noqa: S311 the same cases each time, nothing secret
    values: list[Value] = [None, "x", True, -1, 1.5, math.nan, b"\0", [1, "a"], {"a": {"b": 1}}]
    for name in wire.BY_EVENT_NAME:
        for _ in range(60):
            message = logs(rl__run__id="r")
            record = first_log(message)
            record.event_name = name
            attributes = sorted(wire.BY_ATTRIBUTE[wire.BY_EVENT_NAME[name]])
            for attribute in seeded.sample(attributes, k=min(2, len(attributes))):
                record.attributes.extend(to_pairs({attribute: seeded.choice(values)}))
            message.resource_logs[0].scope_logs[0].log_records.add(
                time_unix_nano=START_NS + 6, event_name="app.ready"
            )
            decoded = decode_logs(message)
            assert len(decoded.records) + len(decoded.problems) == 2
            assert decoded.records[-1].event.at == START_NS + 6


def test_a_body_that_is_no_protobuf_is_malformed() -> None:
    """Bytes that do not parse raise, naming the message they should have been."""
    with pytest.raises(MalformedBody, match="ExportLogsServiceRequest"):
        decode(Signal.LOGS, b"\xff\xff\xff")


def test_a_start_record_of_a_collector_has_no_records() -> None:
    """The collector's own start record passes by."""
    assert decode(Signal.START, b"anything") == Decoded()


def test_one_malformed_record_leaves_its_neighbours_unharmed() -> None:
    """The records around a broken one arrive."""
    message = ExportLogsServiceRequest.FromString(
        request([Record(origin=RUN, event=PHASE, seq=seq) for seq in (1, 2, 3)], {})
    )
    broken = message.resource_logs[0].scope_logs[0].log_records[1]
    broken.attributes.extend(to_pairs({"overwatch.phase": 4}))
    broken.attributes[0].value.int_value = 4
    decoded = decode_logs(message)
    assert [record.seq for record in decoded.records] == [1, 3]
    assert decoded.problems[0].reason == "malformed"
    assert "phase" in decoded.problems[0].detail


def test_a_record_without_a_run_or_a_name_is_counted_not_folded() -> None:
    """Nothing implies a run, no record."""
    assert decode_logs(logs(app="x")) == Decoded(items=1, unattributed=1)


def test_a_record_without_any_time_takes_the_receive_stamp() -> None:
    """The time observed goes first; without either the caller's receive stamp is taken."""
    message = logs(rl__run__id="r")
    first_log(message).ClearField("time_unix_nano")
    decoded = decode_logs(message)
    assert (decoded.untimed, decoded.problems) == (1, ())
    assert timed(decoded, START_NS + 7).records[0].event.at == START_NS + 7
    first_log(message).observed_time_unix_nano = START_NS + 9
    decoded = decode_logs(message)
    assert timed(decoded, START_NS + 7).records[0].event.at == START_NS + 9


def test_an_event_of_a_newer_version_is_a_problem() -> None:
    """An unknown event of ours is reported, not shown as somebody's log line."""
    message = logs(rl__run__id="r")
    first_log(message).event_name = "overwatch.tomorrow"
    assert decode_logs(message).problems[0].reason == "unknown_event"


def test_a_plain_log_of_another_program_becomes_a_line() -> None:
    """Message, severity, subsystem, ids and fields of a foreign record."""
    message = logs(rl__run__id="r", service__name="loader")
    record = first_log(message)
    record.severity_number = 14
    record.body.string_value = "slow disk"
    record.attributes.extend(to_pairs({"overwatch.env.id": 3, "took": 1.5, "rl.run.id": "r"}))
    assert decode_logs(message).records == (
        Record(
            origin=Origin(run_id="r", service="loader"),
            event=LogLine(
                at=START_NS + 5,
                severity=Severity.WARNING,
                message="slow disk",
                subsystem="loader",
                env_id=3,
                fields={"overwatch.env.id": "3", "took": "1.5"},
            ),
        ),
    )


def test_foreign_metrics_of_one_moment_are_one_measurement() -> None:
    """Names and aliases of the catalogue, merged when they speak of the same subjects at the same time."""
    message = points("train/approx_kl", [({}, 0.01)], rl__run__id="r", service__instance__id="i")
    metrics = message.resource_metrics[0].scope_metrics[0].metrics
    metrics.add().CopyFrom(
        points("overwatch.policy.entropy", [({}, 1)]).resource_metrics[0].scope_metrics[0].metrics[0]
    )
    (record,) = decode_points(message).records
    assert record.origin == Origin(run_id="r", epoch="i")
    assert isinstance(record.event, Measured)
    values = {name: column.first() for name, column in record.event.values.items()}
    assert values == {KL.name: 0.01, "overwatch.policy.entropy": 1.0}


def test_foreign_env_metrics_become_columns() -> None:
    """Points with an env id are rows."""
    rows = [({"overwatch.env.id": env}, float(env)) for env in (4, 2)]
    (record,) = decode_points(points("overwatch.env.reward", rows, rl__run__id="r")).records
    assert isinstance(record.event, Measured)
    assert record.event.keys["env_id"].array().tolist() == [4, 2]
    assert record.event.values["overwatch.env.reward"].array().tolist() == [4.0, 2.0]


def test_a_lane_on_an_env_point_is_the_envs_lane() -> None:
    """Points that name a lane have it in a column; those that do not are a measurement of their own."""
    lanes = {4: "cuda:1", 2: "cuda:0", 3: None}
    rows = [
        ({"overwatch.env.id": env, **({"overwatch.lane.id": lane} if lane else {})}, float(env))
        for env, lane in lanes.items()
    ]
    with_lane, without = decode_points(points("overwatch.env.reward", rows, rl__run__id="r")).records
    assert isinstance(with_lane.event, Measured)
    assert isinstance(without.event, Measured)
    assert with_lane.event.keys["env_id"].array().tolist() == [4, 2]
    assert with_lane.event.values["lane"].words() == ["cuda:1", "cuda:0"]
    assert without.event.keys["env_id"].array().tolist() == [3]
    assert set(without.event.values) == {"overwatch.env.reward"}


def test_an_env_point_without_a_recorded_value_ends_that_value() -> None:
    """Ends of the same envs at one moment are one fact; other points of the metric are values as ever."""
    message = points(
        "overwatch.env.reward", [({"overwatch.env.id": env}, 1.0) for env in (1, 2, 3)], rl__run__id="r"
    )
    metrics = message.resource_metrics[0].scope_metrics[0].metrics
    other = points(
        "overwatch.env.rent", [({"overwatch.env.id": env}, 0.0) for env in (3, 2)], rl__run__id="r"
    )
    metrics.add().CopyFrom(other.resource_metrics[0].scope_metrics[0].metrics[0])
    for point in (*metrics[0].gauge.data_points[1:], *metrics[1].gauge.data_points):
        point.flags = DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK
        point.ClearField("value")
    measured, ended = decode_points(message).records
    assert isinstance(measured.event, Measured)
    assert measured.event.keys["env_id"].array().tolist() == [1]
    assert ended.event == EnvsRemoved(
        at=START_NS + 5, env_id=Column.of([2, 3]), metrics=("overwatch.env.reward", "overwatch.env.rent")
    )


def test_an_end_without_its_env_is_a_problem() -> None:
    """An end states whose value it is."""
    message = points("overwatch.env.reward", [({}, 1.0)], rl__run__id="r")
    (metric,) = message.resource_metrics[0].scope_metrics[0].metrics
    metric.gauge.data_points[0].flags = DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK
    assert "overwatch.env.id" in decode_points(message).problems[0].detail


def test_an_end_of_the_policys_value_is_an_empty_column() -> None:
    """It belongs to the run, for an end is no update."""
    message = points(KL.name, [({}, 1.0)], rl__run__id="r")
    (metric,) = message.resource_metrics[0].scope_metrics[0].metrics
    metric.gauge.data_points[0].flags = DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK
    (record,) = decode_points(message).records
    nothing = {KL.name: Column(dtype="<f8", data=b"")}

    assert record.event == Measured(at=START_NS + 5, scope=Scope.RUN, values=nothing)


def test_a_slot_metric_without_its_slot_is_a_problem() -> None:
    """A keyed row states what is missing."""
    rows: list[tuple[dict[str, Value], float]] = [({"overwatch.env.id": 1}, 0.5)]
    decoded = decode_points(points("overwatch.slot.alpha", rows, rl__run__id="r"))
    assert "overwatch.slot.id" in decoded.problems[0].detail


def test_gpu_metrics_of_other_hardware_are_not_taken() -> None:
    """`hw.temperature` of a fan is unmapped; of a GPU it is a lane's."""
    rows = [({"hw.id": "GPU-1", "hw.type": "gpu"}, 60.0), ({"hw.id": "fan0", "hw.type": "fan"}, 30.0)]
    decoded = decode_points(points("hw.temperature", rows, rl__run__id="r"))
    assert decoded.unmapped == 1
    assert decoded.records[0].event.keys["gpu_id"].words() == ["GPU-1"]


def test_a_nan_of_a_critical_row_is_a_fact_besides() -> None:
    """NaN rewards of foreign producers are named with their envs."""
    rows = [({"overwatch.env.id": env}, math.nan if env % 2 else 1.0) for env in range(40)]
    measured, seen = decode_points(points("overwatch.env.reward", rows, rl__run__id="r")).records
    assert isinstance(measured.event, Measured)
    assert seen.event == NonFiniteSeen(
        at=START_NS + 5,
        scope=Scope.ENV,
        metric="overwatch.env.reward",
        kind="nan",
        count=20,
        env_ids=tuple(range(1, 32, 2)),
    )


def test_an_undefined_row_may_be_nan_in_peace() -> None:
    """Explained variance without variance is no fact."""
    message = points("train/explained_variance", [({}, math.nan)], rl__run__id="r")
    assert len(decode_points(message).records) == 1


def test_unknown_names_and_unattributed_points_are_counted() -> None:
    """What cannot be used is counted under its reason; our own metrics are for others."""
    assert decode_points(points("app.latency", [({}, 1.0)], rl__run__id="r")) == Decoded(items=1, unmapped=1)
    assert decode_points(points("system.cpu.utilization", [({}, 1.0)])) == Decoded(items=1, unattributed=1)
    assert decode_points(
        points(KL.name, [({}, 1.0)], rl__run__id="r", telemetry__distro__name="overwatch")
    ) == Decoded(items=1)


def test_many_problems_are_counted_exactly_and_described_once() -> None:
    """Every bad record counts; only the first ones have a detail of their own."""
    message = logs(rl__run__id="r")
    records = message.resource_logs[0].scope_logs[0].log_records
    for number in range(1000):
        records.add(time_unix_nano=START_NS + number, event_name=f"overwatch.made_up_{number}")
    problems = decode_logs(message).problems

    assert len(problems) == 1000
    assert len({id(problem) for problem in problems}) < 300


@pytest.mark.parametrize(
    ("kind", "ids", "ended"),
    [
        ("overwatch.env", {"overwatch.env.id": 7}, [7]),
        ("overwatch.env", {"overwatch.env.id": "seven"}, None),
        ("overwatch.env", 7, None),
        ("host", {"host.id": "h"}, None),
    ],
)
def test_the_end_of_an_env_entity_ends_the_env(kind: str, ids: Value, ended: list[int] | None) -> None:
    """An entity event about an env that is no more removes it; every other one is a line like any."""
    message = logs(rl__run__id="r")
    log = message.resource_logs[0].scope_logs[0].log_records[0]
    log.event_name = "entity.delete"
    log.attributes.extend(to_pairs({"entity.type": kind, "entity.id": ids}))
    event = decode_logs(message).records[0].event

    if ended is None:
        assert isinstance(event, LogLine)
    else:
        assert isinstance(event, EnvsRemoved)
        assert event.env_id.array().tolist() == ended


def test_the_name_of_an_event_may_be_an_attribute() -> None:
    """Producers of before the field are understood; what they sent is shown as they sent it."""
    message = logs(rl__run__id="r")
    records = message.resource_logs[0].scope_logs[0].log_records
    reported = {
        "event.name": "overwatch.phase_ended",
        "overwatch.phase": "learn",
        "overwatch.duration_s": 0.5,
    }
    records[0].attributes.extend(to_pairs(reported))
    records.add(time_unix_nano=START_NS + 6).attributes.extend(to_pairs({"event.name": "app.saved"}))
    phase, line = (record.event for record in decode_logs(message).records)

    assert phase == PHASE
    assert isinstance(line, LogLine)
    assert (line.message, line.fields) == ("app.saved", {"event.name": "app.saved"})


@pytest.mark.parametrize("text", ["", "WARN", "info", "FATAL4"])
def test_a_severity_is_its_number_whatever_its_text(text: str) -> None:
    """Ranges of four numbers each; what is unspecified is information."""
    expected = [("info", {0, *range(9, 13)}), ("debug", set(range(1, 9))), ("warning", set(range(13, 17)))]
    by_number = {number: word for word, numbers in expected for number in numbers}
    message = logs(rl__run__id="r")
    for number in range(25):
        first_log(message).severity_number = number
        first_log(message).severity_text = text
        line = decode_logs(message).records[0].event
        assert isinstance(line, LogLine)
        assert line.severity.value == by_number.get(number, "critical")


def test_a_value_by_number_is_absent() -> None:
    """Only profiles have tables for such numbers to point into: here one is no integer, and no text."""
    message = ExportLogsServiceRequest()
    resource = message.resource_logs.add()
    resource.resource.attributes.extend(to_pairs({"rl.run.id": "r"}))
    log = resource.scope_logs.add().log_records.add(time_unix_nano=START_NS + 1)
    log.attributes.add(key=wire.ENV_ID).value.string_value_strindex = 3
    log.body.string_value_strindex = 4
    (record,) = decode(Signal.LOGS, message.SerializeToString()).records

    assert isinstance(record.event, LogLine)
    assert (record.event.env_id, record.event.message) == (None, "")
