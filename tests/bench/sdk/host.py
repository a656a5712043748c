"""Where the benchmark runs: cores, load, what the hypervisor took, and the workers that it starts.

Rules: every process started here ends with its context.
"""

import contextlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
COMPARATORS = "OVERWATCH_BENCH_PYTHON"
"""A Python that has wandb and tensorboard, where this one has not."""
MISSING = f'skipped: pip install "esper-overwatch[bench]", or set {COMPARATORS} to a Python that has it'


class Cores:
    """One core for the trainer, another for everything else; the same where there is one only."""

    def __init__(self) -> None:
        found = sorted(os.sched_getaffinity(0))
        self.rest, self.trainer = found[0], found[-1]


class Worker:
    """A worker process, asked and answering in turn."""

    def __init__(self, process: subprocess.Popen[str], errors: Path) -> None:
        self._process = process
        self._errors = errors
        self.version = ""
        self.calls: list[str] = []

    def wanted(self, do: str, **values: object) -> Any:
        """Send a command; its answer. Raises `RuntimeError` when the worker ended."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps({"do": do, **values}) + "\n")
        stdin.flush()
        answer = stdout.readline()
        if not answer:
            stated = self._errors.read_text()[-2000:]
            raise RuntimeError(f"the worker ended with {self._process.wait()}: {stated}")
        return json.loads(answer)


@contextlib.contextmanager
def worker(
    emitter: str, endpoint: str, folder: Path, cores: Cores, *, foreign: bool = False
) -> Iterator[Worker | None]:
    """A worker of an emitter, `None` where its library is not installed.

    A foreign one runs in the comparators' Python.
    """
    python = os.environ.get(COMPARATORS, sys.executable) if foreign else sys.executable
    folder.mkdir(parents=True, exist_ok=True)
    errors = folder / "stderr.txt"
    bare = {k: v for k, v in os.environ.items() if not k.startswith(("OTEL_", "OVERWATCH_", "WANDB_"))}
    process = subprocess.Popen(
        [
            python,
            str(HERE / "worker.py"),
            emitter,
            endpoint,
            str(folder),
            str(cores.rest),
            str(cores.trainer),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors.open("w"),
        text=True,
        env=bare | {"OVERWATCH_SPOOL_DIR": str(folder / "spool"), "XDG_RUNTIME_DIR": str(folder)},
    )
    one = Worker(process, errors)
    try:
        stated = one.wanted("hello")
        one.version, one.calls = stated["version"], stated["calls"]
    except (RuntimeError, BrokenPipeError):
        if process.wait() != 3:
            raise
        yield None
        return
    try:
        yield one
    finally:
        with contextlib.suppress(RuntimeError, BrokenPipeError):
            one.wanted("close")
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()  # type: ignore[union-attr]
        process.wait(30)


@contextlib.contextmanager
def collector(kind: str, cores: Cores, port: int = 0, out: Path | None = None) -> Iterator[str]:
    """A collector of this kind in a process of its own, on the rest core; its URL."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.sdk.collectors", kind, str(port), str(out or "")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        os.sched_setaffinity(process.pid, {cores.rest})
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()


def about(cores: Cores) -> str:
    """Machine, Python and commit, in lines."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, cwd=ROOT, check=False
    ).stdout.strip()
    model = next(
        (line.split(":")[1].strip() for line in _read("/proc/cpuinfo") if line.startswith("model name")), "?"
    )
    return (
        f"{platform.platform()}, {model}, {os.cpu_count()} cores: trainer on {cores.trainer}, all else on "
        f"{cores.rest}\nPython {platform.python_version()}, commit {commit or 'unknown'}"
    )


class Weather:
    """How busy the machine is: load, and what part of the processors' time was stolen."""

    def __init__(self) -> None:
        self._seen = _jiffies()

    def look(self) -> str:
        """One line."""
        now, before = _jiffies(), self._seen
        self._seen = now
        spent = max(sum(now) - sum(before), 1)
        stolen = 100 * (now[7] - before[7]) / spent
        busy = 100 * (spent - (now[3] - before[3]) - (now[4] - before[4])) / spent
        load = ", ".join(f"{one:.2f}" for one in os.getloadavg())
        return f"load {load}; processors {busy:.0f} % busy, {stolen:.1f} % stolen since the last look"


def _jiffies() -> list[int]:
    return [int(word) for word in (_read("/proc/stat") or ["cpu" + " 0" * 10])[0].split()[1:9]]


def _read(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
