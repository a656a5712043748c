"""Real gateways between trainers and a collector that is killed: what arrives is recorded and counted once.

`rotel` (PyPI) is an OTLP gateway with a queue in memory. It acknowledges first, repeats what found no
connection or was refused, and gives up a request whose connection broke before the answer, with a line in its
log. It neither balances by an attribute nor keeps its queue on disk: those are otelcol's to do. Where a
program is missing its test is skipped with what to install.
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


def gaps(found: list[int], steps: int) -> int:
    """Stretches of steps whose lines are missing."""
    missing = sorted(set(range(1, steps + 1)) - set(found))
    return sum(number - 1 not in missing for number in missing)


def test_a_gateway_outlives_a_collector_that_is_killed(tmp_path: Path) -> None:
    """Two trainers emit on: each record is recorded and counted once, but for requests that the log names."""
    port = free_port()
    collector = Collector(tmp_path / "c", f"receivers.otlp.protocols.http.endpoint=127.0.0.1:{port}")
    with ExitStack() as stack:
        stack.callback(collector.kill)
        collector.start()
        url = stack.enter_context(gateway(tmp_path, f"http://127.0.0.1:{port}"))
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
        for trainer in trainers:
            trainer.wait_steps(30)
        endings = [trainer.ending() for trainer in trainers]
        runs = {trainer.plan.run_id: ending.steps for trainer, ending in zip(trainers, endings, strict=True)}
        given_up = wait_until_passed(collector, tmp_path / "gateway.log", runs)
        collector.stop()
    ears, shown = recorded([collector]), shown_updates([collector])
    missing = list[int]()
    for run, steps in runs.items():
        lines = [int(line.split()[1]) for line in ears[run].lines]
        assert len(lines) == len(set(lines))
        missing.append(gaps(lines, steps))
        assert shown[run] == ears[run].updates
    assert max(missing) <= given_up
    assert all(ending.delivered and ending.dropped == {} for ending in endings)
    print(f"{len(runs)} runs through rotel, 2 kills: {missing} gaps, {given_up} requests that rotel gave up")


def wait_until_passed(collector: Collector, log: Path, runs: dict[str, int]) -> int:
    """Wait until all is recorded but for as many gaps of a run as requests were given up; how many those are.

    One request may hold lines of both runs.
    """

    def given_up() -> int:
        return sum("dropping data" in line and "otlp_logs" in line for line in log.read_text().splitlines())

    def passed() -> bool:
        ears = recorded([collector])
        found = {run: [int(line.split()[1]) for line in ears[run].lines] for run in runs if run in ears}
        if not all(run in found and steps in found[run] for run, steps in runs.items()):
            return False
        return max(gaps(found[run], runs[run]) for run in runs) <= given_up()

    wait_for(passed, "everything to pass the gateway")
    return given_up()


@pytest.mark.parametrize("path", sorted(GATEWAYS.glob("*.yaml")), ids=lambda path: path.stem)
def test_otelcol_takes_the_configurations_as_they_are(path: Path) -> None:
    """Its own validation knows every component and key of them."""
    command = [otelcol(), "validate", "--config", str(path)]
    done = subprocess.run(
        command, env={**os.environ, **VARIABLES}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
