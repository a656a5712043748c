"""Below 80 × 24: what matters most, as far as it fits, a line each in words; and before the first run.

Owns what gives way: first the rest, then envs, lanes and policy rows that are not OK, then the findings'
names; the verdict never does. Pure.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from overwatch.catalog.durations import duration
from overwatch.projection.verdict import titled
from overwatch.snapshot import Env, FeedLine, Finding, Lane, Run, Service, Snapshot
from overwatch.tui.context import Context
from overwatch.tui.grammar import clock, reasons, severity, sparkline, status, status_counts
from overwatch.tui.panels import drawer, header, policy
from overwatch.tui.panels.alarms import on_rail
from overwatch.tui.panels.help import key_line
from overwatch.tui.panels.rows import worst_first
from overwatch.tui.text import Line, Role, Span, blank, cells, clean, cut, cut_middle, fit, spread, width_of

LEAST_WIDTH = 80
LEAST_HEIGHT = 24
_BARE_WIDTH, _BARE_HEIGHT = 40, 8
"""Below either, the verdict and the findings alone."""
_VERDICT_LINES = 2
_FEED_LINES = 8
_MARKS = {"!!": Role.CRIT, "!": Role.WARN}
_CALM = ("", "?")
"""Marks of lanes that nothing is wrong with, as far as is known."""


def fits(ctx: Context) -> bool:
    """Whether the full layout has room."""
    return ctx.width >= LEAST_WIDTH and ctx.height >= LEAST_HEIGHT


def is_bare(ctx: Context) -> bool:
    """Whether there is room for the verdict and the findings alone."""
    return ctx.width < _BARE_WIDTH or ctx.height < _BARE_HEIGHT


def needed(ctx: Context) -> Line:
    """What can be done here, and what is missing for the full layout; the latter where both have no room."""
    text = f"{LEAST_WIDTH}x{LEAST_HEIGHT} needed, {ctx.width}x{ctx.height} here"
    keys = " q quit  ? help "
    if len(keys) + len(text) > ctx.width:
        keys = keys.replace("  ", " ").rstrip() + " " if len(keys) + len(text) - 2 <= ctx.width else ""
    return fit([Span(f"{keys}{text}", Role.MUTED)], ctx.width)


def render(snapshot: Snapshot, ctx: Context) -> list[Line]:
    """Exactly `ctx.height` lines."""
    top = [identity(snapshot.run, ctx)] if ctx.height > 1 else []
    bare = is_bare(ctx)
    top += header.verdict(snapshot, ctx) if bare else header.wrapped_verdict(snapshot, ctx, _VERDICT_LINES)
    typing = ctx.ui.prompt is not None or ctx.ui.notice is not None
    last = [key_line(snapshot, ctx) if typing else needed(ctx)] if ctx.height > len(top) else []
    room = max(0, ctx.height - len(top) - len(last))
    if ctx.ui.opened and not bare:
        return [*top, *drawer.full(snapshot, ctx, room).lines, *last]
    wanted = [_findings(snapshot, ctx)] if bare else _panels(snapshot, ctx)
    lines: list[Line] = []
    for panel in wanted:
        lines += panel[: room - len(lines)]
    return [*top, *lines, *[blank(ctx.width)] * (room - len(lines)), *last][: ctx.height]


def _panels(snapshot: Snapshot, ctx: Context) -> list[list[Line]]:
    """In the order in which they are drawn, which is that in which they get room."""
    bad, calm = _policy(snapshot, ctx)
    return [
        _findings(snapshot, ctx), bad, _lanes(snapshot.system.gpus, ctx),
        _services(snapshot.processes, ctx), _fleet(snapshot, ctx),
        _envs(snapshot.envs, ctx), calm, _host(snapshot, ctx), _feed(snapshot, ctx),
    ]  # fmt: skip


def identity(run: Run, ctx: Context) -> Line:
    """Which run, how far, and how fresh."""
    text = ctx.fresh.text if ctx.width >= _BARE_WIDTH + 8 else ctx.fresh.brief
    state = [Span(text, ctx.fresh.role)]
    planned = "" if run.updates is None or ctx.width < _BARE_WIDTH + 8 else f"/{run.updates}"
    update = "" if run.update is None else f"  u{run.update}{planned}"
    name = cut_middle(clean(run.run_id), max(8, ctx.width - 3 - len(text) - len(update)))
    if cells(name) + len(update) + len(text) + 3 > ctx.width:
        update = ""
    return spread([Span(" "), Span(name, Role.TITLE), Span(update)], state, ctx.width)


def _findings(snapshot: Snapshot, ctx: Context) -> list[Line]:
    """One line each: severity, name, and how long it has been open; the rest of the width is its message."""
    now = snapshot.time + ctx.waited_s
    return [
        _finding(place, finding, now, ctx.width) for place, finding in enumerate(on_rail(snapshot), start=1)
    ]


def _finding(place: int, finding: Finding, now: float, width: int) -> Line:
    gone = finding.cleared_at is not None
    age = duration(max(0.0, (finding.cleared_at or finding.ended_at or now) - finding.since))
    start = [Span(f" {place} " if place <= 9 else "   "), severity(finding.severity), Span(" ")]
    ending = [Span("cleared" if gone else age, Role.MUTED)]
    room = width - width_of(start) - width_of(ending) - 2
    name = cut(clean(titled(finding)), room)
    known = name.partition(" on ")[0]
    message = clean(finding.message)
    message = message.removeprefix(known).lstrip(" ,:") if message.startswith(known) else message
    more = f": {cut(message, room - cells(name) - 2)}" if message and room - cells(name) > 20 else ""
    role = Role.MUTED if gone else Role.TEXT
    return spread([*start, Span(name, role), Span(more, Role.MUTED)], ending, width)


def _policy(snapshot: Snapshot, ctx: Context) -> tuple[list[Line], list[Line]]:
    """The policy, row by row: those that are not OK, and the others."""
    old = ctx.fresh.old
    bars = min(20, max(0, ctx.width - 34))
    bad: list[Line] = []
    calm: list[Line] = []
    for cell in policy.CELLS:
        reading = snapshot.policy.get(cell.name)
        if reading is None or reading.status == "absent":
            continue
        limit = "" if reading.limit is None else f" {clean(reading.limit.text)}"
        spans = [
            Span(f" {cell.label:9}", Role.MUTED), *policy.judged(reading, old=old),
            *(sparkline(reading.history, bars, reading.scale) if bars else ()), Span(limit, Role.MUTED),
        ]  # fmt: skip
        (calm if reading.status == "ok" and reading.non_finite is None else bad).append(fit(spans, ctx.width))
    return bad, calm


def _lanes(lanes: Sequence[Lane], ctx: Context) -> list[Line]:
    """Those that are held back, each with its bound, several on a line; nothing where all is well."""
    if ctx.fresh.old or ctx.fresh.state == "ended":
        return []
    held = [(lane, lane.bound) for lane in lanes if lane.bound is not None and lane.bound.mark not in _CALM]
    words = [
        [Span(f"{cut_middle(clean(lane.gpu_id), 12)} "),
         Span(f"{clean(bound.state)} {clean(bound.mark)}", _MARKS.get(bound.mark, Role.TEXT))]
        for lane, bound in held
    ]  # fmt: skip
    return _packed(words, ctx.width)


def _services(services: Sequence[Service], ctx: Context) -> list[Line]:
    """Those that something is wrong with, each with its first word; then how many are OK."""
    words = []
    for one in services:
        if one.status == "ok":
            continue
        what = "silent" if one.status == "silent" else clean(next(iter(one.parts), one.status))
        mark, role = ("!!", Role.CRIT) if one.status == "critical" else ("!", Role.WARN)
        words.append([Span(f"{cut_middle(clean(one.name), 14)} "), Span(f"{what} {mark}", role)])
    calm = len(services) - len(words)
    if calm:
        words.append([Span(f"{calm} service{'s' if calm > 1 else ''} OK", Role.MUTED)])
    return _packed(words, ctx.width)


def _packed(words: Iterable[list[Span]], width: int) -> list[Line]:
    lines: list[list[Span]] = []
    for word in words:
        if lines and width_of([*lines[-1], *word]) + 2 < width:
            lines[-1] += [Span("  "), *word]
        else:
            lines.append([Span(" "), *word])
    return [fit(line, width) for line in lines]


def _fleet(snapshot: Snapshot, ctx: Context) -> list[Line]:
    """How many envs there are of each status."""
    counts = snapshot.board.counts
    total = snapshot.run.n_envs
    if not counts:
        return []
    text = f" {sum(counts.values()) if total is None else total:,} env: {status_counts(counts)}"
    return [fit([Span(text)], ctx.width)]


def _envs(envs: Sequence[Env], ctx: Context) -> list[Line]:
    """Those that are not OK, the worst first, each with its reasons."""
    lines = []
    for env in worst_first(tuple(env for env in envs if env.status not in ("ok", "unknown"))):
        word = status(env.status, compact=ctx.width < _BARE_WIDTH + 20)
        start = [Span(f" {env.env_id:>5} "), word, Span(" ")]
        why = reasons(env.anomaly.reasons, max(0, ctx.width - 1 - width_of(start)))
        lines.append(fit([*start, Span(why)], ctx.width))
    return lines


def _host(snapshot: Snapshot, ctx: Context) -> list[Line]:
    """The lanes that nothing is wrong with, in numbers."""
    words = [
        [Span(f"{cut_middle(clean(lane.gpu_id), 8)} "), Span(f"{lane.utilization:.0%}")]
        for lane in snapshot.system.gpus
        if lane.utilization is not None
    ]
    return _packed(words, ctx.width)


def _feed(snapshot: Snapshot, ctx: Context) -> list[Line]:
    """The newest lines, newest first."""
    return [
        fit(
            [Span(f" {clock(line.time, ctx.zone, millis=False)} ", Role.MUTED), severity(line.severity),
             Span(cut(f" {env_word(line.env_id)}{chip_word(line)}{clean(line.message)}", ctx.width - 15))],
            ctx.width,
        )
        for line in snapshot.feed[: -_FEED_LINES - 1 : -1]
    ]  # fmt: skip


def chip_word(line: FeedLine) -> str:
    """`◑r0c1 cs .42 ` of a line about a seed."""
    return "" if line.chip is None else f"{clean(line.chip)} "


def env_word(env_id: int | None) -> str:
    """`env=9 ` of a line that is about an env."""
    return "" if env_id is None else f"env={env_id} "


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What is known before the first snapshot."""

    collector: str
    """Host and port of the view API."""
    state: str
    """`up`, `connecting` or why it is down."""
    endpoint: str | None = None
    """Where a trainer sends its telemetry to; absent for a recording."""
    run_id: str | None = None
    """The run that was asked for."""
    tried: tuple[str, ...] = ()
    """The view APIs of collectors that were tried, where none answers."""
    unannounced: str | None = None
    """The file in which no running collector of this machine is announced."""


