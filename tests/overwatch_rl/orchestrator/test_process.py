"""The command: flags and files, one line with the address, a clean end; and what a kill leaves."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from overwatch.events import RunFinished, RunStateChanged, Tallied
from overwatch_rl.cli import main
from tests.overwatch.sdk.sink import http_sink
from tests.overwatch_rl.orchestrator.serving import TOKENS
from tests.overwatch_rl.orchestrator.threaded import Operator, requested

END_S = 60.0


@contextmanager
def started(
    *flags: str, status: int = 0, end: signal.Signals = signal.SIGTERM, listen: str = "127.0.0.1:0"
) -> Iterator[tuple[str, str]]:
    """A server process: its address and its first line; ended by a signal, with this exit status."""
    command = [sys.executable, "-m", "overwatch_rl.cli", "orchestrator", "--listen", listen, *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("orchestrator API at http://127.0.0.1:"), process.communicate()
        yield line.split()[3].removesuffix("/api/v1,"), line
        process.send_signal(end)
        out, err = process.communicate(timeout=END_S)
        assert (process.returncode, out) == (status, ""), err
        assert "Traceback" not in err
    finally:
        process.kill()
        process.communicate()


def test_it_serves_reports_and_ends_cleanly(tmp_path: Path) -> None:
    """States and counts go to the tower; the next life has the runs."""
    store = f"sqlite:///{tmp_path}/runs.db"
    with http_sink() as sink:
        with started("--store", store, "--run-id", "r", "--endpoint", sink.endpoint) as (url, line):
            assert f"runs kept in {store}" in line
            operator = Operator(url)
            operator.create()
            operator.post("/heartbeat", {"run_id": "r", "status": "running", "step": 3})
            operator.post("/pause")
            sink.wait(lambda it: it.events(RunStateChanged))
        totals = {
            (one.metric, *sorted(one.labels.items())): one.sum
            for event in sink.events(Tallied)
            for one in event.series
        }
        moved = ("orchestrator.run_state_transitions", ("from", "pending"), ("to", "running"))
        assert totals.get(moved) == 1, totals
        assert totals["orchestrator.commands", ("kind", "pause"), ("status", "queued")] == 1
        assert [(one.before, one.after) for one in sink.events(RunStateChanged)] == [("pending", "running")]
        assert [event.outcome for event in sink.events(RunFinished)] == ["completed"]
        assert {record.origin.role for record in sink.records()} == {"orchestrator"}
    with started("--store", store, "--no-telemetry", end=signal.SIGINT, status=130) as (url, _):
        assert Operator(url).get()["commands_waiting"] == 1


def test_what_was_answered_survives_a_kill(tmp_path: Path) -> None:
    """Whenever it comes: each command that was answered is there, in order, and the learner goes on."""
    flags = ("--store", f"sqlite:///{tmp_path}/runs.db", "--no-telemetry", "--heartbeat-s", "0")
    sent: list[str] = []
    for life in range(4):
        with started(*flags, end=signal.SIGKILL, status=-signal.SIGKILL) as (url, _):
            operator = Operator(url)
            if not life:
                operator.create(config={"x": 1})
            beat = {"run_id": "r", "status": "running", "step": life, "lineage": 0}
            assert operator.post("/heartbeat", beat)["state"] == "running"
            for number in range(5):
                body = {"command": {"kind": "tune", "values": {"clip": 0.1}}, "id": f"{life}-{number}"}
                assert operator.post("/commands", body)["status"] == "queued"
                sent.append(body["id"])
    with started(*flags) as (url, _):
        operator = Operator(url)
        assert [one["id"] for one in operator.get("/commands")["commands"]] == sent
        assert (operator.get()["step"], operator.get()["config"]) == (3, {"x": 1})
        assert operator.get("/commands/next")["command"]["id"] == "0-0"
        assert len(operator.get("/audit")["audit"]) == 1 + len(sent)


def test_a_file_gives_the_flags_and_tokens_give_the_roles(tmp_path: Path) -> None:
    """TOML by the names of the flags; a request without a token, or with a lesser one, is refused."""
    lines = [f'store = "sqlite:///{tmp_path}/runs.db"', "telemetry = false"]
    for role, token in TOKENS.items():
        (tmp_path / role).write_text(f"{token}\n")
        lines.append(f'{role}-token = "{tmp_path / role}"')
    config = tmp_path / "orchestrator.toml"
    config.write_text("\n".join(lines))
    with started("--config", str(config)) as (url, _):
        assert requested(url, "GET", "/healthz") == {"status": "ok", "error": None}
        assert requested(url, "GET", "/api/v1/runs")["status"] == 401
        assert Operator(url, TOKENS["reader"]).create()["status"] == 403
        assert Operator(url, TOKENS["operator"]).create()["state"] == "pending"
        assert Operator(url, TOKENS["reader"]).get()["run_id"] == "r"


@pytest.mark.parametrize(
    ("flags", "stated"),
    [
        (["--listen", "nowhere"], "listen 'nowhere' is not host:port; write e.g. 127.0.0.1:8000"),
        (["--listen", "0.0.0.0:0"], "set a token with --operator-token, or bind 127.0.0.1"),
        (["--store", "nowhere"], "store 'nowhere' cannot be used"),
        (["--endpoint", "nowhere"], "endpoint 'nowhere' is no URL"),
        (["--stale-s", "200"], "stale-s 200, unresponsive-s 135; use rising numbers"),
    ],
)
def test_a_wrong_flag_is_a_usage_error_that_names_value_and_fix(flags: list[str], stated: str) -> None:
    """Exit 2, and nothing is served."""
    result = CliRunner().invoke(main, ["orchestrator", "--no-telemetry", *flags])

    assert result.exit_code == 2
    assert stated in " ".join(result.output.split())


def test_a_learner_token_alone_is_a_usage_error(tmp_path: Path) -> None:
    """Nobody could create a run."""
    (tmp_path / "token").write_text(TOKENS["learner"])
    flags = ["orchestrator", "--no-telemetry", "--learner-token", str(tmp_path / "token")]
    result = CliRunner().invoke(main, flags)

    assert result.exit_code == 2
    assert "a token of learner and none of operator; add --operator-token" in " ".join(result.output.split())


def test_a_busy_address_is_an_error_in_a_line(tmp_path: Path) -> None:
    """It names the address; the exit status is 1."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        listen = f"127.0.0.1:{other.getsockname()[1]}"
        store = f"sqlite:///{tmp_path}/runs.db"
        result = CliRunner().invoke(
            main, ["orchestrator", "--listen", listen, "--store", store, "--no-telemetry"]
        )

    assert result.exit_code == 1
    assert f"Error: {listen}: Address already in use; choose another address with --listen" in result.output


def test_a_store_that_cannot_be_opened_is_an_error_in_a_line(tmp_path: Path) -> None:
    """A file that is no database is left as it is."""
    file = tmp_path / "runs.db"
    file.write_text(json.dumps({"not": "a database"}) * 100)
    result = CliRunner().invoke(main, ["orchestrator", "--store", f"sqlite:///{file}", "--no-telemetry"])

    assert result.exit_code == 1
    assert "the store cannot be used: " in result.output
    assert "; give another --store" in result.output
    assert file.read_text().startswith("{")
