"""The pages of the benchmark: a board of all rows that goes on, and curves of many points."""

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase

import msgspec
import numpy as np

from overwatch.snapshot import Snapshot, View
from overwatch.snapshot.history import Curve, History, HistoryQuery, Moment
from tests.overwatch.tui import scenario
from tests.overwatch.web.browser import Scene
from tests.overwatch.web.scenes import Fleet

COLUMNS, RUN_S = 320, 36_000.0
"""Of a chart on a page of 1,400 pixels, and the seconds of the run."""


@contextmanager
def fleet(rows: int) -> Iterator[str]:
    """One list of so many rows; each second, what is in sight has other values."""
    turns, ending = itertools.count(), threading.Event()

    class Moving(Fleet):
        """What is cut for a view moves on."""

        def seen(self, view: View) -> Snapshot:
            known, turn = super().seen(view), next(turns)
            envs = tuple(
                msgspec.structs.replace(env, reward=((env.env_id + turn) % 97) / 10) for env in known.envs
            )
            return msgspec.structs.replace(known, envs=envs)

    scene = Moving(rows)

    def tick() -> None:
        while not ending.wait(1.0):
            scene.show(scene.seen(View()))

    with scene.served() as url:
        thread = threading.Thread(target=tick, name="ticks")
        thread.start()
        try:
            yield f"{url}?grouped=no"
        finally:
            ending.set()
            thread.join()


@contextmanager
def curves(points: int) -> Iterator[str]:
    """As many charts as it takes, each of as many columns as the page asks for."""
    storm = scenario.storm()
    names = tuple(f"number_{place:03}" for place in range(-(-points // COLUMNS)))
    begin = storm.time - RUN_S
    moments = tuple(
        Moment(code="kl-divergence", severity="warning", since=since, message="")
        for since in np.linspace(begin, storm.time, 20).tolist()
    )

    def history(wanted: HistoryQuery) -> History:
        first, last = wanted.since or begin, wanted.until or storm.time
        found = [name for name in names if any(fnmatchcase(name, one) for one in wanted.names)]
        return History(
            run_id=storm.run.run_id, since=begin, until=storm.time, names=names,
            curves=tuple(_curve(name, wanted.columns, max(first, begin), min(last, storm.time))
                         for name in found),
            moments=moments,
        )  # fmt: skip

    with Scene(storm, history=history).served() as url:
        yield f"{url}?page=curves"


def _curve(name: str, columns: int, first: float, last: float) -> Curve:
    at = np.linspace(first, last, columns)
    # Noise is the dearest to draw: each line crosses the chart.
    low = np.sin(at / 600) + np.random.default_rng(len(name)).normal(size=columns)
    return Curve(
        name=name, label=name, fmt=".3f", samples=100_000, non_finite=0, text="0.1", at=tuple(at.tolist()),
        update=tuple((at - first).astype(int).tolist()), low=tuple(low.tolist()),
        high=tuple((low + 0.2).tolist()),
    )  # fmt: skip
