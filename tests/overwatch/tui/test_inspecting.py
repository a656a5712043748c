"""More about one thing: a lane, a seed, a line; marks, the heatmap, the clipboard, a picture."""

from pathlib import Path

import msgspec
import pytest

from overwatch.snapshot import Anomaly, Snapshot
from overwatch.tui.actions.board import open_env
from overwatch.tui.commands import press
from overwatch.tui.context import LaneAt
from overwatch.tui.keys import Mode
from overwatch.tui.memory import MOST_ENVS, SAMPLES, Heat
from overwatch.tui.panels.drawer import written
from tests.overwatch.tui import drawers, scenario
from tests.overwatch.tui.pressing import Terminal


def _later(snapshot: Snapshot, seconds: float) -> Snapshot:
    return msgspec.structs.replace(snapshot, time=snapshot.time + seconds)


@pytest.mark.parametrize("width", [80, 120])
def test_i_shows_all_that_is_known_of_the_lane_under_the_cursor(width: int) -> None:
    """Envs, memory, power, clocks, and what holds it back; Escape closes it."""
    terminal = Terminal(scenario.storm(), width)
    terminal.session.board.cursor = 17
    terminal.press("i")
    assert "lane gpu1" in terminal.screen
    assert "1140 of 1,980 MHz" in terminal.screen.replace("1,140", "1140")
    assert "THROTTLED" in terminal.screen
    assert {len(line) for line in terminal.lines} == {width}
    terminal.press("escape")
    assert terminal.session.mode is Mode.BOARD


def test_the_dips_of_a_lane_are_shown_where_they_are_known() -> None:
    """Their share of a minute and how long they are; of a lane without them there is no line."""
    storm = scenario.storm()
    lanes = tuple(
        msgspec.structs.replace(lane, dip_share=0.31, dip_p95_s=0.85) if lane.gpu_id == "gpu0" else lane
        for lane in storm.system.gpus
    )
    terminal = Terminal(
        msgspec.structs.replace(storm, system=msgspec.structs.replace(storm.system, gpus=lanes))
    )
    terminal.session.board.cursor = LaneAt("gpu0")
    terminal.press("i")
    assert "below 50% for 31% of a minute, p95 850.0 ms" in terminal.screen
    terminal.press("escape")
    terminal.session.board.cursor = 17
    terminal.press("i")
    assert "below 50%" not in terminal.screen


def test_a_closed_lane_can_be_inspected() -> None:
    """The cursor on its fold."""
    terminal = Terminal(scenario.storm())
    terminal.session.board.cursor = LaneAt("gpu0")
    terminal.press("i")
    assert "lane gpu0" in terminal.screen


def test_i_in_the_drawer_goes_from_slot_to_slot() -> None:
    """Stage, blueprint, age, gate and what became of it; Escape goes back to the env."""
    terminal = Terminal(drawers.opened())
    open_env(terminal.session, 9)
    terminal.press("i")
    assert "env 9 · r0c0" in terminal.screen
    assert "TRAINING conv_small" in terminal.screen
    terminal.press("i", "i", "i", "i")
    assert "env 9 · r1c1" in terminal.screen
    assert "BLENDING>PRUNED" in terminal.screen
    terminal.press("escape")
    assert "why" in terminal.screen
    assert terminal.session.view.env_id == 9


def test_i_on_a_line_of_the_feed_shows_every_field() -> None:
    """Whole, with the date."""
    terminal = Terminal(scenario.storm())
    terminal.press("l", "k", "k", "i")
    line = scenario.storm().feed[-2]
    assert f"line · {'CRIT' if line.severity == 'critical' else 'WARN'}" in terminal.screen
    assert all(value[:40] in terminal.screen for value in line.fields.values())


def test_marked_envs_are_starred_and_shown_alone() -> None:
    """M again shows all; without a mark it states how to make one."""
    terminal = Terminal(scenario.storm())
    terminal.press("M")
    assert "m marks" in terminal.lines[-1]
    terminal.session.board.cursor = 9
    terminal.press("m")
    assert any("   9*" in line for line in terminal.lines)
    terminal.press("M")
    assert terminal.session.view.filter == "env=9"
    terminal.press("M")
    assert terminal.session.view.filter == ""
    terminal.press("m")
    assert not any("   9*" in line for line in terminal.lines)


