"""A week of a run, with its storms, through the exporter and its clean-up: time is simulated, files are real.

Between storms the run sends a batch every so often, as slow trainings do, and once a day it sends ten a
second for a while without any trouble; storms are sent at ten a second too.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np

from overwatch.catalog import Scope, find
from overwatch.collector import Service
from overwatch.collector.exporters.otlp_file import OtlpFileExporter
from overwatch.events import Column, Event, Measured
from overwatch.feeds.recording import Recording
from overwatch.fold import FAST_NS, NOT_MUTED, Fold, Muted, next_tick
from overwatch.journal import Batch, Signal
from overwatch.otlp.encode import request
from overwatch.recordings.tidy import CompactionJob, Report, tidy
from tests import fakes
from tests.fakes import SECOND, START_NS
from tests.overwatch.collector.running import config

HOUR = 3600
DAY = 24 * HOUR
MIB = 1 << 20
GIB = 1 << 30
Opening: TypeAlias = tuple[str, int]
"""Id of a finding, and the tick at which it opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storm:
    """Trouble of half a minute, sent at ten a second."""

    at_s: float
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What happens in a run."""

    envs: int = 64
    days: float = 7.0
    quiet_s: float = 10.0
    """Seconds between two batches when nothing is the matter."""
    busy_s: float = 300.0
    """Seconds a day that are sent at ten a second although nothing is the matter."""
    idle_s: float = 5.0
    """Time between ticks that are taken while nothing comes."""
    storms: tuple[Storm, ...] = ()
    before_s: float = 20.0
    """How long before a storm a batch is sent each tenth of a second..."""
    after_s: float = 50.0
    """...and how long after its begin."""

    def seconds(self) -> Iterator[tuple[float, Storm | None, float]]:
        """Every moment that is sent, with the storm that it is in and how long that has lasted."""
        busy = [(storm.at_s - self.before_s, storm.at_s + self.after_s, storm) for storm in self.storms]
        busy += [
            (day * DAY + 8 * HOUR, day * DAY + 8 * HOUR + self.busy_s, None) for day in range(int(self.days))
        ]
        busy.sort(key=lambda span: span[0])
        second, end = 0.0, self.days * DAY
        for first, last, storm in [*busy, (end, end, None)]:
            while second < first:
                yield second, None, 0.0
                second += self.quiet_s
            second = first
            while second < last:
                yield second, storm, 0.0 if storm is None else second - storm.at_s
                second = round(second + 0.1, 1)


STORMS = ("kl", "crashes", "nan", "returns", "throttle", "stale", "slow")


def storms(count: int, days: float) -> tuple[Storm, ...]:
    """So many storms of all kinds, spread over the days."""
    gap = days * DAY / count
    return tuple(Storm(at_s=round((n + 0.5) * gap), kind=STORMS[n % len(STORMS)]) for n in range(count))


class Run:
    """What a trainer emits, moment by moment."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._chance = np.random.default_rng(7)
        self._ids = np.arange(plan.envs, dtype=np.int32)
        self._update = 0

    def moments(self) -> Iterator[tuple[float, list[Event]]]:
        """All that is reported, with its second."""
        yield 0.0, [fakes.started(START_NS, n_envs=self.plan.envs, devices=("gpu0", "gpu1"))]
        for second, storm, lasted in self.plan.seconds():
            kind = storm.kind if storm is not None and 0 <= lasted < 30 else ""
            if kind != "stale":
                yield second, self._events(second, kind, round(lasted * 10))

    def _events(self, second: float, kind: str, tenth: int) -> list[Event]:
        at = START_NS + round(second * SECOND)
        events: list[Event] = [self._envs(at, kind, tenth)]
        if tenth % 10 == 0:
            events += [self._policy(at, kind), self._machines(at, kind)]
            ended = self._chance.choice(self._ids, size=max(1, self.plan.envs // 16), replace=False)
            level = -5.0 if kind == "returns" else 10.0
            events.append(fakes.ended(at, ended, (level + self._chance.normal(size=ended.size)).tolist()))
        if kind == "crashes" and tenth % 10 == 0:
            events.append(fakes.crashed(at, int(self._ids[tenth // 10])))
        return events

    def _envs(self, at: int, kind: str, tenth: int) -> Measured:
        there = self._ids
        if kind == "crashes":
            there = self._ids[tenth // 10 + 1 :]
        reward = self._chance.normal(1.0, 0.1, size=there.size).astype(np.float32)
        if kind == "nan":
            reward[3] = np.nan
        step = self._chance.normal(0.1, 0.002, size=there.size).astype(np.float32)
        if kind == "slow":
            step[5] *= 12
        columns = {"reward": Column.of(reward), "step_time": Column.of(step)}
        values = {row.name: column for short, column in columns.items() if (row := find(short, Scope.ENV))}
        lanes = Column(dtype="|i1", data=(there % 2).astype(np.int8).tobytes(), labels=("gpu0", "gpu1"))
        return Measured(
            at=at, scope=Scope.ENV, keys={"env_id": Column.of(there)}, values={**values, "lane": lanes}
        )

    def _policy(self, at: int, kind: str) -> Measured:
        self._update += 1
        shaken = self._chance.normal(size=4)
        values = {
            "kl_divergence": 0.25 if kind == "kl" else abs(0.008 + 0.001 * shaken[0]),
            "entropy": 0.6 + 0.01 * shaken[1],
            "clip_fraction": 0.1 + 0.01 * shaken[2],
            "policy_loss": float("nan") if kind == "nan" else -0.02 + 0.001 * shaken[3],
        }
        return fakes.policy(at, self._update, **values)

    def _machines(self, at: int, kind: str) -> Measured:
        hot = kind == "throttle"
        readings = {
            "utilization": [0.93, 0.93], "memory_used_bytes": [50.0 * GIB, 50.0 * GIB],
            "memory_total_bytes": [80.0 * GIB, 80.0 * GIB], "temperature_c": [60.0, 91.0 if hot else 60.0],
            "power_w": [480.0, 300.0 if hot else 480.0], "clock_hz": [1.98e9, 1.1e9 if hot else 1.98e9],
            "clock_max_hz": [1.98e9, 1.98e9],
        }  # fmt: skip
        values = {
            row.name: Column.of(reported)
            for short, reported in readings.items()
            if (row := find(short, Scope.GPU))
        }
        throttle = find("throttle", Scope.GPU)
        assert throttle is not None
        values[throttle.name] = Column.of_labels([None, "thermal" if hot else None])
        return Measured(
            at=at, scope=Scope.GPU, keys={"gpu_id": Column.of_labels(["gpu0", "gpu1"])}, values=values
        )


class Watching:
    """A fold, and the findings that it opened."""

    def __init__(
        self,
        idle_s: float,
        opened: Callable[[Fold, int], None] | None = None,
        muted: Callable[[int], Muted] | None = None,
    ) -> None:
        self.fold = Fold()
        self._idle_ns = round(idle_s * SECOND)
        self._hushed = muted or (lambda _: NOT_MUTED)
        self.openings: list[Opening] = []
        self._open: set[tuple[str, int]] = set()
        self._tick = 0
        self._opened = opened

    def take(self, tick: int, batches: list[Batch]) -> None:
        """Take the ticks up to one, and that one with its batches."""
        if self._tick:
            for idle in range(self._tick + self._idle_ns, tick, self._idle_ns):
                self._take(idle, [])
        self._take(tick, batches)

    def _take(self, tick: int, batches: list[Batch]) -> None:
        self.fold.skip(tick, batches, self._hushed(tick))
        self._tick = tick
        now = {
            (key, item.since)
            for tracked in self.fold._runs.values()
            for key, item in tracked.assessment.findings.items()
        }
        fresh = now - self._open
        self.openings += [(key, tick) for key, _ in sorted(fresh)]
        self._open = now
        if fresh and self._opened is not None:
            self._opened(self.fold, tick)


@dataclass(slots=True, kw_only=True)
class Result:
    """What a week left behind."""

    folder: Path
    plan: Plan
    live: list[Opening]
    """Findings as they opened live."""
    sizes: list[tuple[float, int]] = field(default_factory=list)
    """Bytes of the folder at each clean-up, with the day."""
    sent_bytes: int = 0
    """Bytes of all bodies."""
    report: Report = field(default_factory=Report)

    def replayed(self) -> list[Opening]:
        """Findings as they open in a replay of what is left."""
        recording = Recording(self.folder)
        segments = recording.segments()
        watching = Watching(self.plan.idle_s, muted=recording.notes.muted)
        for segment in segments:
            for due in dict.fromkeys(segment.due):
                watching.take(due, recording.read(segment.at(due)))
        return watching.openings


def record(folder: Path, plan: Plan, *sets: str) -> Result:
    """Record a run through the exporter, its folder cleaned up at each rotation."""
    service = Service(config(folder, *sets))
    notifier, recorded = service.context.notifier, folder / "otlp"
    exporter = OtlpFileExporter(service.config.exporters["otlp_file"], service.context)
    watching = Watching(
        plan.idle_s, lambda fold, tick: notifier.publish(fold.advance(tick + FAST_NS // 2, [], ()))
    )
    result = Result(folder=recorded, plan=plan, live=watching.openings)
    thinning = service.config.exporters["otlp_file"].thinning
    seq, number = 1, 1
    for sequence, (second, events) in enumerate(Run(plan).moments(), 1):
        body = request(fakes.records(events, first_seq=seq), {})
        seq += len(events)
        result.sent_bytes += len(body)
        stamp = START_NS + round(second * SECOND) + 5_000_000 + sequence
        batch = Batch(sequence=sequence, stamp=stamp, signal=Signal.LOGS, body=body)
        exporter._export(batch)
        watching.take(next_tick(stamp), [batch])
        exporter._note_findings()
        if exporter._writer.number != number:
            number = exporter._writer.number
            orders = CompactionJob(
                folder=str(recorded),
                now=stamp,
                through=number - 1,
                rules=service.config.exporters["otlp_file"].rules(1 << 40),
                before_s=thinning.before_s,
                after_s=thinning.after_s,
            )
            result.report = tidy(orders)
            size = sum(path.stat().st_size for path in recorded.iterdir())
            result.sizes.append((second / DAY, size))
    exporter._writer.close()
    return result
