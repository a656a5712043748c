"""What feeds a learner, beside what others use for it: ratios of CPU time in one run.

Each section is a module of `tests/bench/learner` and stands alone; a comparator that is not here is named
with what to set. Prints, gates nothing.

    python tests/bench/bench_learner.py [--quick] [SECTION …]
"""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.bench.learner import saves, served, steps, weights

SECTIONS: Final[dict[str, Callable[..., None]]] = {
    "steps": steps.section,
    "served": served.section,
    "saves": saves.section,
    "weights": weights.section,
}
"""Name to what measures and prints; takes `quick`."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}; all without"
    )
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    options = parser.parse_args()
    unknown = sorted(set(options.sections) - set(SECTIONS))
    if unknown:
        parser.error(f"section {unknown[0]!r} is none of {', '.join(SECTIONS)}")
    print(f"load {os.getloadavg()[0]:.1f}")
    for name in options.sections or SECTIONS:
        print(f"\n{name}")
        SECTIONS[name](quick=options.quick)


if __name__ == "__main__":
    main()
