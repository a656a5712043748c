"""The mouse: a click goes to what it points at, a second one opens it, the wheel moves; off it is silent."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.events import MouseScrollDown
from textual.pilot import Pilot

from overwatch.tui.actions.board import open_env
from overwatch.tui.app import OverwatchApp
from overwatch.tui.commands import click, wheel
from overwatch.tui.context import Target
from overwatch.tui.keys import Mode
from tests.overwatch.tui import drawers, scenario
from tests.overwatch.tui.pressing import Terminal
from tests.overwatch.tui.ptys import in_order, running
from tests.overwatch.tui.test_app import Desk, _opened, _run, _screen, _under_cursor
from tests.overwatch.tui.test_paging import _runs
from tests.overwatch.tui.test_terminal import Collector, _terminal


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A running collector."""
    one = Collector()
    one.start()
    yield one
    one.end()


def _line(terminal: Terminal, *words: str) -> int:
    """The first line with all words."""
    return next(y for y, line in enumerate(terminal.lines) if all(word in line for word in words))


def _click(terminal: Terminal, y: int, x: int = 10) -> Target | None:
    target = terminal.frame.target(x, y)
    click(terminal.session, target, terminal.now)
    terminal.paint()
    return target


@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_click_selects_a_row_and_a_second_one_opens_it(width: int) -> None:
    """Every row of the board means its own env."""
    terminal = Terminal(scenario.storm(), width)
    for env_id in (9, 12, 30):
        assert _click(terminal, _line(terminal, f" {env_id} ", "DEGR")) == env_id
        assert terminal.under_cursor[1:].split()[0] == str(env_id)
    _click(terminal, _line(terminal, " 30 ", "DEGR"))
    assert terminal.session.view.env_id == 30


def test_an_open_drawer_follows_the_click_and_is_no_target_itself() -> None:
    """Left of its edge the rows, right of it nothing."""
    terminal = Terminal(drawers.opened())
    open_env(terminal.session, 9)
    terminal.paint()
    y = _line(terminal, " 12 DEGRADED")
    assert _click(terminal, y, x=terminal.frame.edge or 0) is None
    assert terminal.session.view.env_id == 9
    assert _click(terminal, y) == 12
    assert terminal.session.view.env_id == 12


def test_a_click_on_an_alarm_a_feed_line_and_a_lane() -> None:
    """An alarm opens; a line gets the feed's cursor, then its env opens; an open lane folds and unfolds."""
    terminal = Terminal(scenario.storm())
    _click(terminal, _line(terminal, "2 CRIT env 17"))
    assert terminal.session.view.env_id == 17
    terminal.press("escape")
    y = _line(terminal, "error='CUDA error 700'")
    _click(terminal, y)
    assert terminal.session.mode is Mode.FEED
    _click(terminal, _line(terminal, "error='CUDA error 700'"))
    assert terminal.session.view.env_id == 17
    terminal.press("escape")
    _click(terminal, _line(terminal, "▾ gpu1"))
    assert "▸ gpu1" in terminal.screen.replace(">", "▸")
    assert " 17 CRASHED" not in terminal.screen
    _click(terminal, _line(terminal, " gpu1 ", "32 env"))
    assert " 17 CRASHED" in terminal.screen


def test_clicks_on_pages_pick_and_choose() -> None:
    """The first click puts the cursor, the second does what Enter does."""
    terminal = Terminal(scenario.storm())
    terminal.session.ui.runs = _runs()
    terminal.press("R")
    _click(terminal, _line(terminal, "ant-3"))
    assert terminal.session.picked == 0
    _click(terminal, _line(terminal, "ant-3"))
    assert terminal.session.requests.going == _runs()[0]
    terminal.press("A")
    _click(terminal, _line(terminal, "crashed at step 88,214"))
    assert terminal.session.picked == 1
    assert _click(terminal, _line(terminal, " next")) is None
    terminal.press("A", "P")
    _click(terminal, _line(terminal, "entropy"))
    assert terminal.session.picked == 2
    assert _click(terminal, len(terminal.lines) - 5) is None


