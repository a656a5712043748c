"""Pages: the list of runs and the list of findings, and what is chosen or acknowledged from them."""

import msgspec
import pytest

from overwatch.feeds.live import Listed
from overwatch.snapshot import RunLine
from overwatch.tui.context import Page
from overwatch.tui.keys import Mode
from tests.overwatch.tui import scenario
from tests.overwatch.tui.pressing import Terminal

HERE, THERE = "ws://127.0.0.1:4380", "ws://10.0.0.2:4380"


def _line(run_id: str, **fields: object) -> Listed:
    reported = {"newest": False, "state": "live", "severity": "ok", "text": "all well", "time": 1.0, **fields}
    collector = str(reported.pop("collector", HERE))
    return Listed(collector=collector, run=msgspec.convert({"run_id": run_id, **reported}, RunLine))


def _runs() -> tuple[Listed, ...]:
    return (
        _line("ant-3", task="isaac-ant", algo="ppo", update=12, n_envs=32768, data_age_s=0.2),
        _line("digits-0712", severity="critical", text="gpu1 is throttled", update=312, collector=THERE),
        Listed(collector="ws://10.0.0.3:4380", reason="connection refused"),
    )


def _listing(width: int = 120) -> Terminal:
    """The list of runs over a storm."""
    terminal = Terminal(scenario.storm(), width)
    terminal.session.ui.runs = _runs()
    terminal.press("R")
    return terminal


@pytest.mark.parametrize("width", [80, 120])
def test_the_list_shows_every_run_and_every_silent_collector(width: int) -> None:
    """With state, update, size and verdict; the watched one is marked and under the cursor."""
    terminal = _listing(width)
    assert terminal.session.mode is Mode.RUNS
    assert "2 runs" in terminal.screen
    watched = next(line for line in terminal.lines if "digits-0712" in line and line.startswith(">"))
    assert " * digits-0712" in watched
    assert "CRIT" in watched
    other = next(line for line in terminal.lines if "ant-3" in line)
    assert "LIVE 0.2s" in other
    assert "32,768" in other
    assert "connection refused" in terminal.screen
    assert {len(line) for line in terminal.lines} == {width}


def test_an_archived_run_is_marked_and_can_be_gone_to() -> None:
    """It is in the list like any other, with the word before its verdict; a living one has no such word."""
    terminal = Terminal(scenario.storm(), 120)
    over = _line("old-7", state="ended", outcome="completed", archived=True, data_age_s=86_400.0)
    terminal.session.ui.runs = (over, *_runs())
    terminal.press("R")
    marked = [line for line in terminal.lines if "archived" in line]
    assert len(marked) == 1
    assert "old-7" in marked[0]
    assert "COMPLETED 1d" in marked[0]
    terminal.press("k", "k", "enter")
    assert terminal.session.requests.going == over


def test_enter_goes_to_the_run_under_the_cursor() -> None:
    """And closes the list; a collector that does not answer is not gone to."""
    terminal = _listing()
    terminal.press("k", "enter")
    assert terminal.session.requests.going == _runs()[0]
    assert terminal.session.mode is Mode.BOARD
    terminal = _listing()
    terminal.press("j", "j", "enter")
    assert terminal.session.requests.going is None
    assert "does not answer: connection refused" in terminal.lines[-1]


def test_the_next_run_is_one_key_away_and_comes_round() -> None:
    """Silent collectors are passed over; alone there is no other."""
    terminal = Terminal(scenario.storm())
    terminal.session.ui.runs = _runs()
    terminal.press("N")
    assert terminal.session.requests.going == _runs()[0]
    terminal.session.ui.runs = _runs()[1:]
    terminal.press("N")
    assert "no other run" in terminal.lines[-1]


def test_a_run_is_chosen_by_name() -> None:
    """A command; a name that is none states which there are."""
    terminal = Terminal(scenario.storm())
    terminal.session.ui.runs = _runs()
    terminal.press("colon")
    terminal.type("run ant-3")
    terminal.press("enter")
    assert terminal.session.requests.going == _runs()[0]
    terminal.press("colon")
    terminal.type("run ant-4")
    terminal.press("enter")
    assert "no run is called 'ant-4'; did you mean ant-3?" in terminal.lines[-1]


def test_the_findings_page_lists_all_with_the_next_step_of_one() -> None:
    """Open, acknowledged and cleared ones; Enter opens what the one under the cursor is about."""
    terminal = Terminal(scenario.storm())
    terminal.press("A")
    findings = scenario.storm().findings
    assert terminal.session.mode is Mode.FINDINGS
    assert all(finding.message[:40] in terminal.screen for finding in findings)
    assert findings[0].hint[:40] in terminal.screen
    terminal.press("j")
    assert findings[1].hint[:40] in terminal.screen
    terminal.press("enter")
    assert terminal.session.ui.page is None
    assert terminal.session.view.env_id == 17


def test_a_acknowledges_what_is_under_the_cursor_or_open() -> None:
    """In the list, in the drawer, on the board for the env of the cursor; else it lists them."""
    findings = scenario.storm().findings
    listed = Terminal(scenario.storm())
    listed.press("A", "j", "a")
    assert listed.session.requests.acknowledging == findings[1].id
    opened = Terminal(scenario.storm())
    opened.press("1", "a")
    assert opened.session.requests.acknowledging == findings[0].id
    board = Terminal(scenario.storm())
    board.press("j")
    board.session.board.cursor = 17
    board.press("a")
    assert board.session.requests.acknowledging == findings[1].id
    nowhere = Terminal(scenario.storm())
    nowhere.session.board.cursor = 22
    nowhere.press("a")
    assert nowhere.session.ui.page is Page.FINDINGS
    assert nowhere.session.requests.acknowledging is None


def test_escape_leaves_every_page() -> None:
    """Never trapped; and the same key closes what it opened."""
    for key in ("R", "A"):
        terminal = Terminal(scenario.storm())
        terminal.press(key, "escape")
        assert terminal.session.mode is Mode.BOARD
        terminal.press(key, key)
        assert terminal.session.mode is Mode.BOARD
