"""Trainings of other libraries as they were sent: one to the return that is known, one that cannot learn.

Owns how a collector's recording of `tests/libraries/judged.py` becomes a small one that is judged in process.
Of updates that came as one record there are two: the least of each number that has limits, and the last.
`python -m tests.calibration.libraries NAME ...` keeps what `make libraries-judged` left in `build/judged/`.
"""

import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from overwatch.catalog import BY_NAME, Scope
from overwatch.events import Column, Event, Measured, RunStarted
from overwatch.feeds.recording import Recording as Reported
from tests.calibration.recorded import FOLDER, Recording, write
from tests.calibration.recorded import Reported as Update
from tests.libraries import judged

KEPT: Final = FOLDER / "libraries"
MOST: Final = 130
"""Updates that are kept of each."""
CONFIG: Final = ("max_grad_norm", "grad_norm_clip", "target_kl", "desired_kl", "learning_rate")
"""Settings that are kept, where a run sends them."""


def converted(name: str, kind: str, folder: Path) -> Recording:
    """What a collector recorded in `folder` of a case, as a recording that is small."""
    events = [record.event for _, batch in Reported(folder).reported() for record in batch.records]
    started = next(event for event in events if isinstance(event, RunStarted))
    updates = [update for event in events for update in _updates(event, started.at)][:MOST]
    case = judged.CASES[name]
    known = next((one for one in judged.kept() if one.name == name), None)
    ran = None if known is None else known.healthy if kind == judged.HEALTHY else known.broken
    return Recording(
        name=f"{name}-{kind}",
        task=started.task or case.task,
        n_envs=started.n_envs or 1,
        seed=1,
        config={key: value for key, value in started.config.items() if key in CONFIG},
        preset=started.preset,
        algo=started.algo or msgspec.UNSET,
        reaches=case.reaches,
        reached=math.nan if ran is None or ran.reached is None else ran.reached,
        reported=tuple(updates),
    )


def _updates(event: Event, began: int) -> Iterator[Update]:
    if not isinstance(event, Measured) or event.scope is not Scope.POLICY:
        return
    values, after_ns = _known(event.values), event.at - began
    if values and event.conflated is not None and event.conflated.n > 1:
        yield Update(after_ns=after_ns - 1, values={**values, **_known(event.conflated.low)})
    if values:
        yield Update(after_ns=after_ns, values=values)


def _known(columns: Mapping[str, Column]) -> dict[str, float]:
    return {
        name: value
        for name, column in columns.items()
        if name in BY_NAME and (value := column.first()) is not None
    }


if __name__ == "__main__":
    KEPT.mkdir(exist_ok=True)
    for name in sys.argv[1:]:
        for kind in (judged.HEALTHY, judged.BROKEN):
            found = converted(name, kind, judged.RECORDED / f"{name}-{kind}" / "otlp")
            (KEPT / f"{found.name}.bin").write_bytes(write(found))
            print(found.name, len(found.updates), found.reached, "of", found.reaches)
