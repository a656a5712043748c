"""The last line: what the keys do here, from the key table; the prompt while the user types; notices.

Above the prompt are the words that the one under the caret may become.
"""

from typing import Final

from overwatch.snapshot import Snapshot
from overwatch.tui.context import COMPACT_BELOW, Context
from overwatch.tui.keys import known
from overwatch.tui.panels.alarms import on_rail
from overwatch.tui.prompt import FILTER, Prompt
from overwatch.tui.text import Line, Role, Span, cells, clean, cut, fit, left, spread, tail

MOST_CHOICES: Final = 8
_WORD: Final = 20


def render(snapshot: Snapshot | None, ctx: Context) -> Line:
    """One line."""
    if ctx.ui.prompt is not None:
        return _prompt(ctx.ui.prompt, snapshot, ctx)
    if ctx.ui.notice is not None:
        return fit([Span(f" {clean(ctx.ui.notice)}", Role.INFO)], ctx.width)
    slots = snapshot is not None and snapshot.run.slots_enabled
    num_alarms = 0 if snapshot is None else min(9, len(on_rail(snapshot)))
    hints = [
        _alarm_hint(num_alarms) if key.action == "alarm" else hint
        for key in known(ctx.ui.keys, slots=slots, replay=ctx.playback is not None)
        if ctx.mode in (key.modes if key.hinted is None else key.hinted)
        and (hint := key.tiny if ctx.width < COMPACT_BELOW else key.hint) is not None
    ]
    hints = [hint for hint in hints if hint]
    ending = "  ".join(hints[-2:])
    line = ""
    for hint in hints[:-2]:
        if len(f" {line}{hint}  {ending}") <= ctx.width:
            line += f"{hint}  "
    return fit([Span(f" {line}{ending}", Role.MUTED)], ctx.width)


def _alarm_hint(num_alarms: int) -> str:
    if not num_alarms:
        return ""
    return "1 alarm" if num_alarms == 1 else f"1-{num_alarms} alarm"


def _prompt(prompt: Prompt, snapshot: Snapshot | None, ctx: Context) -> Line:
    """What is typed with the caret, and at the right what is wrong with it and what passes."""
    answer: list[Span] = []
    error = prompt.error
    if error is not None:
        answer.append(Span(cut(clean(error), max(10, ctx.width * 3 // 5)), Role.WARN))
    if prompt.kind is FILTER and snapshot is not None:
        passing = _passing(snapshot)
        if passing and ctx.width - sum(cells(span.text) for span in answer) > 40:
            answer.append(Span(("   " if answer else "") + passing))
    if not answer:
        answer = [Span(f"Tab completes, Enter {prompt.kind.entered} it, Esc goes back", Role.MUTED)]
    room = max(4, ctx.width - 6 - sum(cells(span.text) for span in answer))
    before = tail(prompt.text[: prompt.at], room - 1)
    after = prompt.text[prompt.at :]
    caret = after[:1] or " "
    typed = [Span(prompt.kind.sign, Role.TITLE), Span(before), Span(caret, Role.ACCENT), Span(after[1:])]
    return spread(typed, answer, ctx.width)


def _passing(snapshot: Snapshot) -> str:
    total, matched = snapshot.run.n_envs, snapshot.board.matched
    if total is None:
        return ""
    return f"{total:,} env" if matched is None else f"{matched:,} of {total:,} env"


def choices(ctx: Context) -> list[Line]:
    """At most `MOST_CHOICES` lines, fewer on a short terminal; the chosen one is always among them."""
    prompt = ctx.ui.prompt
    if prompt is None:
        return []
    found = prompt.candidates
    room = min(MOST_CHOICES, max(0, ctx.height // 4))
    first = max(0, min((prompt.chosen or 0) - room // 2, len(found) - room))
    lines: list[Line] = []
    for place, candidate in enumerate(found[first : first + room], first):
        role = Role.ACCENT if place == prompt.chosen else Role.TITLE
        word = left(clean(candidate.word), max(_WORD, len(candidate.word)))
        note = cut(candidate.note, ctx.width - cells(word) - 4)
        lines.append(fit([Span("  "), Span(word, role), Span(f" {note}", Role.MUTED)], ctx.width))
    return lines