def welcome(waiting: Waiting, ctx: Context) -> list[Line]:
    """Exactly `ctx.height` lines."""
    what = "no run yet" if waiting.run_id is None else f"waiting for run {clean(waiting.run_id)}"
    title = [Span(" "), Span("OVERWATCH", Role.TITLE), Span(f"  {what}")]
    source = "recording" if waiting.endpoint is None else "collector"
    state = f"{source} {clean(waiting.collector)} {clean(waiting.state)}"
    if len(state) > ctx.width - 14 - len(what):
        lines = [fit(title, ctx.width), fit([Span(f" {state}", Role.MUTED)], ctx.width)]
    else:
        lines = [spread(title, [Span(state, Role.MUTED)], ctx.width), blank(ctx.width)]
    if fits(ctx):
        advice = [*_no_collector(waiting, compact=ctx.compact), *_next_steps(waiting, compact=ctx.compact)]
        lines += [fit(spans, ctx.width) for spans in advice[: ctx.height - len(lines) - 1]]
        filler = [blank(ctx.width)] * (ctx.height - len(lines) - 1)
        return [*lines, *filler, key_line(None, ctx)]
    above = (lines + [blank(ctx.width)] * ctx.height)[: max(0, ctx.height - 1)]
    return [*above, needed(ctx)]


