"""`overwatch tui` on a real terminal and a real collector that receives a simulated run."""

import subprocess
import sys
from pathlib import Path

from tests.e2e.collecting import collecting, snapshot_of, until
from tests.overwatch.tui.ptys import in_order, running

OVERWATCH = [sys.executable, "-m", "overwatch.cli"]


def test_a_run_is_watched_opened_sorted_and_filtered(tmp_path: Path) -> None:
    """What the keys ask for comes from the collector: the detail, the order, what passes the filter."""
    with collecting(tmp_path) as endpoints:
        assert endpoints.otlp_http is not None
        assert endpoints.view is not None
        size = ["--gpus", "2", "--envs", "4", "--slots", "2", "--seconds", "120", "--run-id", "sim"]
        trainer = subprocess.Popen(
            [*OVERWATCH, "simulate", *size, "--endpoint", endpoints.otlp_http],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            until(lambda: snapshot_of(endpoints, "sim"), "the run")
            with running([*OVERWATCH, "tui", "--connect", endpoints.view]) as terminal:
                terminal.until("OVERWATCH", "sim", "LIVE", "FLIGHT BOARD", "8 env")
                here = terminal.press("\r")
                terminal.until("┌ env ", "trend", "acts", since=here)
                here = terminal.press("\x1b")
                terminal.until("action", since=here)
                here = terminal.press("s")
                terminal.until("sort env ^", since=here)
                here = terminal.press("/gpu=1")
                terminal.until("4 of 8 env", since=here)
                here = terminal.press(" stge=x")
                terminal.until("did you mean stage=?", since=here)
                here = terminal.press("\x1b")
                terminal.until("j/k move", since=here)
                here = terminal.press("l")
                terminal.until("focus", "1 errors", since=here)
                terminal.press("q")

                assert terminal.exit_code() == 0
                assert in_order(terminal)
        finally:
            trainer.kill()
            trainer.wait()
