"""Commands: what is typed after a colon, what Tab makes of it, and what is stated when it cannot be done."""

import re

import pytest

from overwatch.tui import commands
from overwatch.tui.keys import Mode
from overwatch.tui.prompt import Vocabulary
from tests.overwatch.tui import scenario
from tests.overwatch.tui.pressing import Terminal


def _typed(text: str, width: int = 120) -> Terminal:
    """A storm on the screen, and a command."""
    terminal = Terminal(scenario.storm(), width)
    terminal.press("colon")
    terminal.type(text)
    return terminal


def _done(text: str) -> Terminal:
    terminal = _typed(text)
    terminal.press("enter")
    return terminal


def test_the_palette_lists_every_command_with_what_it_does() -> None:
    """A colon or Ctrl+P opens it; commands of recordings are not among those of a live run."""
    for key in ("colon", "ctrl+p"):
        terminal = Terminal(scenario.storm(), height=80)
        terminal.press(key)
        offered = [candidate.word.strip() for candidate in terminal.session.ui.prompt.candidates]  # type: ignore[union-attr]  # it is open
        assert {"env", "sort", "filter", "help", "quit"} <= set(offered)
        assert not {"seek", "play"} & set(offered)
        assert "open an environment" in terminal.screen


def test_a_command_whose_words_have_no_room_ends_in_an_ellipsis() -> None:
    """On a narrow terminal too, nothing ends in the middle of a word unmarked."""
    terminal = Terminal(scenario.storm(), 80, 24)
    terminal.press("colon")
    offered = [line for line in terminal.lines if re.match(r"  [a-z]+ {9,}[A-Z]", line)]

    assert len(offered) > 3
    assert all(line.rstrip().endswith("…") or len(line.rstrip()) < 80 for line in offered)
    assert any(line.rstrip().endswith("…") for line in offered)


@pytest.mark.parametrize("command", commands.COMMANDS, ids=lambda command: command.name)
def test_every_command_states_what_it_does_and_is_offered_by_its_beginning(command: commands.Command) -> None:
    """In a recording or live, wherever it has a meaning."""
    known = Vocabulary(replay=command.replay)
    offered = commands.complete(command.name[:2], known)
    assert command.name in [one.word.strip() for one in offered]
    assert command.does


def test_tab_takes_what_the_word_may_become_and_arrows_go_to_another() -> None:
    """First names, then what a name takes: here lanes and columns of this run."""
    terminal = _typed("so")
    terminal.press("tab")
    assert terminal.session.ui.prompt.text == "sort "  # type: ignore[union-attr]
    terminal.press("down", "down", "tab")
    assert terminal.session.ui.prompt.text == "sort env"  # type: ignore[union-attr]
    terminal.press("enter")
    assert terminal.session.view.sort == "env"
    assert not terminal.session.view.descending


def test_enter_on_a_candidate_takes_and_does_it() -> None:
    """Without Tab."""
    terminal = _typed("lane ")
    terminal.press("down", "enter")
    assert terminal.session.mode is Mode.BOARD
    assert terminal.cursor in {env.env_id for env in scenario.storm().envs}


def test_the_beginning_of_a_name_is_enough_where_it_is_one_commands_alone() -> None:
    """Else both are named and nothing is done."""
    assert _done("e 9").session.ui.notice == "'e' may be env or errors"
    assert _done("en 9").session.view.env_id == 9


def test_each_command_does_its_work() -> None:
    """On the session, as its key would."""
    assert _done("sort return desc").session.view.descending
    assert _done("filter status=degraded gpu=0").session.view.filter == "status=degraded gpu=0"
    assert _done("search gate=G2").session.ui.search == "gate=G2"
    assert _done("alarm 2").session.view.env_id == 17
    assert _done("errors").session.ui.toggles == {"errors"}
    assert _done("help").session.mode is Mode.HELP
    assert _done("pause").session.ui.line == 0
    assert _done("quit").session.requests.leaving
    assert _done("set theme mono").session.settings.theme == "mono"
    assert _done("set utc").session.settings.clock == "utc"


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("flter x", "there is no command 'flter'; did you mean filter?"),
        ("sort retrn", "the board cannot be sorted by 'retrn'; did you mean return?"),
        ("sort env up", "a direction is asc or desc, not 'up'"),
        ("env nine", "an environment is a number, not 'nine'; e.g. env 17"),
        ("lane gpu7", "no lane is called 'gpu7'; did you mean gpu1?"),
        ("filter stge=pruned", "unknown key stge; did you mean stage=?"),
        ("set theem mono", "there is no setting 'theem'; did you mean theme?"),
        ("set theme red", "theme cannot be 'red'; there are auto, default, ansi, colour-blind, mono"),
        ("alarm 99", "there is no alarm 99"),
        ("seek 10s", "seek is for recordings"),
    ],
)
def test_what_cannot_be_done_names_the_word_and_what_there_is(text: str, stated: str) -> None:
    """On the last line, and nothing changes."""
    terminal = _done(text)
    assert terminal.session.ui.notice is not None
    assert terminal.session.ui.notice.startswith(stated)
    assert stated[:60] in terminal.lines[-1]
    assert terminal.session.view == Terminal(scenario.storm()).session.view


def test_a_wrong_name_is_shown_while_it_is_typed() -> None:
    """Before Enter."""
    assert "there is no command 'flt'" in _typed("flt").lines[-1]


def test_the_filter_prompt_completes_keys_and_values() -> None:
    """Statuses, lanes and blueprints of this run, also behind a comma and after `!`."""
    terminal = Terminal(scenario.storm())
    terminal.press("slash")
    terminal.type("sta")
    assert [one.word for one in terminal.session.ui.prompt.candidates] == ["status=", "stage="]  # type: ignore[union-attr]
    terminal.press("tab")
    terminal.type("cr")
    terminal.press("tab")
    terminal.type(" !gpu=gpu0,")
    terminal.press("tab")
    assert terminal.session.ui.prompt.text == "status=crashed !gpu=gpu0,gpu1"  # type: ignore[union-attr]
    assert terminal.session.view.filter == terminal.session.ui.prompt.text  # type: ignore[union-attr]


@pytest.mark.parametrize("width", [80, 120])
def test_choices_leave_the_frame_whole(width: int) -> None:
    """Every line is as wide as the terminal, and the prompt stays the last."""
    terminal = _typed("s", width)
    assert {len(line) for line in terminal.lines} == {width}
    assert terminal.lines[-1].startswith(": s")
    assert any(line.startswith("  sort ") for line in terminal.lines)
