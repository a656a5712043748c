"""What the tests of faults and kills share: trainers and collectors as processes, and the checking ear.

The ear takes everything that a collector ever accepted, over all of its lives, by producer and sequence
number: what comes twice must be the same both times, and counts once.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import msgspec
import pytest

from overwatch.catalog import Scope
from overwatch.events import EpisodeEnded, LogLine, Measured, Record
from overwatch.journal import Signal
from overwatch.otlp.decode import decode
from overwatch.sdk.frames import Progress
from tests.e2e.sdk.recorder import HEAD
from tests.e2e.sdk.trainer import Ending, Plan
from tests.ports import free_port

HERE = Path(__file__).parent
DEADLINE_S = 60.0
SMALL = "1m"
SHM = Path("/dev/shm")
LATE_S = 5.0
"""How much longer than asked a flush or a close may take beside much else; what hangs never ends."""


def wait_for(condition: Callable[[], object], what: str, timeout_s: float = DEADLINE_S) -> None:
    """Wait until a condition holds, or fail with what was waited for."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s} s for {what}"
        time.sleep(0.01)


class Ear:
    """Everything that a recording collector accepted."""

    def __init__(self, bodies: list[tuple[str, bytes]]) -> None:
        found = [decode(Signal.LOGS, body) for path, body in bodies if path == "/v1/logs"]
        assert not any(one.problems for one in found)
        self.arrived: list[Record] = []
        self.by_number: dict[tuple[str | None, int | None], Record] = {}
        """Each record once, in the order of its first arrival."""
        for record in (record for one in found for record in one.records):
            self.take(record)

    def take(self, record: Record) -> None:
        """One that arrived; one that comes again must be the same."""
        self.arrived.append(record)
        first = self.by_number.setdefault((record.origin.epoch, record.seq), record)
        assert first == record, f"number {record.seq} came with two contents"

    def of_run(self, run_id: str) -> "Ear":
        """The same, of one run alone."""
        own = Ear([])
        own.arrived = [record for record in self.arrived if record.origin.run_id == run_id]
        own.by_number = {
            key: record for key, record in self.by_number.items() if record.origin.run_id == run_id
        }
        return own

    @property
    def records(self) -> list[Record]:
        """Each record once."""
        return list(self.by_number.values())

    @property
    def duplicates(self) -> int:
        """Records that came again."""
        return len(self.arrived) - len(self.by_number)

    @property
    def lines(self) -> list[str]:
        """The lines' texts."""
        return [record.event.message for record in self.records if isinstance(record.event, LogLine)]

    @property
    def episodes(self) -> list[int]:
        """The steps whose episodes ended."""
        ended = [record.event for record in self.records if isinstance(record.event, EpisodeEnded)]
        return [int(number) for event in ended for number in event.episode_return.array()]

    @property
    def updates(self) -> int:
        """Policy updates that the measurements stand for."""
        reported = [record.event for record in self.records if isinstance(record.event, Measured)]
        policy = [event for event in reported if event.scope is Scope.POLICY]
        return sum(event.conflated.n if event.conflated is not None else 1 for event in policy)

    def assert_no_gap(self) -> None:
        """Of each producer, every number up to the newest is here."""
        numbers: dict[str | None, set[int | None]] = {}
        for record in self.records:
            numbers.setdefault(record.origin.epoch, set()).add(record.seq)
        for found in numbers.values():
            missing = set(range(1, len(found) + 1)) - found
            assert not missing, f"of {len(found)} numbers are missing {sorted(missing)[:10]}"

    def assert_whole(self, steps: int) -> None:
        """Everything of the steps 1 to `steps` is here once, in order."""
        assert self.lines == [f"line {step}" for step in range(1, steps + 1)]
        assert self.episodes == list(range(1, steps + 1))
        assert self.updates == steps
        self.assert_no_gap()


class Collector:
    """A recording collector on one port, over several lives."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self._file = folder / "arrived"
        self._file.touch()
        self._mute = folder / "mute"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin a life."""
        command = [sys.executable, "-S", str(HERE / "recorder.py"), str(self.port), str(self._file)]
        self._process = subprocess.Popen([*command, str(self._mute)])

    def is_there(self) -> bool:
        """Whether it takes connections."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0):
            return True
        return False

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """End its life at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def mute(self, *, muted: bool) -> None:
        """Swallow the answers, or no longer."""
        if muted:
            self._mute.touch()
        else:
            self._mute.unlink()

    @property
    def size(self) -> int:
        """Bytes that have arrived."""
        return self._file.stat().st_size

    def ear(self) -> Ear:
        """What has arrived; a write that a kill has cut was never answered."""
        data, at, bodies = self._file.read_bytes(), 0, []
        while at + HEAD.size <= len(data):
            path_size, body_size = HEAD.unpack_from(data, at)
            start, end = at + HEAD.size + path_size, at + HEAD.size + path_size + body_size
            if end > len(data):
                break
            bodies.append((data[at + HEAD.size : start].decode(), data[start:end]))
            at = end
        return Ear(bodies)


@contextlib.contextmanager
def recording(folder: Path, *, started: bool = True) -> Iterator[Collector]:
    """A recording collector; it ends with the block."""
    collector = Collector(folder)
    if started:
        collector.start()
    try:
        yield collector
    finally:
        collector.kill()


