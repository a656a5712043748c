"""`overwatch doctor`: what is wrong is found, named, and comes with a fix."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from overwatch import config as configuration
from overwatch import discovery
from overwatch.cli import main
from overwatch.cli.doctor import _safely, files, installed, reach, screens, versions
from overwatch.cli.doctor_machine import FIRST_NS, State, Verdict, clocks, disks, gpus, ports
from overwatch.collector.service import Service
from tests.overwatch.sdk.sink import grpc_sink, http_sink
from tests.real.fake_nvml.machine import (
    DRIVER_NOT_LOADED,
    NO_PERMISSION,
    VERSION_MISMATCH,
    Machine,
    build,
)


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No collector, settings or data of this machine's user."""
    for name in [name for name in os.environ if name.startswith(("OVERWATCH_", "OTEL_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["doctor", *arguments])


def _states(verdicts: Iterator[Verdict]) -> list[State]:
    return [one.state for one in verdicts]


def _every_port(port: int) -> list[str]:
    paths = (
        "receivers.otlp.protocols.http.endpoint", "receivers.otlp.protocols.grpc.endpoint",
        "exporters.prometheus.endpoint", "extensions.view.endpoint", "service.telemetry.metrics.address",
        "extensions.health_check.endpoint",
    )  # fmt: skip
    return [word for path in paths for word in ("--set", f"{path}=127.0.0.1:{port}")]


def test_free_ports_are_well() -> None:
    """Status 0, each address named."""
    result = _run("--only", "ports", *_every_port(0), "--format", "json")
    report = json.loads(result.stdout)

    assert (result.exit_code, report["counts"]) == (0, {"ok": 6, "warning": 0, "failure": 0})


def test_a_busy_port_that_was_named_is_a_failure() -> None:
    """With its holder: the collector would not start."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = _run("--only", "ports", *_every_port(port))

    assert result.exit_code == 2
    assert f"127.0.0.1:{port} is held by" in result.output
    assert f"pid {os.getpid()}" in result.output
    assert "`collect` does not start" in result.output


def test_a_busy_port_of_the_defaults_is_a_warning() -> None:
    """The collector takes the next port and announces it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = configuration.load(None, [f"exporters.prometheus.endpoint=127.0.0.1:{port}"])
        found = [one for one in ports(config) if f"127.0.0.1:{port} is held by" in one.found]

    assert [one.state for one in found] == [State.WARNING]
    assert "`collect` would take" in str(found[0].fix)


def _in_a_row(wanted: int) -> int:
    """The first of some ports in a row that are free at this moment."""
    for first in range(20_000, 30_000, wanted):
        with ExitStack() as held, suppress(OSError):
            for port in range(first, first + wanted):
                held.enter_context(socket.create_server(("127.0.0.1", port)))
            return first
    raise AssertionError("no ports in a row are free")


@pytest.mark.parametrize(
    ("busy", "grpc", "http"), [((0,), 0, 1), ((0, 1), 0, 1), ((1,), 0, 1), ((0,), 1, 0), ((0, 2), 0, 0)]
)
def test_the_port_named_is_the_one_that_collect_takes(busy: tuple[int, ...], grpc: int, http: int) -> None:
    """With neighbours that are busy or that another listener of the same configuration takes first."""
    first = _in_a_row(8)
    sets = [
        f"receivers.otlp.protocols.grpc.endpoint=127.0.0.1:{first + grpc}",
        f"receivers.otlp.protocols.http.endpoint=127.0.0.1:{first + http}",
        "exporters.prometheus.endpoint=127.0.0.1:0", "extensions.view.endpoint=127.0.0.1:0",
        "extensions.health_check.endpoint=127.0.0.1:0", "service.telemetry.metrics.address=127.0.0.1:0",
        "service.extensions=[health_check, view]", "service.pipelines.snapshots=null",
    ]  # fmt: skip
    config = configuration.load(None, sets)
    with ExitStack() as held:
        for port in busy:
            held.enter_context(socket.create_server(("127.0.0.1", first + port)))
        named = {
            protocol: fix.partition("would take ")[2].partition(" ")[0] or found.partition(" ")[0]
            for protocol in ("grpc", "http")
            for found, fix in [
                (one.found, one.fix or "") for one in ports(config) if f".{protocol}.endpoint)" in one.found
            ]
        }
        service = Service(config)
        service.start()
        try:
            taken = service.endpoints
        finally:
            service.stop()

    assert named == {
        "grpc": str(taken.otlp_grpc).removeprefix("http://"),
        "http": str(taken.otlp_http).removeprefix("http://"),
    }


def test_a_named_port_that_is_busy_harms_no_neighbour() -> None:
    """`collect` does not move from it, so the next port stays free for the listener that wants it."""
    first = _in_a_row(2)
    named = {"service.telemetry.metrics.address": first, "exporters.prometheus.endpoint": first + 1}
    sets = [word for path, port in named.items() for word in ("--set", f"{path}=127.0.0.1:{port}")]
    with socket.create_server(("127.0.0.1", first)):
        lines = _run("--only", "ports", *_every_port(0), *sets).output.splitlines()

    assert [line[:4] for line in lines if f":{first} is held by" in line] == ["FAIL"]
    assert [line[:4] for line in lines if f":{first + 1} is free (exporters.prometheus" in line] == ["ok  "]


def test_a_listener_that_the_service_does_not_list_is_not_looked_at() -> None:
    """The collector never opens it, so a busy port of it harms nothing."""
    sets = ["service.extensions=[file_storage]", "service.pipelines.snapshots=null"]
    looked = [one.found for one in ports(configuration.load(None, sets))]

    assert len(looked) == 3
    assert not [found for found in looked if "extensions." in found or "exporters." in found]


def test_the_running_collectors_own_port_is_well(tmp_path: Path) -> None:
    """It is announced, and this process holds the port."""
    discovery.write(discovery.Endpoints(pid=os.getpid()))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = _run("--only", "ports", *_every_port(taken.getsockname()[1]))

    assert result.exit_code == 0
    assert "is served by the running collector" in result.output


def test_an_address_of_no_machine_fails() -> None:
    """Status 2, with the path of the setting."""
    result = _run(
        "--only", "ports", "--set", "exporters.prometheus.endpoint=192.0.2.1:1",
        "--set", "service.security.allow_insecure_bind=true",
    )  # fmt: skip

    assert result.exit_code == 2
    assert "give exporters.prometheus.endpoint an address of this machine" in result.output


def test_a_configuration_that_cannot_be_used_is_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    """The error is that of `config validate`."""
    path = tmp_path / "c.yaml"
    path.write_text("exporters: {promethius: {}}\n")
    result = _run("--only", "config", "--only", "terminal", "--config", str(path))

    assert result.exit_code == 2
    assert "promethius" in result.output
    assert "terminal" in result.output


def test_a_misspelt_variable_is_noticed() -> None:
    """With the one that was meant; those that a configuration names are not."""
    held = configuration.load(None, ())
    env = {"OVERWATCH_RUNID": "x", "OVERWATCH_MINE": "y", "OVERWATCH_RUN_ID": "z"}
    reported = list(files(None, held, env, ["${env:OVERWATCH_MINE}"]))

    assert [(one.state, one.fix) for one in reported if one.state is not State.OK] == [
        (State.WARNING, "did you mean OVERWATCH_RUN_ID?")
    ]


def test_settings_of_the_terminal_that_cannot_be_read_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is named."""
    path = tmp_path / "tui.yaml"
    path.write_text("theme: [\n")
    monkeypatch.setenv("OVERWATCH_TUI_CONFIG", str(path))
    result = _run("--only", "config")

    assert result.exit_code == 2
    assert str(path) in result.output


def test_a_disk_with_room_is_well(tmp_path: Path) -> None:
    """One verdict for each place, also of those that are not there yet."""
    held = configuration.load(None, ("extensions.file_storage.max_size_mib=64",
                                     "exporters.otlp_file.budget.folder_mib=129",
                                     "exporters.otlp_file.budget.run_mib=129"))  # fmt: skip
    reported = list(disks(held, tmp_path / "spool", tmp_path))

    assert [one.found.partition(":")[0] for one in reported] == [
        "storage", "journal", "recordings", "snapshots", "spool", "rings",
    ]  # fmt: skip
    assert State.FAILURE not in _states(iter(reported))


def test_a_budget_beyond_the_free_room_is_a_warning(tmp_path: Path) -> None:
    """All parts may grow to what the disk does not have; what is there and grew in the last day is named."""
    (tmp_path / "otlp").mkdir()
    (tmp_path / "otlp" / "logs.jsonl").write_bytes(b"x" * (3 << 20))
    sets = ("extensions.file_storage.budget_mib=1000000000", f"extensions.file_storage.directory={tmp_path}",
            f"exporters.otlp_file.path={tmp_path}/otlp")  # fmt: skip
    reported = next(iter(disks(configuration.load(None, sets), tmp_path)))

    assert reported.state is State.WARNING
    assert "otlp_file 3" in reported.found
    assert "3 MiB of it were written in the last day" in reported.found
    assert "budget_mib" in reported.fix


def test_a_place_that_is_a_file_fails(tmp_path: Path) -> None:
    """Nothing can be made below it."""
    (tmp_path / "spool").write_text("")
    reported = [one for one in disks(configuration.load(None, ()), tmp_path / "spool")
            if one.found.startswith("spool")]  # fmt: skip

    assert _states(iter(reported)) == [State.FAILURE]


def test_a_machine_without_a_gpu_is_well(tmp_path: Path) -> None:
    """Nothing is missing that anybody asked for."""
    assert _states(gpus(tmp_path / "none", tmp_path / "none")) == [State.OK]


def test_a_driver_that_does_not_answer_fails(tmp_path: Path) -> None:
    """There is a driver by its file, and no library behind it."""
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    (tmp_path / "version").write_text("NVRM")
    reported = list(gpus(tmp_path / "version", tmp_path / "none"))

    if reported[0].state is State.OK:
        pytest.skip("this machine has a GPU that answers")
    assert reported[0].state is State.FAILURE
    assert "NVIDIA GPUs cannot be read" in reported[0].found
    assert "NVIDIA_DRIVER_CAPABILITIES=utility" in reported[0].fix


@pytest.mark.parametrize(
    ("lines", "state", "found"),
    [
        ({}, State.OK, "NVIDIA H200 GPU-a"),
        ({"error.nvmlInit": VERSION_MISMATCH}, State.FAILURE, "of different versions"),
        ({"error.nvmlInit": DRIVER_NOT_LOADED}, State.OK, "no NVIDIA driver is loaded here"),
        ({"0.error.nvmlDeviceGetUUID": NO_PERMISSION}, State.FAILURE, "GPU 0 cannot be read"),
        (
            {"0.error.nvmlDeviceGetPowerUsage": NO_PERMISSION},
            State.WARNING,
            "hw.power of GPU-a cannot be read",
        ),
        ({"count": 0}, State.WARNING, "the driver has no GPU"),
    ],
)
def test_each_trouble_of_a_gpu_has_its_own_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: dict[str, object], state: State, found: str
) -> None:
    """The sampler's own reasons: what is not there is well, what cannot be read is not."""
    machine = Machine(tmp_path, build(tmp_path)).gpus("GPU-a")
    machine.put(lines)
    for name, value in machine.environment().items():
        monkeypatch.setenv(name, value)

    verdicts = list(gpus(tmp_path / "none", tmp_path / "none"))

    assert found in verdicts[-1].found
    assert verdicts[-1].state is state
    assert (verdicts[-1].fix == "") is (state is State.OK)


def test_a_wall_clock_that_jumps_is_a_warning() -> None:
    """It moved a second while the other moved none."""
    wall = iter((FIRST_NS, FIRST_NS + 1_200_000_000))
    reported = list(clocks(lambda: next(wall), lambda: 0))

    assert reported[0].state is State.WARNING
    assert "against the monotonic one" in reported[0].found


def test_a_clock_of_another_decade_is_a_warning() -> None:
    """Stamps from it would be before the run."""
    assert clocks(lambda: 0, lambda: 0).__next__().state is State.WARNING


@pytest.mark.parametrize(
    ("held", "stated"),
    [
        ({"numpy": "2.1.0", "torch": "2.2.2+cu121"}, "cannot share arrays"),
        ({"protobuf": "8.0.1", "opentelemetry-proto": "1.45.2"}, "need protobuf below 8"),
        ({"opentelemetry-sdk": "1.45.2", "opentelemetry-api": "1.40.0"}, "of different releases"),
        ({"msgspec": "0.10"}, "msgspec 0.10 is older than"),
        ({"msgspec": None}, "msgspec is missing"),
    ],
)
def test_versions_that_do_not_fit_fail(held: dict[str, str | None], stated: str) -> None:
    """With the command that mends them."""
    reported = [one for one in versions(lambda name: held.get(name, installed(name)))
            if one.state is State.FAILURE]  # fmt: skip

    assert [one for one in reported if stated in one.found]
    assert all(one.fix.startswith("pip install") for one in reported)


def test_the_versions_of_this_installation_fit() -> None:
    """Otherwise nothing else here could be trusted."""
    assert State.FAILURE not in _states(versions())


@pytest.mark.parametrize(
    ("env", "size", "encoding", "stated"),
    [
        ({"TERM": "dumb"}, (120, 40), "utf-8", "set TERM"),
        ({"TERM": "xterm-256color"}, (60, 20), "utf-8", "80x24"),
        ({"TERM": "xterm"}, (120, 40), "ascii", "LC_ALL"),
    ],
)
def test_a_terminal_that_shows_less_states_why(
    env: dict[str, str], size: tuple[int, int], encoding: str, stated: str
) -> None:
    """One warning, one fix."""
    reported = list(screens(env, size=size, is_terminal=True, encoding=encoding))

    assert _states(iter(reported)) == [State.WARNING, State.OK]
    assert stated in reported[0].fix


def test_a_collector_takes_a_real_request() -> None:
    """Over HTTP, and over gRPC where the environment states it; the request is empty."""
    with http_sink() as sink:
        reported = list(reach(sink.endpoint))

    assert _states(iter(reported)) == [State.OK]
    assert [body for _, body in sink.bodies] == [b""]


def test_a_collector_takes_a_real_request_over_grpc(monkeypatch: pytest.MonkeyPatch) -> None:
    """By OpenTelemetry's own variable."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    with grpc_sink() as sink:
        reported = list(reach(sink.endpoint))

    assert _states(iter(reported)) == [State.OK]


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:1", "ftp://x", "http://127.0.0.1:1/nothing"])
def test_a_collector_that_is_away_fails(endpoint: str) -> None:
    """Status 2, and what to do."""
    result = _run("--only", "collector", "--endpoint", endpoint)

    assert result.exit_code == 2
    assert "→ " in result.output
    assert "Traceback" not in result.output


def test_a_check_that_breaks_is_a_verdict() -> None:
    """The report is finished whatever a machine does."""

    def broken() -> Iterator[Verdict]:
        raise RuntimeError("odd machine")
        yield

    (reported,) = _safely("gpu", broken)

    assert (reported.state, "--only gpu" in reported.fix) == (State.FAILURE, True)
    assert "odd machine" in reported.found


def test_everything_together_is_one_report() -> None:
    """Every area is there, each verdict that is not well has a fix, and the status is the worst."""
    result = _run("--format", "json", *_every_port(0))
    report = json.loads(result.stdout)

    assert {one["area"] for one in report["verdicts"]} == {
        "config", "ports", "disk", "limits", "pod", "names", "gpu", "clock", "versions", "terminal",
        "collector",
    }  # fmt: skip
    assert all(one["fix"] for one in report["verdicts"] if one["state"] != "ok")
    worst = next(state for state in ("failure", "warning", "ok") if report["counts"][state])
    assert result.exit_code == ("ok", "warning", "failure").index(worst)


@pytest.mark.parametrize("name", ["OTEL_CONFIG_FILE", "OTEL_EXPERIMENTAL_CONFIG_FILE"])
def test_a_file_that_only_other_sdks_read_is_a_warning(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An endpoint in it goes nowhere; the variables that count are named. An empty one is unset."""
    monkeypatch.setenv(name, "/etc/otel/sdk.yaml")
    result = _run("--only", "config")
    monkeypatch.setenv(name, "")

    assert result.exit_code == 1
    assert f"{name} is set" in result.output
    assert "/etc/otel/sdk.yaml" in result.output
    assert "OTEL_EXPORTER_OTLP_*" in result.output
    assert name not in _run("--only", "config").output
