"""The screen of modes side by side."""

import asyncio
import json
import math
import subprocess
from collections.abc import Iterator

import pytest
from textual.widgets import Label, Static

from overwatch_rl.dashboard import Column, Confirm, Dashboard, action_bars, state_of
from overwatch_rl.modes import Mode


class Ended:
    """A process that ended with a status, or goes on."""

    def __init__(self, status: int | None) -> None:
        self.returncode = status

    def poll(self) -> int | None:
        """Its status."""
        return self.returncode


class Written:
    """Modes of which the lines are given."""

    def __init__(self, *, is_training: bool) -> None:
        self.is_training = is_training
        status = None if is_training else 0
        self.modes = [Mode(name, _process(status)) for name in ("ground_truth", "proxy")]
        for number, mode in enumerate(self.modes):
            for update in (1, 2):
                values = {"return": 1.5 * update, "action/up": 0.75, "action/[b]down": 0.25}
                values |= {} if number else {"food_share": 0.25}
                row = {"event": "update", "update": update, "values": values, "view": ["·[red]", "o.x"]}
                mode.take(json.dumps(row))

    def snapshot(self, mode: Mode) -> tuple[list[dict[str, object]], list[str]]:
        """As they are."""
        return mode.values, mode.view


def _process(status: int | None) -> "subprocess.Popen[str]":
    return Ended(status)  # type: ignore[return-value]  # what is asked of it


def test_each_mode_has_a_column_with_what_it_wrote() -> None:
    """Values with their form, rows that never came hidden, bars, and the view as plain text."""

    async def look() -> None:
        app = Dashboard(Written(is_training=True))  # type: ignore[arg-type]  # what is asked of them
        async with app.run_test(size=(120, 50)) as pilot:
            await pilot.pause()
            first, second = app.query(Column)
            assert str(first.query_one("#state", Static).render()) == "update 2"
            assert str(first.query_one("#return", Label).render()) == "return  +3.00"
            assert str(first.query_one("#food_share", Label).render()) == "food share  25%"
            assert not second.query_one("#food_share", Label).display
            assert "[b]down" in str(first.query_one("#actions", Static).render())
            assert str(second.query_one("#view", Static).render()) == "·[red]\no.x"

    asyncio.run(look())


def test_a_column_whose_widgets_are_gone_is_not_drawn() -> None:
    """At the end they go one after the other, and the timer last."""

    async def look() -> None:
        app = Dashboard(Written(is_training=True))  # type: ignore[arg-type]  # what is asked of them
        async with app.run_test() as pilot:
            first, second = app.query(Column)
            await first.query_one("#state", Static).remove()
            await second.remove_children()
            app.refresh_columns()
            await pilot.pause()

    asyncio.run(look())


@pytest.mark.parametrize(("keys", "is_over"), [(("q", "y"), True), (("q", "n"), False), (("q", "q"), False)])
def test_quitting_while_something_trains_is_confirmed(keys: tuple[str, ...], *, is_over: bool) -> None:
    """`y` quits, anything else goes on."""

    async def press() -> bool:
        app = Dashboard(Written(is_training=True))  # type: ignore[arg-type]
        async with app.run_test() as pilot:
            await pilot.press(*keys)
            await pilot.pause()
            return not app.is_running or app._exit

    assert asyncio.run(press()) is is_over


def test_quitting_afterwards_is_not() -> None:
    """Nothing is lost any more."""

    async def press() -> bool:
        app = Dashboard(Written(is_training=False))  # type: ignore[arg-type]
        async with app.run_test() as pilot:
            await pilot.press("q")
            await pilot.pause()
            return app._exit and not isinstance(app.screen, Confirm)

    assert asyncio.run(press())


def _modes() -> Iterator[tuple[Mode, str]]:
    failed = Mode("a", _process(2))
    failed.errors.append("Error: no")
    yield failed, "failed after starting: Error: no"
    killed = Mode("b", _process(-9))
    yield killed, "failed after starting: exit status -9"
    done = Mode("c", _process(0))
    done.take('{"event": "run ended", "outcome": "completed", "reason": null}')
    yield done, "completed after starting"
    broken = Mode("d", _process(1))
    broken.take('{"event": "run ended", "outcome": "failed", "reason": "ValueError: x"}')
    yield broken, "failed after starting: ValueError: x"
    yield Mode("e", _process(None)), "starting"


@pytest.mark.parametrize(
    ("mode", "words"), list(_modes()), ids=["usage", "killed", "done", "broken", "begun"]
)
def test_how_a_mode_goes_is_a_line(mode: Mode, words: str) -> None:
    """How it ended, after what, and why."""
    assert state_of(mode, []) == words


def test_shares_are_bars_of_one_length() -> None:
    """Labels stand under one another; what is missing has no bar."""
    assert action_bars({"action/up": 0.5, "action/upper": 1.0, "action/x": math.nan, "return": 1.0}) == [
        "up    ████████" + 8 * " " + "  50%",
        "upper ████████████████ 100%",
    ]
