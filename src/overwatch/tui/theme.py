"""How a role looks: tables from `Role` to a style; and a frame as an SVG with the same cells and colours.

Code elsewhere never names a colour. The colour-blind theme has blue and orange for ok and warn, vermilion and
bold for crit. Every coloured thing also differs in its text, so any theme may drop colour. Must not know what
is drawn.
"""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from rich.console import Console
from rich.segment import Segment, Segments
from rich.style import Style

from overwatch.tui.grammar import to_ascii
from overwatch.tui.settings import Settings
from overwatch.tui.text import Line, Role

_COLOUR: Final = {
    Role.TEXT: "", Role.MUTED: "color(245)", Role.TITLE: "bold", Role.ACCENT: "reverse", Role.OK: "green",
    Role.WARN: "yellow", Role.CRIT: "bold red", Role.INFO: "blue", Role.STALE: "italic color(245)",
    Role.GOOD: "green", Role.BAD: "yellow", Role.STAGE_NEW: "blue", Role.STAGE_TRAIN: "cyan",
    Role.STAGE_BLEND: "yellow", Role.STAGE_HOLD: "magenta", Role.STAGE_DONE: "green",
    Role.STAGE_FAIL: "red",
}  # fmt: skip
_SIXTEEN: Final = {
    **_COLOUR, Role.MUTED: "bright_black", Role.CRIT: "bright_red", Role.INFO: "cyan",
    Role.STALE: "bright_black",
}  # fmt: skip
_COLOUR_BLIND: Final = {
    **_COLOUR, Role.OK: "color(32)", Role.WARN: "color(214)", Role.CRIT: "bold color(202)",
    Role.INFO: "color(117)", Role.GOOD: "color(32)", Role.BAD: "color(214)", Role.STAGE_NEW: "color(117)",
    Role.STAGE_TRAIN: "color(43)", Role.STAGE_BLEND: "color(227)", Role.STAGE_HOLD: "color(175)",
    Role.STAGE_DONE: "color(32)", Role.STAGE_FAIL: "color(202)",
}  # fmt: skip
_NO_COLOUR: Final = {
    **dict.fromkeys(Role, ""), Role.MUTED: "dim", Role.TITLE: "bold", Role.ACCENT: "reverse",
    Role.WARN: "bold", Role.CRIT: "reverse", Role.STALE: "dim", Role.BAD: "bold",
}  # fmt: skip

_TABLES: Final = {
    "default": _COLOUR, "ansi": _SIXTEEN, "colour-blind": _COLOUR_BLIND, "mono": _NO_COLOUR,
}  # fmt: skip
THEMES: Final[Mapping[str, Mapping[Role, Style]]] = MappingProxyType(
    {
        name: MappingProxyType({role: Style.parse(text) for role, text in table.items()})
        for name, table in _TABLES.items()
    }
)


def theme_of(env: Mapping[str, str]) -> str:
    """The theme for a terminal: mono for NO_COLOR, ansi where it has 16 colours, else default."""
    if env.get("NO_COLOR"):
        return "mono"
    many = "256color" in env.get("TERM", "") or env.get("COLORTERM", "") in ("truecolor", "24bit")
    return "default" if many else "ansi"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How lines become segments on one terminal."""

    theme: str = "default"
    """A name of `THEMES`."""
    ascii: bool = False
    """Draw with 0x20 to 0x7e alone."""

    def __post_init__(self) -> None:
        if self.theme not in THEMES:
            raise ValueError(f"theme {self.theme!r} is not known; use one of {', '.join(THEMES)}")

    @classmethod
    def of(cls, settings: Settings, env: Mapping[str, str], encoding: str) -> "Look":
        """What a user wants on a terminal with this environment and text encoding."""
        can = encoding.lower().replace("-", "") == "utf8" and env.get("TERM") != "dumb"
        return cls(
            theme=theme_of(env) if settings.theme == "auto" else settings.theme,
            ascii=not can if settings.glyphs == "auto" else settings.glyphs == "ascii",
        )

    def segments(self, line: Line) -> list[Segment]:
        """One line as styled segments."""
        styles = THEMES[self.theme]
        if self.ascii:
            return [Segment(to_ascii(span.text), styles[span.role]) for span in line]
        return [Segment(span.text, styles[span.role]) for span in line]


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
