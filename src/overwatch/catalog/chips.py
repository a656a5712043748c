"""The chip of a slot as text: stage, slot, blueprint and alpha in twelve cells or fewer.

Owns the one grammar of chips that have a label: board, feed, pages and text share it. Pure text; must not
know snapshots, colours or widths of a screen.
"""

from collections.abc import Mapping
from typing import Final

from overwatch.catalog.stages import Stage

LABEL: Final = 4
"""Cells of a slot's name that a chip has room for."""
CODE: Final = 2
"""Characters of a blueprint's code."""


def labelled(slot: str, stage: Stage, code: str, alpha: float | None) -> str:
    """`◑r0c1 cs .42`: glyph, slot, the blueprint's code where the stage has one, alpha while it blends."""
    shown = code if stage.shows_blueprint else ""
    share = f"{alpha:.2f}".removeprefix("0") if alpha is not None and stage.shows_alpha else ""
    return f"{stage.glyph}{slot} {shown} {share}".rstrip()


def code_of(blueprint: str | None, codes: Mapping[str, str]) -> str:
    """Two letters of a blueprint, of one that is not known its first; empty without one."""
    return "" if blueprint is None else codes.get(blueprint, blueprint)[:CODE]
