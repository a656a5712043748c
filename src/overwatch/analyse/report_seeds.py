"""Seed lifecycles in a report: how they ended, which blueprints made it, and the lives of some. Pure."""

from collections import Counter
from typing import Final

from overwatch.analyse.facts import Seed
from overwatch.analyse.figure import Scale, bar, legend, seconds, time_ticks
from overwatch.analyse.page import Markup, section, table, tag, text
from overwatch.analyse.story import Story
from overwatch.catalog import Stage
from overwatch.catalog.durations import duration
from overwatch.catalog.stages import Life, Tone, of_life

_MOST: Final = 24
_ROW: Final = 15.0
_LEFT: Final = 210.0
TONES: Final = {
    Tone.NEW: "b-none", Tone.TRAIN: "b-env", Tone.BLEND: "b-wait", Tone.HOLD: "b-host", Tone.DONE: "b-good",
    Tone.FAIL: "b-bad", Tone.MUTED: "b-idle", Tone.WARN: "b-none",
}  # fmt: skip
_COLOURS: Final = {
    stage: TONES[stage.facets.tone] for stage in of_life(Life.GROWING, Life.GRAFTED, Life.CLEANING)
}
"""Of the stages that are drawn."""
_ENDS: Final = (Stage.FOSSILISED, Stage.PRUNED)


def seeds(story: Story) -> Markup:
    """Nothing of a run without slots."""
    lives = [seed for seed in story.facts.seeds.values() if seed.moves]
    if not lives:
        return Markup("")
    ended = {seed.seed_id: _end(seed) for seed in lives}
    kept = sum(end is Stage.FOSSILISED for end in ended.values())
    lost = sum(end is Stage.PRUNED for end in ended.values())
    note = (
        f"{len(lives):,} seeds: {kept:,} fossilised, {lost:,} pruned, {len(lives) - kept - lost:,} under way"
    )
    worst = sorted(lives, key=lambda seed: (-seed.failed, seed.moves[0].time))[: _MOST // 2]
    longest = sorted(lives, key=lambda seed: seed.moves[0].time - seed.moves[-1].time)[:_MOST]
    chosen = list({seed.seed_id: seed for seed in (*worst, *longest)}.values())[:_MOST]
    shown = sorted(chosen, key=lambda seed: seed.moves[0].time)
    inside = tag("div", _blueprints(lives, ended), class_="card")
    drawn = tag("figure", _strips(story, shown), _legend(), class_="card", style="margin-top:10px")
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
            tag("td", text(name), class_="nw"),
            *(tag("td", text(f"{count[name]:,}"), class_="num") for count in (planted, kept, lost)),
            tag("td", text(f"{share[name]:.0%}" if name in share else "–"), class_="num"),
            tag("td", text(f"{failed[name]:,}"), class_="num"),
            text(", ".join(f"{reason} ×{count}" for reason, count in why[name].most_common(2))),
        )
        for name, _ in planted.most_common()
    ]
    return table(
        ("blueprint", "planted", "fossilised", "pruned", "kept", "gates failed", "pruned most often by"), rows
    )


def _strips(story: Story, shown: list[Seed]) -> Markup:
    x = Scale(low=0.0, high=max(story.length, 1.0), start=_LEFT, end=1150.0)
    drawn = []
    for place, seed in enumerate(shown):
        y = 4 + place * _ROW
        name = f"env {seed.env_id} {seed.slot} {seed.blueprint or ''}"
        drawn.append(tag("text", text(name[:34]), x=_LEFT - 8, y=y + 10, text_anchor="end", class_="name"))
        following = [*(move.time for move in seed.moves[1:]), story.length]
        for move, end in zip(seed.moves, following, strict=True):
            if move.stage in _COLOURS:
                start = max(0.0, move.time)
                title = f"{move.stage.label} from {duration(start)} for {duration(max(0.0, end - start))}"
                title += f": {move.reason}" if move.reason else ""
                drawn.append(bar(x, (move.time, end), (y, _ROW - 4), _COLOURS[move.stage], title))
    bottom = 8 + len(shown) * _ROW
    axis = (
        tag("text", text(seconds(at)), x=x(at), y=bottom + 14, text_anchor="middle")
        for at in time_ticks(x.low, x.high, 10)
    )
    return tag("svg", *drawn, *axis, viewBox=f"0 0 1160 {bottom + 20:g}", role="img")


def _legend() -> Markup:
    words: dict[str, list[str]] = {}
    for stage, colour in _COLOURS.items():
        words.setdefault(colour, []).append(stage.label.lower())
    return legend((colour, ", ".join(named)) for colour, named in words.items())
