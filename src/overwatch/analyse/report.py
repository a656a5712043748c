"""The report of one run: what went wrong, when and why, on the first screen; then all that it is made of.

Owns the order of a report. One file that needs nothing else. Pure: the same recording, the same page.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np

import overwatch.web
from overwatch import __version__
from overwatch.analyse.audit import config_keys, skipped, unknown
from overwatch.analyse.bundle import Report, page
from overwatch.analyse.compare import along
from overwatch.analyse.curves import TASK_METRIC, counts_text, in_order
from overwatch.analyse.findings import SEVERITIES, Found, Group, foremost, groups, lasting, subject_of
from overwatch.analyse.page import (
    STYLE,
    Line,
    Markup,
    Scale,
    bar,
    chart,
    figure,
    join,
    legend,
    section,
    table,
    tag,
)
from overwatch.analyse.report_time import machines, seeds, timeline
from overwatch.analyse.rows import moment
from overwatch.analyse.run_history import EnvHistory, RunHistory
from overwatch.catalog import Scope
from overwatch.catalog.durations import duration
from overwatch.catalog.runbooks import runbook
from overwatch.catalog.titles import SLOWS, title
from overwatch.snapshot.history import Curve

CARDS: Final = 6
"""Kinds of findings on the first screen."""
_MOST_NAMED: Final = 3
"""Findings of one card whose evidence is shown."""
_MOST_STANDING: Final = 12
_MORE: Final = 9
"""Charts shown before the others are folded away."""
_MOST_ENVS: Final = 12
_STATUS_COLOURS: Final = {
    "ok": "b-good", "crashed": "b-bad", "diverging": "b-bad", "degraded": "b-wait", "stalled": "b-wait",
}  # fmt: skip
_WORDS: Final = ("critical", "warning", "info")


def report(run_history: RunHistory, recorded: bytes) -> str:
    """The page, with what is `kept` of the run for its other parts; ends without a newline."""
    title = f"{run_history.run.run_id} · Overwatch"
    style = f"#report{{{STYLE.replace(':root', '&')}}}"
    return page(page_files(), recorded, title, Report(_body(run_history), style))


def page_files() -> dict[str, str]:
    """The modules of the page that a collector serves, by their paths."""
    root = Path(overwatch.web.__file__).parent
    files = (file for file in sorted(root.rglob("*")) if file.suffix in {".js", ".css", ".html"})
    return {file.relative_to(root).as_posix(): file.read_text(encoding="utf-8") for file in files}


def _body(run_history: RunHistory) -> Markup:
    found = groups(run_history.findings)
    parts = (
        _header(run_history),
        _banner(run_history, found),
        tag(
            "div",
            *(_card(group, run_history.config) for group in foremost(lasting(found), CARDS)),
            class_="found",
        )
        if found
        else Markup(""),
        _standing(run_history) if any(one.severity != "info" for one in run_history.findings) else Markup(""),
        timeline(run_history, found),
        _all_findings(run_history, found),
        policy(run_history),
        not_judged(run_history),
        machines(run_history),
        worst_envs(run_history),
        seeds(run_history),
        best_episodes(run_history),
        _identity(run_history),
        _footer(run_history),
    )
    return join(parts)


def _header(run_history: RunHistory) -> Markup:
    run = run_history.run
    words = [
        run.task,
        run.algo,
        None if run.n_envs is None else f"{run.n_envs:,} envs",
        counts_text(run_history.last),
        duration(run_history.length),
        moment(run_history, 0.0)[:19].replace("T", " ") + " UTC",
    ]
    return tag("header", tag("h1", run.run_id), tag("p", " · ".join(word for word in words if word)))


def _banner(run_history: RunHistory, found: list[Group]) -> Markup:
    """One sentence: how it ended, and what the first serious thing was."""
    bad = [group for group in found if group.severity != "info"]
    ended = _ended(run_history)
    reason = f": {run_history.run.reason}" if run_history.run.reason else ""
    if not bad:
        still = "is " if run_history.run.outcome is None else ""
        stated = f"Nothing was found wrong. The run {still}{ended}{reason}."
        return tag("div", tag("b", stated), tag("p", run_history.last.verdict.text), class_="card banner ok")
    severity = max((group.severity for group in bad), key=SEVERITIES.index)
    counts = {word: sum(group.severity == word for group in bad) for word in _WORDS}
    kinds = " and ".join(f"{count} {word}" for word, count in counts.items() if count)
    worst = sorted((group for group in bad if group.severity == severity), key=lambda one: one.code in SLOWS)
    first, *others = worst
    headline = f"{_sentence(first.first.finding.message)} From {_when(first.first.since, first.first.update)}"
    headline += f", for {duration(first.lasted)}" + (", open at the end." if first.open else ".")
    then = [f"{_called(group)} at {duration(group.first.since)}" for group in others]
    more = (
        f" Then {'; '.join(then[:4])}{'' if len(then) <= 4 else f'; and {len(then) - 4} more'}."
        if then
        else ""
    )
    if (
        any(one.open and one.severity != "info" for one in run_history.findings)
        and run_history.run.outcome is not None
    ):
        ended, reason = f"ended: {run_history.last.verdict.text}", ""
    rest = f"The run {ended}{reason}.{more} In all {kinds} kind{'' if len(bad) == 1 else 's'} of findings."
    return tag("div", tag("b", headline), tag("p", rest), class_=f"card banner {severity}")


def _ended(run_history: RunHistory) -> str:
    """How it ended, as a verb."""
    outcome = run_history.run.outcome
    if outcome is None:
        return f"had not ended ({run_history.last.link.word.replace('_', ' ')})"
    return f"was {outcome}" if outcome == "interrupted" else outcome


def _sentence(message: str) -> str:
    return message[:1].upper() + message[1:] + ("" if message.endswith(".") else ".")


def _when(seconds: float, update: int | None) -> str:
    return duration(max(0.0, seconds)) + ("" if update is None else f" (update {update:,})")


def _card(group: Group, config: Mapping[str, str]) -> Markup:
    finding = group.first.finding
    times = f" ×{len(group.found)}" if len(group.found) > 1 else ""
    until = "still open at the end" if group.open else f"lasted {duration(group.lasted)}"
    when = f"{_when(group.first.since, group.first.update)} · {until}"
    if finding.symptoms:
        when += f" · {finding.symptoms} symptoms"
    book = runbook(group.code)
    inside = [
        tag("h3", tag("span", group.severity, class_=f"pill {group.severity}"),
            _called(group, times), tag("small", group.code)),
        tag("div", when, class_="when"),
        tag("p", _sentence(finding.message)),
    ]  # fmt: skip
    if book is not None:
        inside.append(tag("p", tag("i", "means"), book.means, class_="why"))
    evidence = _evidence(group)
    if evidence:
        inside.append(tag("p", tag("i", "evidence"), evidence, class_="why"))
    act = finding.hint or (book.act if book else "")
    if act:
        inside.append(tag("p", tag("i", "do"), _sentence(act), class_="do"))
    keys = config_keys(act, config)
    if keys:
        inside.append(tag("p", tag("i", "config"), " · ".join(keys), class_="do"))
    return tag("div", *inside, class_=f"card {group.severity}")


def _called(group: Group, times: str = "") -> str:
    """Kind and subject: `Thermal throttle · gpu1`."""
    kind = f"{title(group.code)}{times}"
    return f"{kind} · {group.subject}" if group.subject and group.subject not in kind else kind


def _evidence(group: Group) -> str:
    """What each finding was concluded from, beside what it is about; messages are not repeated."""
    reported = []
    for one in group.found[:_MOST_NAMED]:
        factors = [factor for factor in one.finding.factors if factor != one.finding.message]
        about = f"{subject_of(one)}: " if len(group.found) > 1 else ""
        reported += [about + " · ".join(factors)] if factors else []
    return "; ".join(dict.fromkeys(reported))


def _standing(run_history: RunHistory) -> Markup:
    """What was open when the run, or its recording, ended: the worst first."""
    stood = [one for one in run_history.found.standing if one.severity != "info"]
    ended = run_history.run.outcome is not None
    name = "What stood at the end" if ended else "What stands"
    if not stood:
        return section(name, tag("p", "Nothing was open.", class_="card muted"), anchor="standing")
    rows = [
        (
            tag("td", tag("span", one.severity, class_=f"pill {one.severity}"), class_="nw"),
            tag("td", title(one.finding.code), class_="nw"),
            tag("td", subject_of(one) or "run", class_="nw"),
            one.finding.message,
            tag("td", _when(one.since, one.update), class_="nw"),
            tag("td", duration(max(0.0, one.until - one.since)), class_="nw"),
        )
        for one in stood[:_MOST_STANDING]
    ]
    listing = table(("", "finding", "about", "what", "since", "open for"), rows)
    more = len(stood) - len(rows)
    note = f"{len(stood)} open" + (f", the worst {len(rows)} shown" if more else "")
    return section(name, tag("div", listing, class_="card"), note=note, anchor="standing")


def _all_findings(run_history: RunHistory, found: list[Group]) -> Markup:
    """Every finding, and what each kind means, folded away where there are many."""
    if not found:
        return Markup("")
    rows = [
        (
            tag("td", duration(max(0.0, one.since)), class_="nw"),
            tag("td", "–" if one.update is None else f"{one.update:,}", class_="num"),
            tag("td", tag("span", one.severity, class_=f"pill {one.severity}"), class_="nw"),
            tag("td", title(one.finding.code), class_="nw"),
            subject_of(one) or "run",
            one.finding.message,
            tag("td", _lasted(one), class_="nw"),
        )
        for one in run_history.findings
    ]
    listing = table(("at", "update", "", "finding", "about", "what", "lasted"), rows)
    books = [tag("div", *_book(code)) for code in dict.fromkeys(group.code for group in found)]
    folded = tag("details", tag("summary", "What each kind means, and what to do"), *books)
    note = f"{len(run_history.findings)} in all"
    return section("Findings", tag("div", listing, folded, class_="card"), note=note, anchor="findings")


def _lasted(one: Found) -> str:
    """How long it was open, and whether it was the run that ended and not the finding."""
    return duration(max(0.0, one.until - one.since)) + one.ending


def _book(code: str) -> list[Markup]:
    book, heading = runbook(code), tag("h3", title(code), tag("small", code))
    if book is None:
        return [heading, tag("p", "A rule of this collector's own configuration.")]
    return [
        heading,
        tag("p", book.means),
        tag("p", tag("i", "confirm"), book.confirm, class_="why"),
        tag("p", tag("i", "do"), book.act, class_="do"),
    ]


def policy(run_history: RunHistory) -> Markup:
    """All numbers of the policy by update, those of the pulse first."""
    names = [curve.name for curve in in_order(run_history.curves.policy.values())]
    curves = [curve for curve in run_history.drawn(names).values() if len(curve.at) > 1]
    if not curves:
        return section("Policy", tag("p", "No update was seen.", class_="muted"))
    metric = run_history.curves.machine.get((TASK_METRIC, None))
    drawn = [_policy_figure(run_history, curve) for curve in curves]
    if metric is not None and run_history.run.metric is not None and len(metric) > 1:
        x, y = along(metric, "update")
        line = Line(x=x.tolist(), y=y.tolist(), series=2)
        drawn.insert(
            1, figure(run_history.run.metric.name, "median of envs", chart([line], [], _marks(run_history)))
        )
    parts = [tag("div", *drawn[:_MORE], class_="grid")]
    if len(drawn) > _MORE:
        rest = tag("div", *drawn[_MORE:], class_="grid")
        parts.append(tag("details", tag("summary", f"{len(drawn) - _MORE} more"), rest))
    colours = legend(
        (("x-warning", "beyond the warning limit"), ("x-critical", "beyond the critical limit"),
         ("f0", "by update; dotted: a finding began"))
    )  # fmt: skip
    return section("Policy", *parts, colours, note=f"preset {run_history.run.preset}", anchor="policy")


def _policy_figure(run_history: RunHistory, curve: Curve) -> Markup:
    """From the least to the most of each column of samples; a gap where none was finite."""
    ends = [
        math.nan if one is None else one for pair in zip(curve.low, curve.high, strict=True) for one in pair
    ]
    line = Line(x=[place for place in _places(run_history, curve) for _ in range(2)], y=ends)
    good = "" if curve.direction is None else f"good is {curve.direction} · "
    note = good + ("" if curve.text == "–" else f"now {curve.text}")
    return figure(curve.label, note, chart([line], curve.limits, _marks(run_history)))


def _places(run_history: RunHistory, curve: Curve) -> list[float]:
    """The policy's update of each column; a service counts its own, so there it is the one of that time."""
    own = run_history.curves.policy[curve.name]
    then = np.interp(np.array(curve.at) - run_history.began, own.time, own.update).tolist()
    pairs = zip(curve.update, then, strict=True)
    return [float(update) if update is not None and own.scope is Scope.POLICY else at for update, at in pairs]


