"""Every key: what it opens, moves, asks for, and that there is always a way back."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overwatch.snapshot import Anomaly, Snapshot
from overwatch.tui.commands import paste, press
from overwatch.tui.context import LaneAt
from overwatch.tui.keys import KEYS, Mode, known
from tests.overwatch.tui import drawers, scenario
from tests.overwatch.tui.pressing import Terminal

_NO_SLOT_WORDS = ("slot", "seed", "rent ", "germinat", "fossil", "cull", "blueprint", "stage")


def _terminal(width: int = 120, height: int = 40) -> Terminal:
    return Terminal(drawers.opened(), width, height)


@pytest.mark.parametrize("closing", ["enter", "escape", "g"])
@pytest.mark.parametrize(("width", "height"), [(120, 40), (80, 24)])
def test_enter_opens_the_env_under_the_cursor(closing: str, width: int, height: int) -> None:
    """The view asks for its detail; Enter, Esc and g close it again."""
    terminal = _terminal(width, height)
    first = terminal.session.board.walk[0]
    terminal.press("enter")

    assert terminal.session.view.env_id == first == 17
    assert f"env {first} · gpu1" in terminal.screen
    terminal.press(closing)
    assert terminal.session.view.env_id is None
    assert terminal.session.mode is Mode.BOARD


def test_the_drawer_follows_the_cursor() -> None:
    """The keys of the board move the board beside it."""
    terminal = _terminal()
    terminal.press("enter", "j", "j", "j")

    assert terminal.session.view.env_id == 9
    assert "┌ env 9 · gpu0 · DEGRADED 6.2 · 2nd of 64 " in terminal.screen
    assert terminal.under_cursor.startswith(">    9 ")


def test_n_and_p_walk_over_what_is_not_ok() -> None:
    """In the board's order, round at the ends; OK rows are passed over."""
    terminal = _terminal()
    terminal.press("enter")
    seen = []
    for _ in range(6):
        terminal.press("n")
        seen.append(terminal.session.view.env_id)
    terminal.press("p")

    assert seen == [9, 12, 30, 3, 27, 17]
    assert terminal.session.view.env_id == 27


def test_f_makes_the_drawer_full_and_back() -> None:
    """On the full screen j scrolls its text."""
    terminal = _terminal(120, 24)
    terminal.press("enter", "n", "f")

    assert terminal.session.mode is Mode.FULL
    assert "more lines: j" in terminal.screen
    before = terminal.lines
    terminal.press("j")
    assert terminal.lines != before
    terminal.press(*["j"] * 30)
    assert "the end" in terminal.screen
    terminal.press("f")
    assert terminal.session.mode is Mode.DRAWER


def test_s_goes_through_the_sorts_and_capital_s_turns_one_round() -> None:
    """Anomaly, env, return, fps, metric; each begins with what is worth seeing first."""
    terminal = _terminal()
    seen = []
    for _ in range(5):
        terminal.press("s")
        view = terminal.session.view
        seen.append((view.sort, view.descending))

    assert seen == [("env", False), ("return", False), ("fps", False), ("metric", False), ("anomaly", True)]
    terminal.press("S")
    assert terminal.session.view.descending is False


def test_the_title_shows_which_sort_and_which_way() -> None:
    """The snapshot's own words."""
    terminal = _terminal()
    board = msgspec.structs.replace(scenario.BOARD, sort="return", direction="asc")
    terminal.take(msgspec.structs.replace(drawers.opened(), board=board))

    assert "sort return ^ · filter none" in terminal.screen


def test_a_sort_is_only_of_what_the_run_reports() -> None:
    """Without episodes and without a metric there are fewer stops."""
    full = scenario.storm()
    board = msgspec.structs.replace(full.board, columns=("reward",))
    terminal = Terminal(msgspec.structs.replace(full, board=board))
    seen = []
    for _ in range(3):
        terminal.press("s")
        seen.append(terminal.session.view.sort)

    assert seen == ["env", "reward", "anomaly"]


