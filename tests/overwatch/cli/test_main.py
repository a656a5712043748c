"""Small commands: `overwatch agent` and `overwatch completion`."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from overwatch.cli import main
from overwatch.journal import Signal
from overwatch.otlp.decode import decode
from tests.overwatch.sdk.sink import http_sink


def test_a_run_receives_numbers_of_this_machine_until_a_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Host numbers under the run's id, by a role of the machine's own; the status is 0."""
    for name in ("XDG_RUNTIME_DIR", "OVERWATCH_SPOOL_DIR", "OVERWATCH_RING_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    with http_sink() as sink:
        command = [sys.executable, "-m", "overwatch.cli", "agent", "--run", "r", "--endpoint", sink.endpoint]
        reported: set[tuple[str, str]] = set()
        with subprocess.Popen(command, env={**os.environ, "K8S_NODE_NAME": "node-7"}) as process:
            until = time.monotonic() + 60
            while time.monotonic() < until and not any(name.startswith("system.") for _, name in reported):
                time.sleep(0.1)
                for path, body in list(sink.bodies):
                    for record in decode(Signal.LOGS, body).records if path == "/v1/logs" else ():
                        values = getattr(record.event, "values", {})
                        reported |= {
                            (f"{record.origin.run_id} {record.origin.role}", name) for name in values
                        }
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0

    assert ("r agent-node-7", "system.memory.usage") in reported


def test_an_endpoint_that_is_none_is_reported_in_one_line() -> None:
    """No traceback."""
    result = CliRunner().invoke(main, ["agent", "--run", "r", "--endpoint", "nowhere"])

    assert result.exit_code == 1
    assert result.output.startswith("Error: endpoint 'nowhere' is no URL")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str) -> None:
    """That asks `overwatch` itself."""
    done = CliRunner().invoke(main, ["completion", shell])
    assert done.exit_code == 0
    assert "_OVERWATCH_COMPLETE" in done.output


def test_bash_completes_commands_with_it(tmp_path: Path) -> None:
    """`overwatch si` becomes `overwatch simulate`."""
    if shutil.which("bash") is None:
        pytest.skip("no bash on this machine")
    program = tmp_path / "overwatch"
    program.write_text(f"#!{sys.executable}\nfrom overwatch.cli import main\nmain()\n")
    program.chmod(0o755)
    requested = {"COMP_WORDS": "overwatch si", "COMP_CWORD": "1", "_OVERWATCH_COMPLETE": "bash_complete"}
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        [str(program)],
        env={**os.environ, **requested, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "plain,simulate" in done.stdout.split()


@pytest.mark.parametrize("verb", ["compare", "report", "query", "audit", "export"])
def test_every_verb_has_its_help_with_examples(verb: str) -> None:
    """And states what its exit codes mean."""
    reported = CliRunner().invoke(main, [verb, "--help"]).output
    assert f"overwatch {verb} " in reported.split("\n", 3)[3]
    assert "Exit codes:" in reported
