"""No run yet: what to do, in the operator's own trainer; nothing here is red."""

from dataclasses import dataclass

from overwatch.tui.context import Context
from overwatch.tui.panels import keyline, small
from overwatch.tui.text import Line, Role, Span, blank, clean, fit, spread


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


def render(waiting: Waiting, ctx: Context) -> list[Line]:
    """Exactly `ctx.height` lines."""
    what = "no run yet" if waiting.run_id is None else f"waiting for run {clean(waiting.run_id)}"
    title = [Span(" "), Span("OVERWATCH", Role.TITLE), Span(f"  {what}")]
    source = "recording" if waiting.endpoint is None else "collector"
    state = f"{source} {clean(waiting.collector)} {clean(waiting.state)}"
    if len(state) > ctx.width - 14 - len(what):
        lines = [fit(title, ctx.width), fit([Span(f" {state}", Role.MUTED)], ctx.width)]
    else:
        lines = [spread(title, [Span(state, Role.MUTED)], ctx.width), blank(ctx.width)]
    if small.fits(ctx):
        advice = [*_no_collector(waiting, compact=ctx.compact), *_advice(waiting, compact=ctx.compact)]
        lines += [fit(spans, ctx.width) for spans in advice[: ctx.height - len(lines) - 1]]
        filler = [blank(ctx.width)] * (ctx.height - len(lines) - 1)
        return [*lines, *filler, keyline.render(None, ctx)]
    above = (lines + [blank(ctx.width)] * ctx.height)[: max(0, ctx.height - 1)]
    return [*above, small.needed(ctx)]


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


def _advice(waiting: Waiting, *, compact: bool) -> list[list[Span]]:
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