def test_the_filter_is_asked_for_while_it_is_typed() -> None:
    """What cannot be read yet keeps the last filter that could; Enter keeps it, Esc on the board drops it."""
    terminal = _terminal()
    terminal.press("/")
    terminal.type("gpu=0")
    assert terminal.session.view.filter == "gpu=0"
    terminal.type(" stge=pruned")
    assert terminal.session.view.filter == "gpu=0 stge"
    assert "did you mean stage=?" in terminal.lines[-1]
    assert "FLIGHT BOARD" in terminal.screen
    terminal.press("ctrl+w", "enter")
    assert terminal.session.view.filter == "gpu=0"
    assert terminal.session.mode is Mode.BOARD
    terminal.press("escape")
    assert terminal.session.view.filter == ""


def test_escape_in_the_prompt_brings_the_old_filter_back() -> None:
    """As if it had never been opened."""
    terminal = _terminal()
    terminal.press("/")
    terminal.type("gpu=0")
    terminal.press("enter", "/")
    terminal.type(" status=ok")
    terminal.press("escape")

    assert terminal.session.view.filter == "gpu=0"


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        (["a", "b", "left", "c"], "acb"),
        (["a", "b", "home", "delete"], "b"),
        (["a", "b", "backspace"], "a"),
        (["a", "space", "b", "ctrl+w"], "a"),
        (["a", "b", "left", "ctrl+u"], "b"),
        (["a", "home", "right", "end", "b"], "ab"),
        (["q", "j", "1"], "qj1"),
    ],
)
def test_the_prompt_can_be_edited(keys: list[str], text: str) -> None:
    """Keys of the board type themselves here."""
    terminal = _terminal()
    terminal.press("/")
    for key in keys:
        press(terminal.session, key, " " if key == "space" else key if len(key) == 1 else None, terminal.now)
    terminal.paint()

    assert terminal.session.view.filter == text
    assert not terminal.session.requests.leaving


def test_text_can_be_pasted_into_the_prompt() -> None:
    """Without its controls."""
    terminal = _terminal()
    terminal.press("/")
    paste(terminal.session, "gpu=0\n\x1b")
    paste(terminal.session, " x")

    assert terminal.session.view.filter == "gpu=0 x"


def test_digits_open_what_an_alarm_is_about() -> None:
    """An env its drawer; a lane its finding, with the cursor on its worst env; the policy its value."""
    terminal = _terminal()
    terminal.press("2")
    assert terminal.session.view.env_id == 17
    terminal.press("3")
    assert "WARN · gpu0 · cull-storm" in terminal.screen
    assert terminal.session.board.cursor == 9
    terminal.press("4")
    assert "WARN · policy · policy-kl" in terminal.screen
    terminal.press("9")
    assert "there is no alarm 9" in terminal.lines[-1]


@pytest.mark.parametrize("number", ["1", "2", "3"])
def test_each_cause_opens_with_one_key_at_80_by_24(number: str) -> None:
    """A full screen that states what to do next."""
    terminal = Terminal(scenario.storm(), 80, 24)
    terminal.press(number)

    assert terminal.session.mode is Mode.FULL
    assert "Esc back" in terminal.screen


def test_o_folds_a_lane_and_enter_opens_it() -> None:
    """The cursor stays on the lane, so that the same key brings it back."""
    terminal = _terminal()
    terminal.press("o")

    assert terminal.session.board.cursor == LaneAt("gpu1")
    assert terminal.under_cursor.startswith("> gpu1")
    assert "env 17" not in terminal.screen.split("FLIGHT BOARD")[1].split("seeds")[0]
    terminal.press("enter")
    assert "▾ gpu1" in terminal.screen
    terminal.press("g", "o", "o")
    assert "▾ gpu1" in terminal.screen


def test_lanes_that_are_closed_for_want_of_room_can_be_opened() -> None:
    """The cursor reaches them after the rows."""
    terminal = Terminal(scenario.huge())
    place = terminal.session.board.walk[-1]
    assert isinstance(place, LaneAt)
    terminal.session.board.cursor = place
    terminal.paint()
    terminal.press("enter")

    assert terminal.session.ui.folds == {place.gpu_id: True}