def _marks(run_history: RunHistory) -> list[tuple[float, str]]:
    """Where findings that are no mere info began, by update."""
    return [
        (float(found.update), found.severity)
        for found in run_history.findings
        if found.update is not None and found.severity != "info" and found.finding.subject.scope != "env"
    ]


def not_judged(run_history: RunHistory) -> Markup:
    """Two tables; nothing where all rules had their rows and all names are known."""
    rules, names = skipped(run_history), unknown(run_history)
    if not rules and not names:
        return Markup("")
    lacking = [(rule.code, f"needs {', and '.join(rule.needs)}") for rule in rules]
    custom = [(name, f"did you mean {near}?" if near else "") for name, near in names.items()]
    parts = [table(("skipped", ""), lacking)] if lacking else []
    parts += [table(("not recognised, shown only", ""), custom)] if custom else []
    cards = (tag("div", part, class_="card") for part in parts)
    note = f"{len(rules)} rules skipped, {len(names)} names not recognised"
    return section("Not judged", tag("div", *cards, class_="grid"), note=note, anchor="not-judged")


def worst_envs(run_history: RunHistory) -> Markup:
    """Those that were not OK for longest; nothing of a run without envs."""
    if not run_history.envs:
        return Markup("")
    bad = sorted(
        (env for env in run_history.envs.values() if env.bad_s), key=lambda env: (-env.bad_s, env.env_id)
    )
    if not bad:
        stated = f"All {len(run_history.envs):,} envs that were seen were OK all the time."
        return section("Environments", tag("p", stated, class_="card muted"), anchor="envs")
    x = Scale(low=0.0, high=max(run_history.length, 1.0), start=0.0, end=300.0)
    rows = [_env_row(env, x) for env in bad[:_MOST_ENVS]]
    listing = table(("env", "lane", "not OK", "worst score", "why, at its worst", "over the run"), rows)
    colours = legend((("b-good", "ok"), ("b-wait", "degraded, stalled"), ("b-bad", "crashed, diverging")))
    note = f"{len(bad):,} of {len(run_history.envs):,} were not OK at some time; the longest first"
    return section(
        "Worst environments", tag("div", listing, colours, class_="card"), note=note, anchor="envs"
    )


