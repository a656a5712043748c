"""`overwatch watch` in a terminal: a collector, a trainer and the screen in one command."""

import os
import re
import signal
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from overwatch import discovery
from overwatch.cli.main import main
from tests.overwatch.collector.running import FREE_PORTS, eventually, running
from tests.overwatch.tui import ptys
from tests.overwatch.tui.ptys import in_order

WATCH = [sys.executable, "-m", "overwatch.cli", "watch"]
TRAINER = """
import signal, sys
import overwatch.sdk

caught = []
run = overwatch.sdk.start(run_id="night-run", task="digits", algo="ppo", sample=False)
signal.signal(signal.SIGINT, lambda *_: (caught.append(1), print("caught", len(caught), flush=True)))
run.update(update=1, return_=8.5, kl_divergence=0.01)
print("trainer is up", flush=True)
with open(sys.argv[1]) as until_it_is_closed:
    until_it_is_closed.read()
sys.exit(3 if len(caught) == 1 else 4)
"""


@pytest.fixture
def trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Its command; it ends when its pipe is closed, with status 3 if one Ctrl-C reached it, else 4."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    (tmp_path / "run").mkdir(mode=0o700)
    script, pipe = tmp_path / "train.py", tmp_path / "pipe"
    script.write_text(TRAINER)
    os.mkfifo(pipe)
    return ["--", sys.executable, str(script), str(pipe)]


def test_ctrl_c_reaches_the_trainer_once_and_its_status_is_the_commands(
    tmp_path: Path, trainer: list[str]
) -> None:
    """A collector with the options' folder is started and ends with it; the screen stays on the end."""
    sets = [word for one in FREE_PORTS for word in ("--set", one)]
    data = tmp_path / "data"
    with ptys.running([*WATCH, "--data", str(data), *sets, *trainer]) as terminal:
        with Path(trainer[-1]).open("w"):
            terminal.until("night-run", "update 1")
            here = terminal.press("\x03")
            here = terminal.until("SIGINT sent to train.py", since=here)
            terminal.press("\x03")
            here = terminal.until("already", since=here)
        terminal.until("train.py ended with status 3", since=here)
        here = terminal.press("q")

        assert terminal.exit_code() == 3
        assert in_order(terminal)
        shown = terminal.text(here)
        assert "run night-run failed after 1 update" in shown
        assert f"overwatch report {data}/otlp --run night-run" in shown
        console = re.search(r"console: (\S+)", shown)
        assert console is not None
        assert Path(console[1]).read_text().splitlines() == ["trainer is up", "caught 1"]
        assert Path(console[1]).is_relative_to(data / "watched")
        assert "Traceback" not in terminal.text()
    assert discovery.read() is None


def test_q_leaves_the_trainer_running_and_prints_how_to_look_again(
    tmp_path: Path, trainer: list[str]
) -> None:
    """With a collector that ran before: none is started, and options of one are refused."""
    with running(tmp_path / "data") as service:
        discovery.write(service.endpoints)
        refused = CliRunner().invoke(main, ["watch", "--data", str(tmp_path / "other"), *trainer])
        assert refused.exit_code == 1
        assert f"kill {os.getpid()}" in refused.output
        assert not (tmp_path / "other").exists()

        with ptys.running([*WATCH, *trainer], OVERWATCH_DATA_DIR=str(tmp_path / "data")) as terminal:
            with Path(trainer[-1]).open("w"):
                terminal.until("night-run", "update 1")
                here = terminal.press("q")

                assert terminal.exit_code() == 0
                assert in_order(terminal)
                shown = terminal.text(here)
                pid = int(re.findall(r"train\.py goes on \(pid (\d+)\); watch it: overwatch tui", shown)[0])
                assert f"kill -INT -{pid}" in shown
                assert f"overwatch tui, or {service.endpoints.page}" in shown
                assert "the collector goes on" not in shown
                os.kill(pid, signal.SIGINT)
                console = Path(re.findall(r"console: (\S+)", shown)[0])
                eventually(lambda: "caught 1" in console.read_text())
            eventually(lambda: not _lives(pid))


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
