"""`overwatch compare`: runs beside one another, as text, JSON or a page."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

import click
import msgspec

from overwatch.analyse.words import change, letter
from overwatch.catalog.durations import duration
from overwatch.cli.opening import PATH, read_stories, saying, write

if TYPE_CHECKING:
    from overwatch.analyse.compare import Against, Compared, Comparison, RunTold
    from overwatch.analyse.story import Story

_MOST_PARTED: Final = 8


@click.command(short_help="Put runs beside one another: settings, divergence, verdicts.")
@click.argument("paths", nargs=-1, required=True, type=PATH, metavar="A B [...]")
@click.option("--align", type=click.Choice(["update", "time", "steps"]), default="update", show_default=True,
              help="What stands beside what.")  # fmt: skip
@click.option("--last", default=0.25, show_default=True, metavar="SHARE",
              help="Verdicts are over this share of what both have, at its end.")  # fmt: skip
@click.option(
    "--format", "fmt", type=click.Choice(["text", "json", "html"]), default="text", show_default=True
)
@click.option("-o", "--out", type=PATH, help="Write a file instead.")
@click.option("--run", "run_ids", multiple=True, metavar="ID",
              help="Which run of each recording, in their order; the newest without.")  # fmt: skip
def compare(
    paths: tuple[Path, ...], align: str, last: float, fmt: str, *, out: Path | None, run_ids: tuple[str, ...]
) -> None:
    """Compare runs with the first one.

    What was set differently; where each number leaves the noise of both runs; and over the last part of what
    they have in common, whether it is better or worse, by Cliff's delta with a 99 % interval. One recording
    that holds several runs is compared with itself by naming it once for each --run.

    \b
      overwatch compare runs/41 runs/42
      overwatch compare runs/41 runs/42 runs/43 --align steps --last 0.1
      overwatch compare runs/41 runs/42 --format html -o compare.html

    Exit codes: 0 compared, 2 bad input.
    """  # noqa: D301
    from typing import cast

    from overwatch.analyse.compare import CompareConfig
    from overwatch.analyse.compare import compare as compared
    from overwatch.analyse.curves import Axis

    with saying():
        config = CompareConfig(align=cast("Axis", align), last=last)
        stories = _read(paths, run_ids)
        comparison = compared(stories, config)
        if fmt == "html":
            from overwatch.analyse.compare_page import compare_page

            text = compare_page(stories, comparison)
        elif fmt == "json":
            text = msgspec.json.encode(comparison).decode()
        else:
            text = "\n".join(_lines(comparison))
    write(text, out)


def _read(paths: tuple[Path, ...], run_ids: tuple[str, ...]) -> "list[Story]":
    if run_ids and len(run_ids) != len(paths):
        raise click.UsageError(
            f"{len(run_ids)} --run for {len(paths)} recordings; give one for each, or none"
        )
    wanted = run_ids or (None,) * len(paths)
    return [read_stories(path, run_id)[0] for path, run_id in zip(paths, wanted, strict=True)]


def _lines(comparison: "Comparison") -> Iterator[str]:
    for place, run in enumerate(comparison.runs):
        yield f"{letter(place)}  {_run(run)}"
    yield ""
    yield from _config(comparison)
    yield from _found(comparison)
    yield from _partings(comparison)
    for place in range(1, len(comparison.runs)):
        yield from _verdicts(comparison, place)
        yield ""
    yield (
        f"delta: Cliff's, over the last {comparison.last:.0%} in common, with its 99 % interval; "
        "unclear: the interval allows either."
    )
    yield "These verdicts are about these runs: two seeds of one configuration differ too."


def _run(run: "RunTold") -> str:
    found = (
        ", ".join(f"{count} {severity}" for severity, count in sorted(run.findings.items())) or "no findings"
    )
    return (
        f"{run.run}  {run.ending}, {run.updates:,.0f} updates, {run.steps:,.0f} steps "
        f"in {duration(run.seconds)}; {found}  ({run.path})"
    )


def _config(comparison: "Comparison") -> Iterator[str]:
    if not comparison.config:
        yield "CONFIGURATION  the same"
    else:
        yield "CONFIGURATION"
        width = max(map(len, comparison.config))
        for name, values in comparison.config.items():
            yield f"  {name:{width}}  " + "  |  ".join("–" if value is None else value for value in values)
    yield ""


def _found(comparison: "Comparison") -> Iterator[str]:
    """When each kind of finding was first true in each run."""
    codes = dict.fromkeys(code for run in comparison.runs for code in run.codes)
    if not codes:
        return
    yield "FINDINGS (first true at)"
    width = max(map(len, codes))
    for code in codes:
        times = (run.codes.get(code) for run in comparison.runs)
        yield f"  {code:{width}}  " + "  |  ".join(
            "–" if at is None else duration(max(0.0, at)) for at in times
        )
    yield ""


def _partings(comparison: "Comparison") -> Iterator[str]:
    from overwatch.analyse.compare import alike_until, partings

    found = partings(comparison)
    yield f"FIRST DIVERGENCE (by {comparison.align})"
    for place in range(1, len(comparison.runs)):
        until = alike_until(comparison, place)
        if until is not None:
            yield f"  all numbers of A and {letter(place)} are the same to the bit up to {until:,.6g}"
    if not found:
        yield "  none: no number leaves the noise of both runs"
    for one in found[:_MOST_PARTED]:
        where = "from the start" if one.against.divergence.from_start else f"at {_span(one.at)}"
        beside = f" in {letter(one.against.place)}" if len(comparison.runs) > 2 else ""
        noise = one.against.divergence.times_noise or 0.0
        yield f"  {one.metric.label:14}  {where}{beside}, {_times(noise)} the noise"
    if len(found) > _MOST_PARTED:
        yield f"  and {len(found) - _MOST_PARTED} more"
    yield ""


def _times(noise: float) -> str:
    return "beyond all measure of" if noise > 1e6 else f"{noise:,.1f} times"


def _span(at: tuple[float, float]) -> str:
    return f"{at[0]:,.6g}" if at[0] == at[1] else f"{at[0]:,.6g}–{at[1]:,.6g}"


def _verdicts(comparison: "Comparison", place: int) -> Iterator[str]:
    from overwatch.analyse.effect import Verdict

    head = ("METRIC", "A", letter(place), "CHANGE", "DELTA", "INTERVAL", "VERDICT")
    yield "  {:14}  {:>10}  {:>10}  {:>8}  {:>6}  {:14}  {}".format(*head)
    verdicts = get_args(Verdict)
    rows = [(one, against) for one in comparison.metrics for against in one.against if against.place == place]
    for metric, against in sorted(rows, key=lambda row: verdicts.index(row[1].effect.verdict)):
        yield "  " + _verdict(metric, against)


def _verdict(metric: "Compared", against: "Against") -> str:
    effect = against.effect
    first, second = effect.median
    delta = "" if effect.delta is None else f"{effect.delta:+.2f}"
    interval = "" if effect.interval is None else f"{effect.interval[0]:+.2f} … {effect.interval[1]:+.2f}"
    why = f" ({effect.why})" if effect.why else ""
    return (
        f"{metric.label:14}  {_value(first, metric.fmt):>10}  {_value(second, metric.fmt):>10}  "
        f"{change(first, second):>8}  {delta:>6}  {interval:14}  {effect.verdict}{why}"
    )


def _value(value: float | None, fmt: str) -> str:
    return "–" if value is None else format(value, fmt)
