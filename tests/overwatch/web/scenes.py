"""Snapshots that every panel is shown with, by name; a fleet whose rows the real board cuts into windows."""

from functools import cache

import msgspec
import numpy as np

from overwatch.diagnose import Assessment, Judged, assess
from overwatch.projection import project
from overwatch.snapshot import Link, Snapshot, View
from overwatch.state import RunState
from tests import fakes
from tests.fakes import SECOND, START_NS
from tests.overwatch.tui import scenario
from tests.overwatch.web.browser import Scene

HOSTILE = "<img src=x onerror=alert(1)>\u202e\x1b[31m&amp;" + "x" * 200


def ended_sick() -> Snapshot:
    """The storm, after the run ended in it."""
    storm = scenario.storm()
    run = msgspec.structs.replace(storm.run, outcome="failed", reason="exit 1")
    return msgspec.structs.replace(storm, run=run, link=Link(state="ended", data_age_s=60.0))


def stale() -> Snapshot:
    """The storm, of which nothing came any more."""
    return msgspec.structs.replace(scenario.storm(), link=Link(state="stale", data_age_s=14.0))


SCENES = {
    "healthy": scenario.healthy, "storm": scenario.storm, "ended sick": ended_sick, "stale": stale,
    "hostile": lambda: scenario.with_word(scenario.storm(), HOSTILE), "absent": scenario.started,
    "without slots": scenario.without_slots,
}  # fmt: skip


@cache
def fleet(n: int, lanes: int = 4) -> tuple[RunState, Judged]:
    """A run of so many envs, one in 97 of them crashed."""
    dice = np.random.default_rng(n)
    names = [f"gpu{lane}" for lane in dice.integers(0, lanes, n)]
    values = {name: dice.normal(size=n).tolist() for name in ("reward", "metric")}
    events = [
        fakes.started(START_NS, n_envs=n),
        fakes.envs(START_NS + SECOND, range(n), 1, lane=names, **values),  # type: ignore[arg-type]  # lanes are words
        *(fakes.crashed(START_NS + SECOND, env_id) for env_id in range(0, n, 97)),
    ]
    state = fakes.folded(events)
    return state, assess(state, Assessment(), state.last_stamp + SECOND // 2)


class Fleet(Scene):
    """Every view has its own rows of the fleet, as a collector would cut them."""

    def __init__(self, n: int, lanes: int = 4) -> None:
        self._known = fleet(n, lanes)
        super().__init__(self.seen(View()), of_view=lambda _, view: self.seen(view))

    def seen(self, view: View) -> Snapshot:
        """What a view shows of the fleet."""
        return project(*self._known, view)
