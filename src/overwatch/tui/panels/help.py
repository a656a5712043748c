"""Help, a page a topic: the keys, from the key table, with the legend; then how to read and use the screen.

And the last line of the screen: what the keys do here, the prompt while the user types, notices. Above the
prompt are the words that the one under the caret may become. Owns the words of the topics. Pure.
"""

from dataclasses import dataclass
from typing import Final

from overwatch.catalog import Stage
from overwatch.snapshot import Snapshot
from overwatch.tui.context import COMPACT_BELOW, Context
from overwatch.tui.grammar import STATUS_WORDS, severity, stage_role, status
from overwatch.tui.keys import Key, Mode, known
from overwatch.tui.panels.alarms import on_rail
from overwatch.tui.playback import PLACES
from overwatch.tui.prompt import FILTER, Prompt
from overwatch.tui.text import (
    Line,
    Role,
    Span,
    blank,
    cells,
    clean,
    cut,
    fit,
    left,
    rule,
    spread,
    tail,
    wrapped,
)

MOST_CHOICES: Final = 8
_CHOICE: Final = 20
_MARKS = (
    (">", "the cursor"),
    ("~", "an old value"),
    ("–", "never measured"),
    ("+2", "two more that had no room"),
    ("▾ ▸", "a lane that is open, closed"),
    ("! !! ?", "warning, critical, abstains"),
)
_FILTERS = (
    ("env=17 gpu=0", "either of env=3,9; all of env=0-31"),
    ("status=degraded", "the beginning of the word is enough"),
    ("score>3", "the anomaly; also return< metric> fps<"),
    ("!status=ok", "turned around; of several terms, all"),
    ("node=h1 rank=3", "by the machine or rank of the lane"),
    ("cuda", "a word anywhere: reasons, action, lane"),
)
_SLOT_FILTERS = (
    ("blueprint=at", "growing it, by name or code"),
    ("stage=pruned", "a slot in that stage; slot=r0c0: which"),
)
_HEADINGS = {
    Mode.BOARD: "Board and everywhere", Mode.FEED: "With the feed", Mode.DRAWER: "In the drawer",
    Mode.CURVES: "On the page of curves",
    Mode.RUNS: "In the list of runs", Mode.FINDINGS: "In the list of findings", Mode.POLICY: "In the policy",
    Mode.COMPARE: "Beside another run", Mode.CONFIG: "Configuration", Mode.LOGS: "In the log",
    Mode.HELP: "In help",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One page of help."""

    title: str
    terms: tuple[tuple[str, str], ...] = ()
    """What is explained, and the explanation."""


_SCREEN: Final = (
    ("first line", "Which run this is; at the right how fresh its data is: LIVE, STALE, LOST, ENDED."),
    ("second line", "How far the run is: updates, time left, age of the last checkpoint, steps a second."),
    ("verdict", "OK, or what is wrong now, the worst first. Of a run that is over: how it ended."),
    ("policy pulse", "The numbers of the learning algorithm, with the limit in use. P explains each."),
    ("system", "Each GPU, and the host: how busy it is, and what holds it back."),
    ("alarms", "What is wrong, each with severity, age and the next step. Press its number to open it."),
    ("flight board", "Environments, the worst first, with the reason in words. Enter opens one."),
    ("feed", "What happened, newest at the bottom."),
)  # fmt: skip
_SICK: Final = (
    ("1 to 9", "Open an alarm: what was measured, what it means, what to do next."),
    ("t", "Go to the moment at which it began. In a recording, everything on the screen goes there."),
    ("P", "See the policy's numbers, with charts and limits, and what each of them answers."),
    ("n and p", "With an environment open: the next one that is not OK, and the one before."),
    ("B", "The host's CPU and memory, and the five processes that take most of them."),
    ("H and G", "See environments, or GPUs, over time: when did it begin, and which were affected?"),
    ("a", "Acknowledge an alarm: it leaves the list, and others see that it is known."),
    ("A", "List all findings, also those that have cleared."),
)  # fmt: skip
_FEED: Final = (
    ("l", "Give the keys to the feed; Esc takes them back."),
    ("v", "Show every line, or only facts and warnings. The title has how many lines come in a second."),
    ("1 3 4", "Show only errors, only policy updates, or only the trainer's own log."),
    ("/", "Search: every word must be in the line; env=9 and gpu=1 are compared whole."),
    ("i", "Open a line: all of its text."),
    ("O", "The trainer's own log and console on a page of their own."),
)  # fmt: skip
_RECORDING: Final = (
    ("r", "Leave a live run for its recording; overwatch tui PATH opens one from the shell."),
    ("Space", "Play, or pause. < and > change the speed."),
    (", and .", "A second back, or on."),
    ("[ and ]", "To the alarm before, or the next one."),
    (":seek", f"Go to a place: {PLACES}. Esc cancels a seek that takes long."),
    ("SIMULATED", "A script wrote this run: nothing was trained."),
)  # fmt: skip
_WORDS: Final = (
    ("lane", "A device that environments run on, usually a GPU."),
    ("anomaly", "How far an environment is from the others, 0 to 10; the reasons stand beside it."),
    ("bound", "What limits the speed of a GPU: its own work, memory, input, other GPUs, heat."),
    ("finding", "Something that is wrong for long enough to be reported; an alarm is one that is open."),
    ("status", "OK, STALLED (no progress), DEGRADED, DIVERGING (numbers run away), CRASHED."),
    ("update", "One step of the optimiser on what was collected."),
)  # fmt: skip
TOPICS: Final = (
    Topic(title="KEYS"), Topic(title="FILTER AND MARKS"),
    Topic(title="THE SCREEN", terms=_SCREEN), Topic(title="A SICK RUN", terms=_SICK),
    Topic(title="FEED AND LOG", terms=_FEED), Topic(title="RECORDINGS", terms=_RECORDING),
    Topic(title="WORDS", terms=_WORDS),
)  # fmt: skip
"""In the order in which Tab goes through them."""
_TERM: Final = 14
_TWO_COLUMNS = 120
"""Cells from which on texts stand side by side."""


def render(snapshot: Snapshot | None, ctx: Context) -> list[Line]:
    """Exactly `ctx.height` lines, scrolled; a run without slots has no word about them."""
    lines = text(snapshot, ctx)
    room = ctx.height - 1
    at = min(ctx.ui.scroll, most_scroll(snapshot, ctx))
    shown = lines[at : at + room]
    if len(lines) > room > 0:
        more = len(lines) - at - room
        note = f"{more} more lines: j" if more > 0 else "the end"
        shown = [*shown[: room - 1], fit([Span(f" {note}", Role.MUTED)], ctx.width)]
    return [*shown, *[blank(ctx.width)] * (room - len(shown)), key_line(snapshot, ctx)]


def most_scroll(snapshot: Snapshot | None, ctx: Context) -> int:
    """How far the text can be scrolled."""
    over = len(text(snapshot, ctx)) - (ctx.height - 1)
    return over + 1 if over > 0 else 0


def text(snapshot: Snapshot | None, ctx: Context) -> list[Line]:
    """All lines of the topic."""
    at = ctx.ui.topic % len(TOPICS)
    following = TOPICS[(at + 1) % len(TOPICS)].title.capitalize()
    note = [Span(f"{at + 1} of {len(TOPICS)} · Tab: {following} · Esc back", Role.MUTED)]
    if TOPICS[at].terms:
        return _explained(TOPICS[at], note, ctx.width)
    slots = snapshot is not None and snapshot.run.slots_enabled
    lines = [rule(TOPICS[at].title, note, ctx.width)]
    if at:
        return [*lines, *_marks(ctx.width, slots=slots)]
    if snapshot is not None:
        board = snapshot.board
        way = "falling" if board.direction == "desc" else "rising"
        shown = f"filter {clean(board.filter or 'none')} · feed {', '.join(sorted(ctx.ui.toggles)) or 'all'}"
        lines.append(fit([Span(f" now: sort {clean(board.sort)}, {way} · {shown}", Role.INFO)], ctx.width))
    keys = known(ctx.ui.keys, slots=slots, replay=ctx.playback is not None)
    return [*lines, *_columns([_keys(mode, keys) for mode in _HEADINGS], ctx.width)]


def _marks(width: int, *, slots: bool) -> list[Line]:
    """What a filter takes, and what marks and stages mean."""
    lines = _table((*_FILTERS, *(_SLOT_FILTERS if slots else ())), 17, width)
    lines += [rule("MARKS", [], width), _statuses(width), *_table(_MARKS, 10, width)]
    if slots:
        note = [Span("the fuller the circle, the further the seed", Role.MUTED)]
        stages = [[Span(f" {one.glyph} ", stage_role(one)), Span(left(one.label, 24))] for one in Stage]
        half = (len(stages) + 1) // 2
        rows = ([span for one in stages[i::half] for span in one] for i in range(half))
        lines += [rule("STAGES", note, width), *(fit(row, width) for row in rows)]
    return lines


def _explained(topic: Topic, note: list[Span], width: int) -> list[Line]:
    """Each term, and its explanation in as many lines as it needs."""
    lines = [rule(topic.title, note, width)]
    for term, meaning in topic.terms:
        for place, part in enumerate(wrapped(meaning, max(10, min(100, width - _TERM - 3)))):
            head = term if place == 0 else ""
            lines.append(fit([Span(f" {left(head, _TERM)} ", Role.TITLE), Span(part)], width))
        lines.append(blank(width))
    return lines


def _keys(mode: Mode, keys: tuple[Key, ...]) -> list[list[Span]]:
    """One panel's own keys under its name; keys that mean the same in several stand with the first."""
    order = list(_HEADINGS)
    before = order[: order.index(mode)]
    own = {mode, Mode.FULL} if mode is Mode.DRAWER else {mode}
    rows = [
        key
        for key in keys
        if key.shown and own & set(key.modes) and not any(other in key.modes for other in before)
    ]
    if not rows:
        return []
    return [
        [Span(_HEADINGS[mode], Role.INFO)],
        *([Span(left(key.shown, 7), Role.TITLE), Span(key.does)] for key in rows),
    ]


def _columns(blocks: list[list[list[Span]]], width: int) -> list[Line]:
    """The first block at the left, each other one under the shorter column where there is room for two."""
    first, other = list(blocks[0]), list[list[Span]]()
    for block in blocks[1:]:
        shorter = first if width >= _TWO_COLUMNS and len(first) < len(other) else other
        shorter += block
    if width < _TWO_COLUMNS:
        return [fit([Span(" "), *line], width) for line in (*first, *other)]
    half = width // 2
    rows = max(len(first), len(other))
    both = zip(first + [[]] * (rows - len(first)), other + [[]] * (rows - len(other)), strict=True)
    return [fit([*fit([Span(" "), *a], half), *b], width) for a, b in both]


def _table(rows: tuple[tuple[str, str], ...], wide: int, width: int) -> list[Line]:
    """Term and meaning, two to a line where there is room."""
    cell = width // 2 if width >= _TWO_COLUMNS else width
    cells = [fit([Span(" " + left(term, wide), Role.TITLE), Span(text)], cell) for term, text in rows]
    step = 2 if width >= _TWO_COLUMNS else 1
    return [fit([s for one in cells[i : i + step] for s in one], width) for i in range(0, len(cells), step)]


def _statuses(width: int) -> Line:
    spans = [Span(" ")]
    for word in STATUS_WORDS:
        spans += [status(word, compact=False), Span("  ")]
    spans.append(Span("·  ", Role.MUTED))
    for word in ("critical", "warning", "info", "ok"):
        spans += [severity(word), Span("  ")]
    return fit(spans, width)


def key_line(snapshot: Snapshot | None, ctx: Context) -> Line:
    """One line."""
    if ctx.ui.prompt is not None:
        return _prompt(ctx.ui.prompt, snapshot, ctx)
    if ctx.ui.notice is not None:
        return fit([Span(f" {clean(ctx.ui.notice)}", Role.INFO)], ctx.width)
    slots = snapshot is not None and snapshot.run.slots_enabled
    num_alarms = 0 if snapshot is None else min(9, len(on_rail(snapshot)))
    of_alarms = "1 alarm" if num_alarms == 1 else f"1-{num_alarms} alarm" if num_alarms else ""
    hints = [
        of_alarms if key.action == "alarm" else hint
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


def _prompt(prompt: Prompt, snapshot: Snapshot | None, ctx: Context) -> Line:
    """What is typed with the caret, and at the right what is wrong with it and what passes."""
    answer: list[Span] = []
    error = prompt.error
    if error is not None:
        answer.append(Span(cut(clean(error), max(10, ctx.width * 3 // 5)), Role.WARN))
    if prompt.kind is FILTER and snapshot is not None:
        total, matched = snapshot.run.n_envs, snapshot.board.matched
        passing = f"{total or 0:,} env" if matched is None else f"{matched:,} of {total or 0:,} env"
        if total is not None and ctx.width - sum(cells(span.text) for span in answer) > 40:
            answer.append(Span(("   " if answer else "") + passing))
    if not answer:
        answer = [Span(f"Tab completes, Enter {prompt.kind.entered} it, Esc goes back", Role.MUTED)]
    room = max(4, ctx.width - 6 - sum(cells(span.text) for span in answer))
    before = tail(prompt.text[: prompt.at], room - 1)
    after = prompt.text[prompt.at :]
    caret = after[:1] or " "
    typed = [Span(prompt.kind.sign, Role.TITLE), Span(before), Span(caret, Role.ACCENT), Span(after[1:])]
    return spread(typed, answer, ctx.width)


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
        word = left(clean(candidate.word), max(_CHOICE, len(candidate.word)))
        note = cut(candidate.note, ctx.width - cells(word) - 4)
        lines.append(fit([Span("  "), Span(word, role), Span(f" {note}", Role.MUTED)], ctx.width))
    return lines
