"""What was drawn stays until what it was drawn from changes, and never longer."""

import msgspec

from overwatch.tui.cache import _MOST, kept
from tests.overwatch.tui import scenario
from tests.overwatch.tui.pressing import Terminal


def test_a_place_is_drawn_again_only_when_its_inputs_differ() -> None:
    """Equal inputs give the same object; another input, or another place, a new one."""
    calls: list[tuple[str, object]] = []

    @kept
    def drawn(place: str, value: object) -> list[object]:
        calls.append((place, value))
        return [place, value]

    first = drawn("a", (1, "x"))
    assert drawn("a", (1, "x")) is first
    assert drawn("b", (1, "x")) == ["b", (1, "x")]
    assert drawn("a", (2, "x")) == ["a", (2, "x")]
    assert drawn("a", (1, "x")) == first
    assert calls == [("a", (1, "x")), ("b", (1, "x")), ("a", (2, "x")), ("a", (1, "x"))]


def test_what_is_kept_is_bounded() -> None:
    """A feed that turns over for a week fills no memory."""

    @kept
    def drawn(place: int, value: bytes) -> bytes:
        return value * 2

    first = drawn(0, b"a" * 9)
    for place in range(_MOST):
        drawn(place + 1, b"a" * 9)
    assert drawn(0, b"a" * 9) is not first


def test_a_frame_is_the_same_whatever_was_drawn_before() -> None:
    """After another run, another width and another cursor the same snapshot gives the same frame."""
    storm, huge = scenario.storm(), scenario.huge()
    alone = [Terminal(storm, width).lines for width in (80, 120, 200)]
    for width in (200, 120, 80):
        Terminal(huge, width).press("j", "enter")
        stale = msgspec.structs.replace(storm, link=msgspec.structs.replace(storm.link, state="stale"))
        Terminal(stale, width).press("l", "k")
    assert [Terminal(storm, width).lines for width in (80, 120, 200)] == alone
