"""What the demo says: a status line while it runs, a summary when it ends."""

from pathlib import Path

import click
import msgspec

from overwatch.cli.children import Child
from overwatch.cli.outline import idle_line
from overwatch.snapshot import Reading, Snapshot

SHOWN = (
    "return",
    "kl_divergence",
    "entropy",
    "clip_fraction",
    "explained_variance",
    "grad_norm",
    "grad_clipped",
)


def status_line(elapsed_s: float, snapshot: Snapshot | None) -> str:
    """One line: time, link, progress, pulse, verdict."""
    if snapshot is None:
        return f"{elapsed_s:5.0f}s  no run yet"
    run = snapshot.run
    pulse = "  ".join(_cell(snapshot.policy[name]) for name in SHOWN if name in snapshot.policy)
    update = "–" if run.update is None else str(run.update)
    verdict = f"{snapshot.verdict.severity.upper()} {snapshot.verdict.text}"
    return f"{elapsed_s:5.0f}s  {snapshot.link.state.upper()}  update {update}  {pulse}  {verdict}"


def _cell(reading: Reading) -> str:
    mark = {"warning": "!", "critical": "!!"}.get(reading.status, "")
    return f"{reading.label} {reading.text}{mark}"


class Summary(msgspec.Struct, kw_only=True):
    """`summary.json`."""

    ok: bool
    run_id: str | None
    link: str | None
    outcome: str | None
    updates: float
    episodes: float
    steps: float
    elapsed_s: float | None
    verdict: str | None
    policy: dict[str, float | None]
    seed_census: dict[str, int]
    idle_gpu_s: dict[str, float]
    """GPU-seconds in which nothing ran, by the bound that held."""
    findings: list[str]
    trainer_exit: int | None
    collector_exit: int | None
    files: list[str]


def write_summary(out: Path, snapshot: Snapshot | None, trainer: Child | None, collector: Child) -> int:
    """Write and say how it went; 0 when a policy was seen training and both children ended well."""
    summary = _summary(out, snapshot, trainer, collector)
    (out / "summary.json").write_bytes(msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n")
    if snapshot is not None:
        pulse = "  ".join(_cell(snapshot.policy[name]) for name in SHOWN if name in snapshot.policy)
        click.echo(
            f"run {summary.run_id}: {summary.updates:.0f} updates, {summary.episodes:.0f} episodes  {pulse}"
        )
        if snapshot.system.gpus:
            click.echo(f"idle: {idle_line(snapshot.system)}")
    for child in (trainer, collector):
        if child is not None and child.code != 0:
            click.echo(
                f"{child.name} ended with {child.code}; the end of {child.log}:\n{child.tail()}", err=True
            )
    if not summary.updates:
        click.echo("no update was seen; let it run longer with --seconds, or read trainer.log", err=True)
    click.echo(f"{'done' if summary.ok else 'failed'}: {out}")
    return 0 if summary.ok else 1


def _summary(out: Path, snapshot: Snapshot | None, trainer: Child | None, collector: Child) -> Summary:
    counters = snapshot.counters if snapshot else {}
    codes = (None if trainer is None else trainer.code, collector.code)
    return Summary(
        ok=bool(counters.get("updates")) and codes == (0, 0),
        run_id=snapshot.run.run_id if snapshot else None,
        link=snapshot.link.state if snapshot else None,
        outcome=snapshot.run.outcome if snapshot else None,
        updates=counters.get("updates", 0),
        episodes=counters.get("episodes", 0),
        steps=counters.get("steps", 0),
        elapsed_s=snapshot.run.elapsed_s if snapshot else None,
        verdict=snapshot.verdict.text if snapshot else None,
        policy={name: reading.value for name, reading in snapshot.policy.items()} if snapshot else {},
        seed_census=snapshot.aggregates.seed_census if snapshot else {},
        idle_gpu_s=snapshot.system.idle_gpu_s if snapshot else {},
        findings=[f"{finding.severity}: {finding.message}" for finding in snapshot.findings]
        if snapshot
        else [],
        trainer_exit=codes[0],
        collector_exit=codes[1],
        files=sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()),
    )
