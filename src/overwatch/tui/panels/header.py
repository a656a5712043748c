"""The first lines: which run this is, how far and how fresh, where a recording stands; then the verdict.

The verdict's text is the snapshot's own: the worst severity, its causes, and the counts.
"""

import re
from datetime import datetime
from typing import Final

from overwatch.catalog.durations import duration
from overwatch.snapshot import Run, Snapshot, Timing, Verdict
from overwatch.tui.context import Context
from overwatch.tui.grammar import ABSENT, clock, date, severity, short
from overwatch.tui.playback import Playback
from overwatch.tui.text import Line, Role, Span, cells, clean, cut, cut_middle, fit, spread, width_of, wrapped

BAR = 10
_KEYS: Final = "Space {play}  , . step  < > speed  [ ] alarm  : seek"
_BUSY: Final = "Esc cancels"
_SHORT_KEYS: Final = "Space , . < > [ ]"
_GIVE_WAY: Final = ("node", "modes", "git", "counts", "task", "update")
"""What is left out of the first line one after another; the run's id and state never are."""
_ROLES: Final = {"c": Role.CRIT, "w": Role.WARN, "┃": Role.TITLE}

_COUNTED = (("critical", "crit"), ("warning", "warn"))
_BETWEEN = " · "
LEAST_COUNTED: Final = 80
"""Narrower terminals list the findings and have no room for their number."""
LEAST_CAUSE: Final = 45
"""No cause of several is cut to less, as long as others can be counted instead."""
_CLAUSE: Final = re.compile("; |, (?=last |catching up )")
"""Where the sentence about a silent or late run may end."""
_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def render(snapshot: Snapshot, ctx: Context) -> list[Line]:
    """Two lines: identity with the link's state, progress with the render times or the transport."""
    playback = ctx.playback
    second = _progress(snapshot, ctx) if playback is None else transport(playback, ctx)
    return [identity(snapshot.run, ctx, snapshot.updates_done), second]


def identity(run: Run, ctx: Context, done: int | None = None) -> Line:
    """Which run, and how fresh; `done` is how many updates there were.

    What gives way when there is no room is left out one after another.
    """
    gap = " " if ctx.compact else "  "
    text = ctx.fresh.text
    if not ctx.compact and ctx.fresh.state == "ended" and run.outcome is not None:
        after = "" if done is None else f" after {done:,} updates"
        text += f" ago{after} ({clean(run.outcome)})"
    state = [Span(text, ctx.fresh.role)]
    room = ctx.width - 2 - width_of(state)
    title = f" OVERWATCH{gap}"
    name = cut_middle(clean(run.run_id), max(8, room - len(title)))
    parts = _parts(run, ctx)
    for leave in ("", *_GIVE_WAY):
        parts.pop(leave, None)
        spans = [Span(" "), Span("OVERWATCH", Role.TITLE), Span(gap), Span(name, Role.TITLE)]
        spans += [Span(gap + text) for text in parts.values() if text]
        if width_of(spans) <= room:
            break
    return spread(spans, state, ctx.width)


def _parts(run: Run, ctx: Context) -> dict[str, str]:
    """By what gives way; the update is where the transport has the place of the progress."""
    is_played = ctx.compact and ctx.playback is not None and run.update is not None
    return {
        "update": f"u {_of(run.update, run.updates)}" if is_played else "",
        "task": "/".join(clean(word) for word in (run.task, run.reward_mode, run.algo) if word),
        "node": f"node {clean(run.node)}" if run.node else "",
        "counts": _counts(run, compact=ctx.compact),
        "git": _git(run, compact=ctx.compact),
        "modes": "" if ctx.compact else _modes(run),
    }


def _counts(run: Run, *, compact: bool) -> str:
    names = [device.lower() for device in run.devices]
    kind = "cpu" if all(name.startswith("cpu") for name in names) else "device"
    kind = "gpu" if any(name.startswith(("gpu", "cuda", "mig")) for name in names) else kind
    known = [
        (len(run.devices) or None, kind),
        (run.ranks if (run.ranks or 1) > 1 and run.ranks != run.modes.ddp else None, "rank"),
        (run.n_envs, "env"),
        (len(run.slots) or None if run.slots_enabled else None, "slot"),
    ]
    shown = [(count, word) for count, word in known if count is not None and not (compact and word == "rank")]
    return " ".join(f"{count:,}{word[0]}" if compact else f"{count:,} {word}" for count, word in shown)


def _git(run: Run, *, compact: bool) -> str:
    if not run.git_sha:
        return ""
    start, dirty = ("", "+") if compact else ("git ", "+dirty")
    return f"{start}{clean(run.git_sha)[:7]}{dirty if run.dirty else ''}"