def test_what_is_no_target_does_nothing_and_no_click_reaches_through_help_or_a_prompt() -> None:
    """Titles, blanks, beyond the frame."""
    terminal = Terminal(scenario.storm())
    before = terminal.lines
    for y in (-1, 0, 2, 3, 8, 99):
        assert _click(terminal, y) is None
    assert terminal.lines == before
    for key in ("slash", "question_mark"):
        terminal.press(key)
        click(terminal.session, 9, terminal.now)
        assert terminal.session.board.cursor is None
        terminal.press("escape")


@pytest.mark.parametrize(
    ("keys", "mode"),
    [((), Mode.BOARD), (("l",), Mode.FEED), (("A",), Mode.FINDINGS), (("question_mark",), Mode.HELP)],
)
def test_the_wheel_moves_what_has_the_keys(keys: tuple[str, ...], mode: Mode) -> None:
    """Down and back up again is where it was."""
    terminal = Terminal(scenario.storm(), 120, 24)
    terminal.press(*keys)
    assert terminal.session.mode is mode
    before = terminal.lines
    wheel(terminal.session, -1 if mode is Mode.FEED else 1, terminal.now)
    terminal.paint()
    assert terminal.lines != before


def test_over_the_drawer_the_wheel_scrolls_its_text() -> None:
    """And over the board it goes to the next env."""
    terminal = Terminal(drawers.opened(), 120, 30)
    open_env(terminal.session, 9)
    terminal.paint()
    wheel(terminal.session, 1, terminal.now, drawer=True)
    terminal.paint()
    assert terminal.session.ui.scroll == 3
    assert terminal.session.view.env_id == 9
    wheel(terminal.session, 1, terminal.now)
    assert terminal.session.view.env_id != 9


def test_textual_hands_clicks_and_the_wheel_to_the_session() -> None:
    """Through the application."""

    async def steps(pilot: Pilot[int], desk: Desk) -> None:
        await _opened(pilot, desk)
        app = pilot.app
        assert isinstance(app, OverwatchApp)
        y = next(y for y, line in enumerate(_screen(pilot).split("\n")) if " 12 DEGRADED" in line)
        await pilot.click(offset=(8, y))
        assert _under_cursor(pilot) == 12
        await pilot._post_mouse_events([MouseScrollDown], offset=(8, y), button=0)
        while _under_cursor(pilot) == 12:
            await pilot.pause(0.01)

    _run(steps)


def test_the_terminal_reports_clicks_and_no_movement_and_is_left_in_order(collector: Collector) -> None:
    """A click in the terminal's own words selects the row; after q nothing is reported any more."""
    with _terminal(collector.port) as terminal:
        terminal.until("FLIGHT BOARD", "LIVE", "12 DEGRADED")
        assert b"\x1b[?1000h" in terminal.written
        assert b"\x1b[?1003h" not in terminal.written
        row = _line(Terminal(scenario.storm()), " 12 DEGRADED") + 1
        here = terminal.press(f"\x1b[<0;10;{row}M\x1b[<0;10;{row}m")
        here = terminal.until(">   12 DEGRADED", since=here)
        terminal.press(f"\x1b[<0;10;{row}M\x1b[<0;10;{row}m")
        here = terminal.until("┌ env 12", since=here)
        here = terminal.press(":set mouse off\r")
        terminal.until("mouse is off", since=here)
        assert b"\x1b[?1000l" in terminal.written[here:]
        os.write(terminal.master, b"q")
        assert terminal.exit_code() == 0
        assert in_order(terminal)


def test_off_by_the_settings_it_never_asks_for_the_mouse(collector: Collector, tmp_path: Path) -> None:
    """So that the terminal's own selection works."""
    file = tmp_path / "tui.yaml"
    file.write_text("mouse: off\n")
    program = "import sys; from overwatch.tui import run_tui, settings; "
    program += "sys.exit(run_tui(sys.argv[1:], None, settings.read()))"
    command = [sys.executable, "-c", program, f"ws://127.0.0.1:{collector.port}"]
    with running(command, OVERWATCH_TUI_CONFIG=str(file)) as terminal:
        terminal.until("FLIGHT BOARD", "LIVE")
        os.write(terminal.master, b"q")
        assert terminal.exit_code() == 0
        assert b"\x1b[?1000h" not in terminal.written
