"""The loop of `overwatch follow`: look at the files, send and record what is new, until there is an end.

Owns pacing and what is printed meanwhile. Rules: a run ends by what its program wrote, by idleness, with the
watched process, or with the command. Files are read as fast as the collector takes what they hold; where it
is away at the end, it is waited for a while, and whoever follows again goes on from there. Must not know
formats.
"""

import shlex
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import click

from overwatch import discovery
from overwatch.catalog import parse_library
from overwatch.cli.simulate import DEFAULT_ENDPOINT, SLICE_S
from overwatch.cli.streams import warn
from overwatch.follow.base import Reader
from overwatch.follow.columns import Chosen
from overwatch.follow.memory import Memory, RememberingSender, together
from overwatch.follow.output import Recorder
from overwatch.follow.process import Process
from overwatch.follow.readers import READERS
from overwatch.follow.readers.pattern import PatternReader, parse_pattern
from overwatch.follow.runs import Run
from overwatch.follow.standard_input import StandardInput
from overwatch.follow.story import Declared
from overwatch.follow.watched import Wanted, Watched
from overwatch.os_signals import received
from overwatch.sdk.exporter.spool import spool_root
from overwatch.simulate.delivery import Reported

LOOK_S: Final = 0.5
"""Between looks at the files."""
SCAN_S: Final = 2.0
"""Between looks for new files, at the least; at the most a tenth of the time goes into them."""
AWAY_S: Final = 10.0
"""Patience at the end with a collector that takes nothing."""
_PATIENCE_S: Final = 5.0
"""A program in a pipe gets the same Ctrl-C; so long it may take to write its last words."""

End: TypeAlias = tuple[str, str | None]
"""Outcome and reason."""