_EPISODE_COLUMNS: Final = (
    ("best", "best", ".3f"), ("best_step", "at step", ".0f"), ("metric", "at its end", ".3f"),
    ("episode_return", "return", "+.2f"), ("length", "steps", ".0f"), ("growth_ratio", "size ×", ".2f"),
    ("fossils", "fossils", ".0f"), ("prunes", "pruned", ".0f"),
)  # fmt: skip


def best_episodes(run_history: RunHistory) -> Markup:
    """The best ones with what was reported of each; nothing of a run without episodes."""
    ends = run_history.last.aggregates
    columns = [one for one in _EPISODE_COLUMNS if any(one[0] in row.values for row in ends.episodes)]
    if not columns:
        return Markup("")
    rows = [
        (
            tag("td", one.env_id, class_="num"),
            tag("td", f"{one.number:,}", class_="num"),
            tag("td", moment(run_history, one.time - run_history.began)[11:19], class_="nw"),
            *(
                tag("td", format(one.values[name], spec) if name in one.values else "–", class_="num")
                for name, _, spec in columns
            ),
        )
        for one in ends.episodes
    ]
    listing = table(("env", "episode", "ended, UTC", *(word for _, word, _ in columns)), rows)
    note = "" if ends.mean_best is None else f"mean of all episodes {ends.mean_best:.3g}"
    return section("Best episodes", tag("div", listing, class_="card"), note=note, anchor="episodes")


