"""What a request states once, for all of its items: long words cost no more than they are long."""

import tracemalloc
from collections.abc import Callable

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from overwatch.journal import Signal
from overwatch.otlp import wire
from overwatch.otlp.decode import counts_of, decode
from tests.overwatch.otlp.attributes import to_pairs

T = 1_700_000_000_000_000_000
ITEMS = 2000
LONG = 1 << 17


def _lines(scope: str, **resource: str) -> bytes:
    message = ExportLogsServiceRequest()
    of_run = message.resource_logs.add()
    of_run.resource.attributes.extend(to_pairs({wire.RUN_ID: "run-1", **resource}))
    of_scope = of_run.scope_logs.add()
    of_scope.scope.name = scope
    for _ in range(ITEMS):
        of_scope.log_records.add(time_unix_nano=T)
    return message.SerializeToString()


def _sums(name: str, **resource: str) -> bytes:
    message = ExportMetricsServiceRequest()
    of_run = message.resource_metrics.add()
    of_run.resource.attributes.extend(to_pairs({wire.RUN_ID: "run-1", **resource}))
    metric = of_run.scope_metrics.add().metrics.add(name=name)
    metric.sum.aggregation_temporality = 2
    for number in range(ITEMS):
        point = metric.sum.data_points.add(time_unix_nano=T, start_time_unix_nano=T - 1, as_double=number)
        point.attributes.extend(to_pairs({wire.ENV_ID: number}))
    return message.SerializeToString()


def _most(signal: Signal, body: bytes) -> int:
    """The most bytes of memory that it takes to decode a body, what comes out among them."""
    decode(signal, body)
    tracemalloc.start()
    try:
        stated = decode(signal, body)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert stated.items == ITEMS
    assert not stated.problems
    return most


@pytest.mark.parametrize(
    ("signal", "body"),
    [
        (Signal.LOGS, _lines),
        (Signal.LOGS, lambda word: _lines("", **{wire.SERVICE: word})),
        (Signal.METRICS, lambda word: _sums("overwatch.env.return", **{wire.INSTANCE: word})),
        (Signal.METRICS, lambda word: _sums("overwatch.env.return", **{wire.LANE_ID: word})),
        (Signal.METRICS, lambda word: _sums("overwatch.gpu.utilization", **{wire.LANE_ID: word})),
    ],
    ids=["scope", "service", "instance", "lane of envs", "lane"],
)
def test_a_long_word_is_no_longer_for_being_shared(signal: Signal, body: Callable[[str], bytes]) -> None:
    """Two thousand items that share a word of 128 KiB take a few times that more than with a short one."""
    assert _most(signal, body("x" * LONG)) - _most(signal, body("x")) < 12 * LONG


def test_a_run_id_that_is_too_long_is_rejected_and_reported() -> None:
    """It would stand in every line and label of the run; the longest that is taken is."""
    lines = _lines("", **{wire.RUN_ID: "x" * (wire.LONGEST_ID + 1)})
    counts = counts_of(decode(Signal.LOGS, lines))
    assert (counts.items, counts.rejected) == (ITEMS, ITEMS)
    assert counts.message.startswith(f"{wire.RUN_ID} has 257 characters; 256 are the most")
    sums = decode(Signal.METRICS, _sums("overwatch.env.return", **{wire.RUN_ID: "x" * (wire.LONGEST_ID + 1)}))
    assert (len(sums.problems), sums.series) == (ITEMS, None)
    assert not decode(Signal.LOGS, _lines("", **{wire.RUN_ID: "x" * wire.LONGEST_ID})).problems
