"""A collector's life: starting, failing to start, stopping, and what it reports of itself."""

import gzip
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from overwatch import discovery
from overwatch.collector import Service, StartError
from overwatch.collector.health import Phase
from overwatch.config import load
from overwatch.discovery import Endpoints
from overwatch.serve.stream import FrameNotifier
from tests.overwatch.collector.running import (
    FREE_PORTS,
    config,
    eventually,
    http,
    reported,
    run_started,
    running,
    update,
)

PROTOBUF = {"Content_Type": "application/x-protobuf"}

COLLECT = """
import sys
from collections.abc import Sequence
from pathlib import Path
from overwatch.collector import run
from overwatch.config import load
sys.exit(run(load(None, sys.argv[1:])))
"""


def spawn(folder: Path, *sets: str) -> "subprocess.Popen[bytes]":
    """A collector in a process of its own."""
    environ = {
        **os.environ,
        "OVERWATCH_DATA_DIR": str(folder),
        "OVERWATCH_READY_FILE": str(folder / "ready.json"),
    }
    log = (folder / "collector.log").open("wb")
    with log:
        return subprocess.Popen([sys.executable, "-c", COLLECT, *FREE_PORTS, *sets], env=environ, stderr=log)


def ready(folder: Path, process: "subprocess.Popen[bytes]") -> Endpoints:
    """The endpoints of a spawned collector, once it accepts."""
    file = folder / "ready.json"

    def look() -> bytes | None:
        assert process.poll() is None, (folder / "collector.log").read_text()
        return file.read_bytes() if file.exists() else None

    return msgspec.json.decode(eventually(look, 30), type=Endpoints)


def test_stop_is_idempotent_and_frees_the_ports(tmp_path: Path) -> None:
    """After stopping, twice, nothing listens and the phase states it."""
    service = Service(config(tmp_path))
    service.start()
    url = str(service.endpoints.health)
    assert http(url).status == 200
    service.stop()
    service.stop()

    assert service.context.health.phase is Phase.STOPPED
    port = int(url.rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port)):
        pass


def test_a_stopping_collector_refuses_and_reports_it(tmp_path: Path) -> None:
    """Once the intake is closed senders are asked to retry, and health is 503 while stopping."""
    with running(tmp_path) as service:
        service.context.intake.close()
        service.context.health.enter(Phase.STOPPING)
        reply = http(f"{service.endpoints.otlp_http}/v1/logs", b"", "POST", **PROTOBUF)
        health = http(str(service.endpoints.health))

    assert (reply.status, reply.headers["Retry-After"]) == (503, "2")
    assert (health.status, json.loads(health.body)["status"]) == (503, "Server not available")


def test_health_speaks_otelcol(tmp_path: Path) -> None:
    """The keys that otelcol's probes know are there."""
    with running(tmp_path) as service:
        body = json.loads(http(str(service.endpoints.health)).body)

    assert body["status"] == "Server available"
    assert {"upSince", "uptime"} <= set(body)


