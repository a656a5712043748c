"""A frame as an SVG: the same cells, colours and all."""

import io

from rich.console import Console
from rich.segment import Segment, Segments

from overwatch.tui.text import Line
from overwatch.tui.theme import Look


def svg(lines: list[Line], width: int, look: Look) -> str:
    """The lines as a picture of a terminal of that width."""
    console = Console(
        record=True,
        width=width,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        legacy_windows=False,
    )
    for line in lines:
        console.print(Segments([*look.segments(line), Segment.line()]), end="")
    drawn = console.export_svg(title="overwatch", unique_id="overwatch")
    return drawn.replace("<text ", '<text xml:space="preserve" ')
