"""`overwatch replay`: a recording as snapshot lines, as one digest of them, or each run in a few lines.

Exit codes: 0 done, 1 nothing readable, 2 bad usage. What could not be read is counted on stderr.
"""

import hashlib
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from overwatch import codec
from overwatch.analyse.curves import counts_text
from overwatch.analyse.findings import SEVERITIES, Findings, Found
from overwatch.catalog.durations import duration
from overwatch.cli.recordings import patience
from overwatch.cli.streams import warn
from overwatch.feeds.inputs import Input, open_input
from overwatch.feeds.player import player_of
from overwatch.feeds.recording import Recording, RecordingError, unshown
from overwatch.feeds.snapshotlog import read_baseline
from overwatch.fold import DEFAULT_VIEW
from overwatch.otlp.thin import RetentionLevel
from overwatch.recordings.index import Notes
from overwatch.snapshot import Lane, Run, Snapshot, Spread, System

MOST_FINDINGS: Final = 20
SECOND: Final = 1_000_000_000
_PERIODS: Final = {
    RetentionLevel.SECOND: "second",
    RetentionLevel.MINUTE: "minute",
    RetentionLevel.SPARSE: "ten minutes",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """What to print of a recording; times in seconds of recording time."""

    every_s: float | None = None
    at_s: float | None = None
    update: int | None = None
    """The first snapshot of a run at this update of its policy, or after it."""
    run_id: str | None = None
    digest: bool = False
    baseline: Path | None = None
    """A recording whose throughput is compared with."""
    summary: bool = False

    @property
    def is_quiet(self) -> bool:
        """Whether it reads for long before it prints."""
        return self.digest or self.summary or self.at_s is not None or self.update is not None

    def __post_init__(self) -> None:
        chosen = {
            "--every": self.every_s, "--at": self.at_s, "--update": self.update,
            "--digest": self.digest or None, "--summary": self.summary or None,
        }  # fmt: skip
        given = [name for name, value in chosen.items() if value is not None]
        if len(given) > 1:
            raise click.UsageError(f"{' and '.join(given)} exclude one another; give one of them")
        if self.digest and self.run_id is not None:
            raise click.UsageError("--digest is of the whole recording; leave --run out")
        if self.digest and self.baseline is not None:
            raise click.UsageError("--digest is of what was recorded; leave --baseline out")


def replay(path: Path, options: ReplayOptions) -> int:
    """Print what was requested; the exit code shows whether anything could be read."""
    try:
        recording = open_input(path)
        if options.baseline is not None and isinstance(recording, Recording):
            recording.baseline = read_baseline(options.baseline)
        with patience(path, recording) if options.is_quiet or not sys.stdout.isatty() else nullcontext():
            printed = _print(recording, options)
    except (RecordingError, OSError) as error:
        raise click.ClickException(str(error)) from error
    for line in (*recording.remarks(), *announced(recording)):
        warn(line)
    if not printed:
        for line in _nothing(path, recording, options.run_id):
            warn(line)
    return 0 if printed else 1


def _nothing(path: Path, recording: Input, run_id: str | None) -> Iterator[str]:
    """That nothing was shown, and why."""
    of_run = f" of run {run_id}" if run_id else ""
    yield f"{path} holds no snapshot{of_run} that can be replayed"
    others = dict.fromkeys(each.run.run_id for each in recording.recorded()) if run_id else {}
    if others:
        yield f"it holds {', '.join(others)}"
    elif isinstance(recording, Recording):
        yield from unshown(recording)


def announced(recording: Input) -> Iterator[str]:
    """What a recording's index has of what is not in it any more."""
    notes = recording.notes if isinstance(recording, Recording) else Notes()
    for run_id, retentions in notes.thinned.items():
        for retention, stamp in retentions.items():
            yield f"run {run_id}: numbers up to {_moment(stamp)} are thinned to one a {_PERIODS[retention]}"
    for gone in notes.gone:
        yield f"run {gone.gone or '(none)'}: {gone.records:,} records up to {_moment(gone.last)} are gone"


def _moment(stamp: int) -> str:
    return datetime.fromtimestamp(stamp / SECOND, tz=UTC).isoformat(sep=" ", timespec="seconds")


def _print(recording: Input, options: ReplayOptions) -> int:
    """How many lines were made of snapshots."""
    if options.digest:
        return _digest(recording)
    if not options.summary:
        return _lines(recording, options)
    lines = list(outlines(_wanted(recording, options)))
    for line in lines:
        click.echo(line)
    return len(lines)


def _digest(recording: Input) -> int:
    """Print the SHA-256 of all recorded lines: that of the `snapshots.jsonl` which was written live."""
    digest, count = hashlib.sha256(), 0
    for snapshot in recording.recorded():
        digest.update(codec.encode(snapshot) + b"\n")
        count += 1
    if count:
        click.echo(digest.hexdigest())
    return count


def _lines(recording: Input, options: ReplayOptions) -> int:
    count = 0
    for snapshot in _wanted(recording, options):
        click.echo(codec.encode(snapshot))
        count += 1
    return count


def _wanted(recording: Input, options: ReplayOptions) -> Iterator[Snapshot]:
    run_id = options.run_id
    if options.update is not None:
        yield from _at_update(recording, options.update, run_id)
        return
    if options.every_s is None and options.at_s is None:
        yield from (each for each in recording.recorded() if run_id in (None, each.run.run_id))
        return
    player = player_of(recording)
    length = player.last - player.first
    if options.at_s is not None and options.at_s * SECOND > length:
        raise click.UsageError(f"--at {options.at_s:g} is beyond the recording's {length / SECOND:g} s")
    step = round((options.every_s or 0) * SECOND)
    requested = range(step, length + 1, step) if step else [round((options.at_s or 0) * SECOND)]
    shown = None
    for offset in requested:
        frame = player.seek(player.first + offset)
        # Not the frame's: a run that is not the newest is in it as it was up to a second before.
        snapshot = player.look(run_id, DEFAULT_VIEW)
        if snapshot is not None and frame.tick != shown:
            yield snapshot
        shown = frame.tick


def _at_update(recording: Input, update: int, run_id: str | None) -> Iterator[Snapshot]:
    """The first snapshot of a run, without one named of the newest, at an update or after it."""
    found, last = dict[str, Snapshot](), dict[str, int | None]()
    for snapshot in recording.recorded():
        run = snapshot.run
        if run_id not in (None, run.run_id):
            continue
        last.pop(run.run_id, None)
        last[run.run_id] = run.update
        if run.update is not None and run.update >= update:
            found.setdefault(run.run_id, snapshot)
            if run_id is not None:
                break
    newest = next(reversed(last), None)
    if newest is None:
        return
    if newest not in found:
        stated = "has no update" if last[newest] is None else f"ends at update {last[newest]:,}"
        raise click.UsageError(f"--update {update} is not in run {newest}, which {stated}")
    yield found[newest]


def outlines(snapshots: Iterable[Snapshot]) -> Iterator[str]:
    """Lines about every run among these snapshots, in the order in which they were first found."""
    last: dict[str, Snapshot] = {}
    lanes: dict[str, tuple[Lane, ...]] = {}
    found: dict[str, Findings] = {}
    began: dict[str, float] = {}
    for snapshot in snapshots:
        run_id = snapshot.run.run_id
        last[run_id] = snapshot
        if snapshot.link.state != "ended" or run_id not in lanes:
            lanes[run_id] = snapshot.system.gpus
        since = began.setdefault(run_id, snapshot.run.started or snapshot.time)
        found.setdefault(run_id, Findings()).take(snapshot, since)
    for run_id, snapshot in last.items():
        yield from outline(snapshot, found[run_id], lanes[run_id])


def outline(snapshot: Snapshot, findings: Findings, lanes: tuple[Lane, ...]) -> Iterator[str]:
    """Lines about one run: its last snapshot, its lanes when it last emitted, and all findings."""
    run = snapshot.run
    state = run.outcome or snapshot.link.word
    took = "" if run.elapsed_s is None else f" in {duration(run.elapsed_s)}"
    yield f"run {run.run_id}: {state}, {counts_text(snapshot)}{took}"
    if snapshot.link.state in ("ended", "lost") and snapshot.verdict.severity != "ok":
        yield f"  {snapshot.verdict.severity:10}  {snapshot.verdict.text}"
    throughput = _throughput(run)
    if throughput:
        yield f"  throughput  {throughput}"
    for lane in lanes:
        yield f"  {lane.gpu_id:10}  {_lane(lane)}"
    if snapshot.system.gpus:
        yield f"  idle        {idle_line(snapshot.system)}"
    yield from _findings(findings.in_order)


def idle_line(system: System) -> str:
    """`148 GPU-seconds: sync 100, io 48`; the largest first."""
    wasted = sorted(system.idle_gpu_s.items(), key=lambda item: (-item[1], item[0]))
    parts = [f"{bound} {seconds:,.0f}" for bound, seconds in wasted if seconds >= 0.5]
    total = sum(system.idle_gpu_s.values())
    return f"{total:,.0f} GPU-seconds" + (f": {', '.join(parts)}" if parts else "")


def _throughput(run: Run) -> str:
    found = run.throughput
    if found is None:
        return "" if run.steps_per_s is None else f"{run.steps_per_s:,.3g} steps/s"
    parts = [f"{found.now:,.3g} {found.unit}/s"]
    if found.best is not None:
        parts.append(f"{found.best.rate:,.3g} in {found.best.name}")
    if found.baseline is not None:
        parts.append(f"{found.baseline.rate:,.3g} in {found.baseline.name}")
    return ", ".join(parts)


def _lane(lane: Lane) -> str:
    bound = "not judged" if lane.bound is None else f"{lane.bound.state}: {lane.bound.why or 'no reason'}"
    times = [_spread("step", lane.step_s), _spread("update", lane.update_s)]
    return "; ".join([bound, *(time for time in times if time)])


def _spread(what: str, spread: Spread | None) -> str:
    if spread is None:
        return ""
    return f"{what} p50 {_short(spread.p50)} p95 {_short(spread.p95)}"


def _short(seconds: float) -> str:
    return f"{seconds:.2f}s" if seconds >= 1 else f"{seconds * 1000:.3g}ms"


def _findings(found: list[Found]) -> Iterator[str]:
    """The worst first, then in the order of time; each at the worst that it was."""
    ordered = sorted(found, key=lambda one: -SEVERITIES.index(one.severity))
    for one in ordered[:MOST_FINDINGS]:
        finding = one.finding
        subject = "" if finding.subject.id is None else f" {finding.subject.id}"
        yield f"  {one.severity:10}  {finding.code}{subject}: {finding.message}{one.ending}"
    if len(ordered) > MOST_FINDINGS:
        yield f"  and {len(ordered) - MOST_FINDINGS} more findings"