def _no_collector(waiting: Waiting, *, compact: bool) -> list[list[Span]]:
    """What starts a collector, and where none answered."""
    if not waiting.tried:
        return []
    rows = [("No collector answers:", "overwatch collect")]
    rows += [("" if at else "Tried:", clean(address)) for at, address in enumerate(waiting.tried)]
    if waiting.unannounced is not None:
        rows.append(("", f"none is announced in {clean(waiting.unannounced)}"))
    wide = 14 if compact else 28
    lines = [[Span(f"   {label:<{wide}}", Role.MUTED), Span(text)] for label, text in rows]
    if compact:
        lines[0:1] = [[Span(f"   {rows[0][0]}", Role.MUTED)], [Span(f"     {rows[0][1]}")]]
    return [*lines, []]


def _next_steps(waiting: Waiting, *, compact: bool) -> list[list[Span]]:
    if waiting.endpoint is None:
        return [[Span("   Play on with Space, or a second on with .", Role.MUTED)]]
    update = "run.update(kl_divergence=kl, ...)"
    endpoint = f"OTEL_EXPORTER_OTLP_ENDPOINT={clean(waiting.endpoint)}"
    if compact:
        return [
            [Span("   In your trainer:", Role.MUTED)],
            [Span("     import overwatch.sdk")],
            [Span("     run = overwatch.sdk.start()")],
            [Span(f"     {update}      after each update")],
            [],
            [Span("   Without a trainer at hand:", Role.MUTED)],
            [Span("     overwatch demo")],
            [],
            [Span("   Any OpenTelemetry program:", Role.MUTED)],
            [Span(f"     {endpoint}")],
        ]
    return [
        [Span(f"   {'In your trainer:':<28}", Role.MUTED), Span("import overwatch.sdk as overwatch")],
        [Span(" " * 31), Span("run = overwatch.start()      and after each update:  " + update)],
        [Span(f"   {'Without a trainer at hand:':<28}", Role.MUTED), Span("overwatch demo")],
        [
            Span(f"   {'Any OpenTelemetry program:':<28}", Role.MUTED),
            Span(endpoint),
            Span("     (this line is your endpoint)", Role.MUTED),
        ],
    ]
