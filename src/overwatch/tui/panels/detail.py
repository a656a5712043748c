"""What the drawer shows of one env: why it stands out, its slots, its trends, what it did last.

Two forms of the same content: narrow, for the box at the right of the board, and wide, for the full screen.
A part that the run does not have is not there. Must not know the box around it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from overwatch.catalog import Stage, parse_stage
from overwatch.snapshot import Detail, Env, Reason, SeedEvent, Slot, Snapshot, Trend
from overwatch.tui.context import Context
from overwatch.tui.grammar import ABSENT, clock, no_zero, number, operation, sparkline, stage_role
from overwatch.tui.panels import growth
from overwatch.tui.panels.rows import metric_word
from overwatch.tui.text import Line, Role, Span, cells, clean, cut, fit, left, right, rule, wrapped

LABEL: Final = 6
_SHORT_WORDS: Final = (("gradient ratio", "grad"), ("gradient", "grad"))
_SHORTER: Final = ((": ", " "), *_SHORT_WORDS, ("by the ", "by "))
_MEASURED: Final = re.compile(r"^(\S+) .*?([-+.\d]+ [<>] [-+.\d]+)$")
"""A gate, what it checked, and the numbers: `G2 seed health 0.32 < 0.50`."""
_TREND_SPECS: Final = {
    "return": ("+.2f", 5), "reward": ("+.2f", 5), "metric": (".2f", 5), "rent": (".2f", 4), "fps": (".0f", 4),
}  # fmt: skip
"""How the value of each trend is shown, and in how many cells; also their order."""
_STEP: Final = re.compile(r"[\d,]+")
_SHORT_EMBARGO: Final = 9
"""Steps; a longer embargo needs another cell for its ages."""
_NARROW_BARS: Final = 22
_WIDE_BARS: Final = 14


def env_of(snapshot: Snapshot, env_id: int) -> Env | None:
    """The row of an env: from the board, else from the detail."""
    row = next((env for env in snapshot.envs if env.env_id == env_id), None)
    if row is None and snapshot.detail is not None and snapshot.detail.env_id == env_id:
        return snapshot.detail.env
    return row


def detail_of(snapshot: Snapshot, env_id: int) -> Detail:
    """The detail of an env; an empty one until the collector has sent it."""
    found = snapshot.detail
    return found if found is not None and found.env_id == env_id else Detail(env_id=env_id)


def narrow(snapshot: Snapshot, env_id: int, width: int, ctx: Context) -> list[Line]:
    """The content of the box, each line `width` cells."""
    env, detail = env_of(snapshot, env_id), detail_of(snapshot, env_id)
    if env is None:
        return [fit([Span(_missing(detail, ctx), Role.MUTED)], width)]
    reasons = [line for reason in detail.reasons for line in _reason(reason, width - LABEL)]
    parts = [
        ("why", reasons or _unexplained(env, width - LABEL)),
        ("bound", _bound(env, detail)),
        ("slots", _slots(snapshot, env, wide=False)),
        (
            "trend",
            [
                [*_trend(row, 6, 5, _NARROW_BARS), Span(f"  {clean(row.trend.window)}", Role.MUTED)]
                for row in _known_trends(snapshot, env, detail)
            ],
        ),
        ("adds", growth.adds(detail)),
        ("host", _flow(growth.host(detail), width - LABEL, " · ", 3)),
        ("chose", growth.choice(detail)),
        ("acts", _flow(_actions(detail), width - LABEL, "   ", 2)),
        ("lives", growth.lives(detail, width - LABEL, _newest(snapshot))),
        ("seeds", _seed_events(snapshot, detail, width - LABEL, ctx)),
    ]
    lines: list[Line] = []
    for label, rows in parts:
        for place, row in enumerate(rows):
            word = Span(left(label if place == 0 else "", LABEL), Role.MUTED)
            lines.append(fit([word, *row], width))
    return lines


def wide(snapshot: Snapshot, env_id: int, width: int, ctx: Context) -> list[Line]:
    """The content of the full screen, each line `width` cells."""
    env, detail = env_of(snapshot, env_id), detail_of(snapshot, env_id)
    if env is None:
        return [fit([Span(f" {_missing(detail, ctx)}", Role.MUTED)], width)]
    roomy = not ctx.short
    indent = LABEL + 1 if roomy else LABEL
    why = _flow(_phrases(env, detail, brief=not roomy), width - indent - 1, "   ", 4)
    parts = [("" if place else " why", row) for place, row in enumerate(why)]
    if roomy:
        parts += [(" bound", row) for row in _bound(env, detail)]
    lines = [fit([Span(left(label, indent), Role.MUTED), *row], width) for label, row in parts]
    lines += [fit([Span("  "), *row], width) for row in _slots(snapshot, env, wide=True)]
    lines += _trend_pairs(snapshot, env, detail, width)
    host = _flow(growth.host(detail), width - 2, " · ", 2)
    grown = [*growth.adds(detail), *growth.lives(detail, width - 2, _newest(snapshot))]
    if roomy and (host or grown):
        lines += [rule("GROWTH", [], width), *(fit([Span(" "), *row], width) for row in (*host, *grown))]
    acts = growth.choice(detail) if roomy else []
    acts += _flow(
        _actions(detail, brief=not roomy), width - 2, " · ", 4 if roomy else 2 if len(why) < 3 else 1
    )
    if acts:
        lines += [rule("ACTIONS", [], width), *(fit([Span(" "), *row], width) for row in acts)]
    events = _seed_events(snapshot, detail, width - 2, ctx)
    if events:
        lines += [rule("SEED EVENTS", [], width), *(fit([Span(" "), *row], width) for row in events)]
    return lines


def _newest(snapshot: Snapshot) -> float:
    """Unix time of the run's newest record: a strip ends there, however long ago that is."""
    return snapshot.time if snapshot.link.last_at is None else min(snapshot.time, snapshot.link.last_at)


