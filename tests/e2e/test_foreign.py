"""A program that knows nothing of Overwatch, only OpenTelemetry, is judged like ours."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.collecting import collecting, snapshot_of, until

PROGRAM = """
import sys
from opentelemetry.exporter.otlp.proto.{protocol}.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

reader = PeriodicExportingMetricReader(OTLPMetricExporter())
resource = Resource.create({{"rl.run.id": "foreign", "rl.algorithm": "ppo"}})
provider = MeterProvider([reader], resource=resource)
gauge = provider.get_meter("mine").create_gauge("overwatch.policy.kl_divergence", unit="{{nat}}")
gauge.set(float(sys.argv[1]))
provider.shutdown()
"""


def _report(endpoint: str, protocol: str, value: float) -> None:
    environment = {
        **os.environ,
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_EXPORTER_OTLP_INSECURE": "true",
    }
    subprocess.run(
        [sys.executable, "-c", PROGRAM.format(protocol=protocol), str(value)],
        env=environment, check=True, timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_plain_opentelemetry_program_is_judged_like_ours(tmp_path: Path, protocol: str) -> None:
    """Its KL is shown, judged by TELE-110's limits, and turns from ok to warning to critical."""
    with collecting(tmp_path) as endpoints:
        endpoint = endpoints.otlp_http if protocol == "http" else endpoints.otlp_grpc
        assert endpoint is not None
        seen = []
        for value in (0.01, 0.02, 0.2):
            _report(endpoint, protocol, value)

            def shown(value: float = value) -> str | None:
                snapshot = snapshot_of(endpoints, "foreign")
                reading = snapshot.policy["kl_divergence"] if snapshot else None
                return reading.status if reading is not None and reading.value == value else None

            seen.append(until(shown, f"KL {value}"))
        snapshot = snapshot_of(endpoints, "foreign")

    assert seen == ["ok", "warning", "critical"]
    assert snapshot is not None
    assert (snapshot.run.algo, snapshot.policy["entropy"].status) == ("ppo", "absent")
