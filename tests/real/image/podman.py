"""podman for tests: a base made with debootstrap, images of the project's recipe, pods that are played.

podman keeps what it makes in this machine's store, under names of these tests; a base that was made once is
used again. Nothing of the machine gets into an image: packages are loaded outside and copied in.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
VARIABLE: Final = "OVERWATCH_IMAGE_BASE"
"""Names an image with Python 3.11, venv and pip that podman has already, where debootstrap is not wanted."""
BASE: Final = "localhost/overwatch-test-base:bookworm"
_TOOLS: Final = {"podman": "podman", "runc": "runc", "conmon": "conmon", "catatonit": "catatonit"}
_MADE_FROM: Final = ("docker", "src", "dashboards", "otel")
_STATED: Final = ("README.md", "LICENSE")
_FILES: Final = (".dockerignore", "pyproject.toml", "constraints.txt", *_STATED)
_PYTHON: Final = (3, 11)
# Plain runc and few open files: what a root without CAP_SYS_RESOURCE may give to a container.
_SETTINGS: Final = """\
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
"""


@cache
def absent() -> str | None:
    """Why no image can be built here, `None` where one can."""
    if os.geteuid() != 0:
        return "images are built and pods played by root only in these tests"
    tools = dict(_TOOLS) if os.environ.get(VARIABLE) else {**_TOOLS, "debootstrap": "debootstrap"}
    missing = [package for name, package in tools.items() if shutil.which(name) is None]
    if missing:
        return f"apt-get install {' '.join(missing)}: images are built and pods played with them"
    if sys.version_info[:2] != _PYTHON:
        return "wheels are loaded by this Python, the base has Python 3.11"
    return None


class Podman:
    """The program with settings of its own."""

    def __init__(self, folder: Path) -> None:
        settings = folder / "containers.conf"
        settings.write_text(_SETTINGS)
        self._env = {**os.environ, "CONTAINERS_CONF": str(settings)}

    def call(self, *words: str, timeout: float = 120) -> str:
        """What it prints on standard output; fails the test with all that it prints otherwise."""
        ran = self.tried(*words, timeout=timeout)
        assert ran.returncode == 0, f"podman {' '.join(words)}\n{ran.stdout[-4000:]}\n{ran.stderr[-4000:]}"
        return ran.stdout.strip()

    def tried(self, *words: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """The same where a failure is an answer."""
        return subprocess.run(
            ["podman", *words], env=self._env, capture_output=True, text=True, check=False, timeout=timeout
        )

    def base(self, folder: Path) -> str:
        """An image that begins images: Debian with Python."""
        given = os.environ.get(VARIABLE)
        if given:
            return given
        if self.tried("image", "exists", BASE).returncode:
            root, archive = folder / "root", folder / "root.tar"
            made = ["debootstrap", "--variant=minbase", "--include=python3,python3-venv,ca-certificates"]
            _run([*made, "bookworm", str(root), _mirror()], ROOT)
            _run(["tar", "-C", str(root), "-cf", str(archive), "."], ROOT)
            self.call("import", str(archive), BASE, timeout=300)
            shutil.rmtree(root)
            archive.unlink()
        return BASE

    def build(self, target: str, wheels: Sequence[str], folder: Path) -> tuple[str, float]:
        """An image of the recipe, built of wheels and without a cache; its name and the seconds it took."""
        context = folder / target
        ignored = shutil.ignore_patterns("__pycache__", "*.whl")
        for name in _MADE_FROM:
            shutil.copytree(ROOT / name, context / name, ignore=ignored)
        for name in _FILES:
            shutil.copy(ROOT / name, context / name)
        load = [sys.executable, "-m", "pip", "download", "-q", "-d", "docker/wheels", "-c", "constraints.txt"]
        _run([*load, *wheels], context)
        name, began = f"localhost/overwatch-test-{target}:1", time.monotonic()
        self.call(
            *("build", "-q", "--pull=never", "--layers=false", "--force-rm", "--format", "docker"),
            *("--isolation", "chroot", "--network", "host"),
            *("--build-arg", f"BASE={self.base(folder)}", "--build-arg", "PIP_FLAGS=--no-index"),
            *("-f", str(context / "docker/Dockerfile"), "--target", target, "-t", name, str(context)),
            timeout=1200,
        )
        took = time.monotonic() - began
        shutil.rmtree(context)
        return name, took

    def megabytes(self, image: str) -> float:
        """Size of an image, all layers."""
        return int(self.call("image", "inspect", image, "--format", "{{.Size}}")) / 1e6


def _mirror() -> str:
    """Where this machine's apt finds Debian."""
    stated = _run(["apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages"], ROOT).split()
    assert stated, "apt-get names no source of packages"
    return stated[0]


def _run(command: list[str], folder: Path) -> str:
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=900)
    assert ran.returncode == 0, f"{command[0]}: {ran.stdout[-3000:]}\n{ran.stderr[-3000:]}"
    return ran.stdout
