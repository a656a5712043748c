"""`overwatch tui --replay` on a real terminal: it plays, pauses, steps, opens, filters, quits."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.overwatch.tui.ptys import in_order, running

OVERWATCH = [sys.executable, "-m", "overwatch.cli"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A minute of a run in which envs crash."""
    out = tmp_path_factory.mktemp("runs") / "sim"
    size = ["--gpus", "2", "--envs", "8", "--slots", "3", "--seconds", "30"]
    reported = [*OVERWATCH, "simulate", *size, "--fault", "crash-storm@10", "--out", str(out)]
    subprocess.run(reported, check=True, capture_output=True)
    return out


def test_a_recording_is_looked_at_like_a_run(folder: Path) -> None:
    """Paused where it was asked for; every key of the transport and of the board works on it."""
    with running([*OVERWATCH, "tui", "--replay", str(folder), "--at", "20"]) as terminal:
        terminal.until("REPLAY paused", "FLIGHT BOARD", "CRASHED", "Space play")
        here = terminal.press(" ")
        terminal.until("Space pause", since=here)
        here = terminal.press(" ")
        terminal.until("Space play", since=here)
        here = terminal.press(">")
        terminal.until("2.0x", since=here)
        here = terminal.press("\r")
        terminal.until("┌ env ", "why", "slots", since=here)
        here = terminal.press("\x1b")
        terminal.until("FLIGHT BOARD", "action", since=here)
        here = terminal.press("/status=crashed\r")
        terminal.until("status=crashed", " of 16 env", since=here)
        terminal.press("q")

        assert terminal.exit_code() == 0
        assert in_order(terminal)
        assert "Traceback" not in terminal.text()


def test_without_a_second_to_begin_at_it_plays(folder: Path) -> None:
    """At 80 by 24 too; Space pauses."""
    with running([*OVERWATCH, "tui", "--replay", str(folder)], size=(80, 24)) as terminal:
        terminal.until("REPLAY", "BOARD")
        here = terminal.press(" ")
        terminal.until("paused", since=here)
        terminal.press("q")

        assert terminal.exit_code() == 0


@pytest.mark.parametrize(
    ("options", "stated"),
    [
        (["--replay", ".", "--connect", "ws://x:1"], "exclude one another"),
        (["--at", "3"], "--at is a second of a recording"),
        (["--replay", "."], "holds nothing that can be replayed"),
    ],
)
def test_what_cannot_be_replayed_is_reported(options: list[str], stated: str, tmp_path: Path) -> None:
    """In one sentence, with the fix."""
    done = subprocess.run(
        [*OVERWATCH, "tui", *options, "--once"], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert done.returncode in (1, 2)
    assert stated in done.stderr
    assert "Traceback" not in done.stderr


def test_one_frame_of_a_recording_is_printed(folder: Path) -> None:
    """The frame at a second, without a terminal."""
    reported = [*OVERWATCH, "tui", "--replay", str(folder), "--at", "20", "--once"]
    done = subprocess.run(reported, capture_output=True, text=True, check=True)

    assert done.stdout.startswith(" OVERWATCH  sim-2x8x3-0")
    assert "CRASHED" in done.stdout
