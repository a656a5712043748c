"""The list of runs: one line a run of every collector that was named, the one that is watched marked.

Must not know where they come from.
"""

from overwatch.catalog.durations import duration
from overwatch.feeds.towers import Listed
from overwatch.snapshot import RunLine
from overwatch.tui.context import Context
from overwatch.tui.grammar import ABSENT, age, severity
from overwatch.tui.panels import picking
from overwatch.tui.text import Role, Span, clean, cut, cut_middle, fit, left, right, rule

_ID = 24


def render(listed: tuple[Listed, ...], watched: str | None, ctx: Context, rows: int) -> picking.Page:
    """Title, head, and at most `rows - 2` runs; the one under the cursor is always among them."""
    count = sum(one.run is not None for one in listed)
    lines = [
        rule("RUNS", [Span(f"{count} run{'' if count == 1 else 's'}", Role.MUTED)], ctx.width),
        fit([Span(_head(ctx), Role.MUTED)], ctx.width),
    ]
    room = max(0, rows - len(lines))
    if not listed:
        lines.append(fit([Span("  asking the collector", Role.MUTED)], ctx.width))
        return picking.Page(lines=lines[:rows])
    many = len({one.collector for one in listed}) > 1
    shown = picking.window(ctx.ui.picked, len(listed), room)
    targets = picking.targets(len(lines), shown)
    for place in shown:
        one = listed[place]
        line = _run(one.run, watched, ctx) if one.run is not None else _silent(one)
        if many and one.run is not None:
            line = [*line, Span(f"  {clean(one.collector)}", Role.MUTED)]
        lines.append(picking.marked(line, ctx.width, here=place == ctx.ui.picked))
    return picking.Page(lines=lines, targets=targets)


def _head(ctx: Context) -> str:
    kinds = "" if ctx.compact else f"{'task':20} {'algo':8} "
    return f"    {'run':{_ID}} {kinds}{'state':12} {'update':>8} {'env':>7}  verdict"


def _silent(listed: Listed) -> list[Span]:
    return [
        Span(f"   {left(cut_middle(clean(listed.collector), _ID), _ID)} "),
        Span(cut(clean(listed.reason or "no answer"), 60), Role.CRIT),
    ]


def _run(run: RunLine, watched: str | None, ctx: Context) -> list[Span]:
    here = "* " if run.run_id == watched else "  "
    spans = [Span(f" {here}{left(cut_middle(clean(run.run_id), _ID), _ID)} ", Role.TITLE)]
    if not ctx.compact:
        task, algo = clean(run.task or ABSENT), clean(run.algo or ABSENT)
        spans.append(Span(f"{left(cut_middle(task, 20), 20)} {left(algo, 8)} "))
    spans.append(Span(left(_state(run), 12) + " "))
    update = ABSENT if run.update is None else f"{run.update:,}"
    envs = ABSENT if run.n_envs is None else f"{run.n_envs:,}"
    spans.append(Span(f"{right(update, 8)} {right(envs, 7)}  "))
    archived = [Span("  archived", Role.MUTED)] if run.archived else []
    return [*spans, severity(run.severity), *archived, Span(f"  {clean(run.text)}")]


def _state(run: RunLine) -> str:
    word = clean(run.outcome or run.state).upper().replace("_", " ")
    if run.data_age_s is None:
        return word
    ended = run.state == "ended"
    return f"{word} {duration(run.data_age_s, coarse=True) if ended else age(run.data_age_s)}"
