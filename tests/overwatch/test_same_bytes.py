"""The same recording gives the same bytes: in every process, in any order of hashes, on any CPU and Python.

NumPy picks its loops by what the CPU can do; with features switched off it does as an older one would. From
Python 3.12 on `sum` adds floats in another way; a file that is loaded at the start makes any Python do so.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.bench.bench_diagnosis import Fleet
from tests.overwatch.simulate.runs import record

FEATURES = ("AVX512_SPR", "AVX512_ICL", "X86_V4", "X86_V3", "ASIMDHP", "ASIMDDP", "SVE")
"""What NumPy may have a loop of its own for, the newest first."""
FOLD = """
import hashlib, struct, sys
from overwatch import codec
from overwatch.diagnose.judging import DiagnosisConfig
from overwatch.fold import Fold
from overwatch.journal import Batch, Signal

requests, digest, fold = open(sys.argv[1], "rb").read(), hashlib.sha256(), Fold()
at = tick = 0
while at < len(requests):
    (size,) = struct.unpack_from("<I", requests, at)
    tick += 1
    stamp = 1_800_000_000_000_000_000 + tick * 100_000_000
    batch = Batch(sequence=tick, stamp=stamp, signal=Signal.LOGS, body=requests[at + 4 : at + 4 + size])
    at += 4 + size
    for snapshot in fold.advance(stamp, [batch], ()).snapshots.values():
        digest.update(codec.encode(snapshot))
digest.update(fold.dump())
print(digest.hexdigest())
"""


def _dispatched() -> list[str]:
    """The features of this CPU that NumPy has loops of its own for, the newest first."""
    umath = np._core._multiarray_umath  # type: ignore[attr-defined]  # where NumPy states it
    on, known = umath.__cpu_features__, umath.__cpu_dispatch__
    return [name for name in (*FEATURES, *known) if name in known and on.get(name)]


def _older() -> list[str]:
    """Without the newest features, and without any."""
    features = list(dict.fromkeys(_dispatched()))
    wide = [name for name in features if name.startswith(("AVX512", "X86_V4"))]
    return list(dict.fromkeys(" ".join(off) for off in (wide, features) if off))


NEWER = Path(__file__).parent / "newer"
WAYS = [
    {"PYTHONHASHSEED": "4242"},
    {"PYTHONPATH": str(NEWER)},
    *({"NPY_DISABLE_CPU_FEATURES": off} for off in _older()),
]


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Requests of six hundred envs with slots and actions, each with its length before it."""
    path = tmp_path_factory.mktemp("requests") / "bodies"
    fleet = Fleet(600, actions=True)
    bodies = [fleet.body(tick) for tick in range(50)]
    path.write_bytes(b"".join(len(body).to_bytes(4, "little") + body for body in bodies))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve seconds of envs on two lanes in which much goes wrong."""
    size = ("--gpus", "2", "--envs", "16", "--slots", "4", "--seconds", "12", "--run-id", "same")
    faults = ("crash-storm@6", "cull-storm@3", "thermal-throttle@4")
    return record(tmp_path_factory.mktemp("same"), *size, *(f"--fault={fault}" for fault in faults))


def _printed(arguments: list[str], way: dict[str, str]) -> str:
    paths = [path for path in (way.get("PYTHONPATH"), os.environ.get("PYTHONPATH")) if path]
    done = subprocess.run(
        [sys.executable, *arguments], check=True, capture_output=True, text=True, timeout=300,
        env={**os.environ, **way, "PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip
    return hashlib.sha256(done.stdout.encode()).hexdigest()


def test_a_newer_python_adds_in_another_way() -> None:
    """What the file that is loaded at the start is for: it works on an older one too."""
    code = ["-c", "print(sum([0.1] * 10) == 1.0)"]

    assert _printed(code, {"PYTHONPATH": str(NEWER)}) == hashlib.sha256(b"True\n").hexdigest()


@pytest.mark.parametrize("way", WAYS, ids=" ".join)
def test_a_recording_replays_to_the_bytes_that_were_live(folder: Path, way: dict[str, str]) -> None:
    """Every line of the recorded log."""
    live = (folder / "snapshots.jsonl").read_text(encoding="utf-8")
    shown = _printed(["-m", "overwatch.cli", "replay", str(folder), "--format", "json"], way)

    assert shown == hashlib.sha256(live.encode()).hexdigest()


def test_a_large_fleet_folds_to_the_same_state_in_every_way(reported: Path) -> None:
    """Every snapshot of each tick, and the checkpoint after them."""
    found = {_printed(["-c", FOLD, str(reported)], way) for way in ({}, *WAYS)}

    assert len(found) == 1