def _modes(run: Run) -> str:
    modes = run.modes
    ddp = f"ddp{modes.ddp}" if modes.ddp else ""
    words = (clean(modes.amp or ""), "compile" if modes.compile else "", ddp)
    return " ".join(word for word in words if word)


def _progress(snapshot: Snapshot, ctx: Context) -> Line:
    run = snapshot.run
    paint = _paint(snapshot.timing, ctx)
    gap = " " if ctx.compact else "  "
    words = _position(run, compact=ctx.compact)
    spans = [Span(f" {gap.join(words)}")]
    spans += _share(run, compact=ctx.compact)
    spans.append(Span("  " + _times(run, ctx)))
    if run.steps_per_s is not None:
        spans.append(Span(f"  {short(run.steps_per_s)}/s"))
    if width_of(spans) + width_of(paint) + 2 > ctx.width:
        return fit(spans, ctx.width)
    return spread(spans, paint, ctx.width)


def _position(run: Run, *, compact: bool) -> list[str]:
    words = []
    if run.episode is not None:
        words.append(f"{'ep' if compact else 'episode'} {run.episode:,}")
    if run.batch is not None:
        words.append(f"{'b' if compact else 'batch'} {_of(run.batch, run.batches)}")
    words.append(f"{'u' if compact else 'update'} {_of(run.update, run.updates)}")
    if run.steps is not None and run.episode is None and not compact:
        words.append(f"frames {short(run.steps)}")
    return words


def _of(done: int | None, planned: int | None) -> str:
    if done is None:
        return ABSENT
    return f"{done:,}" if planned is None else f"{done}/{planned}"


def _share(run: Run, *, compact: bool) -> list[Span]:
    done, planned = (run.batch, run.batches) if run.batches else (run.update, run.updates)
    if done is None or not planned:
        return []
    share = min(1.0, done / planned)
    filled = round(share * BAR)
    text = f"  {share:.0%}" if compact else f" {share:.0%}"
    bar = [] if compact else [Span("  " + "━" * filled), Span("─" * (BAR - filled), Role.MUTED)]
    return [*bar, Span(text)]


def _times(run: Run, ctx: Context) -> str:
    waited = 0.0 if ctx.fresh.state == "ended" else ctx.waited_s
    elapsed = ABSENT if run.elapsed_s is None else _coarse(run.elapsed_s + waited)
    eta = ABSENT if run.eta_s is None else _coarse(run.eta_s)
    saved = ABSENT if run.checkpoint_age_s is None else _coarse(run.checkpoint_age_s + ctx.waited_s)
    if ctx.compact:
        return f"{elapsed} eta {eta} ckpt {saved}"
    ago = "" if run.checkpoint_age_s is None else " ago"
    return f"run {elapsed}  eta {eta}  ckpt {saved}{ago}"


def _coarse(seconds: float) -> str:
    return duration(max(seconds, 0), coarse=True) if seconds >= 1 else "0s"


def _paint(timing: Timing | None, ctx: Context) -> list[Span]:
    if timing is None or timing.last_render_ms is None or timing.mean_render_ms is None:
        return []
    unit = "" if ctx.compact else " ms"
    return [
        Span("paint ", Role.MUTED),
        Span(f"{timing.last_render_ms:.1f}/{timing.mean_render_ms:.1f}{unit}", Role.MUTED),
    ]


def transport(playback: Playback, ctx: Context) -> Line:
    """One line."""
    state = "> " if playback.playing else "  " if playback.still else "||"
    tenths = int(playback.time * 10) % 10
    now = f"{clock(playback.time, ctx.zone, millis=False)}.{tenths}"
    start = [Span(f" {state} {now} of {clock(playback.last, ctx.zone, millis=False)}  ")]
    speed = f"{playback.speed:g}x" if playback.speed < 1 else f"{playback.speed:.1f}x"
    keys = _SHORT_KEYS if ctx.compact else _KEYS.format(play="pause" if playback.playing else "play")
    keys = _BUSY if playback.busy else keys
    if playback.still:
        speed = keys = ""
    room = ctx.width - width_of(start) - len(speed) - len(keys) - 10
    return spread(
        [*start, *_timeline(playback, max(8, min(60, room))), Span(f"  {speed}")],
        [Span(keys, Role.MUTED)],
        ctx.width,
    )


