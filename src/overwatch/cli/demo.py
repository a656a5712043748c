"""`overwatch demo`: a collector, a real trainer and a reader, together on this machine.

Owns the children: it starts them, sends their output to log files, ends them in order, and reports how it
went in `summary.json`. Everything lies under one folder. Must not know what the children measure.
"""

import math
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from overwatch.analyse.curves import counts_text
from overwatch.cli import processes
from overwatch.cli.processes import Program
from overwatch.cli.replay import idle_line
from overwatch.cli.streams import has_terminal
from overwatch.cli.viewclient import ViewUnreachableError, fetch, fetch_snapshot
from overwatch.discovery import Endpoints
from overwatch.extras import RL, TUI
from overwatch.output import write_output
from overwatch.snapshot import Reading, Snapshot

HEADLESS_SECONDS: Final = 60.0
STATUS_EVERY_S: Final = 5.0
STOP_S: Final = 15.0
LATE_S: Final = 60.0
"""How much longer than it was asked to a trainer may take, for its start and its last step."""
SHOWN: Final = (
    "return", "kl_divergence", "entropy", "clip_fraction", "explained_variance", "grad_norm", "grad_clipped",
)  # fmt: skip
"""Numbers of the policy on a status line."""
UPDATES: Final = 1000
LONG_S: Final = 3600.0
"""Length of a simulated run that ends when the user quits."""
SIMULATED: Final = """\
*** SIMULATED *** PyTorch or scikit-learn is not installed: what follows is a scripted run, no policy trains.
For the real one: make demo, or pip install "esper-overwatch[rl]".
"""
_DEFAULT_PORTS: Final = {
    "otlp_http": "4318", "otlp_grpc": "4317", "view": "4380", "metrics": "8889", "health": "13133",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """What the user requested."""

    headless: bool
    seconds: float | None
    out: Path | None
    world: str
    envs: int | None
    slots: int | None
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoWorld:
    """What is trained where nothing else is requested."""

    flags: Mapping[str, object]
    """Of `overwatch-rl train`."""
    task: str
    words: str = ""
    """What is shown before it begins."""


WORLDS: Final = {
    "morphogenesis": DemoWorld(
        # Two thirds of the preset's step: with 16 envs, whose updates are noisier, KL stays within its limit.
        flags={"world": "morphogenesis", "envs": 32, "slots": 3, "lr": 2e-3},
        task="digits",
    ),
    "goodhart": DemoWorld(
        flags={"world": "goodhart:small", "mode": "proxy"},
        task="goodhart",
        words="goodhart: agents are paid for what looks like food, and most of it is poison. Small fields,\n"
        "short episodes and a small network: two cores see the failure within two minutes.",
    ),
}


def run_demo(options: DemoOptions) -> int:
    """Run until the time is over, the user quits or training ends; 0 when updates were seen."""
    world = WORLDS[options.world]
    click.echo(world.words if _has_trainer() else SIMULATED, nl=not _has_trainer() or bool(world.words))
    out = _folder(options.out)
    headless = options.headless or not (has_terminal() and not TUI.missing)
    if headless and options.seconds is None:
        options = replace(options, seconds=HEADLESS_SECONDS)
    run_id = f"{world.task if _has_trainer() else 'SIMULATED'}-{datetime.now().astimezone():%m%d-%H%M%S}"
    collector = processes.collector(out, _collector_arguments(out))
    trainer: Program | None = None
    try:
        endpoints = processes.wait_ready(collector, out)
        _announce(endpoints, out)
        trainer = processes.child("trainer", _trainer_command(options, endpoints, run_id, out), out, {})
        if headless:
            last = _headless(options, endpoints, trainer, out)
        else:
            last = _screen(endpoints, run_id)
            _keep_page(endpoints, out)
        trainer.stop(STOP_S)
        last = _snapshot(endpoints) or last
    finally:
        if trainer is not None:
            trainer.stop(STOP_S)
        collector.stop(STOP_S)
    return write_summary(out, last, trainer, collector)


def _has_trainer() -> bool:
    return not RL.missing


def _folder(out: Path | None) -> Path:
    folder = out or Path("runs") / f"demo-{datetime.now().astimezone():%Y%m%d-%H%M%S}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.ClickException(f"--out {folder} cannot be made a folder: {error.strerror}") from error
    if (folder / "otlp" / "index.jsonl").exists():
        raise click.ClickException(f"--out {folder} holds a recording already; name an empty folder")
    return folder.resolve()


def _collector_arguments(out: Path) -> list[str]:
    sets = {
        "exporters.otlp_file.path": out / "otlp",
        "exporters.snapshots.path": out / "snapshots.jsonl",
        "extensions.file_storage.directory": out / "journal",
    }
    return [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]


def _trainer_command(options: DemoOptions, endpoints: Endpoints, run_id: str, out: Path) -> list[str]:
    return (
        _train(options, endpoints, run_id, out) if _has_trainer() else _simulate(options, endpoints, run_id)
    )


def _simulate(options: DemoOptions, endpoints: Endpoints, run_id: str) -> list[str]:
    seconds = math.ceil(options.seconds or LONG_S)
    flags = {
        "gpus": 1, "envs": options.envs or 32, "slots": options.slots or 3, "seconds": seconds,
        "seed": options.seed, "run-id": run_id, "endpoint": endpoints.otlp_http,
    }  # fmt: skip
    return [sys.executable, "-m", "overwatch.cli", "simulate", *_words(flags)]


def _words(flags: Mapping[str, object]) -> list[str]:
    return [word for key, value in flags.items() for word in (f"--{key}", str(value))]


def _train(options: DemoOptions, endpoints: Endpoints, run_id: str, out: Path) -> list[str]:
    sizes = {"envs": options.envs, "slots": options.slots}
    given = {name: value for name, value in sizes.items() if value is not None}
    flags: dict[str, object] = {
        **WORLDS[options.world].flags, **given, "updates": UPDATES, "seed": options.seed,
        "endpoint": endpoints.otlp_http, "run-id": run_id, "out": out / "trainer",
    }  # fmt: skip
    if options.seconds is not None:
        flags["seconds"] = options.seconds
    return [sys.executable, "-m", "overwatch_rl.cli", "train", *_words(flags)]


def _announce(endpoints: Endpoints, out: Path) -> None:
    moved = [
        f"{name} {url}"
        for name, port in _DEFAULT_PORTS.items()
        if (url := getattr(endpoints, name)) and not url.endswith(f":{port}")
    ]
    if moved:
        click.echo(f"default ports are busy, taken instead: {', '.join(moved)}")
    click.echo(f"writing to {out}; metrics at {endpoints.metrics}/metrics; watch with")
    click.echo(f"  overwatch tui --connect {endpoints.view}")
    if endpoints.page is not None:
        click.echo(f"  {endpoints.page} in a browser")


def _headless(options: DemoOptions, endpoints: Endpoints, trainer: Program, out: Path) -> Snapshot | None:
    """Until the trainer ends by itself, which it does when its time is over."""
    began = time.monotonic()
    seconds = (options.seconds or HEADLESS_SECONDS) + LATE_S
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    last: Snapshot | None = None
    while (left := began + seconds - time.monotonic()) > 0:
        if trainer.wait(min(STATUS_EVERY_S, left)) is not None:
            break
        last = _snapshot(endpoints) or last
        if last is None or last.run.outcome is None:
            _keep_page(endpoints, out)
        click.echo(status_line(time.monotonic() - began, last)[:width])
    return last


def _keep_page(endpoints: Endpoints, out: Path) -> None:
    """Keep the numbers of a run, which are on the page while it lives."""
    write_output(out / "metrics.prom", fetch(f"{endpoints.metrics}/metrics"))


def _screen(endpoints: Endpoints, run_id: str) -> Snapshot | None:
    from overwatch.tui import run_tui

    if endpoints.view is None:
        raise click.ClickException("the collector opened no view API; its log has the cause")
    run_tui([endpoints.view], run_id)
    return _snapshot(endpoints)


def _snapshot(endpoints: Endpoints) -> Snapshot | None:
    if endpoints.view is None:
        return None
    try:
        return fetch_snapshot(endpoints.view, None)
    except ViewUnreachableError as error:
        click.echo(str(error), err=True)
        return None


def status_line(elapsed_s: float, snapshot: Snapshot | None) -> str:
    """One line: time, link, progress, pulse, verdict."""
    if snapshot is None:
        return f"{elapsed_s:5.0f}s  no run yet"
    run = snapshot.run
    update = "–" if run.update is None else str(run.update)
    verdict = f"{snapshot.verdict.severity.upper()} {snapshot.verdict.text}"
    return f"{elapsed_s:5.0f}s  {snapshot.link.word.upper()}  update {update}  {_pulse(snapshot)}  {verdict}"


def _pulse(snapshot: Snapshot) -> str:
    return "  ".join(_cell(snapshot.policy[name]) for name in SHOWN if name in snapshot.policy)


def _cell(reading: Reading) -> str:
    mark = {"warning": "!", "critical": "!!"}.get(reading.status, "")
    return f"{reading.label} {reading.text}{mark}"


def write_summary(out: Path, snapshot: Snapshot | None, trainer: Program | None, collector: Program) -> int:
    """Write and print how it went; 0 when a policy was seen training and both children ended well."""
    summary = _summary(out, snapshot, trainer, collector)
    write_output(out / "summary.json", msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n")
    if snapshot is not None:
        click.echo(f"run {summary['run_id']}: {counts_text(snapshot)}  {_pulse(snapshot)}")
        if snapshot.system.gpus:
            click.echo(f"idle: {idle_line(snapshot.system)}")
    for child in (trainer, collector):
        if child is not None and child.code != 0:
            tail = "\n".join(child.tail(20))
            click.echo(
                f"{child.shown} ended with {child.code}; the end of {child.console}:\n{tail}", err=True
            )
    if not summary["updates"]:
        click.echo("no update was seen; let it run longer with --seconds, or read trainer.log", err=True)
    click.echo(f"{'done' if summary['ok'] else 'failed'}: {out}")
    return 0 if summary["ok"] else 1


def _summary(
    out: Path, snapshot: Snapshot | None, trainer: Program | None, collector: Program
) -> dict[str, Any]:
    """What is in `summary.json`."""
    codes = (None if trainer is None else trainer.code, collector.code)
    run, counters = (None, {}) if snapshot is None else (snapshot.run, snapshot.counters)
    return {
        "ok": bool(counters.get("updates")) and codes == (0, 0),
        "run_id": run and run.run_id,
        "link": snapshot and snapshot.link.state,
        "outcome": run and run.outcome,
        "updates": counters.get("updates", 0),
        "episodes": counters.get("episodes", 0),
        "steps": counters.get("steps"),
        "elapsed_s": run and run.elapsed_s,
        "verdict": snapshot and snapshot.verdict.text,
        "policy": {name: one.value for name, one in snapshot.policy.items()} if snapshot else {},
        "seed_census": snapshot.aggregates.seed_census if snapshot else {},
        "idle_gpu_s": snapshot.system.idle_gpu_s if snapshot else {},
        "findings": [f"{one.severity}: {one.message}" for one in snapshot.findings] if snapshot else [],
        "trainer_exit": codes[0],
        "collector_exit": codes[1],
        "files": sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()),
    }
