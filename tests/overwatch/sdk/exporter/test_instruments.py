"""Metrics for third parties: how they count."""

from pathlib import Path

import msgspec
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.sdk.resources import Resource

from overwatch.catalog.run import STEPS
from overwatch.events import Conflated, Measured
from overwatch.journal import Signal
from overwatch.sdk.exporter.instruments import Instruments
from overwatch.sdk.exporter.spool import Spool
from tests import fakes
from tests.fakes import START_NS


def _steps(spool: Spool, events: list[Measured]) -> float:
    """How many steps of envs are reported after these."""
    instruments = Instruments(Resource({}), spool, frozenset({Signal.METRICS}), {})
    for event in events:
        instruments.note(event)
    instruments.collect()
    reported = 0.0
    while (request := spool.take(0.0)) is not None:
        for metrics in ExportMetricsServiceRequest.FromString(request.body).resource_metrics:
            for metric in (one for scope in metrics.scope_metrics for one in scope.metrics):
                if metric.name == STEPS.name:
                    reported = metric.sum.data_points[0].as_double
        spool.landed(request, 0)
    return reported


def test_steps_are_counted_alike_one_by_one_and_many_at_once(tmp_path: Path) -> None:
    """A measurement that stands for many counts from the first of them."""
    spool = Spool(tmp_path / "spool")
    each = [fakes.envs(START_NS, [0, 1], index=index, reward=[1.0, 2.0]) for index in (5, 6, 9, 12)]
    many = msgspec.structs.replace(each[2], conflated=Conflated(n=3, first=5))
    assert _steps(spool, each) == _steps(spool, [many, each[3]]) == 2 * 8
    spool.close()
