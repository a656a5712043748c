"""What the terminal costs: paint time, CPU beside a DataTable, bytes to the terminal, key to paint.

Real pseudo-terminals, ten snapshots a second, a tenth of the rows changing; ours and the comparator in
turn, ours twice as A/A control. Versions and load are printed; gates nothing.

    python tests/bench/bench_tui.py [--quick]
"""

import fcntl
import importlib.metadata
import json
import os
import pty
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
WARM_UP_S = 4.0
"""Start and warm-up: what is written before counts nowhere."""
KEY = b"j"


@dataclass
class Measured:
    """One run in a terminal."""

    paints: list[float]
    late_ms: list[float]
    cpu_s: float
    wall_s: float
    rss_mib: float
    bytes_per_s: float = 0.0
    keys_ms: list[float] = field(default_factory=list)

    @property
    def cpu(self) -> float:
        """Share of a core."""
        return self.cpu_s / self.wall_s


def measure(kind: str, envs: int, size: tuple[int, int], seconds: float, *, keys: bool = False) -> Measured:
    """Run one application in a terminal of that size; with `keys` one key every 0.37 s."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    with tempfile.NamedTemporaryFile(suffix=".json") as reported:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.tui.child", kind, str(envs), str(seconds), reported.name],
            cwd=ROOT, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            env={**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8"},
        )  # fmt: skip
        os.close(slave)
        written, keys_ms = _attend(process, master, seconds, keys=keys)
        if process.wait() != 0:
            raise RuntimeError(f"{kind} ended with {process.returncode}")
        found = Measured(**json.loads(Path(reported.name).read_text()))
    os.close(master)
    found.bytes_per_s, found.keys_ms = written / seconds, keys_ms
    return found


def _attend(
    process: "subprocess.Popen[bytes]", master: int, seconds: float, *, keys: bool
) -> tuple[int, list[float]]:
    """Read what is written, counting after the warm-up, and press keys."""
    begun, written, waits = time.monotonic(), 0, []
    pressed: float | None = None
    due = begun + WARM_UP_S
    waiting = select.poll()
    waiting.register(master, select.POLLIN)
    while process.poll() is None and time.monotonic() < begun + WARM_UP_S + seconds + 30:
        if (
            keys
            and pressed is None
            and time.monotonic() > due
            and time.monotonic() < begun + WARM_UP_S + seconds - 2
        ):
            os.write(master, KEY)
            pressed, due = time.monotonic(), time.monotonic() + 0.37
        if not waiting.poll(20):
            continue
        try:
            data = os.read(master, 1 << 16)
        except OSError:
            break
        if time.monotonic() > begun + WARM_UP_S:
            written += len(data)
        if pressed is not None and b">" in data:
            waits.append((time.monotonic() - pressed) * 1e3)
            pressed = None
    return written, waits


def _at(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


def _emit(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _row(title: str, found: Measured) -> None:
    p50, p99 = statistics.median(found.paints), _at(found.paints, 0.99)
    _emit(
        f"{title:34} {p50:7.2f} {p99:7.2f} {found.cpu:8.1%} {found.bytes_per_s / 1e3:8.1f} "
        f"{_at(found.late_ms, 0.99):9.1f} {found.rss_mib:7.0f}"
    )


def main(seconds: float) -> None:
    """Measure and print."""
    _emit(f"Python {sys.version.split()[0]}, textual {importlib.metadata.version('textual')}")
    _emit(f"load {os.getloadavg()[0]:.2f}, {os.cpu_count()} cores, {seconds:.0f} s each, 10 Hz")
    _emit(f"{'':34} {'p50 ms':>7} {'p99 ms':>7} {'cpu':>8} {'kB/s':>8} {'late p99':>9} {'MiB':>7}")
    cpus: dict[str, list[float]] = {"ours": [], "table": []}
    for size in ((120, 40), (200, 60)):
        for kind in ("ours", "table", "ours"):
            found = measure(kind, 1024, size, seconds)
            cpus[kind].append(found.cpu)
            _row(f"{kind}, 1,024 envs, {size[0]}x{size[1]}", found)
    for envs in (64, 16384):
        _row(f"ours, {envs:,} envs, 120x40", measure("ours", envs, (120, 40), seconds))
    pressed = measure("ours", 1024, (120, 40), seconds, keys=True)
    _row("ours, keys pressed", pressed)
    p50, p99 = _at(pressed.keys_ms, 0.5), _at(pressed.keys_ms, 0.99)
    _emit(f"key to paint: p50 {p50:.1f} ms, p99 {p99:.1f} ms of {len(pressed.keys_ms)} keys")
    storm = measure("storm", 1024, (120, 40), max(seconds, 60.0) if seconds > 5 else seconds)
    _row("feed turns over each tick", storm)
    _emit(f"CPU of the DataTable beside ours: {_ratio(cpus):.1f} times; load {os.getloadavg()[0]:.2f}")


def _ratio(cpus: dict[str, list[float]]) -> float:
    return statistics.median(cpus["table"]) / statistics.median(cpus["ours"])


if __name__ == "__main__":
    main(4.0 if "--quick" in sys.argv[1:] else 20.0)
