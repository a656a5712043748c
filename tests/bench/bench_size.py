"""What a rank, a run, an env and an update take: the units behind `overwatch size`.

Real runs of the SDK at a real collector in some shapes, some seconds each; least squares over what each shape
has of runs, ranks, windows and envs. Prints what was measured beside what the units give for it, and writes
the units into the package with `--write`. Nothing is gated.

    python tests/bench/bench_size.py [--seconds 15] [--write]
"""

import argparse
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from overwatch.sizing import UNITS, Load, Units, cost
from tests.bench.size.measuring import measure

FILE = Path(__file__).parents[2] / "src/overwatch/sizing/measured.json"
SHAPES = (
    Load(runs=0),
    Load(runs=2, envs=8, hz=1),
    Load(runs=8, envs=8, hz=2),
    Load(runs=4, envs=8, hz=5),
    Load(runs=4, envs=256, hz=5),
    Load(runs=12, envs=64, hz=4),
    Load(runs=2, ranks=4, envs=64, hz=5),
    Load(runs=1, ranks=8, envs=128, hz=2),
)
"""So slow that a busy machine folds nothing together: the units are those of a window."""


def fitted(found: list[tuple[Load, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Least squares of relative errors, without negative costs: a feature that would have one is left out."""
    each: dict[str, dict[str, float]] = {}
    for resource, features in UNITS.items():
        # A collector without a run does not tick: its CPU is none of the units.
        rows = [
            (load.features(), values[resource])
            for load, values in found
            if values.get(resource) and (load.runs or resource != "collector_cores")
        ]
        kept = list(features)
        while kept:
            matrix = np.array([[row[name] for name in kept] for row, _ in rows])
            amounts = np.array([value for _, value in rows])
            solved = np.linalg.lstsq(matrix / amounts[:, None], np.ones(len(rows)), rcond=None)[0]
            least = int(np.argmin(solved))
            if solved[least] >= 0:
                break
            del kept[least]
        each[resource] = {name: float(f"{amount:.6g}") for name, amount in zip(kept, solved, strict=True)}
    return each


def main() -> None:
    """Measure, fit, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--write", action="store_true", help=f"write {FILE.name} into the package")
    options = parser.parse_args()
    found = []
    for load in SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            found.append((load, measure(Path(folder), load, options.seconds)))
        print(load, {name: round(value, 3) for name, value in found[-1][1].items()}, flush=True)
    busy = max(os.getloadavg())
    taken = (
        f"{time.strftime('%Y-%m-%d')}, {platform.system()}, {os.cpu_count()} shared cores at a load of up to "
        f"{busy:.0f}, Python {platform.python_version()}, {options.seconds:g} s a shape"
    )
    units = Units(taken=taken, each=fitted(found))
    for resource in UNITS:
        pairs = [
            f"{values[resource]:.4g}/{cost(resource, load, units):.4g}"
            for load, values in found
            if resource in values
        ]
        print(f"{resource:18}", *pairs)
    if options.write:
        FILE.write_bytes(msgspec.json.format(msgspec.json.encode(units), indent=2) + b"\n")


if __name__ == "__main__":
    main()
