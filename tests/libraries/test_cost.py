"""The sampler attributes thread time to whose frames it was spent in."""

import json
import subprocess
import sys
from pathlib import Path

from tests.libraries import cost

BUSY = """
import time

def spend(seconds, then=lambda: None):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
    then()
"""
PROGRAM = """
import time
from functools import partial
import busy
from overwatch import busy as ours
from overwatch.catalog import busy as words
from overwatch.sdk import launch

busy.spend(0.6)
ours.spend(0.2)
ours.spend(0.0, then=lambda: busy.spend(0.2))
words.spend(0.2)
ours.spend(0.0, then=partial(words.spend, 0.2))
launch.spend(0.1)
time.sleep(0.2)
"""


def test_time_is_whose_frame_is_innermost(tmp_path: Path) -> None:
    """What a wrapper calls is the wrapped one's, words are the asker's; what starts a run is apart."""
    for path in (
        "src/overwatch/__init__.py",
        "src/overwatch/sdk/__init__.py",
        "src/overwatch/catalog/__init__.py",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    ours = ("src/overwatch/busy.py", "src/overwatch/sdk/launch.py", "src/overwatch/catalog/busy.py")
    for path in (*ours, "busy.py"):
        (tmp_path / path).write_text(BUSY)
    (tmp_path / "program.py").write_text(PROGRAM)
    subprocess.run(
        [sys.executable, str(cost.__file__), "spent.json", "program.py"],
        check=True, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path / "src")},
    )  # fmt: skip

    spent = json.loads((tmp_path / "spent.json").read_text())
    seconds = {kind: round(nanoseconds / 1e9, 1) for kind, nanoseconds in spent.items()}
    assert (seconds["theirs"], seconds["ours"], seconds["once"]) == (1.0, 0.4, 0.1)