def _missing(detail: Detail, ctx: Context) -> str:
    """Why there is nothing to show."""
    if detail.removed_at is None:
        return "waiting for this environment"
    return f"the trainer removed this environment at {clock(detail.removed_at, ctx.zone, millis=False)}"


def _unexplained(env: Env, room: int) -> list[list[Span]]:
    """The reasons of the board, until the collector has sent them with their weights."""
    words = env.anomaly.reasons or ("nothing stands out",)
    return [[Span(line)] for word in words for line in wrapped(clean(word), room)]


def _reason(reason: Reason, room: int) -> list[list[Span]]:
    """Weight, name and text; a text that is too long goes on below."""
    name, wording = clean(reason.name), clean(reason.text)
    weight = f"{reason.weight:+.1f} "
    aligned = left(name, max(11, cells(name))) + "  "
    if cells(weight + aligned + wording) > room - 1:
        aligned = name + "  "
    for long, brief in _SHORT_WORDS:
        if cells(weight + aligned + wording) > room - 1:
            wording = wording.replace(long, brief)
    indent = cells(weight + aligned)
    first, *more = wrapped(wording, max(12, room - 1 - indent))
    lines = [[Span(weight), Span(aligned, Role.TITLE), Span(first)]]
    return lines + [[Span(" " * indent + line)] for line in more[:2]]


def _phrases(env: Env, detail: Detail, *, brief: bool) -> list[str]:
    """One phrase a reason; `brief` leaves out what the details below have."""
    if not detail.reasons:
        return [clean(word) for word in env.anomaly.reasons or ("nothing stands out",)]
    phrases = []
    for reason in detail.reasons:
        name, wording = clean(reason.name), clean(reason.text)
        phrase = f"{name} {wording}"
        if brief:
            # Name and text up to its cause; the text alone where it begins with the name's own word.
            wording = wording.partition(": ")[0]
            is_named = wording.split(" ")[0] == name.split(",")[0]
            phrase = wording.replace(", ", " with ", 1) if is_named else f"{name} {wording}"
        phrases.append(f"{reason.weight:+.1f} {phrase}")
    return phrases


def _bound(env: Env, detail: Detail) -> list[list[Span]]:
    bound = detail.bound
    if bound is None:
        return []
    role = {"!!": Role.CRIT, "!": Role.WARN}.get(bound.mark, Role.TEXT)
    because = bound.why or bound.hint
    return [[
        Span(f"{clean(env.gpu_id)} " if env.gpu_id else ""), Span(clean(bound.state), role),
        Span(f": {clean(because)}" if because else ""),
    ]]  # fmt: skip


