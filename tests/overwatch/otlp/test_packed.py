"""What a body says comes back from bytes, in no more of them than the body justifies."""

import tracemalloc

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from overwatch.events import Record
from overwatch.journal import Signal
from overwatch.otlp import wire
from overwatch.otlp.decode import decode
from overwatch.otlp.encode import request
from overwatch.otlp.packed import MOST_TIMES, packed, unpacked
from overwatch.otlp.result import DETAILED
from overwatch.otlp.value import to_pairs
from tests.overwatch.otlp.strategies import RECORDS

T = 1_700_000_000_000_000_000


def _logs(run_id: str, scope: str, *events: str) -> bytes:
    message = ExportLogsServiceRequest()
    of_run = message.resource_logs.add()
    of_run.resource.attributes.extend(to_pairs({wire.RUN_ID: run_id}))
    of_scope = of_run.scope_logs.add()
    of_scope.scope.name = scope
    for event in events:
        of_scope.log_records.add(time_unix_nano=T, event_name=event)
    return message.SerializeToString()


def one_sum() -> bytes:
    """A request of one point of a sum that a row knows."""
    message = ExportMetricsServiceRequest()
    of_run = message.resource_metrics.add()
    of_run.resource.attributes.extend(to_pairs({wire.RUN_ID: "run-1"}))
    metric = of_run.scope_metrics.add().metrics.add(name="overwatch.policy.kl_divergence")
    metric.sum.aggregation_temporality = 2
    metric.sum.data_points.add(time_unix_nano=T, start_time_unix_nano=T - 1, as_double=3.0)
    return message.SerializeToString()


@settings(max_examples=200, deadline=None)
@given(st.lists(RECORDS, max_size=20))
def test_what_is_packed_comes_back(records: list[Record]) -> None:
    """Events of every kind, in any number."""
    body = request(records, {})
    said = decode(Signal.LOGS, body)
    data = packed(said, 1 << 20)
    assert data is not None
    # Not a number is not even equal to itself.
    assert repr(unpacked(data)) == repr(said)


def test_problems_and_those_without_a_run_come_back() -> None:
    """The account is as exact as the records."""
    of_run, of_none = (_logs(run_id, "", *["overwatch.nothing"] * 3) for run_id in ("run-1", ""))
    said = decode(Signal.LOGS, of_run + of_none)
    assert (len(said.problems), said.unattributed) == (3, 3)
    assert unpacked(packed(said, len(of_run)) or b"") == said


LONG = "x" * (1 << 18)
STRANGE = "overwatch.nothing"


@pytest.mark.parametrize(
    "body",
    [
        _logs("x" * wire.LONGEST_ID, "", *[""] * 20_000),
        _logs("run-1", LONG, *[""] * 20_000),
        _logs("run-1", "", *[STRANGE] * (DETAILED - 1), f"overwatch.{LONG}", *[STRANGE] * 20_000),
    ],
    ids=["run", "scope", "problem"],
)
def test_what_many_share_is_not_packed_for_each(body: bytes) -> None:
    """A body of half a MiB would become many MiB, or gigabytes: it is not, and nothing near that is tried."""
    said = decode(Signal.LOGS, body)
    tracemalloc.start()
    try:
        assert packed(said, len(body)) is None
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 4 * MOST_TIMES * len(body)


def test_series_are_left_to_who_reads_the_body() -> None:
    """They are settled with memory, by numbers that are no records yet."""
    said = decode(Signal.METRICS, one_sum())
    assert said.series is not None
    assert packed(said, 1 << 20) is None


@pytest.mark.parametrize("data", [b"", b"\xff", b"\x96\x00\x00\x00\x91\xc4\x01\xff\x90\x90"])
def test_what_was_never_packed_is_an_error(data: bytes) -> None:
    """Bytes that are anything else."""
    with pytest.raises(msgspec.DecodeError):
        unpacked(data)
