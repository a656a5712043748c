"""The drawer of an env that the trainer removed."""

import msgspec
import pytest

from overwatch.snapshot import Detail
from overwatch.tui.panels import drawer
from overwatch.tui.text import Line
from tests.overwatch.tui import drawers, scenario


def _text(lines: list[Line]) -> str:
    return "\n".join("".join(span.text for span in line) for line in lines)


@pytest.mark.parametrize(("width", "draw"), [(120, drawer.box), (80, drawer.full)])
def test_an_open_drawer_shows_that_its_env_was_removed(width: int, draw: object) -> None:
    """With the time, in both forms; before the collector has answered it waits."""
    full = drawers.opened()
    there = tuple(env for env in full.envs if env.env_id != 9)
    gone = msgspec.structs.replace(full, envs=there, detail=Detail(env_id=9, removed_at=scenario.NOW))
    requested = msgspec.structs.replace(gone, detail=None)
    shown, waiting = (
        _text(draw(snapshot, drawers.looking(snapshot, width, 24), 20).lines)  # type: ignore[operator]  # either form
        for snapshot in (gone, requested)
    )

    assert "the trainer removed this environment at " in shown
    assert "waiting" not in shown
    assert "waiting for this environment" in waiting
