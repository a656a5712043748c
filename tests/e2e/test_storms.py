"""Simulated storms at the acceptance sizes: the offender and its reason are on the first screen, unasked."""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from overwatch import codec
from overwatch.simulate.faults import FAULTS
from overwatch.snapshot import Snapshot
from overwatch.tui import once

SIZES = {"1x4x3": ("1", "4", "3"), "2x32x6": ("2", "32", "6")}
BEGINS_S = 60
EARLY_S = {"cull-storm": 30}
"""A small fleet has few seeds left to cull once most have fossilised."""

SHOWN: dict[str, tuple[int, str]] = {
    "crash-storm": (12, r"CRIT .*crash"),
    "cull-storm": (40, r"WARN .*cull storm"),
    "policy-collapse": (15, r"CRIT .*(KL|policy|entropy)"),
    "nan": (4, r"CRIT .*(nan|non-finite)"),
    "thermal-throttle": (15, r"CRIT .*thermal"),
    "oom-climb": (45, r"(CRIT|WARN) .*(memory|OOM)"),
    "io-starvation": (20, r"(CRIT|WARN) .*(loader|IO|data)"),
    "straggler": (20, r"(CRIT|WARN) .*(straggler|slow|step)"),
    "reward-collapse": (25, r"(CRIT|WARN) .*return"),
    "stale": (15, r"CRIT .*(no telemetry|silent)"),
}
"""Seconds after its beginning at which a fault must be seen, and how it must read."""

ONE_LANE = {"straggler"}
"""Faults that need a second lane to be told from a slow run."""


@cache
def _after(fault: str, size: str) -> Snapshot:
    gpus, envs, slots = SIZES[size]
    wait, _ = SHOWN[fault]
    begins = EARLY_S.get(fault, BEGINS_S)
    with TemporaryDirectory() as folder:
        out = Path(folder) / "sim"
        command = [sys.executable, "-m", "overwatch.cli", "simulate", "--gpus", gpus, "--envs", envs]
        command += ["--slots", slots, "--seconds", str(begins + wait + 5), "--seed", "5"]
        subprocess.run(
            [*command, "--fault", f"{fault}@{begins}", "--out", str(out)], check=True, capture_output=True
        )
        look = [sys.executable, "-m", "overwatch.cli", "replay", str(out), "--at", str(begins + wait)]
        line = subprocess.run(look, check=True, capture_output=True).stdout
    return codec.decode(line)


def test_every_fault_is_expected() -> None:
    """A fault that the simulator learns needs a line here."""
    assert set(SHOWN) == set(FAULTS)


@pytest.mark.parametrize("screen", [(120, 40), (80, 24)], ids=["120x40", "80x24"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("fault", SHOWN)
def test_the_offender_is_on_the_first_screen(fault: str, size: str, screen: tuple[int, int]) -> None:
    """Without a key press the text names what is wrong and how bad it is."""
    if fault in ONE_LANE and size.startswith("1x"):
        pytest.skip(f"{fault} is defined between lanes, and this size has one")
    text = once(_after(fault, size), "text", *screen)

    assert re.search(SHOWN[fault][1], text), text


@pytest.mark.parametrize("size", SIZES)
def test_a_healthy_run_is_calm(size: str, tmp_path: Path) -> None:
    """Two minutes without a fault: no finding in any recorded snapshot."""
    gpus, envs, slots = SIZES[size]
    out = tmp_path / "sim"
    command = [sys.executable, "-m", "overwatch.cli", "simulate", "--gpus", gpus, "--envs", envs]
    subprocess.run(
        [*command, "--slots", slots, "--seconds", "120", "--seed", "7", "--out", str(out)],
        check=True, capture_output=True,
    )  # fmt: skip
    lines = (out / "snapshots.jsonl").read_bytes().splitlines()
    found = {finding.id: finding.message for line in lines for finding in codec.decode(line).findings}

    assert len(lines) >= 120
    assert found == {}


@pytest.mark.parametrize(
    ("fault", "code"), [("cull-storm", "cull-storm"), ("reward-collapse", "reward-collapse")]
)
def test_a_storm_that_goes_on_never_becomes_usual(fault: str, code: str, tmp_path: Path) -> None:
    """Once told, the finding stands in every later snapshot while its cause lasts."""
    out = tmp_path / "sim"
    command = [
        sys.executable,
        "-m",
        "overwatch.cli",
        "simulate",
        "--gpus",
        "2",
        "--envs",
        "32",
        "--slots",
        "6",
    ]
    command += ["--seconds", "150", "--seed", "5", "--fault", f"{fault}@50", "--out", str(out)]
    subprocess.run(command, check=True, capture_output=True)
    lines = [codec.decode(line) for line in (out / "snapshots.jsonl").read_bytes().splitlines()[:-1]]
    told = [any(f.code == code and f.cleared_at is None for f in snapshot.findings) for snapshot in lines]
    first = told.index(True)

    assert 50 < first < 90
    assert all(told[first:])
