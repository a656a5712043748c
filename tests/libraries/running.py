"""One program in an environment of its own, beside a real collector: what became of it and of its runs."""

import hashlib
import os
import subprocess
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from overwatch import codec
from overwatch.catalog import ROWS, Scope
from overwatch.snapshot import Snapshot
from tests.e2e.collecting import collecting, until
from tests.libraries.examples import ROOT, Example

LIMIT_S: Final = 600
"""Of one program; alone on two cores each needs less than a minute."""
ENVIRONMENTS: Final = ROOT / "build" / "libraries"
_HIDDEN: Final = "hidden: Ray imports it where it is installed, and fails without ROCm"
_OURS: Final = frozenset(row.short for row in ROWS if row.scope is Scope.POLICY)
_LAUNCHERS: Final = (
    "OVERWATCH_",
    "OTEL_",
    "SLURM_",
    "TORCHELASTIC_",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_",
    "MASTER_",
)


class UnfitError(Exception):
    """A program that cannot be run here, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A program that ended, and its runs."""

    status: int
    output: str
    cpu_s: float
    """Of the program and of what it waited for."""
    runs: Mapping[str, Snapshot] = field(default_factory=dict)
    """The last snapshot of each run, by its id."""
    findings: Mapping[str, Counter[str]] = field(default_factory=dict)
    """Codes by severity, each run's counted once."""

    @property
    def rows(self) -> set[str]:
        """Rows of the policy that have a value, by short name."""
        return {name for name in self._shown() if name in _OURS}

    @property
    def custom(self) -> set[str]:
        """Numbers that no row knows."""
        return {name for name in self._shown() if name not in _OURS}

    def _shown(self) -> Iterator[str]:
        for snapshot in self.runs.values():
            yield from (
                name for name, one in snapshot.policy.items() if one.status != "absent" or one.history
            )

    @property
    def envs(self) -> int:
        """Rows of the board, over all runs."""
        return sum(len(snapshot.envs) for snapshot in self.runs.values())

    @property
    def algorithms(self) -> set[str]:
        """What the runs learned by."""
        return {snapshot.run.algo or "" for snapshot in self.runs.values()}

    @property
    def outcomes(self) -> set[str | None]:
        """How the runs ended."""
        return {snapshot.run.outcome for snapshot in self.runs.values()}


def python_of(example: Example) -> Path:
    """The interpreter that has an example's packages; it is made where this one lacks some.

    A virtual environment over this one: what is here already, PyTorch above all, is not installed again.
    Raises `UnfitError` where pip cannot install them. A file `.whole` in it marks one that is whole; so an
    environment that was made by hand is taken too.
    """
    if not example.lacks:
        return Path(sys.executable)
    listed = "\n".join(str(needed) for needed in example.requirements)
    name = f"{example.requirements[0].name}-{hashlib.sha256(listed.encode()).hexdigest()[:8]}"
    folder = ENVIRONMENTS / name
    python = folder / "bin" / "python"
    if not (folder / ".whole").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        own = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
        here = sysconfig.get_path("purelib")
        (own / "overwatch-project.pth").write_text(f"import site; site.addsitedir({here!r})\n")
        (own / "amdsmi.py").write_text(f"raise ImportError({_HIDDEN!r})\n")
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        done = subprocess.run([*pip, *listed.splitlines()], stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise UnfitError(f"{example.name}: pip cannot install it into {folder}:\n{done.stderr[-1500:]}")
        (folder / ".whole").touch()
    return python


def ran(command: Sequence[str], python: Path, folder: Path, env: Mapping[str, str] = os.environ) -> Seen:
    """A command that has ended; the programs of an environment are those of its interpreter."""
    work = folder / "work"
    work.mkdir(exist_ok=True)
    kept = {
        name: word
        for name, word in env.items()
        if not name.startswith(_LAUNCHERS) or name.startswith("OTEL_EXPORTER_")
    }
    own = {
        "PATH": f"{python.parent}{os.pathsep}{env.get('PATH', '')}", "OMP_NUM_THREADS": "1",
        "WANDB_MODE": "offline", "XDG_STATE_HOME": str(folder), "XDG_RUNTIME_DIR": str(folder),
    }  # fmt: skip
    with (folder / "output.log").open("wb") as out:
        process = subprocess.Popen(
            command, env={**kept, **own}, cwd=work, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            raise
    process.returncode = os.waitstatus_to_exitcode(status)
    output = (folder / "output.log").read_text(errors="replace")
    return Seen(status=process.returncode, output=output, cpu_s=usage.ru_utime + usage.ru_stime)


def watched(command: Sequence[str], python: Path, folder: Path, env: Mapping[str, str] = os.environ) -> Seen:
    """A command that has ended, with what a collector showed of all of its runs."""
    with reporting(folder, env) as reports:
        done = ran(command, python, folder, reports)
        if done.status == 0:
            until(lambda: _is_over(folder), f"the end of every run of {command}:\n{done.output[-3000:]}")
    runs, findings = _recorded(folder)
    return Seen(status=done.status, output=done.output, cpu_s=done.cpu_s, runs=runs, findings=findings)


@contextmanager
def reporting(folder: Path, env: Mapping[str, str] = os.environ) -> Iterator[dict[str, str]]:
    """The environment of programs that report to a collector of their own."""
    with collecting(folder) as endpoints:
        yield {**env, "OTEL_EXPORTER_OTLP_ENDPOINT": str(endpoints.otlp_http)}


def _is_over(folder: Path) -> bool:
    runs, _ = _recorded(folder)
    return bool(runs) and all(snapshot.run.outcome for snapshot in runs.values())


def _recorded(folder: Path) -> tuple[dict[str, Snapshot], dict[str, Counter[str]]]:
    """Last snapshots, and each finding that ever was: it stays for longer than two snapshots are apart."""
    runs: dict[str, Snapshot] = {}
    seen: set[tuple[str, str, str]] = set()
    path = folder / "snapshots.jsonl"
    for line in path.read_bytes().splitlines(keepends=True) if path.exists() else []:
        if line.endswith(b"\n"):
            snapshot = codec.decode(line)
            runs[snapshot.run.run_id] = snapshot
            seen |= {(one.severity, snapshot.run.run_id, one.code) for one in snapshot.findings}
    findings: dict[str, Counter[str]] = {}
    for severity, _, code in seen:
        findings.setdefault(severity, Counter())[code] += 1
    return runs, findings