class Following:
    """One `overwatch follow`."""

    def __init__(self, path: Path, options: dict[str, Any]) -> None:
        self._path, self._options = path, options
        wanted = wanted_of(path, options, is_all=options["is_all"])
        self._watched = Watched(wanted)
        self._input: StandardInput | None = None
        if str(path) == "-":
            if wanted.make is None:
                raise click.UsageError(r"- is text: name its numbers, e.g. --pattern 'loss=(?P<loss>\S+)'")
            self._input = StandardInput(wanted.make(), LOOK_S)
            run_id = wanted.run_id or f"stdin-{time.strftime('%m%d-%H%M%S')}"
            self._watched.runs[run_id] = Run(run_id, [self._input], wanted.declared)
        self._process = _process(options["pid"])
        self._sender = _sender(path, options["endpoint"], is_needed=options["out"] is None)
        self._recorder = None if options["out"] is None else _recorder(options["out"])
        self._memory: Memory | None = None
        # A recording is whole only from the beginning.
        if self._sender is not None and self._recorder is None:
            self._memory = Memory(spool_root() / "follow", self._sender.endpoint)
        self._recalled: set[str] = set()
        """Runs whose memory was looked for."""
        self._progress = (0, time.monotonic())
        """How many requests the collector took, and when it last took one or none waited."""
        self._began = time.monotonic()
        self._touched: dict[str, float] = {}
        """When each run was last written to, by the monotonic clock."""
        self._interrupts: list[int] = []
        self._patient_until: float | None = None
        self._stated: set[str] = set()
        """Lines that were printed."""

    def run(self) -> int:
        """Follow until it ends; the exit status."""
        with received((signal.SIGINT, signal.SIGTERM), self._interrupts.append):
            if self._sender is not None:
                self._sender.start()
            outcome, reason = self._until_end()
            for run in self._open():
                self._put(run, run.finish(time.time_ns(), outcome, reason))
            self._drain()
        return self._close()

    def _until_end(self) -> End:
        scan_at = 0.0
        while True:
            is_gone = self._process is not None and not self._process.lives()
            # A program that has ended may have begun a file since the last scan.
            if is_gone or time.monotonic() >= scan_at:
                began = time.monotonic()
                self._scan()
                scan_at = time.monotonic() + max(SCAN_S, 9 * (time.monotonic() - began))
            is_new = self._look()
            self._end_runs()
            end = self._end(is_gone=is_gone, is_new=is_new)
            if end is not None:
                return end
            if not is_new and self._input is None:
                self._wait()

    def _scan(self) -> None:
        if self._input is not None:
            return
        try:
            self._watched.scan(time.time_ns())
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        for run in self._watched.runs.values():
            self._recall(run)
        if self._watched.left:
            self._state(
                f"older runs of {self._path} are left out until they are written to; --all takes them too"
            )

    def _recall(self, run: Run) -> None:
        """Let a run that is new here go on from where it was delivered to."""
        if self._memory is None or run.run_id in self._recalled:
            return
        self._recalled.add(run.run_id)
        found = self._memory.recall(self._memory.file(run.run_id, run.paths))
        if found is None or self._options["from_start"]:
            return
        has_them = run.recall(found, time.time_ns())
        # What was on its way when following ended: the collector knows by its numbers whether it came.
        self._put(run, found.sent)
        if not has_them:
            return
        count = f"{run.story.rows:,} rows that were delivered before"
        self._state(f"run {run.run_id}: goes on behind {count}; --from-start sends them again")

    def _look(self) -> bool:
        """Send what was written since the last look; whether there was anything, or may be."""
        is_new = False
        for run in self._open():
            if not self._has_room():
                self._touched[run.run_id] = time.monotonic()
                is_new = is_new or not self._is_stuck()
                continue
            rows = run.story.rows
            self._put(run, run.read(time.time_ns()))
            if run.story.rows > rows:
                is_new = True
                self._touched[run.run_id] = time.monotonic()
                self._state(run.known())
            else:
                self._put(run, run.alive(time.time_ns()))
            for line in run.remarks():
                self._state(line)
        trouble = self._sender.trouble if self._sender is not None else None
        if trouble is not None:
            self._state(f"the collector does not take it yet ({trouble}); trying on")
        return is_new

    def _has_room(self) -> bool:
        """Whether more is read; else what waits for the collector is waited for, a moment."""
        if self._sender is None or self._sender.has_room:
            return True
        self._sender.wait_empty(SLICE_S)
        return self._sender.has_room

    def _is_stuck(self) -> bool:
        """Whether something waits, and the collector took nothing for long."""
        if self._sender is None:
            return False
        settled, now = self._sender.settled, time.monotonic()
        if settled != self._progress[0] or self._sender.wait_empty(0):
            self._progress = (settled, now)
        return now - self._progress[1] > AWAY_S

    def _end_runs(self) -> None:
        """End the runs whose programs wrote that they ended, or wrote nothing for long."""
        idle_s = self._options["idle_s"]
        for run in self._open():
            idle = time.monotonic() - self._touched.setdefault(run.run_id, time.monotonic())
            if run.wrote_its_end:
                self._put(run, run.finish(time.time_ns(), "ended", None))
            elif idle_s is not None and idle > idle_s:
                self._put(run, run.finish(time.time_ns(), "ended", f"nothing was written for {idle_s:g} s"))

    def _end(self, *, is_gone: bool, is_new: bool) -> End | None:
        """Why following ends now; `None` where it goes on."""
        now, idle_s = time.monotonic(), self._options["idle_s"]
        if self._input is not None and self._input.is_over:
            return "ended", "standard input ended; its program's exit status is not known"
        if self._interrupts:
            self._patient_until = self._patient_until or now + (0 if self._input is None else _PATIENCE_S)
            if now >= self._patient_until or len(self._interrupts) > 1:
                # A program in a pipe gets the same Ctrl-C; of one that writes files nothing follows from it.
                outcome = "ended" if self._input is None else "interrupted"
                return outcome, f"following ended by {signal.Signals(self._interrupts[0]).name}"
        if self._process is not None and is_gone and not is_new:
            return self._process.ending()
        if self._open():
            return None
        is_empty = not self._watched.runs
        if idle_s is not None:
            return ("ended", None) if not is_empty or now - self._began > idle_s else None
        return None if is_empty or self._path.is_dir() else ("ended", None)

    def _open(self) -> list[Run]:
        return [run for run in self._watched.runs.values() if not run.is_over]

    def _wait(self) -> None:
        until = time.monotonic() + LOOK_S
        while not self._interrupts and (left_s := until - time.monotonic()) > 0:
            time.sleep(min(left_s, SLICE_S))

    def _put(self, run: Run, requests: Sequence[Reported]) -> None:
        """Send and record requests of a run."""
        if self._memory is not None and requests:
            path = self._memory.file(run.run_id, run.paths)
            requests = together(requests, path, run.remembered())
        for reported in requests:
            if self._sender is not None:
                self._sender.put(reported)
            if self._recorder is not None:
                self._recorder.put(reported)

    def _state(self, line: str) -> None:
        """Print a line once; a count in it that rose is no new line."""
        key = "".join(one for one in line if not one.isdigit())
        if key not in self._stated:
            self._stated.add(key)
            warn(line)

    def _drain(self) -> None:
        """Wait for what is on its way, while the collector takes it, until a further Ctrl-C."""
        before, is_announced = len(self._interrupts), False
        while self._sender is not None and not self._sender.wait_empty(SLICE_S):
            if len(self._interrupts) > before or self._is_stuck():
                return
            if not is_announced and time.monotonic() - self._progress[1] > AWAY_S / 5:
                is_announced = True
                warn(f"the collector takes nothing; waiting {AWAY_S:g} s for it, Ctrl-C ends that")

    def _close(self) -> int:
        for run in self._watched.runs.values():
            warn(run.outline())
            for line in run.remarks():
                warn(f"  {line}")
        if self._recorder is not None:
            self._recorder.close()
            warn(f"  overwatch tui {shlex.quote(str(self._options['out']))}")
        lost = 0
        if self._sender is not None:
            self._sender.close()
            lost = self._sender.losses.total()
            warn(f"{self._sender.delivered:,} records delivered" + (f", {lost:,} not" if lost else ""))
            if lost and self._memory is not None:
                warn("  the same command sends the rest, once the collector is there")
        if self._interrupts:
            return 128 + self._interrupts[0]
        return 1 if lost else 0


