"""Envs that a program reports with OpenTelemetry alone stand on the board like ours."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from overwatch.snapshot import Snapshot
from tests.e2e.collecting import collecting, snapshot_of, until

PROGRAM = """
from opentelemetry.exporter.otlp.proto.{protocol}.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

reader = PeriodicExportingMetricReader(OTLPMetricExporter(), export_interval_millis=60_000)
provider = MeterProvider([reader], resource=Resource.create({{"rl.run.id": "foreign"}}))
meter = provider.get_meter("mine")
names = ("reward", "return", "metric", "rent", "step_time")
gauges = {{name: meter.create_gauge("overwatch.env." + name) for name in names}}
for export in range(3):
    for env, lane in ((7, "cuda:0"), (9, "cuda:1")):
        who = {{"overwatch.env.id": env, "overwatch.lane.id": lane}}
        numbers = (env + 0.25, 10.0 * env + max(export, 1), env / 10, 0.5, 0.02)
        for name, value in zip(names, numbers):
            gauges[name].set(value, who)
    provider.force_flush()
provider.shutdown()
"""


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_env_gauges_of_a_plain_opentelemetry_program_are_rows(tmp_path: Path, protocol: str) -> None:
    """Two envs on two lanes, each with its numbers; a return is the newest that was sent, as it was sent."""
    with collecting(tmp_path) as endpoints:
        endpoint = endpoints.otlp_http if protocol == "http" else endpoints.otlp_grpc
        assert endpoint is not None
        environment = {
            **os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_INSECURE": "true",
        }  # fmt: skip
        program = [sys.executable, "-c", PROGRAM.format(protocol=protocol)]
        subprocess.run(program, env=environment, check=True, timeout=60)

        def complete() -> Snapshot | None:
            snapshot = snapshot_of(endpoints, "foreign")
            is_newest = snapshot is not None and 72.0 in [env.episode_return for env in snapshot.envs]
            return snapshot if is_newest else None

        snapshot = until(complete, "the last export on the board")

    rows = {env.env_id: env for env in snapshot.envs}
    assert {env_id: env.gpu_id for env_id, env in rows.items()} == {7: "cuda:0", 9: "cuda:1"}
    assert [(rows[env].reward, rows[env].episode_return) for env in (7, 9)] == [(7.25, 72.0), (9.25, 92.0)]
    assert [(rows[env].metric, rows[env].rent) for env in (7, 9)] == [(0.7, 0.5), (0.9, 0.5)]
    assert [(rows[env].step_time_s, rows[env].fps) for env in (7, 9)] == [(0.02, 50.0)] * 2
    assert {group.gpu_id: group.n_envs for group in snapshot.board.groups} == {"cuda:0": 1, "cuda:1": 1}
    assert {"return", "metric", "rent", "fps"} <= set(snapshot.board.columns)
    assert snapshot.findings == ()
