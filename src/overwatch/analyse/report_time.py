"""What a report draws over time: findings, bounds and curves at first; machines; seed lifecycles. Pure."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from overwatch.analyse.curves import HOST_FIELDS, NOT_OK, STEPS_PER_S, Curve
from overwatch.analyse.findings import Found, Group, foremost
from overwatch.analyse.page import (
    Line,
    Markup,
    Scale,
    bar,
    chart,
    figure,
    fitted,
    legend,
    number,
    path,
    seconds,
    section,
    table,
    tag,
    time_ticks,
)
from overwatch.analyse.run_history import RunHistory, Seed, seconds_of
from overwatch.catalog import Stage
from overwatch.catalog.bounds import ROWS, BoundState, Colour
from overwatch.catalog.durations import duration
from overwatch.catalog.stages import Life, Tone, of_life


def _css(colour: Colour) -> str:
    """The class of the page's style sheet."""
    return f"b-{colour.name.lower()}"


_LEFT: Final = 172.0
_RIGHT: Final = 1150.0
_ROW: Final = 20.0
_CURVE: Final = 46.0
_MOST_FINDINGS: Final = 12
_MOST_LANES: Final = 16
_COLOURS: Final = {row.state.value: _css(row.colour) for row in ROWS}
_LEGEND: Final = tuple((_css(colour), colour.value) for colour in Colour)
_CURVES: Final = ("return", "kl_divergence", "entropy")
_SHOWN: Final = (
    ("utilization", "utilisation", 100.0, "%"),
    ("temperature_c", "temperature", 1.0, "°C"),
    ("power_w", "power", 1.0, "W"),
    ("memory_used_bytes", "memory", 2.0**-30, "GiB"),
)
_MOST_CHARTED: Final = 6
"""Lanes in one chart."""
_MOST_SEEDS: Final = 24
_SEED_ROW: Final = 15.0
_SEED_LEFT: Final = 210.0
TONES: Final = {
    Tone.NEW: "b-none", Tone.TRAIN: "b-env", Tone.BLEND: "b-wait", Tone.HOLD: "b-host", Tone.DONE: "b-good",
    Tone.FAIL: "b-bad", Tone.MUTED: "b-idle", Tone.WARN: "b-none",
}  # fmt: skip
_STAGE_COLOURS: Final = {
    stage: TONES[stage.facets.tone] for stage in of_life(Life.GROWING, Life.GRAFTED, Life.CLEANING)
}
"""Of the stages that are drawn."""
_ENDS: Final = (Stage.FOSSILISED, Stage.PRUNED)


def timeline(run_history: RunHistory, found: list[Group]) -> Markup:
    """Everything over time, in rows."""
    x = Scale(low=0.0, high=max(run_history.length, 1.0), start=_LEFT, end=_RIGHT)
    rows: list[Markup] = []
    y = 8.0
    shown = foremost(found, _MOST_FINDINGS)
    for group in shown:
        rows += [_name(group.name, y), *(_finding(one, x, y) for one in group.found)]
        y += _ROW
    if len(found) > len(shown):
        rows.append(_name(f"and {len(found) - len(shown)} more kinds", y))
        y += _ROW
    y += 6.0 if shown else 0.0
    lanes = sorted(name for name in run_history.bounds if name)[:_MOST_LANES]
    for lane in lanes:
        rows += [_name(lane, y), *(bound_bar(run_history, lane, x, y))]
        y += _ROW
    y += 4.0 if lanes else 0.0
    for label, curve in _curves(run_history):
        rows += _small(label, curve, x, y)
        y += _CURVE + 6
    ends = [_axis(x, y)] + [_mark(group, x, y) for group in shown if group.severity != "info"]
    drawn = tag("svg", *_grid(x, y), *ends, *rows, viewBox=f"0 0 1160 {y + 24:g}", role="img")
    colours = legend(_LEGEND) if lanes else Markup("")
    return section(
        "When", tag("figure", drawn, colours, class_="card"), note="time since the run began", anchor="when"
    )


def bound_bar(run_history: RunHistory, lane: str, x: Scale, y: float) -> list[Markup]:
    """What held one lane back, over time."""
    return [
        bar(x, (spell.start - 1, spell.end - 1), (y, _ROW - 5), _COLOURS.get(spell.word, "b-none"),
            f"{lane} {spell.word} from {duration(max(0.0, spell.start - 1))} for {duration(spell.length)}: "
            f"{spell.why or ''}")
        for spell in run_history.bounds[lane]
    ]  # fmt: skip


def _finding(one: Found, x: Scale, y: float) -> Markup:
    title = f"{one.finding.message}: {duration(max(0.0, one.since))} to {duration(one.until)}"
    return bar(x, (one.since, one.until), (y, _ROW - 5), f"x-{one.severity}", title)


def _name(word: str, y: float) -> Markup:
    short = word if len(word) <= 26 else word[:25] + "…"
    return tag("text", short, x=_LEFT - 10, y=y + 12, text_anchor="end", class_="name")


