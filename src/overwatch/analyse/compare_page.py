"""A comparison as text and as a page: what differs first, then each number of all runs. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final, get_args

from overwatch.analyse.compare import (
    Against,
    Compared,
    Comparison,
    RunReport,
    alike_until,
    along,
    letter,
    numbers,
    partings,
    place_text,
)
from overwatch.analyse.effect import Verdict, change
from overwatch.analyse.page import (
    Line,
    Markup,
    chart,
    figure,
    join,
    legend,
    number,
    page,
    seconds,
    section,
    table,
    tag,
)
from overwatch.analyse.run_history import RunHistory
from overwatch.catalog.durations import duration
from overwatch.catalog.titles import title

_SERIES: Final = 6
_MOST_LISTED: Final = 8


def compare_page(histories: Sequence[RunHistory], comparison: Comparison) -> str:
    """The page; ends without a newline."""
    return page(
        " · ".join(run.run for run in comparison.runs) + " · Overwatch",
        tag("header", tag("h1", " and ".join(dict.fromkeys(run.run for run in comparison.runs)))),
        _banners(comparison),
        _runs(comparison),
        _settings(comparison),
        _verdicts(comparison),
        _charts(histories, comparison),
        tag(
            "footer",
            "Verdicts are about these runs over the last "
            f"{comparison.last:.0%} of what they have in common: Cliff's delta with its 99 % interval."
            " Two seeds of one configuration differ too.",
        ),
    )


def _banners(comparison: Comparison) -> Markup:
    """What to know first of each run."""
    return join(
        tag(
            "div", tag("b", one.findings), tag("p", one.parting), tag("p", one.verdicts),
            class_=f"card banner {one.severity}",
        )
        for one in comparison.headlines
    )  # fmt: skip


def _runs(comparison: Comparison) -> Markup:
    rows = [
        (
            tag(
                "td",
                tag("span", tag("i", class_=f"f{place % _SERIES}"), letter(place), class_="legend"),
            ),
            run.run,
            run.path,
            run.ending,
            tag("td", f"{run.updates:,.0f}", class_="num"),
            tag("td", "–" if run.steps is None else f"{run.steps:,.0f}", class_="num"),
            tag("td", duration(run.seconds), class_="num"),
            _codes(run.codes),
        )
        for place, run in enumerate(comparison.runs)
    ]
    head = (
        "",
        "run",
        "recording",
        "outcome",
        "updates",
        "steps",
        "took",
        "findings, and when each kind began",
    )
    return section("Runs", tag("div", table(head, rows), class_="card"))


def _codes(codes: dict[str, float]) -> str:
    return ", ".join(f"{title(code)} {duration(max(0.0, at))}" for code, at in codes.items()) or "none"


def _settings(comparison: Comparison) -> Markup:
    if not comparison.config:
        return section("Configuration", tag("p", "Nothing was set differently.", class_="card muted"))
    head = ("setting", *(letter(place) for place in range(len(comparison.runs))))
    rows = (
        (name, *("–" if one is None else one for one in values)) for name, values in comparison.config.items()
    )
    return section("Configuration", tag("div", table(head, rows), class_="card"), note="what differs")


def _verdicts(comparison: Comparison) -> Markup:
    head = ("number", "run", "A", "it", "change", "delta", "99 % interval", "verdict", "parted")
    rows = [
        _verdict(metric, against, comparison) for metric in comparison.metrics for against in metric.against
    ]
    note = f"over the last {comparison.last:.0%} in common, by {comparison.align}"
    return section("Verdicts", tag("div", table(head, rows), class_="card"), note=note, anchor="verdicts")


def _verdict(metric: Compared, against: Against, comparison: Comparison) -> tuple[object, ...]:
    effect, parting = against.effect, against.divergence
    why = tag("span", f" {effect.why}", class_="muted") if effect.why else Markup("")
    where = "–"
    if parting.parted is not None:
        where = "from the start" if parting.from_start else place_text(parting.parted[0], comparison)
        where += f" ({parting.times_noise:,.1f}× noise)" if (parting.times_noise or 0) < 1e6 else ""
    return (
        tag("td", metric.label, class_="nw"),
        letter(against.place),
        *(tag("td", word, class_="num") for word in _figures(metric, against)),
        tag("td", tag("span", effect.verdict, class_=effect.verdict.split()[0]), why),
        tag("td", where, class_="nw"),
    )


def _charts(histories: Sequence[RunHistory], comparison: Comparison) -> Markup:
    charts = [_chart(histories, metric, comparison) for metric in comparison.metrics]
    colours = legend(
        (f"f{place % _SERIES}", f"{letter(place)} {run.run}") for place, run in enumerate(comparison.runs)
    )
    return section("Curves", colours, tag("div", join(charts), class_="grid"), note=f"by {comparison.align}")


def _chart(histories: Sequence[RunHistory], metric: Compared, comparison: Comparison) -> Markup:
    lines = []
    for place, run_history in enumerate(histories):
        curve = numbers(run_history).get(metric.name)
        if curve is not None:
            x, y = along(curve, comparison.align)
            lines.append(
                Line(
                    x=x.tolist(), y=y.tolist(), series=place, name=f"{letter(place)} {run_history.run.run_id}"
                )
            )
    judged = histories[0].drawn((metric.name,)).get(metric.name)
    levels = () if judged is None else judged.limits
    firsts = {one.divergence.parted[0] for one in metric.against if one.divergence.parted is not None}
    good = f"good is {metric.direction}" if metric.direction else ""
    verdicts = ", ".join(f"{letter(one.place)} {one.effect.verdict}" for one in metric.against)
    drawn = chart(
        lines, levels, [(at, "info") for at in firsts], seconds if comparison.align == "time" else number
    )
    return figure(metric.label, " · ".join(word for word in (good, verdicts) if word), drawn)


def compare_text(comparison: Comparison) -> Iterator[str]:
    """The lines of the text."""
    for place, run in enumerate(comparison.runs):
        yield f"{letter(place)}  {_run_line(run)}"
    yield ""
    for one in comparison.headlines:
        yield from (one.findings, one.parting, one.verdicts, "")
    yield from _config_lines(comparison)
    yield from _finding_lines(comparison)
    yield from _parting_lines(comparison)
    for place in range(1, len(comparison.runs)):
        yield from _verdict_lines(comparison, place)
        yield ""
    yield (
        f"delta: Cliff's, over the last {comparison.last:.0%} in common, with its 99 % interval; "
        "unclear: the interval allows either."
    )
    yield "These verdicts are about these runs: two seeds of one configuration differ too."


def _run_line(run: RunReport) -> str:
    found = (
        ", ".join(f"{count} {severity}" for severity, count in sorted(run.findings.items())) or "no findings"
    )
    return f"{run.run}  {run.ending}, {run.counts} in {duration(run.seconds)}; {found}  ({run.path})"


def _config_lines(comparison: Comparison) -> Iterator[str]:
    if not comparison.config:
        yield "CONFIGURATION  the same"
    else:
        yield "CONFIGURATION"
        width = max(map(len, comparison.config))
        for name, values in comparison.config.items():
            yield f"  {name:{width}}  " + "  |  ".join("–" if value is None else value for value in values)
    yield ""


def _finding_lines(comparison: Comparison) -> Iterator[str]:
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


def _parting_lines(comparison: Comparison) -> Iterator[str]:
    found = partings(comparison)
    yield f"FIRST DIVERGENCE (by {comparison.align})"
    for place in range(1, len(comparison.runs)):
        until = alike_until(comparison, place)
        if until is not None:
            yield f"  all numbers of A and {letter(place)} are the same to the bit up to {until:,.6g}"
    if not found:
        yield "  none: no number leaves the noise of both runs"
    for one in found[:_MOST_LISTED]:
        where = "from the start" if one.against.divergence.from_start else f"at {_span(one.at)}"
        beside = f" in {letter(one.against.place)}" if len(comparison.runs) > 2 else ""
        noise = one.against.divergence.times_noise or 0.0
        yield f"  {one.metric.label:14}  {where}{beside}, {_times(noise)} the noise"
    if len(found) > _MOST_LISTED:
        yield f"  and {len(found) - _MOST_LISTED} more"
    yield ""


def _times(noise: float) -> str:
    return "beyond all measure of" if noise > 1e6 else f"{noise:,.1f} times"


def _span(at: tuple[float, float]) -> str:
    return f"{at[0]:,.6g}" if at[0] == at[1] else f"{at[0]:,.6g}–{at[1]:,.6g}"


def _verdict_lines(comparison: Comparison, place: int) -> Iterator[str]:
    head = ("METRIC", "A", letter(place), "CHANGE", "DELTA", "INTERVAL", "VERDICT")
    yield "  {:14}  {:>10}  {:>10}  {:>8}  {:>6}  {:14}  {}".format(*head)
    verdicts = get_args(Verdict)
    rows = [(one, against) for one in comparison.metrics for against in one.against if against.place == place]
    for metric, against in sorted(rows, key=lambda row: verdicts.index(row[1].effect.verdict)):
        yield "  " + _verdict_line(metric, against)


def _verdict_line(metric: Compared, against: Against) -> str:
    effect = against.effect
    why = f" ({effect.why})" if effect.why else ""
    figures = "{:>10}  {:>10}  {:>8}  {:>6}  {:14}".format(*_figures(metric, against))
    return f"{metric.label:14}  {figures}  {effect.verdict}{why}"


def _figures(metric: Compared, against: Against) -> tuple[str, ...]:
    """Both medians, the change, delta and its interval."""
    effect = against.effect
    return (
        *("–" if value is None else format(value, metric.fmt) for value in effect.median),
        change(*effect.median),
        "" if effect.delta is None else f"{effect.delta:+.2f}",
        "" if effect.interval is None else f"{effect.interval[0]:+.2f} … {effect.interval[1]:+.2f}",
    )
