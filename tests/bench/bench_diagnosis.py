"""What a tick of diagnosis costs at 1,024, 16,384 and 131,072 envs, beside the same over plain objects.

Ten times a second every env and every slot (three an env) emits its numbers, and one env in a hundred ends
an episode. A tick is decoded, folded, judged and shown as one view of 64 rows; the parts are printed apart,
as CPU time (mean, and the 99th percentile of all) and as the share of one core that ten ticks a second take:
a mean, since part of the work is done at one tick of ten. The plain version does all of it at each tick, as
one would write it first. It is in `plain_fleet.py`, gets the same bodies, decodes them with the parser (the
columnar one by template, as the collector does) and keeps one object an env; it runs where that takes
seconds. The columnar one is measured twice, as an A/A
control. The growth is that of the time over that of n log n, from one size to the next: at most 1 is no
faster. Prints, gates nothing.

    python tests/bench/bench_diagnosis.py [--envs 1024 16384 131072] [--ticks 60] [--actions]
"""

import argparse
import itertools
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from overwatch.catalog import Scope, find
from overwatch.diagnose import Assessment, assess
from overwatch.events import (
    ActionTaken,
    Column,
    EpisodeEnded,
    Event,
    Measured,
    MetricInfo,
    Origin,
    Record,
    RunStarted,
)
from overwatch.journal import Signal
from overwatch.otlp.decode import decode
from overwatch.otlp.encode import origin_attributes, request
from overwatch.projection import project
from overwatch.snapshot import View
from overwatch.state import RunState, apply, new_run
from tests.bench.plain_fleet import PlainFleet

START_NS = 1_800_000_000_000_000_000
TICK_NS = 100_000_000
SLOTS = 3
WARM_UP = 45
"""Ticks folded before any is measured: every env has finished episodes by then."""
LANES = 8
ROWS = 64
BUDGET = {1_024: 0.2, 16_384: 2.0, 131_072: 20.0}
"""Most per cent of a core."""
PLAIN_ENVS = 20_000
"""Up to so many envs the plain version is measured too."""
PLAIN_TICKS = 5
PARTS = ("decode", "apply", "assess", "view")
ORIGIN = Origin(run_id="bench", epoch="e1", ours=True)