def test_the_feed_takes_the_keys_and_gives_them_back() -> None:
    """l, e, Tab and Esc; the feed has more room while it has the keys."""
    terminal = _terminal()
    rows = sum(" 12:4" in line for line in terminal.lines)
    terminal.press("l")
    assert terminal.session.mode is Mode.FEED
    assert sum(" 12:4" in line for line in terminal.lines) > rows
    terminal.press("e")
    assert terminal.session.mode is Mode.BOARD
    terminal.press("tab", "tab", "tab")
    assert terminal.session.mode is Mode.FEED
    terminal.press("escape")
    assert terminal.session.mode is Mode.BOARD


@pytest.mark.parametrize(
    ("toggles", "kept", "gone"),
    [
        ("1", "crashed", "BLENDING>PRUNED"),
        ("2", "BLENDING>PRUNED", "crashed"),
        ("3", "update=312", "BLENDING>PRUNED"),
        ("12", "crashed", "simic    update=3120"),
    ],
)
def test_the_feed_shows_only_what_is_toggled(toggles: str, kept: str, gone: str) -> None:
    """Errors, seeds, policy, or several; again, and all are back."""
    terminal = Terminal(scenario.storm())
    terminal.press("l", *toggles)
    feed = terminal.screen.split("─ FEED")[1]

    assert kept in feed
    assert gone not in feed
    terminal.press(*toggles)
    assert "[all]" in terminal.screen


def test_the_feed_can_be_searched() -> None:
    """Words and ids; Esc shows all again, then gives the keys back."""
    terminal = Terminal(scenario.storm())
    terminal.press("l", "/")
    terminal.type("env=9 g2")
    terminal.press("enter")
    feed = terminal.screen.split("─ FEED")[1]

    assert feed.count("env=9") == 2, "the search itself, and one line"
    assert "env=44" not in feed
    terminal.press("escape")
    assert "env=44" in terminal.screen.split("─ FEED")[1]
    assert terminal.session.mode is Mode.FEED
    terminal.press("escape")
    assert terminal.session.mode is Mode.BOARD


def test_enter_on_a_line_of_the_feed_goes_to_its_env() -> None:
    """The keys are the drawer's then."""
    terminal = Terminal(scenario.storm())
    terminal.press("l", "k", "k", "enter")

    assert terminal.session.view.env_id == 17
    assert terminal.session.mode is Mode.DRAWER


def test_a_line_under_the_cursor_stays_there_when_lines_come() -> None:
    """It is a line and not a row; following begins again past the newest."""
    full = scenario.storm()
    terminal = Terminal(full)
    terminal.press("l", "k", "k")
    more = tuple(
        msgspec.structs.replace(full.feed[0], time=scenario.NOW + i, seed_id=f"n{i}") for i in range(3)
    )
    terminal.take(msgspec.structs.replace(full, time=full.time + 1, feed=(*full.feed, *more)))

    assert terminal.session.ui.line == 4
    assert "4 newer below" in terminal.screen
    terminal.press(*["j"] * 5)
    assert "following" in terminal.screen


def test_the_order_is_held_for_two_seconds_after_a_key() -> None:
    """Values go on changing; the title shows held; then the new order shows, and the cursor is on its env."""
    full = drawers.opened()
    terminal = Terminal(full)
    terminal.press("j", "j", "j")
    assert terminal.session.board.cursor == 9
    calmer = {9: Anomaly(score=0.1), 27: Anomaly(score=9.9)}
    envs = [msgspec.structs.replace(env, anomaly=calmer.get(env.env_id, env.anomaly)) for env in full.envs]
    envs.sort(key=lambda env: (env.gpu_id != "gpu1", -env.anomaly.score))
    moved = msgspec.structs.replace(full, time=full.time + 1, envs=tuple(envs))
    row = terminal.lines.index(terminal.under_cursor)
    terminal.now += 1.9
    terminal.take(moved)
    assert " · held · " in terminal.screen
    assert terminal.lines.index(terminal.under_cursor) == row
    assert "27 DEGRADED  9.9" in terminal.screen
    terminal.now += 0.2
    terminal.take(moved)
    assert "held" not in terminal.screen
    assert terminal.session.board.cursor == 9
    assert "27 DEGRADED  9.9" in terminal.lines[terminal.lines.index(next(
        line for line in terminal.lines if line.startswith("▾ gpu0"))) + 1]  # fmt: skip


