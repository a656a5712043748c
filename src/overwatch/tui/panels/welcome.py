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
        lines += [fit(spans, ctx.width) for spans in _advice(waiting, compact=ctx.compact)]
        filler = [blank(ctx.width)] * (ctx.height - len(lines) - 1)
        return [*lines, *filler, keyline.render(None, ctx)]
    above = (lines + [blank(ctx.width)] * ctx.height)[: max(0, ctx.height - 1)]
    return [*above, small.needed(ctx)]


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