def _curves(run_history: RunHistory) -> list[tuple[str, Curve]]:
    reported: list[tuple[str, Curve]] = []
    bad = run_history.curves.machine.get((NOT_OK, None))
    if bad is not None and any(bad.value):
        reported.append(("envs not OK", bad))
    for name in _CURVES:
        curve = run_history.curves.policy.get(name)
        if curve is not None and len(curve) > 1:
            reported.append((curve.label, curve))
    pace = run_history.curves.machine.get((STEPS_PER_S, None))
    if pace is not None and len(pace) > 1:
        reported.append(("steps/s", pace))
    return reported


def _small(label: str, curve: Curve, x: Scale, top: float) -> list[Markup]:
    low, high = fitted(curve.value)
    y = Scale(low=low, high=high, start=top + _CURVE - 4, end=top + 4)
    ends = (min(curve.value, key=_known), max(curve.value, key=_known))
    return [
        _name(label, top + _CURVE / 2 - 8),
        tag("text", f"{number(_round(ends[0]))} … {number(_round(ends[1]))}", x=_LEFT - 10,
            y=top + _CURVE / 2 + 18, text_anchor="end"),
        tag("line", x1=_LEFT, x2=_RIGHT, y1=top + _CURVE, y2=top + _CURVE, class_="gridline"),
        path(Line(x=curve.time, y=curve.value, name=label), x, y),
    ]  # fmt: skip


def _known(value: float) -> float:
    return value if value == value else 0.0  # noqa: PLR0124 not a number is not equal to itself


def _round(value: float) -> float:
    return float(f"{value:.3g}")


def _mark(group: Group, x: Scale, bottom: float) -> Markup:
    at = x(group.first.since)
    return tag("line", x1=at, x2=at, y1=8, y2=bottom, class_=f"mark x-{group.severity}")


def _grid(x: Scale, bottom: float) -> Sequence[Markup]:
    return [
        tag("line", x1=x(at), x2=x(at), y1=4, y2=bottom, class_="gridline")
        for at in time_ticks(x.low, x.high, 10)
    ]


def _axis(x: Scale, y: float) -> Markup:
    words = (
        tag("text", seconds(at), x=x(at), y=y + 16, text_anchor="middle")
        for at in time_ticks(x.low, x.high, 10)
    )
    return tag("g", tag("line", x1=_LEFT, x2=_RIGHT, y1=y, y2=y, class_="axis"), *words)


def machines(run_history: RunHistory) -> Markup:
    """Bounds by time, idle time, and a chart for each thing that lanes and the host measure."""
    lanes = sorted({subject for name, subject in run_history.curves.machine if subject})
    charts = [drawn for shown in _SHOWN if (drawn := _lanes(run_history, lanes, shown)) is not None]
    charts += [drawn for name in HOST_FIELDS if (drawn := _host(run_history, name)) is not None]
    if not charts and not run_history.bounds:
        return Markup("")
    colours = legend((f"f{place}", lane) for place, lane in enumerate(lanes[:_MOST_CHARTED]))
    inside = [tag("div", _bounds(run_history), class_="card")] if any(run_history.bounds) else []
    gap = tag("div", Markup(""), class_="gap")
    idle = sum(run_history.last.system.idle_gpu_s.values())
    note = f"{idle:,.0f} GPU-seconds in which nothing ran" if lanes else ""
    return section(
        "Machines", *inside, gap, tag("div", *charts, class_="grid"), colours if lanes else Markup(""),
        note=note, anchor="machines",
    )  # fmt: skip


def _bounds(run_history: RunHistory) -> Markup:
    """Each lane's bounds, the longest first, with the newest reason for each."""
    rows = []
    for lane in sorted(name for name in run_history.bounds if name):
        whole = sum(seconds_of(run_history.bounds[lane]).values()) or 1.0
        for word, length in seconds_of(run_history.bounds[lane]).items():
            last = next(spell for spell in reversed(run_history.bounds[lane]) if spell.word == word)
            rows.append(
                (
                    tag("td", lane, class_="nw"),
                    tag("td", word if word != BoundState.UNKNOWN.value else "not judged", class_="nw"),
                    tag("td", duration(length), class_="num"),
                    tag("td", f"{length / whole:.0%}", class_="num"),
                    last.why or "",
                    last.hint or "",
                )
            )
    return table(("lane", "held back by", "for", "share", "why", "do"), rows)


def _lanes(run_history: RunHistory, lanes: list[str], shown: tuple[str, str, float, str]) -> Markup | None:
    name, label, factor, unit = shown
    found = [
        (place, run_history.curves.machine.get((name, lane)))
        for place, lane in enumerate(lanes[:_MOST_CHARTED])
    ]
    lines = [
        Line(x=curve.time, y=[value * factor for value in curve.value], series=place, name=lanes[place])
        for place, curve in found
        if curve is not None and len(curve) > 1
    ]
    return figure(f"GPU {label}", unit, chart(lines, [], [], seconds)) if lines else None


