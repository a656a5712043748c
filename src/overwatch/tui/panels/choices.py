"""What the word under the caret may become, in the lines above the prompt. Must not know what words mean."""

from typing import Final

from overwatch.tui.context import Context
from overwatch.tui.text import Line, Role, Span, cells, clean, cut, fit, left

MOST: Final = 8
_WORD: Final = 20


def render(ctx: Context) -> list[Line]:
    """At most `MOST` lines, fewer on a short terminal; the chosen one is always among them."""
    prompt = ctx.ui.prompt
    if prompt is None:
        return []
    found = prompt.candidates
    room = min(MOST, max(0, ctx.height // 4))
    first = max(0, min((prompt.chosen or 0) - room // 2, len(found) - room))
    lines: list[Line] = []
    for place, candidate in enumerate(found[first : first + room], first):
        role = Role.ACCENT if place == prompt.chosen else Role.TITLE
        word = left(clean(candidate.word), max(_WORD, len(candidate.word)))
        note = cut(candidate.note, ctx.width - cells(word) - 4)
        lines.append(fit([Span("  "), Span(word, role), Span(f" {note}", Role.MUTED)], ctx.width))
    return lines