def test_another_run_closes_what_was_open() -> None:
    """Its envs are not those of the run before."""
    terminal = _terminal()
    terminal.press("j", "enter")
    other = msgspec.structs.replace(scenario.storm(), run=msgspec.structs.replace(scenario.RUN, run_id="b"))
    terminal.take(other)

    assert terminal.session.mode is Mode.BOARD
    assert terminal.session.board.cursor is None


def test_help_is_made_from_the_key_table() -> None:
    """Every key that the run has is somewhere on the page, with the filter and the sort in force."""
    terminal = Terminal(drawers.opened(), 120, 60)
    terminal.press("/")
    terminal.type("gpu=0")
    terminal.press("enter", "question_mark")

    missing = [key.does for key in known(slots=True, replay=False) if key.does not in terminal.screen]
    assert missing == []
    assert "sort anomaly, falling" in terminal.screen
    terminal.press("tab")
    assert "◑ BLENDING" in terminal.screen


def test_a_run_without_slots_has_no_word_about_them_anywhere() -> None:
    """Overview, drawer, feed, help, prompt with its errors, in both layouts."""
    for width, height in ((120, 60), (80, 24)):
        terminal = Terminal(scenario.without_slots(), width, height)
        seen = [terminal.screen]
        for keys in (("enter",), ("f",), ("escape",), ("l",), ("escape",), ("question_mark",)):
            terminal.press(*keys)
            seen.append(terminal.screen)
        for _ in range(12):
            terminal.press("pagedown")
            seen.append(terminal.screen)
        terminal.press("escape", "g", "/")
        terminal.type("zzz=1")
        seen.append(terminal.screen)
        found = [
            word for word in _NO_SLOT_WORDS for text in seen if word in text.lower().replace("current ", "")
        ]
        assert found == []


_PRESSES = st.lists(
    st.sampled_from([name for key in KEYS for name in key.names if name not in ("q", "ctrl+c")] + ["x", "="]),
    max_size=25,
)


@settings(deadline=None)
@given(keys=_PRESSES, small=st.booleans(), jitter=st.randoms(use_true_random=False))
def test_whatever_is_pressed_the_frame_fits_and_escape_leads_back(
    *, keys: list[str], small: bool, jitter: object
) -> None:
    """The cursor stays on its env under jitter, every line is as wide as the terminal, nobody is trapped."""
    width, height = (80, 24) if small else (120, 40)
    terminal = _terminal(width, height)
    for key in keys:
        prompt = terminal.session.ui.prompt
        if key == "enter" and prompt is not None and prompt.taken.text.strip() == "quit":
            continue
        terminal.press(key)
        assert {len(line) for line in terminal.lines} == {width}
        assert len(terminal.lines) == height
    cursor = terminal.session.board.cursor
    terminal.now += 10
    envs = list(drawers.opened().envs)
    jitter.shuffle(envs)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
    terminal.take(msgspec.structs.replace(drawers.opened(), envs=tuple(envs)))
    if isinstance(cursor, int):
        assert terminal.session.board.cursor == cursor
    terminal.press(*["escape"] * 6)
    assert terminal.session.mode is Mode.BOARD
    assert not terminal.session.requests.leaving


def _snapshot_with_ids(ids: list[int]) -> Snapshot:
    full = scenario.storm()
    return msgspec.structs.replace(full, envs=tuple(env for env in full.envs if env.env_id in ids))


def test_when_its_env_leaves_the_cursor_goes_to_the_nearest_row() -> None:
    """And stays on the board."""
    terminal = Terminal(_snapshot_with_ids([17, 9, 12, 30]))
    terminal.press("j", "j")
    assert terminal.session.board.cursor == 12
    terminal.now += 10
    terminal.take(_snapshot_with_ids([17, 9]))

    assert terminal.session.board.cursor == 9
