"""What the mouse does: a click goes to what it points at, a second one opens it; the wheel moves the cursor.

Everything it does a key does too. Must not know Textual or where things are drawn.
"""

from typing import Final, assert_never

from overwatch.tui.context import AlarmAt, LaneAt, LineAt, PickAt, Target
from overwatch.tui.keys import Mode
from overwatch.tui.session import Session

_WHEEL: Final = 3
"""Lines of one notch."""
_ROWS: Final = {
    Mode.BOARD: ("move", 1), Mode.DRAWER: ("move", 1), Mode.FEED: ("line", -1), Mode.FULL: ("scroll", 1),
    Mode.HELP: ("scroll", 1), Mode.RUNS: ("pick", 1), Mode.FINDINGS: ("pick", 1), Mode.POLICY: ("pick", 1),
    Mode.COMPARE: ("pick", 1), Mode.CONFIG: ("pick", 1),
}  # fmt: skip
"""What moves on in each mode, and by how much for one line down."""


def click(session: Session, target: Target | None, now: float) -> None:
    """A click on what a frame said is there; `now` monotonic seconds."""
    if target is None or session.mode in (Mode.PROMPT, Mode.HELP):
        return
    session.touched(now)
    match target:
        case AlarmAt(number=number):
            session.do_alarm(number)
        case LineAt(back=back):
            session.point_at_line(back)
        case PickAt(place=place):
            session.point_at_pick(place)
        case LaneAt() | int():
            session.point_at_place(target)
        case _:
            assert_never(target)


def wheel(session: Session, down: int, now: float, *, drawer: bool = False) -> None:
    """Notches of the wheel downwards; `drawer`: over the drawer beside the board, whose text it scrolls."""
    action, by = ("scroll", 1) if drawer else _ROWS.get(session.mode, ("", 0))
    if action:
        session.touched(now)
        session.act(action, _WHEEL * down * by)
