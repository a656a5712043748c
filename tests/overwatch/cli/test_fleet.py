"""`overwatch fleet` over collectors that are processes: two well, one killed, one hung, one that refuses."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from overwatch import discovery
from overwatch.cli import main
from overwatch.cli.fleet import resolved
from overwatch.discovery import Endpoints
from overwatch.events import RunFinished
from tests.overwatch.collector.running import FREE_PORTS, eventually, http, reported, run_started, update
from tests.overwatch.tui import ptys

TRAINER = """
import sys
import overwatch.sdk

run = overwatch.sdk.start(run_id="trained", task="digits", algo="ppo", endpoint=sys.argv[1], sample=False)
run.update(update=7, return_=8.5, kl_divergence=0.01)
sys.exit(0 if run.close(60.0).delivered else 1)
"""
WITHIN_S = 1.0
NAMES = ("first", "second", "killed", "hung", "refusing")
FLEET = [sys.executable, "-m", "overwatch.cli", "fleet"]


@dataclass(frozen=True)
class Fleet:
    """Five collectors: two that answer, and one each that is killed, hung, and refuses the token."""

    addresses: dict[str, str]
    folder: Path

    @property
    def connects(self) -> list[str]:
        """As options."""
        return [word for one in self.addresses.values() for word in ("--connect", one)]

    def ask(self, *words: str) -> Result:
        """The command, once."""
        return CliRunner().invoke(main, ["fleet", "--once", "--timeout", str(WITHIN_S), *words])

    def rows(self, *words: str) -> list[dict[str, object]]:
        """As JSON."""
        answer = self.ask(*self.connects, "--format", "json", *words)
        assert answer.exit_code == 0, answer.output
        return [json.loads(line) for line in answer.output.splitlines()]


@contextlib.contextmanager
def _collector(folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A process, which may not be ready yet; one that refuses has a token of its own."""
    folder.mkdir(mode=0o700)
    sets = [
        *FREE_PORTS,
        f"exporters.otlp_file.path={folder / 'otlp'}",
        f"exporters.snapshots.path={folder / 'snapshots.jsonl'}",
        f"extensions.file_storage.directory={folder}",
    ]
    sets += ["service.security.tokens.read.token=a-token-of-its-own"] if folder.name == "refusing" else []
    command = [sys.executable, "-m", "overwatch.cli", "collect"]
    environment = {
        **os.environ, "XDG_RUNTIME_DIR": str(folder), "OVERWATCH_READY_FILE": str(folder / "ready.json"),
    }  # fmt: skip
    with (folder / "log").open("wb") as log, subprocess.Popen(
        [*command, *(word for one in sets for word in ("--set", one))],
        stdout=log, stderr=log, env=environment,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def _ready(folder: Path) -> Endpoints:
    ready = folder / "ready.json"
    eventually(ready.is_file, 60)
    return msgspec.json.decode(ready.read_bytes(), type=Endpoints)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """With a simulated run in trouble, and two that ended: one of the SDK, one that two collectors know."""
    folder = tmp_path_factory.mktemp("fleet")
    with contextlib.ExitStack() as ending, pytest.MonkeyPatch.context() as environment:
        collectors = {name: ending.enter_context(_collector(folder / name)) for name in NAMES}
        ends = {name: _ready(folder / name) for name in NAMES}
        simulated = [
            "--gpus",
            "1",
            "--envs",
            "4",
            "--slots",
            "2",
            "--seconds",
            "300",
            "--run-id",
            "simulated",
        ]
        simulate = [sys.executable, "-m", "overwatch.cli", "simulate", *simulated, "--fault", "env-crash@2"]
        for command in (
            [*simulate, "--endpoint", str(ends["first"].otlp_http)],
            [sys.executable, "-c", TRAINER, str(ends["second"].otlp_http)],
        ):
            process = ending.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
            )
            ending.callback(process.kill)
        for name in ("first", "second"):
            body = reported(
                "twice", [run_started(), update(0.01), RunFinished(at=time.time_ns(), outcome="completed")]
            )
            url, kind = f"{ends[name].otlp_http}/v1/logs", "application/x-protobuf"
            assert http(url, body, "POST", content_type=kind).status == 200
        collectors["killed"].kill()
        collectors["killed"].wait()
        os.kill(ends["hung"].pid, signal.SIGSTOP)
        environment.setenv(discovery.VARIABLE, "another-token")
        found = Fleet({name: str(end.view) for name, end in ends.items()}, folder)
        eventually(lambda: {"simulated", "trained", "twice"} <= {row.get("run") for row in found.rows()})
        eventually(lambda: len(found.rows("--filter", "run=simulated criticals>0")) == 4, 60)
        eventually(lambda: len(found.rows("--filter", "state=ended")) == 6, 60)
        yield found