def _timeline(playback: Playback, cells: int) -> list[Span]:
    span_s = max(playback.last - playback.first, 1e-9)

    def place(time: float) -> int:
        """Return the cell of a moment."""
        return min(cells - 1, max(0, int((time - playback.first) / span_s * cells)))

    here = place(playback.time)
    bar = ["━"] * here + ["─"] * (cells - here)
    for word, letter in (("warning", "w"), ("critical", "c")):
        for mark in playback.marks:
            if mark.severity == word:
                bar[place(mark.time)] = letter
    bar[here] = "┃"
    return [
        Span(letter, _ROLES.get(letter, Role.TEXT if index < here else Role.MUTED))
        for index, letter in enumerate(bar)
    ]


def verdict(snapshot: Snapshot, ctx: Context) -> list[Line]:
    """One line. When nothing reaches this terminal, no verdict is given from what is old."""
    gap = " " if ctx.compact else "  "
    if ctx.fresh.cut_off:
        waited = duration(ctx.waited_s)
        old = waited if ctx.fresh.age_s is None else duration(ctx.fresh.age_s)
        ending = [Span(f"everything below is {old} old", Role.STALE)]
        word = Span("CRIT", Role.CRIT)
        text = f"collector silent for {waited}; reconnecting"
    else:
        ending = _ending(snapshot.verdict, ctx)
        word = severity(snapshot.verdict.severity)
        text = _text(snapshot, ctx)
    start = [Span(" "), word, Span(gap)]
    gives_way = snapshot.verdict.note is not None or (ctx.fresh.state == "lost" and not ctx.ui.recorded)
    alone = ctx.width - width_of(start) - 1
    room = alone - width_of(ending) - 2
    if room < 24 or (ctx.compact and not ctx.fresh.cut_off and gives_way and cells(text) > room):
        ending, room = [], alone
    return [spread([*start, Span(_causes(text, room))], ending, ctx.width)]


def wrapped_verdict(snapshot: Snapshot, ctx: Context, most: int) -> list[Line]:
    """The same on narrow terminals: the text goes on in at most so many lines, before a cause is left out."""
    text, word = _text(snapshot, ctx), severity(snapshot.verdict.severity)
    indent = width_of([word]) + 2
    room = ctx.width - indent
    rows = [] if ctx.fresh.cut_off else wrapped(text, room)
    if len(rows) > most:
        rows = wrapped(_causes(text, most * room - room // 3), room)
    if not 1 < len(rows) <= most:
        return verdict(snapshot, ctx)
    first = fit([Span(" "), word, Span(f" {rows[0]}")], ctx.width)
    return [first, *(fit([Span(" " * indent + row)], ctx.width) for row in rows[1:])]


def _text(snapshot: Snapshot, ctx: Context) -> str:
    """The snapshot's words, with moments in the terminal's zone."""
    return _MOMENT.sub(lambda found: _local(found[0], snapshot.time, ctx), clean(snapshot.verdict.text))


def _causes(text: str, room: int) -> str:
    """Whole where it fits; else the longest causes are cut, and then the last ones counted.

    A single one loses its last clauses, and is then cut at its end.
    """
    if cells(text) <= room:
        return text
    clauses = [found.start() for found in _CLAUSE.finditer(text)] if _BETWEEN not in text else []
    for end in reversed(clauses):
        if cells(text[:end]) <= room:
            return text[:end]
    causes = text.split(_BETWEEN)
    for keep in range(len(causes), 0, -1):
        more = f" +{len(causes) - keep}" if keep < len(causes) else ""
        for most in range(room, LEAST_CAUSE - 1, -1):
            shown = _BETWEEN.join(cut(cause, most) for cause in causes[:keep]) + more
            if cells(shown) <= room:
                return shown
    return cut(text, room)


def _ending(verdict: Verdict, ctx: Context) -> list[Span]:
    """What is to be known beside the text; without that, the counts."""
    if ctx.ui.recorded and ctx.fresh.state in ("lost", "ended"):
        return [Span("r replay", Role.INFO)]
    if verdict.note is not None:
        return [Span(clean(verdict.note), Role.STALE if ctx.fresh.old else Role.MUTED)]
    words = [f"{verdict.counts[key]} {word}" for key, word in _COUNTED if verdict.counts.get(key)]
    words += [f"{verdict.acknowledged} acked"] if verdict.acknowledged and not ctx.compact else []
    return [Span("  ".join(words))] if words and ctx.width >= LEAST_COUNTED else []


def _local(moment: str, now: float, ctx: Context) -> str:
    """A moment in UTC as time of day in the terminal's zone, with its date when that is not today's."""
    try:
        unix_s = datetime.fromisoformat(moment).timestamp()
    except ValueError:
        return moment
    time, day = clock(unix_s, ctx.zone, millis=False), date(unix_s, ctx.zone)
    return time if day == date(now, ctx.zone) else f"{day} {time}"
