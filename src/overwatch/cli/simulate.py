"""`overwatch simulate`: a scripted run into a folder at once, or to a collector in its own time.

Owns pacing and what is printed. Exit code 1 when the collector did not get everything, or that of the signal
which ended it, if one did. A recording is there whole or not at all.
"""

import shlex
import shutil
import signal
import time
import uuid
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from overwatch import __version__, codec, discovery
from overwatch.aggregator import Checkpoint
from overwatch.cli.streams import warn
from overwatch.fold import FAST_NS, SLOW_NS, Fold, next_tick
from overwatch.journal import Batch, Signal
from overwatch.os_signals import received
from overwatch.recordings.checkpoints import EVERY_NS, Leaving
from overwatch.serve.files import LineFile
from overwatch.serve.recording import RecordingWriter
from overwatch.simulate import SECOND, Moment, Reported, Script, Settings, Teller, parse_fault
from overwatch.simulate.delivery import Sender

EPOCH_NS: Final = 1_767_225_600 * SECOND
"""When a recorded simulation begins: 2026-01-01 00:00 UTC, so that the same settings give the same bytes."""
DELAY_NS: Final = 5_000_000
"""From an event to its receive stamp in a recorded simulation."""
DEFAULT_ENDPOINT: Final = "http://127.0.0.1:4318"
DRAIN_S: Final = 10.0
SLICE_S: Final = 0.1
_BUDGET_BYTES: Final = 16 << 30
"""What a recording would have, a part of which its checkpoints may take."""
PART: Final = ".unfinished"
"""Folder, beside what it becomes, that a recording is written to."""


def settings_of(
    size: Mapping[str, Any], faults: tuple[str, ...], run_id: str | None, *, live: bool
) -> Settings:
    """The settings of a command line; bad ones are bad usage. A live run has an id of its own."""
    when = f"-{datetime.now().astimezone():%m%d-%H%M%S}" if live else ""
    named = run_id or f"sim-{size['gpus']}x{size['envs']}x{size['slots']}-{size['seed']}{when}"
    try:
        planned = tuple(parse_fault(fault) for fault in faults)
        return Settings(**size, faults=planned, run_id=named)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def record(settings: Settings, out: Path) -> int:
    """Write the recording that a collector would have written; refuses a folder that holds one."""
    if (out / "otlp" / "index.jsonl").exists():
        raise click.UsageError(f"--out {out} holds a recording already; name another folder")
    began = time.monotonic()
    try:
        records, snapshots = _write_whole(settings, out)
    except OSError as error:
        raise click.ClickException(f"--out {out} cannot be written: {error.strerror or error}") from error
    took = time.monotonic() - began
    click.echo(
        f"{settings.seconds} s of run {settings.run_id}: {records} records, {snapshots} snapshots, "
        f"written in {took:.1f} s"
    )
    click.echo(f"  overwatch tui {shlex.quote(str(out))}")
    return 0


def _write_whole(settings: Settings, out: Path) -> tuple[int, int]:
    """Write beside, and put all in its place once it is whole: an interrupted one leaves no recording."""
    part = out / PART
    shutil.rmtree(part, ignore_errors=True)
    try:
        counts = _write(settings, part)
        (part / "snapshots.jsonl").replace(out / "snapshots.jsonl")
        (part / "otlp").replace(out / "otlp")
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return counts