@pytest.mark.timeout(180)
def test_every_collector_is_in_the_list_within_the_deadline(fleet: Fleet) -> None:
    """The runs of those that answer, worst first, and a row with the reason for each that does not."""
    began = time.monotonic()
    rows = fleet.rows()
    took_s = time.monotonic() - began
    at = {address: name for name, address in fleet.addresses.items()}
    away = {at[str(row["collector"])]: row["text"] for row in rows if row["state"] == "away"}

    assert away == {
        "killed": "connection refused",
        "hung": "no answer",
        "refusing": "refused with HTTP 401; set OVERWATCH_TOKEN to a token that may read",
    }
    assert took_s >= WITHIN_S
    runs = [(row["run"], at[str(row["collector"])]) for row in rows if row["run"] is not None]
    assert sorted(runs) == [
        ("simulated", "first"),
        ("trained", "second"),
        ("twice", "first"),
        ("twice", "second"),
    ]
    assert [row["state"] for row in rows][1:4] == ["away"] * 3
    assert (rows[0]["run"], rows[0]["severity"]) == ("simulated", "critical")
    (trained,) = (row for row in rows if row["run"] == "trained")
    assert (trained["task"], trained["algo"], trained["update"], trained["envs"]) == (
        "digits",
        "ppo",
        7,
        None,
    )
    twice = [row["also_at"] for row in rows if row["run"] == "twice"]
    assert sorted(map(str, twice)) == sorted(str([fleet.addresses[name]]) for name in ("first", "second"))


@pytest.mark.timeout(180)
def test_a_filter_keeps_the_runs_that_meet_it(fleet: Fleet) -> None:
    """And the collectors that may have others."""
    rows = fleet.rows("--filter", "severity<critical task=digits run=trained")

    assert [row["run"] for row in rows if row["state"] != "away"] == ["trained"]
    assert sum(row["state"] == "away" for row in rows) == 3


@pytest.mark.timeout(180)
def test_the_status_is_the_worst_that_was_named(fleet: Fleet) -> None:
    """For scripts; without a name it is 0, and 3 where nothing was received."""
    well = ["--connect", fleet.addresses["second"]]

    assert fleet.ask(*fleet.connects).exit_code == 0
    assert fleet.ask(*fleet.connects, "--fail-on", "critical", "--fail-on", "away").exit_code == 20
    assert fleet.ask(*fleet.connects, "--fail-on", "away").exit_code == 15
    assert fleet.ask(*well, "--fail-on", "critical", "--fail-on", "away").exit_code == 0


@pytest.mark.timeout(180)
def test_collectors_are_found_by_a_file_and_by_a_name(fleet: Fleet, tmp_path: Path) -> None:
    """Lines or YAML, each collector once; the table and the sentences have what the JSON has."""
    first, second = fleet.addresses["first"], fleet.addresses["second"]
    lines, listed = tmp_path / "lines", tmp_path / "fleet.yaml"
    lines.write_text(f"# two\n{first}\n{second}\n{first}\n")
    listed.write_text(f"- {first}\n- {second}\n")
    table = fleet.ask("--file", str(lines)).output.splitlines()
    port = second.rpartition(":")[2]
    named = fleet.ask("--dns", f"127.0.0.1:{port}", "--format", "text")

    assert [line.split()[:2] for line in table[:2]] == [["run", "task"], ["CRIT", "simulated"]]
    assert len(table) == 5
    assert len(fleet.ask("--file", str(listed)).output.splitlines()) == 5
    assert f"trained at {second}: " in named.output
    assert resolved("wss://localhost:4381")[0].startswith("wss://")


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("name", "status", "shown"), [("first", 0, "simulated"), ("refusing", 3, "no run")])
def test_the_collector_of_this_machine_is_found_with_its_token(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, name: str, status: int, shown: str
) -> None:
    """As it is announced; one that has received nothing is listed, and the status is 3."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(fleet.folder / name))
    answer = fleet.ask("--format", "text")

    assert answer.exit_code == status, answer.output
    assert f"{shown} at {fleet.addresses[name]}: " in answer.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--connect", "10.0.0.7"], "view URL '10.0.0.7' is not an address"),
        (["--dns", "ftp://a"], "--dns 'ftp://a' is not a name"),
        (["--dns", "a:b"], "--dns 'a:b' is not a name"),
        (["--dns", "no-such-name.invalid"], "--dns no-such-name.invalid cannot be resolved"),
        (["--filter", "statte=lost"], "did you mean state="),
        ([], "no collector is announced on this machine; name some with --connect, --file or --dns"),
    ],
)
def test_what_cannot_be_asked_is_named(words: list[str], message: str) -> None:
    """With the fix."""
    answer = CliRunner().invoke(main, ["fleet", "--once", *words])

    assert answer.exit_code in (1, 2)
    assert message in answer.output


def test_a_file_without_addresses_is_named(tmp_path: Path) -> None:
    """Empty, of another shape, or no YAML."""
    file = tmp_path / "fleet.yaml"
    for text in ("", "a: b", "- 1", "- [", "# nothing\n"):
        file.write_text(text)
        answer = CliRunner().invoke(main, ["fleet", "--once", "--file", str(file)])
        assert answer.exit_code == 1
        assert str(file) in answer.output


@pytest.mark.timeout(180)
def test_the_live_list_refreshes_and_opens_a_run(fleet: Fleet) -> None:
    """Enter shows the run in its own screen, q leaves that and then the list; the terminal is as before."""
    env = {discovery.VARIABLE: "another-token", "XDG_RUNTIME_DIR": str(fleet.folder / "runtime")}
    command = [*FLEET, *fleet.connects, "--timeout", str(WITHIN_S)]
    with ptys.running(command, size=(200, 40), **env) as terminal:
        terminal.until("3 runs", "5 collectors, 3 away", "simulated", "trained", "connection refused")
        here = terminal.press("\r")
        here = terminal.until("POLICY PULSE", since=here)
        here = terminal.press("q")
        here = terminal.until("5 collectors, 3 away", since=here)
        terminal.press("q")

        assert terminal.exit_code() == 0
        assert "Traceback" not in terminal.text()