def _host(run_history: RunHistory, name: str) -> Markup | None:
    curve: Curve | None = run_history.curves.machine.get((name, None))
    if curve is None or len(curve) < 2:
        return None
    factor, unit = (2.0**-30, "GiB") if name.endswith("bytes") else (100.0, "%")
    line = Line(x=curve.time, y=[value * factor for value in curve.value])
    return figure(f"host {'memory' if unit == 'GiB' else 'CPU'}", unit, chart([line], [], [], seconds))


def seeds(run_history: RunHistory) -> Markup:
    """Nothing of a run without slots."""
    lives = [seed for seed in run_history.facts.seeds.values() if seed.moves]
    if not lives:
        return Markup("")
    ended = {seed.seed_id: _end(seed) for seed in lives}
    kept = sum(end is Stage.FOSSILISED for end in ended.values())
    lost = sum(end is Stage.PRUNED for end in ended.values())
    note = (
        f"{len(lives):,} seeds: {kept:,} fossilised, {lost:,} pruned, {len(lives) - kept - lost:,} under way"
    )
    worst = sorted(lives, key=lambda seed: (-seed.failed, seed.moves[0].time))[: _MOST_SEEDS // 2]
    longest = sorted(lives, key=lambda seed: seed.moves[0].time - seed.moves[-1].time)[:_MOST_SEEDS]
    chosen = list({seed.seed_id: seed for seed in (*worst, *longest)}.values())[:_MOST_SEEDS]
    shown = sorted(chosen, key=lambda seed: seed.moves[0].time)
    inside = tag("div", _blueprints(lives, ended), class_="card")
    drawn = tag("figure", _strips(run_history, shown), _legend(), class_="card apart")
    return section("Seed lifecycles", inside, drawn, note=note, anchor="seeds")


def _end(seed: Seed) -> Stage | None:
    """How its life ended; `None` while it goes on."""
    return next((move.stage for move in reversed(seed.moves) if move.stage in _ENDS), None)


def _blueprints(lives: list[Seed], ended: dict[str, Stage | None]) -> Markup:
    planted, kept, lost, failed = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    why: dict[str, Counter[str]] = {}
    for seed in lives:
        name = seed.blueprint or "(unnamed)"
        planted[name] += 1
        kept[name] += ended[seed.seed_id] is Stage.FOSSILISED
        lost[name] += ended[seed.seed_id] is Stage.PRUNED
        failed[name] += seed.failed
        reasons = [move.reason for move in seed.moves if move.stage is Stage.PRUNED and move.reason]
        why.setdefault(name, Counter()).update(reasons)
    share = {name: kept[name] / over for name in planted if (over := kept[name] + lost[name])}
    rows = [
        (
            tag("td", name, class_="nw"),
            *(tag("td", f"{count[name]:,}", class_="num") for count in (planted, kept, lost)),
            tag("td", f"{share[name]:.0%}" if name in share else "–", class_="num"),
            tag("td", f"{failed[name]:,}", class_="num"),
            ", ".join(f"{reason} ×{count}" for reason, count in why[name].most_common(2)),
        )
        for name, _ in planted.most_common()
    ]
    return table(
        ("blueprint", "planted", "fossilised", "pruned", "kept", "gates failed", "pruned most often by"), rows
    )


def _strips(run_history: RunHistory, shown: list[Seed]) -> Markup:
    x = Scale(low=0.0, high=max(run_history.length, 1.0), start=_SEED_LEFT, end=1150.0)
    drawn = []
    for place, seed in enumerate(shown):
        y = 4 + place * _SEED_ROW
        name = f"env {seed.env_id} {seed.slot} {seed.blueprint or ''}"
        drawn.append(tag("text", name[:34], x=_SEED_LEFT - 8, y=y + 10, text_anchor="end", class_="name"))
        following = [*(move.time for move in seed.moves[1:]), run_history.length]
        for move, end in zip(seed.moves, following, strict=True):
            if move.stage in _STAGE_COLOURS:
                start = max(0.0, move.time)
                title = f"{move.stage.label} from {duration(start)} for {duration(max(0.0, end - start))}"
                title += f": {move.reason}" if move.reason else ""
                drawn.append(bar(x, (move.time, end), (y, _SEED_ROW - 4), _STAGE_COLOURS[move.stage], title))
    bottom = 8 + len(shown) * _SEED_ROW
    axis = (
        tag("text", seconds(at), x=x(at), y=bottom + 14, text_anchor="middle")
        for at in time_ticks(x.low, x.high, 10)
    )
    return tag("svg", *drawn, *axis, viewBox=f"0 0 1160 {bottom + 20:g}", role="img")


def _legend() -> Markup:
    words: dict[str, list[str]] = {}
    for stage, colour in _STAGE_COLOURS.items():
        words.setdefault(colour, []).append(stage.label.lower())
    return legend((colour, ", ".join(named)) for colour, named in words.items())
