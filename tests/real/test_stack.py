"""`overwatch stack` with real servers: up, status, down, and what goes wrong in between."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from overwatch.cli.stack_servers import Server, Servers, process_of
from overwatch.events import Event
from tests import fakes
from tests.overwatch.collector.running import eventually, reported, running
from tests.overwatch.collector.running import http as request
from tests.ports import free_port
from tests.real.servers import instant_query, need, value

pytestmark = pytest.mark.timeout(120)


@dataclass(frozen=True)
class Command:
    """The command with a state folder and ports of its own."""

    data: Path
    ports: dict[str, int]
    environment: dict[str, str]

    def run(self, *words: str, **environment: str) -> tuple[int, str]:
        """Exit code and all that was reported."""
        done = subprocess.run(
            [sys.executable, "-m", "overwatch.cli", "stack", *words],
            env=self.environment | environment, capture_output=True, text=True, timeout=90, check=False,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout + done.stderr

    def up(self, *more: str, **environment: str) -> tuple[int, str]:
        """`up` with the ports."""
        words = [word for name, port in self.ports.items() for word in (f"--{name}-port", str(port))]
        return self.run("up", *words, *more, **environment)

    @property
    def servers(self) -> dict[str, Server]:
        """What is remembered."""
        path = self.data / "stack" / "servers.json"
        return msgspec.json.decode(path.read_bytes(), type=Servers).servers if path.exists() else {}

    def url(self, name: str) -> str:
        """Address of a server."""
        return f"http://127.0.0.1:{self.ports[name]}"


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    """The command; what it started is ended at the end."""
    need("prometheus")
    need("prometheus-alertmanager")
    ports = {name: free_port() for name in ("prometheus", "alertmanager", "grafana")}
    places = {"OVERWATCH_DATA_DIR": str(tmp_path / "data"), "XDG_RUNTIME_DIR": str(tmp_path / "rt")}
    found = Command(tmp_path / "data", ports, {**os.environ, **places})
    try:
        yield found
    finally:
        for server in found.servers.values():
            if process := process_of(server):
                process.kill()


def test_a_stack_comes_up_scrapes_a_run_and_goes_down(command: Command, tmp_path: Path) -> None:
    """Prometheus reads both pages with the collector's token; `down` ends all, and nothing else."""
    secured = "service.security.tokens.read={tokens: [only-for-scrapes]}"
    with running(tmp_path / "collector", secured) as service:
        ends = service.context.urls
        (tmp_path / "data/stack/prometheus").mkdir(parents=True)
        (tmp_path / "data/stack/prometheus/scrape_token").write_text("only-for-scrapes")
        code, stated = command.up("--runs", str(ends["metrics"]), "--collector", str(ends["telemetry"]))
        assert (code, stated.count(" is up at ")) == (0, 2), stated

        body = reported("stacked", [*_events()], 1)
        headers = {"Content_Type": "application/x-protobuf"}
        assert request(f"{service.endpoints.otlp_http}/v1/logs", body, "POST", **headers).status == 200
        url = command.url("prometheus")
        kl = eventually(lambda: instant_query(url, 'overwatch_policy_kl_divergence{rl_run_id="stacked"}'), 45)
        assert value(kl) == 0.01
        eventually(lambda: instant_query(url, "count(up == 1) == 2"), 45)
        assert instant_query(url, 'up{job="overwatch-collector"} == 1')
        rules = json.loads(request(f"{url}/api/v1/rules").body)["data"]["groups"]
        alerting = [rule for group in rules for rule in group["rules"] if rule["type"] == "alerting"]
        alerts = {alert["name"] for alert in alerting}
        leads = {alert["annotations"]["runbook_url"] for alert in alerting}
        runbooks = tmp_path / "data/stack/runbooks.md"
        assert {lead.partition("#")[0] for lead in leads} == {runbooks.as_uri()}
        headings = {line[3:] for line in runbooks.read_text().splitlines() if line.startswith("## ")}
        assert {code for lead in leads if "{{" not in (code := lead.partition("#")[2])} <= headings
        assert {"OverwatchCollectorDown", "OverwatchRunLost", "OverwatchTrustRegionBurnFast"} <= alerts
        active = request(f"{url}/api/v1/alertmanagers").body
        assert f"127.0.0.1:{command.ports['alertmanager']}".encode() in active
        assert command.run("status")[0] == 0

        pids = {name: server.pid for name, server in command.servers.items()}
        code, stated = command.up()
        assert (code, stated.count(" runs already at ")) == (0, 2), stated
        assert {name: server.pid for name, server in command.servers.items()} == pids

        before = list(command.servers.values())
        code, stated = command.run("down")
        assert (code, stated.count(" ended\n")) == (0, 2), stated
        assert not any(process_of(server) for server in before)
        assert request(f"{ends['health_check']}/").status == 200
    assert command.run("down")[0] == 0
    assert command.run("status")[0] == 1


