"""The operator's task, on a real terminal and a simulated run: each cause in sight, detail one key away."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.overwatch.tui.ptys import Terminal, in_order, running

OVERWATCH = [sys.executable, "-m", "overwatch.cli"]


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two lanes of 32 envs with six slots: one lane is hot, envs are culled, and one crashes."""
    out = tmp_path_factory.mktemp("runs") / "sim"
    faults = ["cull-storm@22", "thermal-throttle@26", "env-crash@46"]
    reported = [*OVERWATCH, "simulate", "--gpus", "2", "--envs", "32", "--slots", "6", "--seconds", "50"]
    reported += ["--seed", "3", "--out", str(out), *(word for one in faults for word in ("--fault", one))]
    subprocess.run(reported, check=True, capture_output=True)
    return out


def _alarms(terminal: Terminal) -> dict[str, str]:
    """The number of the alarm that states each cause."""
    causes = {"throttle": "thermal throttle", "crash": "crashed at step", "culls": "cull storm: "}
    text = terminal.text()
    found = {
        name: re.search(rf"(\d) (?:CRIT|WARN) [^\n]{{0,30}}?{stated}", text)
        for name, stated in causes.items()
    }
    assert all(found.values()), found
    return {name: one[1] for name, one in found.items() if one is not None}


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
def test_each_cause_is_in_sight_and_one_key_opens_it(recording: Path, size: tuple[int, int]) -> None:
    """Without a key: lane, env and storm with their words. With one: why, evidence, what to do."""
    with running([*OVERWATCH, "tui", "--replay", str(recording), "--at", "48"], size=size) as terminal:
        terminal.until("OVERWATCH", "BOARD", "thermal throttle", "crashed at step", "culls in 60s")
        terminal.until("REPLAY paused")
        opens = {"crash": "1", "throttle": "2", "culls": "3"} if size[1] < 30 else _alarms(terminal)
        shows = {
            "throttle": ("thermal-throttle", "because", "raise the fan curve"),
            "crash": ("why", "CRASHED", "of 64"),
            "culls": ("cull-storm", "gate G2 fails"),
        }
        for cause, key in opens.items():
            here = terminal.press(key)
            terminal.until(*shows[cause], since=here)
            here = terminal.press("\x1b")
            terminal.until("s sort", since=here)
        terminal.press("q")
        assert terminal.exit_code() == 0
        assert in_order(terminal)