class Fleet:
    """Bodies of a healthy run, as its exporter sends them: one request a tick."""

    def __init__(self, envs: int, *, actions: bool) -> None:
        self._n, self._actions = envs, actions
        self._dice = np.random.default_rng(envs)
        self._ids = Column.of(np.arange(envs))
        self._slot_ids = Column.of(np.repeat(np.arange(envs), SLOTS))
        names = tuple(f"r0c{slot}" for slot in range(SLOTS))
        self._slots = _coded(np.tile(np.arange(SLOTS), envs), names)
        self._lanes = _coded(np.arange(envs) * LANES // envs, tuple(f"gpu{lane}" for lane in range(LANES)))
        self._seq = 0

    def body(self, tick: int) -> bytes:
        """The request of one tick."""
        at = START_NS + tick * TICK_NS
        events = [self._envs(at, tick), self._slot_values(at, tick), self._episodes(at, tick)]
        if self._actions:
            events.append(self._acted(at))
        if not tick:
            events.insert(0, _started(at, self._n))
        records = [Record(origin=ORIGIN, event=event, seq=self._next()) for event in events]
        return request(records, origin_attributes(ORIGIN))

    def _next(self) -> int:
        self._seq += 1
        return self._seq

    def _envs(self, at: int, tick: int) -> Event:
        n, dice = self._n, self._dice
        values = {
            "reward": dice.normal(size=n),
            "step_time": 0.01 + 0.001 * dice.random(n),
            "metric": 0.5 + 0.001 * tick + 0.01 * dice.random(n),
            "rent": 0.1 + 0.01 * dice.random(n),
        }
        columns = {_name(short): Column.of(reported.astype(np.float32)) for short, reported in values.items()}
        columns["lane"] = self._lanes
        return Measured(at=at, scope=Scope.ENV, keys={"env_id": self._ids}, values=columns, index=tick + 1)

    def _slot_values(self, at: int, tick: int) -> Event:
        n = self._n * SLOTS
        stages = _coded((np.arange(n) // 7 + tick // 20) % 3, ("dormant", "training", "blending"))
        return Measured(
            at=at,
            scope=Scope.SLOT,
            keys={"env_id": self._slot_ids, "slot": self._slots},
            values={
                "overwatch.slot.stage": stages,
                "overwatch.slot.alpha": Column.of(self._dice.random(n).astype(np.float32)),
                "overwatch.slot.age": Column.of(np.full(n, tick, dtype=np.int32)),
            },
            index=tick + 1,
        )

    def _episodes(self, at: int, tick: int) -> Event:
        ids = np.arange(tick % 100, self._n, 100) if tick >= WARM_UP - 15 else np.arange(self._n)
        return EpisodeEnded(
            at=at, env_id=Column.of(ids), episode_return=Column.of(self._dice.normal(size=ids.size))
        )

    def _acted(self, at: int) -> Event:
        ops = _coded(self._dice.integers(0, 3, self._n), ("wait", "germinate", "prune"))
        return ActionTaken(at=at, env_id=self._ids, op=ops)


def _coded(codes: np.ndarray, labels: tuple[str, ...]) -> Column:
    return Column(dtype="|i1", data=codes.astype(np.int8).tobytes(), labels=labels)


def _name(short: str) -> str:
    row = find(short, Scope.ENV)
    assert row is not None
    return row.name


def _started(at: int, envs: int) -> Event:
    return RunStarted(at=at, task="bench", algo="ppo", n_envs=envs, metric=MetricInfo(name="acc"))


class Columns:
    """The tower's own way."""

    def __init__(self) -> None:
        self._state: RunState | None = None
        self._assessment = Assessment()
        self._view = View(rows=ROWS)

    def tick(self, body: bytes, tick: int) -> list[float]:
        """Milliseconds of each part."""
        stamp = START_NS + tick * TICK_NS + 1_000_000
        marks = [time.process_time()]
        records = decode(Signal.LOGS, body).records
        marks.append(time.process_time())
        state = self._state = self._state or new_run(records[0])
        for record in records:
            apply(state, record, stamp)
        marks.append(time.process_time())
        judged = assess(state, self._assessment, stamp)
        self._assessment = judged.assessment
        marks.append(time.process_time())
        project(state, judged, self._view)
        marks.append(time.process_time())
        return _parts(marks)


class Plain:
    """The same over one object an env."""

    def __init__(self) -> None:
        self._fleet = PlainFleet()

    def tick(self, body: bytes, tick: int) -> list[float]:
        """Milliseconds of each part."""
        stamp = START_NS + tick * TICK_NS + 1_000_000
        marks = [time.process_time()]
        records = decode(Signal.LOGS, body).records
        marks.append(time.process_time())
        for record in records:
            self._fleet.apply(record.event)
        marks.append(time.process_time())
        self._fleet.assess(stamp)
        marks.append(time.process_time())
        self._fleet.view(ROWS)
        marks.append(time.process_time())
        return _parts(marks)


def _parts(marks: Sequence[float]) -> list[float]:
    return [1e3 * (after - before) for before, after in itertools.pairwise(marks)]


def measure(make: Callable[[], Columns | Plain], envs: int, ticks: int, *, actions: bool) -> np.ndarray:
    """Milliseconds of each part of each measured tick, shape (ticks, parts)."""
    fleet, one = Fleet(envs, actions=actions), make()
    spent = [one.tick(fleet.body(tick), tick) for tick in range(WARM_UP + ticks)]
    return np.array(spent[WARM_UP:])


def _line(name: str, spent: np.ndarray) -> float:
    totals = spent.sum(axis=1)
    total = statistics.fmean(totals.tolist())
    parts = "  ".join(
        f"{part} {statistics.fmean(spent[:, place].tolist()):8.3f}" for place, part in enumerate(PARTS)
    )
    worst: float = np.sort(totals)[int(0.99 * (totals.size - 1))].item()
    sys.stdout.write(
        f"  {name:<14} {parts}  all {total:8.3f} ms  p99 {worst:8.3f}  {total:7.2f} % of a core\n"
    )
    sys.stdout.flush()
    return float(total)


def main() -> None:
    """Measure and print."""
    requested = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    requested.add_argument("--envs", type=int, nargs="+", default=list(BUDGET))
    requested.add_argument("--ticks", type=int, default=60)
    requested.add_argument(
        "--actions", action="store_true", help="every env emits an action at each tick too"
    )
    stated = requested.parse_args()
    before: tuple[int, float] | None = None
    for envs in stated.envs:
        budget = f"; budget {BUDGET[envs]} %" if envs in BUDGET else ""
        sys.stdout.write(f"{envs:,} envs, {envs * SLOTS:,} slots{budget}\n")
        total = _line("columns", measure(Columns, envs, stated.ticks, actions=stated.actions))
        _line("columns again", measure(Columns, envs, stated.ticks, actions=stated.actions))
        if envs <= PLAIN_ENVS:
            plain = _line("plain objects", measure(Plain, envs, PLAIN_TICKS, actions=stated.actions))
            sys.stdout.write(f"  plain objects / columns: {plain / total:.1f}\n")
        if before is not None:
            fair = envs * math.log(envs) / (before[0] * math.log(before[0]))
            sys.stdout.write(f"  growth over n log n: {total / before[1] / fair:.2f}\n")
        before = (envs, total)


if __name__ == "__main__":
    main()
