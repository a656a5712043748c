"""The first hour of a stranger: the wheel in an empty environment, the README's blocks as they are written.

The environment has no package of its own but the wheel. What the wheel depends on is lent by the environment
of the tests, so that the test depends on no registry; `make release` installs from one. Only folders of
packages are lent, so the editable install of the tests' environment is not found.
"""

import re
import signal
import socket
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.collecting import until
from tests.overwatch.tui.ptys import ALT_ON, Terminal, running

ROOT = Path(__file__).parents[2]
BUILD = "import sys; from hatchling.build import build_wheel; build_wheel(sys.argv[1])"
BLOCKS = re.findall(r"^```(sh|python)\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
INSTALLS = ("pip install ", "make ")
"""Commands that need a registry: the fixture and `make` itself stand for them."""
BLOCK_S = 90
SHOWN = (" env", "return", "KL", "q quit")
"""What the first screen of a run has, whatever its state."""


@dataclass(frozen=True, slots=True)
class Place:
    """An empty environment in which only the wheel is installed, and a home of its own."""

    home: Path
    bin: Path

    @property
    def env(self) -> dict[str, str]:
        """All that its programs get to know of this machine."""
        return {
            "HOME": str(self.home), "PATH": f"{self.bin}:/usr/bin:/bin", "LANG": "C.UTF-8",
            "TERM": "xterm-256color", "XDG_RUNTIME_DIR": str(self.home), "OVERWATCH_RING_DIR": str(self.home),
            "OVERWATCH_READY_FILE": str(self.home / "ready.json"),
        }  # fmt: skip

    def call(self, command: str) -> str:
        """What a command writes; it must end well."""
        ran = subprocess.run(
            ["bash", "-ec", command], cwd=self.home, env=self.env,
            capture_output=True, text=True, timeout=BLOCK_S, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, f"{command}\n{ran.stdout}\n{ran.stderr}"
        assert "Traceback" not in ran.stderr
        return ran.stdout

    def log(self, command: str) -> Path:
        """Where a command behind writes."""
        return self.home / f"{command.split(maxsplit=1)[0]}.log"

    @contextmanager
    def behind(self, command: str) -> Iterator[subprocess.Popen[bytes]]:
        """A command in a terminal of its own that a person leaves with Ctrl-C."""
        with self.log(command).open("wb") as log:
            process = subprocess.Popen(
                ["bash", "-ec", f"exec {command}"], cwd=self.home, env=self.env, stdout=log, stderr=log
            )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(BLOCK_S)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Built from this tree."""
    folder = tmp_path_factory.mktemp("first")
    subprocess.run(
        [sys.executable, "-c", BUILD, str(folder)],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv/bin/python"
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    subprocess.run([*pip, "install", "--no-deps", "--no-index", str(wheel)], check=True, capture_output=True)
    (packages,) = (folder / "venv/lib").glob("python*/site-packages")
    lent = [name for name in sys.path if name.endswith("site-packages")]
    (packages / "lent.pth").write_text("\n".join(lent))
    (folder / "home").mkdir(mode=0o700)
    return Place(folder / "home", python.parent)


@pytest.mark.timeout(600)
def test_the_readme_runs_from_the_wheel_as_it_is_written(place: Place) -> None:
    """Each block runs; the first screen has the run, its policy and a row for each environment."""
    where = place.call("python -c 'import overwatch; print(overwatch.__file__)'")
    assert where.startswith(str(place.bin.parent))
    with ExitStack() as open_terminals:
        _hold_the_usual_ports(open_terminals)
        trainer = collector = None
        for language, block in BLOCKS:
            if language == "python":
                name = re.match(r"# (\w+\.py)", block)
                assert name, "the first line of a program names its file"
                (place.home / name[1]).write_text(block)
            elif block.startswith(INSTALLS):
                assert all(line.startswith(INSTALLS) for line in block.splitlines())
            elif block.startswith("overwatch collect"):
                collector = open_terminals.enter_context(place.behind(block))
                until((place.home / "ready.json").is_file, "the collector")
            elif block.startswith("python "):
                trainer = open_terminals.enter_context(place.behind(block))
            else:
                _typed(place, block)
        assert trainer is not None
        assert collector is not None
        trainer.send_signal(signal.SIGINT)
        trainer.wait(BLOCK_S)
        frame = until(lambda: _ended(place), "the end of the run")

    assert re.search(r"ENDED \S+ ago after \d+ updates \((interrupted|completed)\)", frame)
    assert re.search(r"return +\+\d+\.\d", frame)
    assert re.search(r"KL +0\.0\d+", frame)
    assert sorted(re.findall(r"^[> ] +(\d+) OK", frame, re.MULTILINE)) == [str(env) for env in range(8)]
    assert collector.returncode == 130, place.log("overwatch").read_text()
    assert "Traceback" not in place.log("overwatch").read_text()
    assert place.log("python").read_text().count("Traceback") <= 1, "its own, where it was interrupted"


def _hold_the_usual_ports(held: ExitStack) -> None:
    """No other test reaches this collector by its default address; it takes the next free one."""
    for port in (4317, 4318):
        holder = held.enter_context(socket.socket())
        with suppress(OSError):
            holder.bind(("127.0.0.1", port))


def _typed(place: Place, block: str) -> None:
    """A block in a real terminal; each screen that opens is left with `q` once it shows a run."""
    variables = [f"{name}={value}" for name, value in place.env.items()]
    command = ["env", "-i", "-C", str(place.home), *variables, "bash", "-euo", "pipefail", "-c", block]
    with running(command) as terminal:
        left, deadline = 0, time.monotonic() + BLOCK_S
        while terminal.process.poll() is None:
            assert time.monotonic() < deadline, terminal.text()[-3000:]
            terminal.read()
            if terminal.written.count(ALT_ON) > left and _shows_a_run(terminal):
                terminal.press("q")
                left += 1
        assert terminal.exit_code() == 0, terminal.text()[-3000:]
        assert "Traceback" not in terminal.text()
    assert left == len(re.findall(r"^overwatch tui(?!.*--once)", block, re.MULTILINE))


def _shows_a_run(terminal: Terminal) -> bool:
    shown = terminal.text(terminal.written.rfind(ALT_ON))
    return all(word in shown for word in SHOWN)


def _ended(place: Place) -> str | None:
    frame = place.call("overwatch tui --once")
    return frame if " ENDED " in frame else None
