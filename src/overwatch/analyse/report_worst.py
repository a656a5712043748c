"""The worst envs in a report: how long they were not OK, why, and their statuses over time. Pure."""

from typing import Final

from overwatch.analyse.figure import Scale, bar, legend
from overwatch.analyse.page import Markup, section, table, tag, text
from overwatch.analyse.spells import EnvStory
from overwatch.analyse.story import Story
from overwatch.catalog.durations import duration

_MOST: Final = 12
_COLOURS: Final = {
    "ok": "b-good", "crashed": "b-bad", "diverging": "b-bad", "degraded": "b-wait", "stalled": "b-wait",
}  # fmt: skip


def worst_envs(story: Story) -> Markup:
    """Those that were not OK for longest; nothing of a run without envs."""
    if not story.envs:
        return Markup("")
    bad = sorted((env for env in story.envs.values() if env.bad_s), key=lambda env: (-env.bad_s, env.env_id))
    if not bad:
        said = f"All {len(story.envs):,} envs that were seen were OK all the time."
        return section("Environments", tag("p", text(said), class_="card muted"), anchor="envs")
    x = Scale(low=0.0, high=max(story.length, 1.0), start=0.0, end=300.0)
    rows = [_row(env, x) for env in bad[:_MOST]]
    listing = table(("env", "lane", "not OK", "worst score", "why, at its worst", "over the run"), rows)
    colours = legend((("b-good", "ok"), ("b-wait", "degraded, stalled"), ("b-bad", "crashed, diverging")))
    note = f"{len(bad):,} of {len(story.envs):,} were not OK at some time; the longest first"
    return section(
        "Worst environments", tag("div", listing, colours, class_="card"), note=note, anchor="envs"
    )


def _row(env: EnvStory, x: Scale) -> tuple[Markup, ...]:
    worst = env.worst
    reasons = worst.anomaly.reasons if worst else ()
    strip = [
        bar(x, (spell.start - 1, spell.end - 1), (2, 12), _COLOURS.get(spell.word, "b-none"),
            f"{spell.word} from {duration(max(0.0, spell.start))} for {duration(spell.length)}")
        for spell in env.statuses
    ]  # fmt: skip
    drawn = tag("svg", *strip, viewBox="0 0 300 16", width="300", height="16")
    return (
        tag("td", text(env.env_id), class_="num"),
        tag("td", text((env.last.gpu_id if env.last else None) or "–"), class_="nw"),
        tag("td", text(duration(env.bad_s)), class_="num"),
        tag("td", text(f"{worst.anomaly.score:.1f}" if worst else "–"), class_="num"),
        text(" · ".join(reasons)),
        tag("td", drawn, class_="nw"),
    )
