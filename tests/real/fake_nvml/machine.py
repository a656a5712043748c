"""A machine whose NVIDIA GPUs are a script: builds the fake libnvidia-ml.so.1, runs a sampler on it."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

DEADLINE_S = 20.0
SOURCE = Path(__file__).with_name("fake_nvml.c")
WATCH = Path(__file__).with_name("watch.py")
GIB = 1 << 30

NOT_SUPPORTED, DRIVER_NOT_LOADED, GPU_IS_LOST = 3, 9, 15
NO_PERMISSION, VERSION_MISMATCH = 4, 18

HEALTHY = {
    "util": 37, "memory": 4 * GIB, "memory_total": 16 * GIB, "temperature": 60, "power": 250_500,
    "power_limit": 300_000, "clock": 1200, "clock_max": 1980, "throttle": "0x1", "ecc": 0, "pcie_rx": 2048,
    "pcie_tx": 1024,
}  # fmt: skip


def build(folder: Path) -> Path:
    """Compile the library into `folder`; without a compiler the test is skipped, or fails if it must run."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        if os.environ.get("OVERWATCH_REQUIRE_REAL"):
            pytest.fail("no C compiler to build the fake NVML with")
        pytest.skip("no C compiler to build the fake NVML with")
    library = folder / "libnvidia-ml.so.1"
    command = [compiler, "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-o", str(library), str(SOURCE)]
    subprocess.run(command, check=True)
    return folder


class Machine:
    """The script of a machine's GPUs; every change is seen by the next call."""

    def __init__(self, folder: Path, library: Path) -> None:
        self._path = folder / "gpus"
        self._folder = folder
        self._library = library
        self._lines: dict[str, object] = {}

    def gpus(self, *uuids: str, **more: object) -> "Machine":
        """So many healthy GPUs."""
        self._lines["count"] = len(uuids)
        for index, uuid in enumerate(uuids):
            values = {"uuid": uuid, "name": "NVIDIA H200", "bus": index, **HEALTHY, **more}
            self._lines.update({f"{index}.{name}": value for name, value in values.items()})
        self._write()
        return self

    def put(self, lines: Mapping[str, object]) -> None:
        """Lines by key; a value of `None` takes its line away."""
        for key, value in lines.items():
            if value is None:
                self._lines.pop(key, None)
            else:
                self._lines[key] = value
        self._write()

    def _write(self) -> None:
        fresh = self._path.with_suffix(".new")
        lines = "".join(f"{key} {value}\n" for key, value in self._lines.items())
        fresh.write_bytes(lines.encode("utf-8", "surrogateescape"))
        fresh.replace(self._path)

    def environment(self, **more: str) -> dict[str, str]:
        """The environment of a process on this machine."""
        cleared = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
        outer = {name: value for name, value in os.environ.items() if name not in cleared}
        named = {"LD_LIBRARY_PATH": str(self._library), "FAKE_NVML": str(self._path)}
        return {**outer, "XDG_RUNTIME_DIR": str(self._folder), **named, **more}

    def query(self, expression: str, **more: str) -> Any:
        """What an expression over `nvml`, an open `Nvml`, is in a fresh process; `gpus` are its GPUs."""
        return self._evaluate(
            "from overwatch.sdk.exporter.nvml import Nvml\n"
            "nvml = Nvml(4711); gpus = nvml.open(); every = frozenset(gpu.uuid for gpu in gpus)\n"
            "def ask(look, uuids=every):\n"
            "    return {u: [r.numbers, r.throttle, r.lost] for u, r in look.query(uuids).items()}\n"
            f"answer = {expression}",
            more,
        )

    def words(self, lanes: str, *names: str, **more: str) -> Any:
        """The lanes that the words of a trainer mean, by the `LaneMap` that the expression `lanes` makes."""
        return self._evaluate(
            "from overwatch.events import RunStarted\n"
            "from overwatch.sdk.exporter.gpus import Trainer, lane_map\n"
            f"named = {lanes}\n"
            f"answer = [named.lane(name) for name in {names!r}]",
            more,
        )

    def _evaluate(self, script: str, more: Mapping[str, str]) -> Any:
        """`answer` of a script in a fresh process, which ends whatever hangs in it."""
        ending = "import json, os, sys\nprint(json.dumps(answer)); sys.stdout.flush(); os._exit(0)"
        done = subprocess.run(
            [sys.executable, "-c", f"{script}\n{ending}"],
            env=self.environment(**more), capture_output=True, text=True, check=True, timeout=DEADLINE_S,
        )  # fmt: skip
        return json.loads(done.stdout)

    @contextlib.contextmanager
    def sampler(self, run: str = "run", **more: str) -> Iterator["Watched"]:
        """A process that samples this machine quickly, until the block ends."""
        process = subprocess.Popen(
            [sys.executable, str(WATCH), run],
            env=self.environment(**more), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        watched = Watched(process)
        try:
            yield watched
        finally:
            process.kill()
            process.wait()
            watched.end()


class Watched:
    """What a sampler's process has written."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._stated: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self._stated.append(json.loads(line))
                self._changed.notify_all()

    def stated(self, kind: str, lane: str | None = None) -> list[dict[str, Any]]:
        """Everything of one kind: `gpu`, `host` or `log`; of `gpu` one entry a lane."""
        with self._changed:
            found = [entry for entry in self._stated if entry["kind"] == kind]
        return found if lane is None else [entry for entry in found if entry["lane"] == lane]

    def wait(self, reached: Callable[["Watched"], bool]) -> None:
        """Until it is so; fails after a while."""
        until = time.monotonic() + DEADLINE_S
        while not reached(self):
            assert self.process.poll() is None, f"the sampler died: {self.process.returncode}"
            assert time.monotonic() < until, f"never came; the newest: {self._stated[-5:]}"
            with self._changed:
                self._changed.wait(0.1)

    def wait_more(self, kind: str, lane: str | None = None, count: int = 1) -> None:
        """Until there are `count` more of them."""
        before = len(self.stated(kind, lane))
        self.wait(lambda watched: len(watched.stated(kind, lane)) >= before + count)

    def stop(self) -> None:
        """Ask the sampler to end in order, and wait until its process has."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(DEADLINE_S) == 0

    def end(self) -> None:
        """Release the pipes of a process that has ended."""
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
