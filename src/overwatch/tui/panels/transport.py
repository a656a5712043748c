"""The transport line of a recording: where it stands, its alarms on the timeline, the keys that move it."""

from typing import Final

from overwatch.tui.context import Context
from overwatch.tui.grammar import clock
from overwatch.tui.playback import Playback
from overwatch.tui.text import Line, Role, Span, spread, width_of

_KEYS: Final = "Space {play}  , . step  < > speed  [ ] alarm  : seek"
_BUSY: Final = "Esc cancels"
_SHORT_KEYS: Final = "Space , . < > [ ]"
_ROLES: Final = {"c": Role.CRIT, "w": Role.WARN, "┃": Role.TITLE}


def render(playback: Playback, ctx: Context) -> Line:
    """One line."""
    state = "> " if playback.playing else "  " if playback.still else "||"
    tenths = int(playback.time * 10) % 10
    now = f"{clock(playback.time, ctx.zone, millis=False)}.{tenths}"
    start = [Span(f" {state} {now} of {clock(playback.last, ctx.zone, millis=False)}  ")]
    speed = f"{playback.speed:g}x" if playback.speed < 1 else f"{playback.speed:.1f}x"
    speed = "" if playback.still else speed
    keys = (
        ""
        if playback.still
        else _BUSY
        if playback.busy
        else _SHORT_KEYS
        if ctx.compact
        else _KEYS.format(play="pause" if playback.playing else "play")
    )
    room = ctx.width - width_of(start) - len(speed) - len(keys) - 10
    return spread(
        [*start, *_timeline(playback, max(8, min(60, room))), Span(f"  {speed}")],
        [Span(keys, Role.MUTED)],
        ctx.width,
    )


def _timeline(playback: Playback, cells: int) -> list[Span]:
    span_s = max(playback.last - playback.first, 1e-9)

    def place(time: float) -> int:
        return min(cells - 1, max(0, int((time - playback.first) / span_s * cells)))

    here = place(playback.time)
    bar = ["━"] * here + ["─"] * (cells - here)
    for severity, letter in (("warning", "w"), ("critical", "c")):
        for mark in playback.marks:
            if mark.severity == severity:
                bar[place(mark.time)] = letter
    bar[here] = "┃"
    return [
        Span(letter, _ROLES.get(letter, Role.TEXT if index < here else Role.MUTED))
        for index, letter in enumerate(bar)
    ]
