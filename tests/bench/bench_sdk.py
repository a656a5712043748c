"""What telemetry costs training: calls, rollouts, steps beside a collector in trouble, a backlog, a burst.

Pinned, interleaved, with an A/A control; versions, load and stolen time are printed, and for each goal
whether it was met. Gates nothing. wandb and TensorBoard are measured where they are installed.

    python tests/bench/bench_sdk.py [--quick] [--pairs N] [--case TITLE ...] [calls] [rollouts] [steps]
        [drain] [burst]
"""

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.bench.sdk import burst, calls, drain, rollouts, steps
from tests.bench.sdk.host import Cores, Weather, about
from tests.bench.sdk.stats import Goals, emit


def main(arguments: list[str]) -> None:
    """Measure what is asked for, or everything."""
    requested = _requested(arguments)
    cores, goals, weather = Cores(), Goals(), Weather()
    emit(about(cores))
    with tempfile.TemporaryDirectory(prefix="overwatch-bench-") as made:
        rest = (Path(made), cores, goals)
        for name in requested.sections or SECTIONS:
            emit(f"\n== {name}: {weather.look()}")
            match name:
                case "calls":
                    calls.measure(5 if requested.quick else 30, *rest)
                case "rollouts":
                    rollouts.measure(5 if requested.quick else 15, *rest)
                case "steps":
                    pairs, updates = (6, 100) if requested.quick else (PAIRS, 250)
                    steps.measure(requested.pairs or pairs, updates, *rest, only=frozenset(requested.case))
                case "drain":
                    drain.measure(5.0 if requested.quick else 20.0, *rest)
                case _:
                    burst.measure(3 if requested.quick else 10, *rest)
            emit(f"after: {weather.look()}")
    emit("\n== goals")
    for line in goals.lines:
        emit(line)


SECTIONS = ("calls", "rollouts", "steps", "drain", "burst")
PAIRS = 60
"""Of 30 the 99th percentile of the same loop beside itself still differs by a twentieth."""
LEAST_PAIRS = 3
"""What there is to compare with has a third of the pairs."""


def _requested(arguments: list[str]) -> argparse.Namespace:
    titles = [case.title for case in (*steps.CASES, *steps.COMPARATORS)]
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}; else all")
    parser.add_argument("--quick", action="store_true", help="few pairs")
    parser.add_argument("--pairs", type=int, default=0, help="so many, of steps; more show less noise")
    parser.add_argument("--case", action="append", default=[], choices=titles, help="only these, of steps")
    requested = parser.parse_args(arguments)
    if requested.pairs and requested.pairs < LEAST_PAIRS:
        parser.error(f"--pairs {requested.pairs}: ratios need at least {LEAST_PAIRS}")
    if unknown := set(requested.sections) - set(SECTIONS):
        parser.error(f"no section is called {min(unknown)!r}; there are {', '.join(SECTIONS)}")
    return requested


if __name__ == "__main__":
    main(sys.argv[1:])