@pytest.mark.parametrize("width", [80, 120, 200])
def test_the_heatmap_has_a_row_an_env_and_its_newest_second_at_the_right(width: int) -> None:
    """The crashed env's cell is full from the second on in which it crashed; zoom widens the time."""
    storm = scenario.storm()
    calm = msgspec.structs.replace(
        storm,
        envs=tuple(
            msgspec.structs.replace(env, status="ok", anomaly=msgspec.structs.replace(env.anomaly, score=0.1))
            for env in storm.envs
        ),
    )
    terminal = Terminal(calm, width)
    for second in range(1, 6):
        terminal.take(_later(calm, second))
    terminal.take(_later(storm, 6))
    terminal.press("H")
    assert "HEATMAP" in terminal.screen
    row = next(line for line in terminal.lines if "CRSH" in line)
    assert row.rstrip().endswith("▁▁▁▁▁▁█")
    assert {len(line) for line in terminal.lines} == {width}
    terminal.press("minus")
    assert "one cell 2s" in terminal.screen
    terminal.press("j", "enter")
    assert terminal.session.mode in (Mode.DRAWER, Mode.FULL)
    terminal.press("escape", "H")
    assert "HEATMAP" not in terminal.screen


def test_heat_is_bounded_and_starts_anew_with_another_run_or_an_earlier_time() -> None:
    """So many seconds of so many envs, whatever comes."""
    storm, heat = scenario.storm(), Heat()
    for second in range(SAMPLES + 50):
        heat.take(_later(storm, second))
    now = int(storm.time) + SAMPLES + 49
    assert sum(one is not None for one in heat.of(17, now, 10 * SAMPLES)) == SAMPLES
    many = tuple(msgspec.structs.replace(storm.envs[0], env_id=i) for i in range(MOST_ENVS + 10))
    heat.take(msgspec.structs.replace(_later(storm, SAMPLES + 60), envs=many))
    assert sum(heat.of(i, now + 20, 60) != (None,) * 60 for i in range(MOST_ENVS + 10)) == MOST_ENVS
    heat.take(storm)
    assert sum(one is not None for one in heat.of(17, int(storm.time), 60)) == 1


def test_a_longer_cell_shows_the_worst_of_its_time_and_reaches_further_back() -> None:
    """A crash of one second is seen from an hour away."""
    storm, heat = scenario.storm(), Heat()
    calm = msgspec.structs.replace(storm.envs[0], anomaly=Anomaly(score=0.1), status="ok")
    base = int(storm.time) // 60 * 60
    for second in range(0, 3600, 5):
        env = storm.envs[0] if second == 600 else calm
        heat.take(msgspec.structs.replace(storm, time=float(base + second), envs=(env,)))
    cells = heat.of(calm.env_id, base + 3599, 60, 60)
    assert [one.status for one in cells if one is not None] == ["ok"] * 10 + ["crashed"] + ["ok"] * 49
    assert heat.of(calm.env_id, base + 3599, 240, 1).count(None) == 240 - 48


def test_what_is_copied_is_what_is_open_without_its_box() -> None:
    """Plain text, and no control but line ends."""
    terminal = Terminal(drawers.opened())
    open_env(terminal.session, 9)
    terminal.paint()
    assert terminal.session.shown is not None
    text = written(terminal.session.shown, terminal._context(terminal.session.shown))
    assert text.startswith("env 9")
    assert "gradient" in text
    assert not set(text) & set("│┌└")
    assert all(letter.isprintable() or letter == "\n" for letter in text)


def test_copy_and_screenshot_reach_the_terminal(tmp_path: Path) -> None:
    """The clipboard gets the text; the file the picture; a place that is no file is reported."""
    from tests.overwatch.tui.test_app import Desk, Pilot, _opened, _run, _shows

    async def steps(pilot: Pilot[int], desk: Desk) -> None:
        await _opened(pilot, desk)
        await pilot.press("enter", "y")
        await _shows(pilot, "copied")
        assert pilot.app.clipboard.startswith("env 17")
        file = tmp_path / "shot.svg"
        for target in (file, file / "shot.svg"):
            await pilot.press("colon")
            for letter in f"screenshot {target}":
                press(pilot.app.session, letter, letter, 0.0)  # type: ignore[attr-defined]  # our own app
            await pilot.press("enter")
            await _shows(pilot, "written: " if target is file else "cannot be written")
        assert "<svg" in file.read_text()

    _run(steps)