def _events() -> list[Event]:
    at = time.time_ns()
    return [fakes.started(at), fakes.policy(at, 1, kl_divergence=0.01)]


def test_a_killed_server_is_reported_and_started_again(command: Command) -> None:
    """The others go on meanwhile, and `up` heals."""
    assert command.up()[0] == 0
    before = command.servers
    os.kill(before["alertmanager"].pid, signal.SIGKILL)
    eventually(lambda: process_of(before["alertmanager"]) is None, 10)

    code, stated = command.run("status")
    assert code == 1
    assert "alertmanager  died; `overwatch stack up` starts it again" in stated
    assert "prometheus    up at " in stated

    code, stated = command.up()
    assert code == 0
    assert "prometheus runs already" in stated
    assert "alertmanager is up" in stated
    assert command.run("status")[0] == 0
    assert command.servers["prometheus"] == before["prometheus"]


def test_a_busy_port_names_its_holder_before_anything_starts(command: Command) -> None:
    """Who holds it, and the option to choose another."""
    with socket.create_server(("127.0.0.1", command.ports["alertmanager"])):
        code, stated = command.up()

    assert code == 1
    assert f"port {command.ports['alertmanager']} for alertmanager is held by " in stated
    assert f"(pid {os.getpid()})" in stated
    assert "--alertmanager-port" in stated
    assert command.servers == {}


def _only(folder: Path, *names: str) -> str:
    """A PATH with these programs alone."""
    folder.mkdir()
    for name in names:
        (folder / name).symlink_to(need(name))
    return str(folder)


def test_what_is_not_installed_is_left_out_and_named(command: Command, tmp_path: Path) -> None:
    """Without Alertmanager and Grafana the rest comes up; without Prometheus nothing does."""
    code, stated = command.up(PATH=_only(tmp_path / "one", "prometheus"))
    assert code == 0, stated
    assert (
        "alertmanager is not installed, so it is left out: apt-get install prometheus-alertmanager" in stated
    )
    assert set(command.servers) == {"prometheus"}
    assert command.run("down")[0] == 0

    code, stated = command.up(PATH=_only(tmp_path / "none"))
    assert code == 1
    assert "prometheus is not installed" in stated
    assert command.servers == {}


def test_a_pid_that_somebody_else_has_now_is_left_alone(command: Command) -> None:
    """A server is known by pid and moment, so `down` after a reboot ends nobody else's process."""
    folder = command.data / "stack"
    folder.mkdir(parents=True)
    stranger = Server(pid=os.getpid(), began=1.0, port=command.ports["prometheus"], log="none")
    (folder / "servers.json").write_bytes(msgspec.json.encode(Servers(servers={"prometheus": stranger})))

    assert "prometheus    died" in command.run("status")[1]
    code, stated = command.run("down")
    assert code == 0
    assert "prometheus had ended before" in stated


def test_a_server_that_cannot_start_shows_the_end_of_its_log(command: Command) -> None:
    """A data folder of something else: the reason is on the screen."""
    data = command.data / "stack" / "prometheus" / "data"
    data.parent.mkdir(parents=True)
    data.write_text("not a folder")
    code, stated = command.up()

    assert code == 1
    assert "prometheus ended within" in stated
    assert "server.log" in stated
    assert "data" in stated


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("up", "--runs", "localhost:8889"), "--runs 'localhost:8889' is not a URL"),
        (("up", "--webhook", "http://["), "--webhook 'http://[' is not a URL"),
        (("up", "--prometheus-port", "3000"), "each server needs a port of its own"),
        (("up", "--grafana-port", "99999"), "99999"),
        (("up", "--run-length", "1y"), "1y"),
    ],
)
def test_bad_words_are_bad_usage(command: Command, words: tuple[str, ...], message: str) -> None:
    """The value and the fix are named."""
    code, stated = command.run(*words)

    assert code == 2
    assert message in stated


def test_a_broken_memory_is_named(command: Command) -> None:
    """Nothing is guessed and nothing ended."""
    folder = command.data / "stack"
    folder.mkdir(parents=True)
    (folder / "servers.json").write_text("{")

    for word in ("status", "down", "up"):
        code, stated = command.run(word)
        assert code == 1
        assert "servers.json cannot be read" in stated
    (folder / "servers.json").unlink()