def _slots(snapshot: Snapshot, env: Env, *, wide: bool) -> list[list[Span]]:
    """One line a slot, in the run's order, those that the run does not name after them."""
    if not env.slots:
        return []
    names = [name for name in snapshot.run.slots if name in env.slots]
    names += [name for name in env.slots if name not in names]
    label = min(12, max(4, *(cells(clean(name)) for name in names)))
    embargo = snapshot.run.embargo
    alpha, age, blueprint = (6, 6, 12) if wide else (4, 5, 11)
    age += embargo is not None and embargo > _SHORT_EMBARGO
    # Whether the run reports gradient health at all, so that the column does not come and go.
    every = (one for row in (env, *snapshot.envs) for one in row.slots.values())
    grad = 4 if any(one.grad is not None for one in every) else 0
    gate = (29 if wide else 12) - grad
    gap = "  " if wide or age == 5 else " "
    head = "".join((
        left("slot", label + 3), left("stage", 11), left("blueprint", blueprint),
        right("alpha" if wide else "alf", alpha), right("age", age), gap, left("gate", gate),
        right("grad", grad),
    ))  # fmt: skip
    rows = [[Span(head, Role.MUTED)]]
    for name in names:
        slot = env.slots[name]
        stage = parse_stage(slot.stage)
        failed = slot.gate is not None and "fail" in slot.gate
        share = ABSENT if slot.grad is None else number(slot.grad, ".2f", 4)
        rows.append([
            Span(left(clean(name), label) + " "),
            Span(stage.glyph, stage_role(stage)),
            Span(" " + left(stage.label, 11)),
            Span(left(cut(clean(slot.blueprint or ABSENT), blueprint - 1), blueprint)),
            Span(right(_alpha(slot, stage, wide=wide), alpha)),
            Span(right(_age(slot, stage, embargo, age - 1), age) + gap),
            Span(left(_gate(slot.gate, gate - 1, wide=wide), gate), Role.WARN if failed else Role.TEXT),
            Span(right(share if wide else no_zero(share), grad)),
        ])  # fmt: skip
    return rows


def _alpha(slot: Slot, stage: Stage, *, wide: bool) -> str:
    """How far the seed is let in; of a pruned one, how far it had been."""
    shown = stage.shows_alpha or (stage is Stage.PRUNED and slot.alpha)
    if slot.alpha is None or not shown:
        return ABSENT
    share = f"{slot.alpha:.2f}"
    return share if wide else no_zero(share).removesuffix("0")


def _age(slot: Slot, stage: Stage, embargo: int | None, room: int) -> str:
    """Steps in the stage; of an embargo, how many of its steps are over where that fits: `4/5`."""
    if slot.age is None:
        return ABSENT
    over = f"{slot.age}/{embargo}"
    is_over = stage is Stage.EMBARGOED and embargo is not None and cells(over) <= room
    return over if is_over else f"{slot.age:,}"


