"""A run in a few lines: how it ended, how much it got done, what held its lanes back and what that cost.

Made of snapshots alone: of a recording's last, and of the findings in all of them.
"""

from collections.abc import Iterable, Iterator

from overwatch.analyse.found import SEVERITIES, Findings, Found
from overwatch.catalog.durations import duration
from overwatch.snapshot import Lane, Run, Snapshot, Spread, System

MOST_FINDINGS = 20


def outlines(snapshots: Iterable[Snapshot]) -> Iterator[str]:
    """Lines about every run among these snapshots, in the order in which they were first told."""
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
    state = run.outcome or snapshot.link.state
    done = [f"{snapshot.counters.get(name, 0):,.0f} {name}" for name in ("updates", "episodes", "steps")]
    took = "" if run.elapsed_s is None else f" in {duration(run.elapsed_s)}"
    yield f"run {run.run_id}: {state}, {', '.join(done)}{took}"
    if snapshot.link.state in ("ended", "lost") and snapshot.verdict.severity != "ok":
        yield f"  {snapshot.verdict.severity:10}  {snapshot.verdict.text}"
    said = _throughput(run)
    if said:
        yield f"  throughput  {said}"
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
    told = run.throughput
    if told is None:
        return "" if run.steps_per_s is None else f"{run.steps_per_s:,.3g} steps/s"
    parts = [f"{told.now:,.3g} {told.unit}/s"]
    if told.best is not None:
        parts.append(f"{told.best.rate:,.3g} in {told.best.name}")
    if told.baseline is not None:
        parts.append(f"{told.baseline.rate:,.3g} in {told.baseline.name}")
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
