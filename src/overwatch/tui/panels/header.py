"""Identity and progress: which run this is, how far it is, how fresh it is; where a recording stands."""

from typing import Final

from overwatch.catalog.durations import duration
from overwatch.snapshot import Run, Snapshot, Timing
from overwatch.tui.context import Context
from overwatch.tui.grammar import ABSENT, clock, short
from overwatch.tui.playback import Playback
from overwatch.tui.text import Line, Role, Span, clean, cut_middle, fit, spread, width_of

BAR = 10
_KEYS: Final = "Space {play}  , . step  < > speed  [ ] alarm  : seek"
_BUSY: Final = "Esc cancels"
_SHORT_KEYS: Final = "Space , . < > [ ]"
_ROLES: Final = {"c": Role.CRIT, "w": Role.WARN, "┃": Role.TITLE}


def render(snapshot: Snapshot, ctx: Context) -> list[Line]:
    """Two lines: identity with the link's state, progress with the render times or the transport."""
    playback = ctx.playback
    second = _progress(snapshot, ctx) if playback is None else transport(playback, ctx)
    return [identity(snapshot.run, ctx), second]


def _update(run: Run, ctx: Context) -> str:
    """Where the transport has the place of the progress: the update, where no other panel has it."""
    if run.update is None or not ctx.compact or ctx.playback is None:
        return ""
    return f"u {_of(run.update, run.updates)}"


def identity(run: Run, ctx: Context) -> Line:
    """Which run, and how fresh.

    Gives way when there is no room: node, modes, git, counts, task; run id and state never.
    """
    gap = " " if ctx.compact else "  "
    state = [Span(_state(run, ctx), ctx.fresh.role)]
    room = ctx.width - 2 - width_of(state)
    title = f" OVERWATCH{gap}"
    name = cut_middle(clean(run.run_id), max(8, room - len(title)))
    parts = [("update", _update(run, ctx)), *_parts(run, compact=ctx.compact)]
    for leave in (
        (),
        ("node",),
        ("node", "modes"),
        ("node", "modes", "git"),
        ("node", "modes", "git", "counts"),
        ("node", "modes", "git", "counts", "task"),
        None,
    ):
        kept = [] if leave is None else [text for key, text in parts if key not in leave and text]
        spans = [Span(" "), Span("OVERWATCH", Role.TITLE), Span(gap), Span(name, Role.TITLE)]
        spans += [Span(gap + text) for text in kept]
        if width_of(spans) <= room:
            break
    return spread(spans, state, ctx.width)


def _state(run: Run, ctx: Context) -> str:
    """`LIVE 0.3s`; of a run that is over when it ended and how: `ENDED 3m ago after 140 updates (failed)`."""
    text = ctx.fresh.text
    if ctx.compact or ctx.fresh.state != "ended" or run.outcome is None:
        return text
    after = "" if run.update is None else f" after {run.update:,} updates"
    return f"{text} ago{after} ({clean(run.outcome)})"


def _parts(run: Run, *, compact: bool) -> list[tuple[str, str]]:
    task = "/".join(clean(word) for word in (run.task, run.reward_mode, run.algo) if word)
    return [
        ("task", task),
        ("node", f"node {clean(run.node)}" if run.node else ""),
        ("counts", _counts(run, compact=compact)),
        ("git", _git(run, compact=compact)),
        ("modes", "" if compact else _modes(run)),
    ]


def _counts(run: Run, *, compact: bool) -> str:
    known = [
        (len(run.devices) or None, _kind(run.devices)),
        (run.ranks if (run.ranks or 1) > 1 and run.ranks != run.modes.ddp else None, "rank"),
        (run.n_envs, "env"),
        (len(run.slots) or None if run.slots_enabled else None, "slot"),
    ]
    if compact:
        return " ".join(
            f"{count:,}{word[0]}" for count, word in known if count is not None and word != "rank"
        )
    return " ".join(f"{count:,} {word}" for count, word in known if count is not None)


def _kind(devices: tuple[str, ...]) -> str:
    """What the devices are: `gpu`, `cpu`, or just devices."""
    names = [device.lower() for device in devices]
    if any(name.startswith(("gpu", "cuda", "mig")) for name in names):
        return "gpu"
    return "cpu" if all(name.startswith("cpu") for name in names) else "device"


def _git(run: Run, *, compact: bool) -> str:
    if not run.git_sha:
        return ""
    sha = clean(run.git_sha)[:7]
    if compact:
        return sha + ("+" if run.dirty else "")
    return f"git {sha}" + ("+dirty" if run.dirty else "")


def _modes(run: Run) -> str:
    words = [clean(run.modes.amp)] if run.modes.amp else []
    if run.modes.compile:
        words.append("compile")
    if run.modes.ddp:
        words.append(f"ddp{run.modes.ddp}")
    return " ".join(words)


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
    speed = "" if playback.still else speed
    keys = (
        ""
        if playback.still
        else _BUSY
        if playback.busy
        else _SHORT_KEYS
        if ctx.compact
        else _KEYS.format(play="pause" if playback.playing else "play")
    )
    room = ctx.width - width_of(start) - len(speed) - len(keys) - 10
    return spread(
        [*start, *_timeline(playback, max(8, min(60, room))), Span(f"  {speed}")],
        [Span(keys, Role.MUTED)],
        ctx.width,
    )


def _timeline(playback: Playback, cells: int) -> list[Span]:
    span_s = max(playback.last - playback.first, 1e-9)

    def place(time: float) -> int:
        return min(cells - 1, max(0, int((time - playback.first) / span_s * cells)))

    here = place(playback.time)
    bar = ["━"] * here + ["─"] * (cells - here)
    for severity, letter in (("warning", "w"), ("critical", "c")):
        for mark in playback.marks:
            if mark.severity == severity:
                bar[place(mark.time)] = letter
    bar[here] = "┃"
    return [
        Span(letter, _ROLES.get(letter, Role.TEXT if index < here else Role.MUTED))
        for index, letter in enumerate(bar)
    ]
