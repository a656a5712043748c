"""Large charts: braille lines, their scale, and the page that shows the policy over many updates."""

import math

import msgspec
import pytest

from overwatch.snapshot import Snapshot
from overwatch.tui.curve import braille, scale
from overwatch.tui.grammar import to_ascii
from overwatch.tui.keys import Mode
from overwatch.tui.memory import UPDATES, History
from overwatch.tui.panels.policy import asks
from tests.overwatch.tui import scenario
from tests.overwatch.tui.pressing import Terminal


def test_a_rising_line_goes_from_the_lowest_to_the_highest_dot() -> None:
    """Two samples a cell, four levels; a flat one is one row of dots."""
    assert braille([0.0, 1.0, 2.0, 3.0], 2, 1, (0.0, 3.0)) == ["⡠⠊"]
    assert braille([1.0] * 4, 2, 2, (0.0, 2.0)) == ["⣀⣀", "⠀⠀"]


def test_jumps_are_joined_and_gaps_are_not() -> None:
    """A missing or non-finite value leaves its place empty; the newest value is at the right."""
    (row,) = braille([0.0, 3.0], 1, 1, (0.0, 3.0))
    assert row == chr(0x2800 | 0x40 | 0x08 | 0x10 | 0x20)
    (row,) = braille([1.0, None, math.nan, 1.0], 2, 1, (0.0, 3.0))
    assert [(ord(cell) - 0x2800).bit_count() for cell in row] == [1, 1]
    (row,) = braille([1.0], 3, 1, (0.0, 3.0))
    assert row[:2] == "⠀⠀"
    assert row[2] != "⠀"


@pytest.mark.parametrize("values", [[], [5.0], [5.0, 5.0], [None, math.inf], [0.0]])
def test_a_scale_has_two_ends_whatever_the_values(values: list[float | None]) -> None:
    """And noise of a constant is not drama."""
    low, high = scale(values)
    assert low < high
    assert braille(values, 4, 3, (low, high))


def test_ascii_draws_stars_where_there_are_dots() -> None:
    """The same cells."""
    assert to_ascii("⠀⡠⠊") == " **"


def _update(snapshot: Snapshot, update: int, kl: float) -> Snapshot:
    reading = snapshot.policy["kl_divergence"]
    reported = msgspec.structs.replace(reading, history=(*reading.history[1:], kl), value=kl)
    run = msgspec.structs.replace(snapshot.run, update=update)
    return msgspec.structs.replace(snapshot, run=run, policy={**snapshot.policy, "kl_divergence": reported})


def test_history_grows_by_what_is_new_and_is_bounded() -> None:
    """A snapshot without a new update adds nothing; updates that were not seen are gaps."""
    snapshot, history = scenario.storm(), History()
    history.take(snapshot)
    first = snapshot.policy["kl_divergence"].history
    assert history.of("kl_divergence") == first
    for number in range(1, 4):
        snapshot = _update(snapshot, 312 + number, 0.01 * number)
        history.take(snapshot)
        history.take(snapshot)
    assert history.of("kl_divergence") == (*first, 0.01, 0.02, 0.03)
    snapshot = _update(snapshot, 400, 0.5)
    history.take(snapshot)
    assert history.of("kl_divergence").count(None) == 400 - 315 - 10
    for number in range(401, 401 + 2 * UPDATES):
        history.take(_update(snapshot, number, 0.5))
    assert len(history.of("kl_divergence")) == UPDATES
    history.take(_update(snapshot, 3, 0.5))
    assert len(history.of("kl_divergence")) == len(first)


def test_a_head_has_a_line_of_its_own_with_the_question_of_its_row() -> None:
    """The same number of all heads is asked without it."""
    storm = scenario.storm()
    reading = msgspec.structs.replace(storm.policy["entropy"], label="entropy op", text="5%max")
    policy = {"entropy/op": reading, **storm.policy}
    terminal = Terminal(msgspec.structs.replace(storm, policy=policy), 200, 60)
    terminal.press("P")

    assert "entropy op" in terminal.screen
    assert asks("entropy/op") == f"{asks('entropy')} Of the head op."


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (200, 60)])
def test_the_policy_page_lists_every_reading_and_charts_the_one_under_the_cursor(
    width: int, height: int
) -> None:
    """With the limit in use on its axis; j goes to the next."""
    terminal = Terminal(scenario.storm(), width, height)
    terminal.press("P")
    assert terminal.session.mode is Mode.POLICY
    assert "─ POLICY ─" in terminal.screen
    assert "WARN" in terminal.screen
    assert {len(line) for line in terminal.lines} == {width}
    assert len(terminal.lines) == height
    terminal.press("j")
    assert "─ KL" in terminal.screen
    assert ">.015" in terminal.screen.split("─ KL")[1]
    terminal.press("escape")
    assert terminal.session.mode is Mode.BOARD
