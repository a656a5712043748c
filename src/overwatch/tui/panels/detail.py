"""What the drawer says of one env: why it stands out, its slots, its trends, what it did last.

Two forms of the same content: narrow, for the box at the right of the board, and wide, for the full screen.
A part that the run does not have is not there. Must not know the box around it.
"""

import re
from typing import Final

from overwatch.catalog import parse_stage
from overwatch.snapshot import Detail, Env, Reason, SeedEvent, Snapshot, Trend
from overwatch.tui.context import Context
from overwatch.tui.grammar import ABSENT, clock, no_zero, number, operation, sparkline, stage_role
from overwatch.tui.panels.columns import metric_word
from overwatch.tui.text import Line, Role, Span, cells, clean, cut, fit, left, right, rule, wrapped

LABEL: Final = 6
_SHORTER: Final = ((": ", " "), ("gradient ratio", "grad"), ("gradient", "grad"))
_TREND_SPECS: Final = (
    ("return", "+.2f"), ("reward", "+.2f"), ("metric", ".2f"), ("rent", ".2f"), ("fps", ".0f"),
)  # fmt: skip
_STEP: Final = re.compile(r"[\d,]+")
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
        return [fit([Span("waiting for this environment", Role.MUTED)], width)]
    parts = [
        ("why", _why(env, detail, width - LABEL)),
        ("bound", _bound(env, detail)),
        ("slots", _slots(snapshot, env, wide=False)),
        ("trend", _trends(snapshot, env, detail)),
        ("acts", _flow(_actions(detail), width - LABEL, "   ", 2)),
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
        return [fit([Span(" waiting for this environment", Role.MUTED)], width)]
    why = _flow(_said(env, detail), width - LABEL - 2, "   ", 4)
    lines = [_labelled(" why" if place == 0 else "", row, width) for place, row in enumerate(why)]
    roomy = not ctx.short
    if roomy:
        lines += [_labelled(" bound", row, width) for row in _bound(env, detail)]
    lines += [fit([Span("  "), *row], width) for row in _slots(snapshot, env, wide=True)]
    lines += _trend_pairs(snapshot, env, detail, width)
    acts = _flow(_actions(detail), width - 2, " · ", 4 if roomy else 2 if len(why) < 3 else 1)
    if acts:
        lines += [rule("ACTIONS", [], width), *(fit([Span(" "), *row], width) for row in acts)]
    events = _seed_events(snapshot, detail, width - 2, ctx)
    if events:
        lines += [rule("SEED EVENTS", [], width), *(fit([Span(" "), *row], width) for row in events)]
    return lines


def _labelled(label: str, row: list[Span], width: int) -> Line:
    return fit([Span(left(label, LABEL + 1), Role.MUTED), *row], width)


def _why(env: Env, detail: Detail, room: int) -> list[list[Span]]:
    """One line a reason: weight, name, numbers."""
    if not detail.reasons:
        words = env.anomaly.reasons or ("nothing stands out",)
        return [[Span(line)] for word in words for line in wrapped(clean(word), room)]
    return [line for reason in detail.reasons for line in _reason(reason, room)]


def _reason(reason: Reason, room: int) -> list[list[Span]]:
    """Weight, name and text; a text that is too long goes on below."""
    name, said = clean(reason.name), clean(reason.text)
    weight = f"{reason.weight:+.1f} "
    aligned = left(name, max(11, cells(name))) + "  "
    if cells(weight + aligned + said) > room - 1:
        aligned = name + "  "
    indent = cells(weight + aligned)
    first, *more = wrapped(said, max(12, room - 1 - indent))
    lines = [[Span(weight), Span(aligned, Role.TITLE), Span(first)]]
    return lines + [[Span(" " * indent + line)] for line in more[:2]]


def _said(env: Env, detail: Detail) -> list[str]:
    if not detail.reasons:
        return [clean(word) for word in env.anomaly.reasons or ("nothing stands out",)]
    return [f"{reason.weight:+.1f} {clean(reason.name)} {clean(reason.text)}" for reason in detail.reasons]


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
    alpha, gate, blueprint = (7, 29, 12) if wide else (5, 12, 11)
    head = "".join((
        left("slot", label + 3), left("stage", 11), left("blueprint", blueprint),
        right("alpha" if wide else "alf", alpha - 1), right("age", 6 if wide else 5),
        "  ", left("gate", gate),
    ))  # fmt: skip
    rows = [[Span(head, Role.MUTED)]]
    for name in names:
        slot = env.slots[name]
        stage = parse_stage(slot.stage)
        shown = slot.alpha is not None and stage.shows_alpha
        share = f"{slot.alpha:.2f}" if shown else ABSENT
        rows.append([
            Span(left(clean(name), label) + " "),
            Span(stage.glyph, stage_role(stage)),
            Span(" " + left(stage.label, 11)),
            Span(left(cut(clean(slot.blueprint or ABSENT), blueprint - 1), blueprint)),
            Span(right(share if wide else no_zero(share), alpha - 1)),
            Span(right(ABSENT if slot.age is None else f"{slot.age:,}", 6 if wide else 5) + "  "),
            Span(left(clean(slot.gate or ABSENT), gate), Role.WARN if _failed(slot.gate) else Role.TEXT),
        ])  # fmt: skip
    return rows


def _failed(gate: str | None) -> bool:
    return gate is not None and "fail" in gate


def _known_trends(env: Env, detail: Detail) -> list[tuple[str, str, float | None, Trend]]:
    now = {
        "return": env.episode_return, "reward": env.reward, "metric": env.metric, "rent": env.rent,
        "fps": env.fps,
    }  # fmt: skip
    specs = dict(_TREND_SPECS)
    names = [name for name, _ in _TREND_SPECS if name in detail.trends]
    names += [name for name in detail.trends if name not in specs]
    return [(name, specs.get(name, ".3g"), now.get(name), detail.trends[name]) for name in names]


def _trends(snapshot: Snapshot, env: Env, detail: Detail) -> list[list[Span]]:
    """Name, value, sparkline, window."""
    return [
        _trend(metric_word(snapshot) if name == "metric" else name, spec, value, trend, _NARROW_BARS)
        for name, spec, value, trend in _known_trends(env, detail)
    ]


def _trend(name: str, spec: str, value: float | None, trend: Trend, bars: int) -> list[Span]:
    if value is None:
        value = next((known for known in reversed(trend.values) if known is not None), None)
    shown = ABSENT if value is None else number(value, spec, 5)
    return [
        Span(left(clean(name), 6), Role.MUTED),
        Span(" " + right(shown, 5) + " "),
        *sparkline(trend.values, bars),
        Span(f"  {clean(trend.window)}", Role.MUTED),
    ]


def _trend_pairs(snapshot: Snapshot, env: Env, detail: Detail, width: int) -> list[Line]:
    """Two trends to a line, in columns."""
    half = width // 2
    drawn = []
    for name, spec, value, trend in _known_trends(env, detail):
        word = metric_word(snapshot) if name == "metric" else name
        row = _trend(word, spec, value, trend, max(_WIDE_BARS, min(48, half - 28)))
        drawn.append(fit([Span(" "), *row[:-1], Span(f"  {_brief(trend.window)}", Role.MUTED)], half))
    rows = (len(drawn) + 1) // 2
    return [fit([span for one in drawn[i::rows] for span in one], width) for i in range(rows)]


def _brief(window: str) -> str:
    return clean(window).removeprefix("last ").replace("episodes", "ep").replace("steps", "st")


def _actions(detail: Detail) -> list[str]:
    """`88,214 PRUNE r1c1`, newest first."""
    found = []
    for action in detail.actions:
        words = clean(action).split(" ")
        place = 1 if len(words) > 1 and _STEP.fullmatch(words[0]) else 0
        words[place] = operation(words[place])
        found.append(" ".join(words))
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
    said = clean(event.text)
    start = f"{clock(event.time, ctx.zone, millis=False)} {clean(event.slot)} "
    said = left(said, max(15, cells(said))) + "  "
    left_over = room - cells(start + said)
    return [Span(start, Role.MUTED), Span(said), Span(_shortened(clean(event.why), left_over))]


def _shortened(why: str, room: int) -> str:
    """Usual words made shorter one after the other, before anything is cut."""
    for long, brief in _SHORTER:
        if cells(why) <= room:
            break
        why = why.replace(long, brief)
    return cut(why, max(0, room))
