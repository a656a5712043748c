"""What telemetry costs training: calls, steps beside a collector in trouble, and how fast a backlog goes.

Pinned, interleaved, with an A/A control; versions, load and stolen time are printed, and for each goal
whether it was met. Gates nothing. wandb and TensorBoard are measured where they are installed.

    python tests/bench/bench_sdk.py [--quick] [calls] [steps] [drain]
"""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.bench.sdk import calls, drain, steps
from tests.bench.sdk.host import Cores, Weather, about
from tests.bench.sdk.stats import Goals, say


def main(arguments: list[str]) -> None:
    """Measure what is asked for, or everything."""
    is_quick = "--quick" in arguments
    wanted = [word for word in arguments if not word.startswith("-")]
    cores, goals, weather = Cores(), Goals(), Weather()
    say(about(cores))
    with tempfile.TemporaryDirectory(prefix="overwatch-bench-") as made:
        folder = Path(made)
        for name, measure in SECTIONS.items():
            if wanted and name not in wanted:
                continue
            say(f"\n== {name}: {weather.look()}")
            measure(is_quick, folder, cores, goals)
            say(f"after: {weather.look()}")
    say("\n== goals")
    for line in goals.lines:
        say(line)


SECTIONS = {
    "calls": lambda is_quick, *rest: calls.measure(5 if is_quick else 30, *rest),
    "steps": lambda is_quick, *rest: steps.measure(*((6, 100) if is_quick else (30, 250)), *rest),
    "drain": lambda is_quick, *rest: drain.measure(5.0 if is_quick else 20.0, *rest),
}

if __name__ == "__main__":
    main(sys.argv[1:])
