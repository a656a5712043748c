"""The terminal: size, colours, glyphs, and whether the screen's package is there."""

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from typing import Final

from overwatch.cli.doctor.verdict import Verdict, ok, warning
from overwatch.extras import TUI

AREA: Final = "terminal"
LEAST: Final = (80, 24)


def screens(
    env: Mapping[str, str] = os.environ,
    *,
    size: tuple[int, int] | None = None,
    is_terminal: bool | None = None,
    encoding: str | None = None,
) -> Iterator[Verdict]:
    """What `overwatch tui` would find here."""
    if TUI.missing:
        yield warning(AREA, "Textual is not installed, so there is no screen", TUI.install)
        return
    if not (sys.stdout.isatty() if is_terminal is None else is_terminal):
        yield ok(AREA, "this is no terminal; `overwatch tui --once` prints a frame")
        return
    from overwatch.tui.theme import theme_of

    columns, rows = size or tuple(shutil.get_terminal_size())
    name = env.get("TERM", "")
    if name in ("", "dumb"):
        yield warning(AREA, f"TERM is {name!r}", "set TERM, e.g. xterm-256color")
    if (columns, rows) < LEAST or rows < LEAST[1]:
        yield warning(AREA, f"{columns}x{rows} is small", "make it 80x24 or larger; less is shown cut")
    coding = (encoding or sys.stdout.encoding or "").lower().replace("-", "")
    if coding not in ("utf8", "utf16", "utf32"):
        yield warning(
            AREA,
            f"text is {coding or 'of no known encoding'}, so glyphs are ASCII",
            "export LC_ALL=C.UTF-8, and let the terminal show UTF-8",
        )
    theme = theme_of(env)
    about = {"mono": "no colours (NO_COLOR)", "ansi": "16 colours"}.get(theme, "256 colours or more")
    yield ok(AREA, f"{columns}x{rows}, {name or 'no TERM'}, {about}")