class Trainer:
    """A trainer process that follows a plan; its spool and its runtime folder are its test's own."""

    def __init__(
        self, folder: Path, endpoint: str | None, small: Path | None = None,
        prefix: tuple[str, ...] = (), **plan: object,
    ) -> None:  # fmt: skip
        """`small` becomes a filesystem of `SMALL` in the trainer's own namespace."""
        self._until = folder / "until"
        self._diary = folder / "diary"
        self.spool = folder / "spool"
        run_id = f"chaos-{uuid.uuid4().hex[:8]}"
        self.plan = Plan(
            run_id=run_id,
            diary=str(self._diary),
            endpoint=endpoint,
            until=str(self._until),
            **plan,  # type: ignore[arg-type]
        )
        command = [sys.executable, str(HERE / "trainer.py"), json.dumps(asdict(self.plan))]
        if small is not None:
            mount = f'mount -t tmpfs -o size={SMALL} none "$0" && exec "$@"'
            prefix = ("unshare", "--mount", "sh", "-c", mount, str(small))
        env = environment(folder)
        if small == SHM:
            del env["OVERWATCH_RING_DIR"]
        self._errors = (folder / "trainer.log").open("w+b")
        self._process = subprocess.Popen(
            [*prefix, *command], stdout=subprocess.PIPE, stderr=self._errors, env=env
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def numbers(self, word: str) -> list[int]:
        """Numbers after a word in the diary: `p` the first exporter, `b` steps begun, `a` steps emitted."""
        with contextlib.suppress(FileNotFoundError):
            whole, _, _ = self._diary.read_bytes().rpartition(b"\n")
            entries = [line.split() for line in whole.decode().splitlines()]
            return [int(number) for found, number in entries if found == word]
        return []

    def wait_steps(self, more: int) -> None:
        """Wait until it has gone on by so many steps."""
        goal = len(self.numbers("a")) + more
        wait_for(lambda: len(self.numbers("a")) >= goal or self._process.poll() is not None, f"step {goal}")
        assert self._process.poll() is None, self.errors()

    def exporters(self) -> list[int]:
        """Ids of its exporter processes, the living ones."""
        return children(self.pid)

    def account(self) -> Progress:
        """What its exporter last stated of the records."""
        for open_file in Path(f"/proc/{self.pid}/fd").iterdir():
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                if "overwatch-account" in str(open_file.readlink()):
                    return msgspec.json.decode(open_file.read_bytes(), type=Progress)
        return Progress()

    def ending(self) -> Ending:
        """Request its end, and check what every ending has: no exception, no lateness, an exact account."""
        self._until.touch()
        stated, _ = self._process.communicate(timeout=DEADLINE_S)
        assert self._process.returncode == 0, self.errors()
        assert "Traceback" not in self.errors(), self.errors()
        ending = Ending(**json.loads(stated))
        assert_truthful(ending, self.plan)
        return ending

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End it without a word."""
        self._process.send_signal(number)
        self._process.wait()

    def errors(self) -> str:
        """What it and its exporter logged."""
        self._errors.flush()
        return Path(self._errors.name).read_text()

    def clear(self) -> None:
        """Leave nothing behind: no process, no rings."""
        for pid in self.exporters():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.kill()
        self._process.communicate()
        self._errors.close()


def assert_truthful(ending: Ending, plan: Plan) -> None:
    """An ending that keeps its times, and whose account adds up."""
    assert ending.close_took_s <= plan.close_s + LATE_S
    assert plan.flush_s is None or ending.flush_took_s <= plan.flush_s + LATE_S
    assert ending.accepted == 4 * ending.steps + 1
    assert ending.refused == 0
    assert ending.delivered == (ending.kept == 0 and not ending.dropped)
    assert 0 <= ending.kept + sum(ending.dropped.values()) <= ending.accepted
    assert not ending.flushed or not ending.kept


@contextlib.contextmanager
def training(
    folder: Path, endpoint: str | None, small: Path | None = None,
    prefix: tuple[str, ...] = (), **plan: object,
) -> Iterator[Trainer]:  # fmt: skip
    """A trainer; whatever is left of it goes with the block."""
    trainer = Trainer(folder, endpoint, small, prefix, **plan)
    try:
        yield trainer
    finally:
        trainer.clear()


def environment(folder: Path) -> dict[str, str]:
    """No launcher, no `OTEL_*`, and folders of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "SLURM_"))}
    for name in ("OVERWATCH_RUN_ID", "TORCHELASTIC_RUN_ID", "RANK"):
        kept.pop(name, None)
    own = {
        "OVERWATCH_SPOOL_DIR": str(folder / "spool"),
        "OVERWATCH_RING_DIR": str(folder / "rings"),
        "XDG_RUNTIME_DIR": str(folder),
    }
    return {**kept, **own, "PYTHONWARNINGS": "error"}


def sync(folder: Path, rings: Path | None = None) -> str:
    """Run `overwatch sync` as a person would after a crash; what it prints when nothing is left to deliver.

    The spools are those of `folder`, the rings those of `rings`, where that is another's.
    """
    command = [sys.executable, "-m", "overwatch.cli", "sync", "--timeout", "20"]
    env = {**environment(folder), "OVERWATCH_RING_DIR": str((rings or folder) / "rings")}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def children(pid: int) -> list[int]:
    """Ids of a process's living children."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def rings_of(folder: Path) -> list[Path]:
    """The files of rings that a trainer has left in a test's folder."""
    return sorted((folder / "rings").glob("*"))


def has_mounts() -> bool:
    """Whether this process may mount filesystems in a namespace of its own."""
    if shutil.which("unshare") is None:
        return False
    tried = subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True)
    return tried.returncode == 0


needs_mounts = pytest.mark.skipif(not has_mounts(), reason="this user may not make namespaces")
