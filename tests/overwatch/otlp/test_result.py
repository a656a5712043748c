"""Times that cannot be are rejected, items without one take the receive stamp: one rule for all readers."""

from collections.abc import Callable

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from overwatch.events import Event, Measured
from overwatch.journal import Signal
from overwatch.otlp.decode import decode
from overwatch.otlp.result import EARLIEST, LATEST, RejectedError, checked_time, timed
from overwatch.otlp.settle import settle
from overwatch.otlp.totals import Totals
from tests.fakes import START_NS
from tests.overwatch.otlp.attributes import to_pairs

STAMP = START_NS + 77
KL = "overwatch.policy.kl_divergence"


def point(kind: str, at: int, start: int = 0, **fields: object) -> bytes:
    """One point of KL, of a gauge, a sum or a histogram."""
    message = ExportMetricsServiceRequest()
    named = message.resource_metrics.add()
    named.resource.attributes.extend(to_pairs({"rl.run.id": "r"}))
    data = getattr(named.scope_metrics.add().metrics.add(name=KL), kind)
    if kind != "gauge":
        data.aggregation_temporality = 2
    data.data_points.add(time_unix_nano=at, start_time_unix_nano=start, **fields)
    return message.SerializeToString()


def line(name: str, at: int = 0, observed: int = 0) -> bytes:
    """One log record."""
    message = ExportLogsServiceRequest()
    named = message.resource_logs.add()
    named.resource.attributes.extend(to_pairs({"rl.run.id": "r"}))
    reported = {"overwatch.scope": "policy", KL: 0.01, "overwatch.env.id": 3, "overwatch.error": "e"}
    named.scope_logs.add().log_records.add(
        time_unix_nano=at, observed_time_unix_nano=observed, event_name=name, attributes=to_pairs(reported)
    )
    return message.SerializeToString()


def events(signal: Signal, body: bytes) -> list[Event]:
    """What a request comes to in a batch that came in at `STAMP`."""
    decoded = decode(signal, body)
    assert not decoded.problems
    return [record.event for record in settle(timed(decoded, STAMP), Totals()).records]


@pytest.mark.parametrize(
    ("at", "unit"),
    [
        (1_700_000_000, "seconds"), (1_700_000_000_000, "milliseconds"),
        (1_700_000_000_000_000, "microseconds"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("body", [
    lambda at: (Signal.METRICS, point("gauge", at, as_double=0.1)),
    lambda at: (Signal.METRICS, point("sum", at, as_double=0.1)),
    lambda at: (Signal.METRICS, point("histogram", at, count=1, sum=0.1)),
    lambda at: (Signal.LOGS, line("overwatch.measured", at)),
    lambda at: (Signal.LOGS, line("overwatch.env_crashed", at)),
    lambda at: (Signal.LOGS, line("", observed=at)),
])  # fmt: skip
def test_a_time_in_another_unit_is_rejected_with_the_unit(
    body: Callable[[int], tuple[Signal, bytes]], at: int, unit: str
) -> None:
    """The reason names the value, what it would mean and what to do."""
    (problem,) = decode(*body(at)).problems

    assert problem.reason == "impossible_time"
    assert f"has time {at}, which is 1970-01-" in problem.detail
    assert f"it looks like {unit}: multiply by" in problem.detail


@pytest.mark.parametrize("at", [1, EARLIEST - 1, LATEST + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_a_time_before_2000_or_after_2099_cannot_be(at: int) -> None:
    """Whatever its unit."""
    with pytest.raises(RejectedError, match=f"has time {at}, which is "):
        checked_time("kl", at)


@pytest.mark.parametrize("at", [EARLIEST, LATEST, START_NS])
def test_a_time_that_can_be_is_taken(at: int) -> None:
    """Also of a clock that is wrong by years, which a finding reports."""
    assert checked_time("kl", at) == at


@pytest.mark.parametrize("name", ["", "overwatch.measured", "overwatch.env_crashed", "app.ready"])
def test_a_record_without_any_time_takes_the_receive_stamp(name: str) -> None:
    """Its time goes first, then the time at which it was observed, then the stamp."""
    assert [one.at for one in events(Signal.LOGS, line(name))] == [STAMP]
    assert [one.at for one in events(Signal.LOGS, line(name, observed=START_NS))] == [START_NS]
    assert [one.at for one in events(Signal.LOGS, line(name, at=START_NS + 1, observed=1))] == [START_NS + 1]


@pytest.mark.parametrize(
    ("kind", "fields"),
    [("gauge", {"as_double": 0.5}), ("sum", {"as_int": 3}), ("histogram", {"count": 2, "sum": 1.0})],
)
@pytest.mark.parametrize("start", [0, START_NS, STAMP + 5])
def test_a_point_without_a_time_takes_the_receive_stamp(
    kind: str, fields: dict[str, object], start: int
) -> None:
    """Of every kind of metric, wherever its window began."""
    reported = events(Signal.METRICS, point(kind, 0, start, **fields))

    assert {one.at for one in reported} == {STAMP}
    assert any(isinstance(one, Measured) and KL in one.values for one in reported)


def test_the_end_of_a_value_without_a_time_takes_the_receive_stamp() -> None:
    """A point without a recorded value is no exception."""
    assert {one.at for one in events(Signal.METRICS, point("gauge", 0, flags=1))} == {STAMP}
