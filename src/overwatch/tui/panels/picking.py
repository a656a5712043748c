"""What pages that list something have in common: which lines are in sight, and the one under the cursor."""

from collections.abc import Sequence
from dataclasses import dataclass

from overwatch.tui.context import PickAt
from overwatch.tui.text import Line, Role, Span, fit


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page's lines, and what a click on each means; further ones mean nothing."""

    lines: list[Line]
    targets: tuple[PickAt | None, ...] = ()


def window(picked: int, count: int, room: int) -> range:
    """Which of `count` lines are shown in `room`: the picked one in the middle where that can be."""
    first = max(0, min(picked - room // 2, count - room))
    return range(first, min(count, first + room))


def targets(above: int, shown: range) -> tuple[PickAt | None, ...]:
    """What clicks mean under so many lines of head."""
    return (*[None] * above, *map(PickAt, shown))


def marked(line: Sequence[Span], width: int, *, here: bool) -> Line:
    """A line of the list, behind the mark of the cursor."""
    drawn = fit([Span(">" if here else " "), *line], width)
    return tuple(Span(span.text, Role.ACCENT) for span in drawn) if here else drawn