def test_a_busy_port_is_named_and_left(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The next free port is taken, and the log states who holds the wanted one."""
    with socket.create_server(("127.0.0.1", 0)) as holder:
        busy = holder.getsockname()[1]
        with running(
            tmp_path,
            f"receivers.otlp.protocols.grpc.endpoint=127.0.0.1:{busy}",
            f"extensions.view.endpoint=127.0.0.1:{busy}",
        ) as service:
            ports = {int(url.rpartition(":")[2]) for url in service.context.urls.values()}

    assert busy not in ports
    assert len(ports) == 6
    assert f"port {busy} is held by" in caplog.text
    assert f"(pid {os.getpid()})" in caplog.text


def test_one_data_folder_has_one_collector(tmp_path: Path) -> None:
    """A second collector on the same folder does not start, and the first goes on."""
    with running(tmp_path) as first:
        with pytest.raises(StartError, match=f"in use by another collector \\(pid {os.getpid()}\\)"):
            Service(config(tmp_path)).start()

        assert http(str(first.endpoints.health)).status == 200


def test_a_start_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    """An address that cannot be had is reported, and what had started is stopped."""
    allowed = "service.security.allow_insecure_bind=true"
    with pytest.raises(StartError, match=r"cannot listen at 127\.9\.9\.9\.9"):
        Service(config(tmp_path, allowed, "extensions.view.endpoint=127.9.9.9.9:0")).start()

    with running(tmp_path):
        pass


def test_what_is_announced_can_be_found_until_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The discovery file and the ready file name the endpoints; the first goes when the collector does."""
    monkeypatch.setenv("OVERWATCH_READY_FILE", str(tmp_path / "ready.json"))
    with running(tmp_path) as service:
        service.announce()
        found = discovery.read()
        written = msgspec.json.decode((tmp_path / "ready.json").read_bytes(), type=Endpoints)
        expected = service.endpoints

    assert found == written == expected
    assert None not in msgspec.structs.astuple(expected)
    assert discovery.read() is None


def test_the_aggregator_can_be_left_out(tmp_path: Path) -> None:
    """A collector that only writes files needs neither snapshots nor view."""
    only_files = "{logs: {receivers: [otlp], exporters: [otlp_file]}}"
    file = tmp_path / "collector.yaml"
    file.write_text(f"service: {{pipelines: {only_files}, extensions: [health_check]}}")
    service = Service(load(file, [*FREE_PORTS, f"exporters.otlp_file.path={tmp_path}/otlp"]))
    service.start()
    try:
        url = service.endpoints.otlp_http
        logs = http(f"{url}/v1/logs", reported("run-a", [run_started()]), "POST", **PROTOBUF)
        traces = http(f"{url}/v1/traces", b"", "POST", **PROTOBUF)
        assert (logs.status, traces.status, service.endpoints.view) == (200, 404, None)
    finally:
        service.stop()

    assert len((tmp_path / "otlp" / "logs.jsonl").read_bytes().splitlines()) == 1


def test_sigterm_writes_everything_that_was_accepted(tmp_path: Path) -> None:
    """SIGTERM ends a busy collector with status 0, every accepted batch on disk, the end in the index."""
    process = spawn(tmp_path)
    try:
        endpoints = ready(tmp_path, process)
        for seq in range(1, 31):
            body = reported("run-a", [update(0.01, seq)], first_seq=seq)
            assert http(f"{endpoints.otlp_http}/v1/logs", body, "POST", **PROTOBUF).status == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()

    lines = (tmp_path / "otlp" / "index.jsonl").read_text().splitlines()
    assert len((tmp_path / "otlp" / "logs.jsonl").read_bytes().splitlines()) == 30
    assert "end" in json.loads(lines[-1])
    last = json.loads((tmp_path / "snapshots.jsonl").read_bytes().splitlines()[-1])
    assert last["run"]["update"] == 30


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    """While a stop waits for a sender that never finishes, another SIGTERM does not."""
    process = spawn(tmp_path)
    try:
        endpoints = ready(tmp_path, process)
        port = int(str(endpoints.otlp_http).rpartition(":")[2])
        head = b"POST /v1/logs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\n"
        with socket.create_connection(("127.0.0.1", port)) as hanging:
            hanging.sendall(head + b"Content-Length: 1000\r\n\r\npartial")
            process.send_signal(signal.SIGTERM)
            eventually(lambda: "stopping:" in (tmp_path / "collector.log").read_text())
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.wait()


def test_a_signal_that_another_thread_takes_stops_it(tmp_path: Path) -> None:
    """The kernel may give SIGTERM to any thread of the process; the main thread waits in a lock all along."""
    process = spawn(tmp_path)
    try:
        ready(tmp_path, process)
        eventually(lambda: "accepts;" in (tmp_path / "collector.log").read_text())
        others = {int(task.name) for task in Path(f"/proc/{process.pid}/task").iterdir()} - {process.pid}
        os.kill(min(others), signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


def test_a_part_that_fails_to_stop_keeps_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The failure is logged and counted, and the ports and the folder are free again."""

    def fail(_: FrameNotifier) -> None:
        raise RuntimeError("the bell is stuck")

    service = Service(config(tmp_path))
    service.start()
    with monkeypatch.context() as broken:
        broken.setattr(FrameNotifier, "close", fail)
        service.stop()

    assert service.failed_stops == 1
    assert "ViewExtension did not stop cleanly" in caplog.text
    with running(tmp_path):
        pass


COUNTED = (
    "overwatch_tower_records_total 2.0",
    'otelcol_receiver_accepted_log_records_total{receiver="otlp",transport="http"} 2.0',
    'otelcol_receiver_refused_log_records_total{receiver="otlp",transport="http"} 0.0',
    'overwatch_receiver_refused_requests_total{reason="malformed",transport="http"} 1.0',
    'otelcol_exporter_sent_log_records_total{exporter="otlp_file"} 2.0',
    'otelcol_exporter_sent_log_records_total{exporter="aggregator"} 2.0',
    'otelcol_exporter_send_failed_metric_points_total{exporter="aggregator"} 0.0',
    "overwatch_components_degraded 0.0",
)


def _page_with(service: Service, lines: Sequence[str]) -> str | None:
    """The collector's own page once it has all lines."""
    page = http(f"{own(service)}/metrics").body.decode()
    return page if all(f"{line}\n" in page for line in lines) else None


def test_the_collector_counts_what_it_does(tmp_path: Path) -> None:
    """Its own page has otelcol's names with what came in and went out, and the fold's counts."""
    with running(tmp_path) as service:
        url = f"{service.endpoints.otlp_http}/v1/logs"
        assert http(url, reported("run-a", [run_started(), update(0.01)]), "POST", **PROTOBUF).status == 200
        assert http(url, b"\xff", "POST", **PROTOBUF).status == 400
        page = eventually(lambda: _page_with(service, COUNTED))
        packed = http(f"{own(service)}/metrics", Accept_Encoding="gzip")

    assert packed.headers["Content-Encoding"] == "gzip"
    assert b"otelcol_process_uptime" in gzip.decompress(packed.body)
    for name in ("otelcol_process_uptime_seconds_total", "otelcol_process_memory_rss_bytes"):
        assert f"\n{name} " in page


def own(service: Service) -> str:
    """The URL of the collector's own metrics."""
    return str(service.context.urls.get("telemetry"))


def test_a_killed_collector_leaves_files_that_can_be_read(tmp_path: Path) -> None:
    """After SIGKILL the recording is whole up to its last line, and a new collector takes the folder."""
    process = spawn(tmp_path)
    try:
        endpoints = ready(tmp_path, process)
        body = reported("run-a", [run_started(), update(0.01)])
        assert http(f"{endpoints.otlp_http}/v1/logs", body, "POST", **PROTOBUF).status == 200
        eventually((tmp_path / "otlp" / "logs.jsonl").exists)
    finally:
        process.kill()
        process.wait()

    with running(tmp_path) as service:
        assert http(f"{service.endpoints.otlp_http}/v1/logs", b"", "POST", **PROTOBUF).status == 200
    for line in (tmp_path / "otlp" / "index.jsonl").read_text().splitlines():
        json.loads(line)


def test_a_collector_that_cannot_start_exits_with_2(tmp_path: Path) -> None:
    """The reason is in the log, without a traceback."""
    with running(tmp_path):
        process = spawn(tmp_path)
        assert process.wait(30) == 2

    log = (tmp_path / "collector.log").read_text()
    assert "in use by another collector" in log
    assert "Traceback" not in log


def test_a_data_folder_that_cannot_be_is_named_with_its_setting(tmp_path: Path) -> None:
    """A file in its place; the message states where to set another."""
    (tmp_path / "file").touch()
    item = f"extensions.file_storage.directory={tmp_path}/file"

    with pytest.raises(StartError, match=r"/file cannot be the data folder: .*file_storage\.directory"):
        Service(config(tmp_path, item)).start()