def _env_row(env: EnvHistory, x: Scale) -> tuple[object, ...]:
    worst = env.worst
    reasons = worst.anomaly.reasons if worst else ()
    strip = [
        bar(x, (spell.start - 1, spell.end - 1), (2, 12), _STATUS_COLOURS.get(spell.word, "b-none"),
            f"{spell.word} from {duration(max(0.0, spell.start))} for {duration(spell.length)}")
        for spell in env.statuses
    ]  # fmt: skip
    drawn = tag("svg", *strip, viewBox="0 0 300 16", width="300", height="16")
    return (
        tag("td", env.env_id, class_="num"),
        tag("td", (env.last.gpu_id if env.last else None) or "–", class_="nw"),
        tag("td", duration(env.bad_s), class_="num"),
        tag("td", f"{worst.anomaly.score:.1f}" if worst else "–", class_="num"),
        " · ".join(reasons),
        tag("td", drawn, class_="nw"),
    )


def _identity(run_history: RunHistory) -> Markup:
    """What it was started with, on which machine, and who reported it."""
    host, link = run_history.last.system.host, run_history.last.link
    facts = {
        "recording": str(run_history.path),
        "began": moment(run_history, 0.0),
        "last seen": moment(run_history, run_history.length),
        "outcome": run_history.run.outcome or run_history.last.link.state,
        "checkpoint": run_history.run.checkpoint_path,
        "sources": ", ".join(source.name for source in run_history.last.link.sources),
        "records dropped": None if link.dropped is None else f"{link.dropped:,}",
        "memory of the host": None if host is None or host.ram_total_bytes is None
        else f"{host.ram_total_bytes / 2**30:,.1f} GiB",
    }  # fmt: skip
    facts |= {
        f"{lane.gpu_id} is": " ".join(word for word in (lane.uuid, lane.node and f"on {lane.node}") if word)
        for lane in run_history.last.system.gpus
    }
    reported = [(name, value) for name, value in facts.items() if value]
    left = table(("run and machine", ""), ((name, value) for name, value in reported))
    right = table(("configuration", ""), ((name, value) for name, value in run_history.config.items()))
    cards = (tag("div", side, class_="card") for side in (left, right))
    return section("Identity and configuration", tag("div", *cards, class_="grid"), anchor="config")


def _footer(run_history: RunHistory) -> Markup:
    beyond = run_history.facts.beyond
    left_out = f" {beyond:,} lines beyond what a report keeps were left out." if beyond else ""
    return tag("footer", f"Written by Overwatch {__version__} from {run_history.path}.{left_out}")