def _sender(path: Path, endpoint: str | None, *, is_needed: bool) -> RememberingSender | None:
    """To the collector that is named or found; where neither is, to the usual place if one is needed."""
    found = None if endpoint else discovery.read()
    address = endpoint or (found.otlp_http if found else None) or (DEFAULT_ENDPOINT if is_needed else None)
    if address is None:
        return None
    try:
        sender = RememberingSender(address)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    warn(f"following {path}, sending to {address}; Ctrl-C ends it")
    return sender


def _recorder(out: Path) -> Recorder:
    if (out / "otlp" / "index.jsonl").exists():
        raise click.UsageError(f"--out {out} holds a recording already; name another folder")
    try:
        return Recorder(out)
    except OSError as error:
        raise click.ClickException(f"--out {out} cannot be written: {error.strerror or error}") from error


def _process(pid: int | None) -> Process | None:
    try:
        return None if pid is None else Process(pid)
    except ValueError as error:
        raise click.UsageError(f"--pid {error}") from None


def wanted_of(path: Path, options: dict[str, Any], *, is_all: bool) -> Wanted:
    """What the options ask to read."""
    return Wanted(
        path=path, declared=_declared_of(options), make=_reader_of(options), kind=options["fmt"],
        run_id=options["run_id"], is_all=is_all,
    )  # fmt: skip


def _reader_of(options: dict[str, Any]) -> Callable[[], Reader] | None:
    """The reader that the options ask for; `None` where the file decides."""
    if options["pattern"] is not None:
        try:
            pattern = parse_pattern(options["pattern"])
        except ValueError as error:
            raise click.UsageError(f"--pattern {error}") from error
        return lambda: PatternReader(pattern)
    return next((one.make for one in READERS if one.name == options["fmt"]), None)


def _declared_of(options: dict[str, Any]) -> Declared:
    """What the options state of a run."""
    named = options["library"]
    library = None if named is None else parse_library(named)
    settings = [one.partition("=") for one in options["settings"]]
    if odd := [name for name, equals, _ in settings if not equals or not name]:
        raise click.UsageError(f"--config {odd[0]!r} is no setting; write NAME=VALUE")
    return Declared(
        chosen=Chosen(step=options["step"], time=options["time_column"], library=library),
        algo=options["algo"],
        task=options["task"],
        preset=options["preset"],
        config={name: value for name, _, value in settings},
    )
