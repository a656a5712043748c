"""`overwatch-rl grpo` as processes: server, handlers and trainer, how they begin, go on and end."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

from overwatch_rl.artifacts.versions import Version
from overwatch_rl.cli import main
from overwatch_rl.grpo.process import address_in
from overwatch_rl.grpo.weights import newest
from overwatch_rl.handover.children import Child

TINY = (
    "--no-telemetry", "--log", "json", "--groups", "6", "--group-size", "4", "--base-steps", "4",
    "--width", "16", "--least", "2", "--most", "3", "--threads", "1",
)  # fmt: skip
PATIENCE_S = 120
LONG_S = 900


def words(*more: str) -> list[str]:
    """The command of a tiny run."""
    return [sys.executable, "-m", "overwatch_rl.cli", "grpo", *TINY, *more]


def flown(*more: str) -> tuple[int, list[dict[str, Any]], str]:
    """A tiny run to its end: its status, its lines, and what it complained of."""
    done = subprocess.run(words(*more), capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def version(out: Path) -> Version | None:
    """Of the weights that a run published last."""
    found = newest(out / "weights")
    return None if found is None else found.version


def updates(lines: list[dict[str, Any]]) -> list[int]:
    """Numbers of the updates."""
    return [line["update"] for line in lines if line["event"] == "update"]


def test_three_handlers_teach_a_trainer_that_goes_on_later(tmp_path: Path) -> None:
    """Everything is started, ended and kept; a resumed run counts on and gives no version out twice."""
    out = tmp_path / "run"
    status, lines, printed = flown("--updates", "3", "--out", str(out), "--checkpoint-every", "2")
    assert (status, updates(lines)) == (0, [1, 2, 3]), printed
    for line in lines:
        if line["event"] == "update":
            assert line["values"]["data_age_updates"] <= 1.0
            assert line["values"]["token_error"] == pytest.approx(1.0, abs=1e-4)
    assert lines[-1]["outcome"] == "completed"
    assert json.loads((out / "summary.json").read_text())["outcome"] == "completed"
    assert version(out) == Version(1, 3)

    status, lines, printed = flown("--updates", "5", "--resume", str(out), "--alive", str(tmp_path / "alive"))

    assert (status, updates(lines)) == (0, [4, 5]), printed
    assert (tmp_path / "alive/0").exists()
    assert version(out) == Version(2, 6)

    refused = CliRunner().invoke(main, ["grpo", *TINY, "--resume", str(out), "--groups", "8"])
    assert refused.exit_code == 2
    assert "groups is 8, the checkpoint was trained with 6" in refused.output


def test_a_server_that_runs_is_used_and_left_running(tmp_path: Path) -> None:
    """By its token, which handlers send too."""
    secret = ("--token-file", str(tmp_path / "token"))
    (tmp_path / "token").write_text("secret" * 6)
    server = Child(
        "server", ["rollouts", "--listen", "127.0.0.1:0", "--durability", "memory", "--no-telemetry", *secret]
    )
    try:
        line = server.lines.get(timeout=PATIENCE_S)
        assert line is not None
        url = address_in(line)
        assert url is not None
        status, lines, printed = flown("--updates", "1", "--server", url, "--handlers", "1", *secret)
        assert (status, updates(lines)) == (0, [1]), printed
        assert server.process.poll() is None
    finally:
        server.end()


def test_a_collectors_address_is_not_taken_for_the_servers() -> None:
    """Its line comes first where the server reports."""
    assert address_in("overwatch: run sort reports to http://127.0.0.1:4318") is None


def test_a_run_whose_handlers_all_fail_ends_with_their_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here each ends as it begins."""
    broken = "import os, sys\nif 'grpo-handler' in sys.orig_argv: os.write(2, b'no memory\\n'), os._exit(3)\n"
    (tmp_path / "sitecustomize.py").write_text(broken)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    status, lines, printed = flown("--updates", "1")

    assert status != 0
    assert "all 3 handlers have failed" in printed
    assert "no memory" in printed
    assert lines[-1]["outcome"] == "failed"


def test_what_a_killed_trainer_started_ends_with_it(tmp_path: Path) -> None:
    """Server and handlers, though nobody ended them."""
    own = {**os.environ, "TMPDIR": str(tmp_path)}  # A killed process leaves its weights behind.
    trainer = subprocess.Popen(words("--updates", "100000"), stdout=subprocess.PIPE, text=True, env=own)
    try:
        assert trainer.stdout is not None
        for line in trainer.stdout:
            if json.loads(line)["event"] == "update":
                break
        started = psutil.Process(trainer.pid).children()
        assert len(started) == 4
        trainer.kill()
        _, alive = psutil.wait_procs(started, timeout=PATIENCE_S)
        assert alive == []
    finally:
        trainer.kill()
        trainer.communicate()


@pytest.mark.parametrize(
    ("given", "printed"),
    [
        (("--group-size", "1"), "group_size is 1; use 2 or more"),
        (("--fault", "stale@3"), "write stale-handler@20"),
        (("--handlers", "0"), "give --weights"),
        (("--server", "nowhere"), "write e.g. http://127.0.0.1:8000"),
        (("--lr", "0"), "learning_rate is 0.0; use a number above 0"),
    ],
)
def test_a_flag_that_cannot_be_is_an_error_that_names_it(given: tuple[str, ...], printed: str) -> None:
    """Before anything is started."""
    refused = CliRunner().invoke(main, ["grpo", *TINY, "--updates", "1", *given])

    assert refused.exit_code == 2
    assert printed in refused.output


def held_out(*more: str) -> list[tuple[float, float]]:
    """What held-out prompts earn in a run with the defaults, from the base on: mean and standard error."""
    command = [sys.executable, "-m", "overwatch_rl.cli", "grpo", "--no-telemetry", "--log", "json", *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG_S, check=False)
    assert done.returncode == 0, done.stderr
    events = [json.loads(line)["event"] for line in done.stdout.splitlines()]
    looks = [re.search(r"earn ([0-9.]+) ± ([0-9.]+) after", event) for event in events]
    return [(float(one[1]), float(one[2])) for one in looks if one is not None]


@pytest.mark.long
@pytest.mark.timeout(2 * LONG_S)
@pytest.mark.parametrize("seed", [str(seed) for seed in range(5)])
def test_every_seed_learns_and_its_control_does_not(seed: str) -> None:
    """From 0.3 or less to 0.8 or more on prompts whose answers were never seen, by three handlers."""
    learned, control = held_out("--seed", seed), held_out("--seed", seed, "--shuffled")

    assert learned[0][0] <= 0.3
    assert learned[-1][0] >= 0.8
    assert control[-1][0] <= control[0][0] + 2 * control[0][1]
