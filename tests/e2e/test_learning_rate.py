"""Seed 1's manual check by machine: a learning rate that is far too high is seen on the screen."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from overwatch.feeds.recording import Recording
from overwatch.tui import once
from tests.e2e.collecting import collecting, snapshot_of, until

pytestmark = pytest.mark.timeout(240)

HEALTHY_LR = 3e-3
CELL = re.compile(r"\bKL +(\d+\.\d{4})\S? +(OK|WARN|CRIT)\b")


def _train(folder: Path, factor: int) -> None:
    command = [sys.executable, "-m", "overwatch_rl.cli", "train", "--world", "morphogenesis"]
    command += ["--envs", "8", "--slots", "2", "--updates", "6", "--seed", "0", "--run-id", "hot"]
    with collecting(folder) as endpoints:
        assert endpoints.otlp_http is not None
        trainer = subprocess.run(
            [*command, "--lr", str(HEALTHY_LR * factor), "--endpoint", endpoints.otlp_http],
            check=False, timeout=180, capture_output=True, text=True,
        )  # fmt: skip
        assert trainer.returncode == 0, trainer.stderr
        until(lambda: (s := snapshot_of(endpoints, "hot")) and s.run.outcome, "the end of the run")


def _cells(folder: Path) -> list[tuple[float, str]]:
    """KL and the word beside it on the screen, whenever one of them changed."""
    cells: list[tuple[float, str]] = []
    for frame in Recording(folder / "otlp").frames():
        for snapshot in frame.snapshots.values():
            found = CELL.search(once(snapshot, "text"))
            if found and (not cells or cells[-1] != (float(found[1]), found[2])):
                cells.append((float(found[1]), found[2]))
    return cells


def _word(kl: float) -> str:
    return "CRIT" if kl > 0.03 else "WARN" if kl > 0.015 else "OK"


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("factor", "passes"), [(1, ["OK"]), (3, ["WARN", "CRIT"]), (30, ["CRIT"])], ids=str)
def test_a_learning_rate_that_is_too_high_is_on_the_screen(
    tmp_path: Path, factor: int, passes: list[str]
) -> None:
    """The usual rate stays OK; three times warns and then is critical; thirty times is critical at once."""
    _train(tmp_path, factor)
    cells = _cells(tmp_path)
    words = [word for _, word in cells]

    assert [_word(kl) for kl, _ in cells] == words
    assert [word for word in dict.fromkeys(words) if word in passes] == passes
    assert factor > 1 or set(words) == {"OK"}
