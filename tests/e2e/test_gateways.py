"""Real gateways between trainers and a collector that is killed: nothing is lost, nothing counted twice.

`rotel` (PyPI) is an OTLP gateway with a queue in memory: it acknowledges first, and sends until it is answered.
It neither balances by an attribute nor keeps its queue on disk, so a gateway that dies loses what it held; that
is otelcol's to do. Where a binary is missing its test is skipped with what to install.
"""

import importlib.util
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.e2e.collecting import until
from tests.e2e.killing import Collector
from tests.e2e.sdk.chaos import training, wait_for
from tests.e2e.test_namespaces import recorded, shown_updates
from tests.ports import free_port

GATEWAYS = Path(__file__).parents[2] / "otel/gateways"
VARIABLES = {
    "OVERWATCH_GATEWAY": "127.0.0.1:4317",
    "OVERWATCH_COLLECTOR_1": "127.0.0.1:4327",
    "OVERWATCH_COLLECTOR_2": "127.0.0.1:4337",
}


def rotel() -> str:
    """The program; the test is skipped where it is not installed."""
    found = importlib.util.find_spec("rotel")
    if found is None or found.origin is None:
        pytest.skip("no gateway to run: pip install rotel")
    return str(Path(found.origin).with_name("rotel-agent"))


def otelcol() -> str:
    """The same for OpenTelemetry's collector."""
    found = os.environ.get("OVERWATCH_OTELCOL") or shutil.which("otelcol-contrib")
    if found is None:
        pytest.skip("no otelcol-contrib in PATH, and OVERWATCH_OTELCOL names none; no package index has it")
    return found


@contextmanager
def gateway(folder: Path, collector: str) -> Iterator[str]:
    """A gateway before a collector; its address."""
    port, unused = free_port(), free_port()
    command = [
        rotel(), "start", "--otlp-http-endpoint", f"127.0.0.1:{port}",
        "--otlp-grpc-endpoint", f"127.0.0.1:{unused}", "--exporter", "otlp",
        "--otlp-exporter-endpoint", collector, "--otlp-exporter-protocol", "http",
        "--otlp-exporter-retry-initial-backoff", "100ms", "--otlp-exporter-retry-max-backoff", "500ms",
        "--otlp-exporter-retry-max-elapsed-time", "600s",
    ]  # fmt: skip
    with (folder / "gateway.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        until(lambda: listens() or process.poll() is not None, "the gateway")
        assert process.poll() is None, (folder / "gateway.log").read_text()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


def test_a_gateway_outlives_a_collector_that_is_killed(tmp_path: Path) -> None:
    """Two trainers emit on; once the collector is back, everything of both is recorded and counted once."""
    port = free_port()
    collector = Collector(tmp_path / "c", f"receivers.otlp.protocols.http.endpoint=127.0.0.1:{port}")
    with ExitStack() as stack:
        url = stack.enter_context(gateway(tmp_path, f"http://127.0.0.1:{port}"))
        stack.callback(collector.kill)
        collector.start()
        trainers = []
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            trainers.append(stack.enter_context(training(tmp_path / name, url, pace_s=0.01)))
        for _ in range(2):
            for trainer in trainers:
                trainer.wait_steps(30)
            collector.kill()
            for trainer in trainers:
                trainer.wait_steps(30)
            collector.start()
        endings = [trainer.ending() for trainer in trainers]
        runs = {trainer.plan.run_id: ending.steps for trainer, ending in zip(trainers, endings, strict=True)}

        def arrived() -> bool:
            ears = recorded([collector])
            return all(run in ears and len(ears[run].lines) == steps for run, steps in runs.items())

        wait_for(arrived, "everything to pass the gateway")
        collector.stop()
    ears, shown = recorded([collector]), shown_updates([collector])
    for run, steps in runs.items():
        ears[run].assert_whole(steps)
        assert shown[run] == steps
    assert all(ending.delivered and ending.dropped == {} for ending in endings)


@pytest.mark.parametrize("path", sorted(GATEWAYS.glob("*.yaml")), ids=lambda path: path.stem)
def test_otelcol_takes_the_configurations_as_they_are(path: Path) -> None:
    """Its own validation knows every component and key of them."""
    command = [otelcol(), "validate", "--config", str(path)]
    done = subprocess.run(
        command, env={**os.environ, **VARIABLES}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
