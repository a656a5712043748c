"""Frames of a run that no longer speaks as usual: every cell, and what the first lines promise."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC
from pathlib import Path

import msgspec
import pytest

from overwatch.snapshot import Snapshot
from overwatch.tui import once
from overwatch.tui.context import Ui
from overwatch.tui.screen import overview
from overwatch.tui.text import plain
from tests.overwatch.tui import drawers, states

FRAMES = Path(__file__).parent / "frames"
SCENES: dict[str, Callable[[], Snapshot]] = {
    "stale": states.stale,
    "lost": states.lost,
    "ended": states.ended,
    "ended_sick": states.ended_sick,
    "failed": states.failed,
    "silent": states.silent,
    "catching_up": states.catching_up,
}


@pytest.mark.parametrize("size", ["", "_compact"])
@pytest.mark.parametrize("name", SCENES)
def test_the_frame_is_the_drawn_one(name: str, size: str) -> None:
    """Every cell of both layouts, stale, silent, lost, ended well or not, and catching up."""
    width, height = (80, 24) if size else (120, 40)
    frame = once(SCENES[name](), "text", width, height, zone=UTC)

    assert frame + "\n" == (FRAMES / f"{name}{size}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        (
            "stale",
            " CRIT  no telemetry for 14s; last record 12:41:09 from rank 0; process state unknown"
            + "everything below is 14s old".rjust(35),
        ),
        (
            "catching_up",
            " WARN  the collector was away for 5m02s; showing 12:36:19, catching up at 9x"
            + "no alarm is raised for the gap itself".rjust(43),
        ),
        ("ended", " OK  run completed after 312 updates"),
        (
            "ended_sick",
            " CRIT  completed; ended in policy collapse (open 1m36s) · thermal throttle on gpu1 (open 4m12s)"
            + "1 crit  1 warn".rjust(24),
        ),
        ("failed", " CRIT  FAILED: RuntimeError: CUDA error 700" + "1 crit".rjust(76)),
    ],
)
def test_the_verdict_is_the_sketch(name: str, line: str) -> None:
    """How long, since when, from which rank, and what that means for what is below."""
    assert once(SCENES[name](), "text", 120, 40, zone=UTC).split("\n")[2] == line


def test_a_lost_run_offers_its_recording_where_one_is_known() -> None:
    """`r` is promised only where it works; else the line has the counts."""
    lost = states.lost()
    stated = " CRIT  LOST: no end record, last phase update 312, last checkpoint 6m before the end"

    def verdict(*, recorded: bool) -> str:
        ctx = drawers.looking(lost, 120, 40, Ui(recorded=recorded))
        return plain(overview(lost, ctx).lines[2])

    assert verdict(recorded=True) == stated + "r replay ".rjust(120 - len(stated))
    assert verdict(recorded=False) == stated + "1 crit ".rjust(120 - len(stated))


def test_the_gap_itself_is_no_alarm() -> None:
    """The outage is a finding and not on the rail."""
    late = states.catching_up()
    frame = once(late, "text", 120, 40, zone=UTC)

    assert [finding.code for finding in late.findings] == ["collector-away"]
    assert any(line.startswith("─ ALARMS ─") and line.endswith(" none ─") for line in frame.split("\n"))


def test_a_moment_of_another_day_has_its_date() -> None:
    """A time of day alone would be taken for today's."""
    late = states.catching_up()
    tomorrow = msgspec.structs.replace(late, time=late.time + 86_400)
    ctx = replace(drawers.looking(tomorrow, 140, 40), zone=UTC)

    assert "showing 2026-07-12 12:36:19, catching" in plain(overview(tomorrow, ctx).lines[2])
