"""A real PostgreSQL on a free port, with a folder and a user of its own."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.ports import free_port

PATIENCE_S = "60"


def _bin() -> Path:
    """Where the newest one on this machine is; skips where there is none."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    found = str(folders[-1] / "pg_ctl") if folders else shutil.which("pg_ctl")
    if found is None:
        message = "postgresql is not installed; apt-get install postgresql"
        if os.environ.get("OVERWATCH_REQUIRE_REAL") == "1":
            pytest.fail(message)
        pytest.skip(message)
    return Path(found).parent


class Postgres:
    """A cluster; it may be killed and started again."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs = programs
        self._folder = folder
        self.port = free_port()
        self.url = f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/postgres"

    def make(self) -> None:
        """Make its files; a user who is root may not run it, so one who is none does."""
        self._run("initdb", "-D", "data", "-U", "postgres", "-A", "trust", "--no-sync")

    def start(self) -> None:
        """Until it answers."""
        options = f"-p {self.port} -h 127.0.0.1 -k {self._folder}"
        self._run("pg_ctl", "-D", "data", "-w", "-t", PATIENCE_S, "-l", "log", "-o", options, "start")

    def stop(self, mode: str = "fast") -> None:
        """Until it has ended; `immediate` is a crash."""
        self._run("pg_ctl", "-D", "data", "-w", "-t", PATIENCE_S, "-m", mode, "stop")

    def _run(self, program: str, *arguments: str) -> None:
        user = "postgres" if os.geteuid() == 0 else None
        done = subprocess.run(
            [self._programs / program, *arguments],
            cwd=self._folder, user=user, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, f"{program}: {done.stderr}"


@contextmanager
def postgres() -> Iterator[Postgres]:
    """One that runs while the block lasts."""
    programs = _bin()
    with tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp") as made:  # a user who is not root enters it
        folder = Path(made)
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres")
        server = Postgres(programs, folder)
        server.make()
        server.start()
        try:
            yield server
        finally:
            server.stop()