def _gate(gate: str | None, room: int, *, wide: bool) -> str:
    """The last gate and its result; narrow without what failed."""
    wording = clean(gate or ABSENT)
    if not wide:
        wording = wording.partition(":")[0].replace("passed", "pass")
    return cut(wording, room)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One trend as it is shown."""

    name: str
    value: float | None
    spec: str
    """`format()` specification of the value."""
    room: int
    """Cells that the value needs at most."""
    trend: Trend


def _known_trends(snapshot: Snapshot, env: Env, detail: Detail) -> list[_Row]:
    now = {
        "return": env.episode_return, "reward": env.reward, "metric": env.metric, "rent": env.rent,
        "fps": env.fps,
    }  # fmt: skip
    rows = []
    for name in (*_TREND_SPECS, *(name for name in detail.trends if name not in _TREND_SPECS)):
        trend = detail.trends.get(name)
        if trend is not None:
            spec, room = _TREND_SPECS.get(name, (".3g", 5))
            value = now.get(name)
            if value is None:
                value = next((known for known in reversed(trend.values) if known is not None), None)
            word = metric_word(snapshot) if name == "metric" else clean(name)
            rows.append(_Row(name=word, value=value, spec=spec, room=room, trend=trend))
    return rows


def _trend(row: _Row, name: int, value: int, bars: int) -> list[Span]:
    """Name and value in so many cells, and the sparkline."""
    shown = ABSENT if row.value is None else number(row.value, row.spec, value)
    return [
        Span(left(row.name, name), Role.MUTED),
        Span(f" {right(shown, value)} "),
        *sparkline(_squeezed(row.trend.values, bars), bars),
    ]


def _squeezed(values: Sequence[float | None], bars: int) -> list[float | None]:
    """All of the window in at most `bars` values, each the mean of those in its place."""
    if len(values) <= bars:
        return list(values)
    ends = [place * len(values) // bars for place in range(bars + 1)]
    known = ([value for value in values[low:high] if value is not None] for low, high in pairwise(ends))
    return [sum(some) / len(some) if some else None for some in known]


def _trend_pairs(snapshot: Snapshot, env: Env, detail: Detail, width: int) -> list[Line]:
    """Two trends to a line, in columns; each column is as wide as its names and values need."""
    half = width // 2
    bars = max(_WIDE_BARS, min(48, half - 28))
    rows = _known_trends(snapshot, env, detail)
    lines = (len(rows) + 1) // 2
    drawn = []
    for column in (rows[:lines], rows[lines:]):
        name = min(6, max((cells(row.name) for row in column), default=0))
        value = max((row.room for row in column), default=0)
        for row in column:
            window = clean(row.trend.window).removeprefix("last ")
            window = window.replace("episodes", "ep").replace("steps", "st")
            spans = [Span(" "), *_trend(row, name, value, bars), Span(f"  {window}", Role.MUTED)]
            drawn.append(fit(spans, half))
    return [fit([span for one in drawn[i::lines] for span in one], width) for i in range(lines)]


def _actions(detail: Detail, *, brief: bool = False) -> list[str]:
    """`88,214 GERM r1c1 conv_light`, newest first; `brief` leaves out the blueprint."""
    found = []
    for action in detail.actions:
        words = clean(action).split(" ")
        place = 1 if len(words) > 1 and _STEP.fullmatch(words[0]) else 0
        words[place] = operation(words[place])
        found.append(" ".join(words[: place + 2] if brief else words))
    return found


def _flow(words: list[str], room: int, between: str, most: int) -> list[list[Span]]:
    """Whole words over at most `most` lines; what has no room is counted at the end of the last."""
    lines: list[str] = []
    for place, word in enumerate(words):
        longer = f"{lines[-1]}{between}{word}" if lines else word
        rest = f"  +{len(words) - place}"
        if lines and cells(longer) + (len(rest) if len(lines) == most else 0) <= room:
            lines[-1] = longer
        elif len(lines) < most:
            lines.append(cut(word, room))
        else:
            lines[-1] += rest
            break
    return [[Span(line)] for line in lines]


def _seed_events(snapshot: Snapshot, detail: Detail, room: int, ctx: Context) -> list[list[Span]]:
    if not snapshot.run.slots_enabled:
        return []
    return [_seed_event(event, room, ctx) for event in detail.seed_events]


def _seed_event(event: SeedEvent, room: int, ctx: Context) -> list[Span]:
    """Time, slot, move and why; the gaps close before the why is shortened. Without a slot nothing aligns."""
    wording, why, slot = clean(event.text), clean(event.why), clean(event.slot)
    wording = left(wording, max(15, cells(wording))) if slot else wording
    start = f"{clock(event.time, ctx.zone, millis=False)} " + (f"{slot} " if slot else "")
    gap = "   " if cells(f"{start}{wording}   {why}") <= room else "  "
    left_over = max(0, room - cells(start + wording + gap))
    shown = _shortened(why, left_over) if slot else cut(why, left_over)
    return [Span(start, Role.MUTED), Span(wording + gap), Span(shown)]


def _shortened(why: str, room: int) -> str:
    """Usual words made shorter one after the other, then all but gate and numbers; numbers are cut last."""
    for long, brief in _SHORTER:
        if cells(why) <= room:
            break
        why = why.replace(long, brief)
    if cells(why) > room:
        why = _MEASURED.sub(r"\1 \2", why)
    return cut(why, room)