def _write(settings: Settings, out: Path) -> tuple[int, int]:
    """Write what a collector would: the recording, the log of snapshots, checkpoints to seek from."""
    writer = RecordingWriter(out / "otlp", (Signal.LOGS,))
    body = {"version": __version__, "simulated": True, "seed": settings.seed}
    encoded = msgspec.json.encode(body, order="deterministic")
    start = Batch(sequence=1, stamp=EPOCH_NS, signal=Signal.START, body=encoded)
    fold, log, leaving = Fold(), LineFile(out / "snapshots.jsonl"), Leaving(out / "otlp", _BUDGET_BYTES)
    end = next_tick(EPOCH_NS + settings.seconds * SECOND + DELAY_NS) + SLOW_NS
    tick, waiting, records, snapshots = next_tick(EPOCH_NS), [start], 0, 0
    try:
        writer.start(start)
        for request, batch in chain(_batches(settings), [(None, None)]):
            # All ticks before a batch are folded, then it waits for its own.
            while tick <= (end if batch is None else batch.stamp - 1):
                lines = [codec.encode(snapshot) + b"\n" for snapshot in fold.skip(tick, waiting)]
                waiting, snapshots = [], snapshots + len(lines)
                if lines:
                    log.append(b"".join(lines))
                if (tick - EPOCH_NS) % EVERY_NS == 0 < tick - EPOCH_NS:
                    leaving.take(_checkpoint(fold, tick))
                tick += FAST_NS
            if batch is not None and request is not None:
                writer.write(batch)
                records += request.records
                waiting.append(batch)
        writer.end(end)
    finally:
        writer.close()
        log.close()
    return records, snapshots


def _checkpoint(fold: Fold, tick: int) -> Checkpoint:
    tower = fold.tower
    return Checkpoint(
        tick=tick, position=tower.batches + 1, batches=tower.batches, ticks=tower.ticks, fold=fold.dump()
    )


def _batches(settings: Settings) -> Iterator[tuple[Reported, Batch]]:
    """Requests with the stamps that they would have got; stamps strictly rise."""
    reporter = Teller(settings.run_id, f"simulated-{settings.seed}")
    stamp = EPOCH_NS
    for sequence, reported in enumerate(reporter.report(Script(settings, EPOCH_NS).moments()), start=2):
        stamp = max(stamp + 1, reported.at + DELAY_NS)
        yield reported, Batch(sequence=sequence, stamp=stamp, signal=Signal.LOGS, body=reported.body)


def send(settings: Settings, endpoint: str | None) -> int:
    """Play the run in real time to a collector; Ctrl-C ends the run as interrupted."""
    found = None if endpoint else discovery.read()
    address = endpoint or (found.otlp_http if found else None) or DEFAULT_ENDPOINT
    try:
        sender = Sender(address)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    click.echo(f"sending run {settings.run_id} to {address} for {settings.seconds} s; Ctrl-C ends it")
    interrupts: list[int] = []
    with received((signal.SIGINT, signal.SIGTERM), interrupts.append):
        sender.start()
        _play(settings, sender, interrupts)
        _drain(sender, interrupts)
    sender.close()
    click.echo(f"{sender.delivered} records delivered")
    if sender.losses:
        why = "; ".join(f"{count} {reason}" for reason, count in sender.losses.items())
        last = f" (last: {sender.trouble})" if sender.trouble else ""
        warn(f"not delivered to {address}: {why}{last}")
    if interrupts:
        return 128 + interrupts[0]
    return 1 if sender.losses else 0


def _play(settings: Settings, sender: Sender, interrupts: list[int]) -> None:
    start_ns = time.time_ns()
    script = Script(settings, start_ns)
    reporter = Teller(settings.run_id, str(uuid.uuid4()))
    stated_trouble = False
    for reported in reporter.report(script.moments()):
        _wait_until(reported.at, interrupts)
        sender.put(reported)
        if interrupts:
            at = max(reported.at, time.time_ns())
            last = Moment(at=at, events=(script.finished(at, "interrupted", "ended by the user"),))
            for ending in reporter.report([last]):
                sender.put(ending)
            return
        if sender.trouble is not None and not stated_trouble:
            click.echo(f"the collector does not take it yet ({sender.trouble}); trying on", err=True)
        stated_trouble = sender.trouble is not None
    _wait_until(start_ns + settings.seconds * SECOND, interrupts)


def _wait_until(at: int, interrupts: list[int]) -> None:
    while not interrupts and (wait_s := (at - time.time_ns()) / SECOND) > 0:
        time.sleep(min(wait_s, SLICE_S))


def _drain(sender: Sender, interrupts: list[int]) -> None:
    """Wait for what is on its way, until a further Ctrl-C."""
    deadline, before = time.monotonic() + DRAIN_S, len(interrupts)
    while time.monotonic() < deadline and len(interrupts) == before:
        if sender.wait_empty(SLICE_S):
            return
