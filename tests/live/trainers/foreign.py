"""A trainer that knows OpenTelemetry's own SDK and nothing of Overwatch; it is killed in the middle."""

import argparse
import os
import signal
import time

import numpy as np
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource


def main() -> None:
    """Learn the mean of what is drawn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run-id", required=True)
    parser.add_argument("--endpoint", required=True)
    flags = parser.parse_args()
    exporter = OTLPMetricExporter(f"{flags.endpoint}/v1/metrics")
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=500)
    provider = MeterProvider([reader], resource=Resource.create({"rl.run.id": flags.run_id}))
    meter = provider.get_meter("mine")
    loss = meter.create_gauge("overwatch.policy.value_loss")
    chance, weight = np.random.default_rng(0), 0.0
    for _ in range(30):
        errors = chance.normal(1.0, 1.0, 64) - weight
        weight += 0.1 * float(errors.mean())
        loss.set(float((errors**2).mean()))
        time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
