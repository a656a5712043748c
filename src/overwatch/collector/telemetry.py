"""The collector's own metrics: what came in, what went out, what the fold did with it, what it costs.

Names are otelcol's where it has one, so that its dashboards and alerts work here. Must not know runs.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from overwatch import __version__
from overwatch.aggregator import Aggregator
from overwatch.collector.auth import Role
from overwatch.collector.budget import StorageBudget
from overwatch.collector.connections import ConnectionLimiter
from overwatch.collector.context import Context
from overwatch.collector.guard import Entry, plain
from overwatch.collector.limits import Resident
from overwatch.collector.tls import TlsConfig
from overwatch.serve.exposition import Exposition, Source
from overwatch.serve.metrics_text import Family, FamilyKind
from overwatch.state.names import Overflow

TOWER: Final = {
    "batches": "How many batches did the fold take?",
    "records": "How many records did the fold apply?",
    "problems": "How many records were malformed and left out?",
    "unjudged": "How often could a run not be judged or shown, for a fault of Overwatch?",
    "unattributed": "How many records named no run?",
    "unmapped": "How many foreign metric points does no catalogue row know?",
    "late": "How many points of sums and distributions came twice, or after a newer one?",
    "resets": "How many sums and distributions began anew, for a restart or a gap?",
    "overlaps": "How many points did two writers tell of one series at once?",
    "duplicates": "How many records had come before?",
    "refused_runs": "How many records were of runs beyond the most runs?",
    "after_end": "How many records were of runs that had ended and were evicted?",
    "evicted_runs": "How many runs that were over made room for others?",
    "evicted_envs": "How many envs that were long silent made room for others of their run?",
    "overflowed": "How many names and ids were beyond the most that a run may have?",
}
MOST_CAPPED: Final = 16
"""Runs whose names beyond caps are shown: a listing of what is too much must not be too much itself."""

LONGEST_NAME: Final = 80
"""Most characters of such a name."""

_ENTRY: Final = Entry(name="telemetry", reads=Role.READ, acts=Role.READ, answer=plain)


class MetricsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`service.telemetry.metrics`."""

    address: str
    """`host:port` to serve the collector's own `/metrics` at."""
    tls: TlsConfig | None = None
    """TLS of this listener; that of `service.security` if left out."""


def connections(limiters: Mapping[str, ConnectionLimiter]) -> Iterator[Family]:
    """The connections of each web listener, and which were refused."""
    rows: tuple[tuple[str, FamilyKind, str, Callable[[ConnectionLimiter], float]], ...] = (
        ("connections", FamilyKind.GAUGE, "How many connections are open?", lambda one: one.size),
        (
            "turned_away_connections",
            FamilyKind.COUNTER,
            "How many connections were beyond the most that a listener takes?",
            lambda one: one.turned_away,
        ),
        ("connections_limit", FamilyKind.GAUGE, "How many connections may be open?", lambda one: one.most),
        ("cut_connections", FamilyKind.COUNTER, "How many connections took too long?", lambda one: one.cut),
    )
    for name, kind, asks, value in rows:
        family = Family(f"overwatch_listener_{name}", kind, asks, labels=["listener"])
        for listener, limiter in sorted(limiters.items()):
            family.add([listener], value(limiter))
        yield family


def certificates(ends: Mapping[str, float]) -> Family:
    """When certificates end, by their file."""
    family = Family(
        "overwatch_certificate_end_timestamp_seconds",
        FamilyKind.GAUGE,
        "When does the first certificate of a file that is shown to clients end, in Unix time?",
        labels=["file"],
    )
    for file, end in sorted(ends.items()):
        family.add([file], end)
    return family


def capped(runs: Mapping[str, Overflow]) -> Iterator[Family]:
    """What was beyond the caps of runs, and the first names that were: of each kind the worst few runs."""
    counts = Family(
        "overwatch_tower_capped",
        FamilyKind.COUNTER,
        "How often was something beyond the most of its kind that a run may have?",
        labels=["rl_run_id", "kind"],
    )
    names = Family(
        "overwatch_tower_offender",
        FamilyKind.COUNTER,
        "How often was this name beyond a cap of its run?",
        labels=["rl_run_id", "kind", "name"],
    )
    worst = sorted(runs.items(), key=lambda run: (-run[1].total, run[0]))
    for run_id, overflow in worst[:MOST_CAPPED]:
        for kind, count in sorted(overflow.counts.items()):
            counts.add([run_id, kind], count)
            for name, times in sorted(overflow.offenders.get(kind, {}).items()):
                names.add([run_id, kind, name[:LONGEST_NAME]], times)
    yield from (counts, names)


def stored(storage: StorageBudget) -> Iterator[Family]:
    """What lies on the disk, how much may, and how fast it grows."""
    usage = storage.usage
    if usage is None:
        return
    have = Family(
        "overwatch_storage_part_bytes",
        FamilyKind.GAUGE,
        "How many bytes does a part of what is written have on disk?",
        labels=["part"],
    )
    share = Family(
        "overwatch_storage_share_bytes",
        FamilyKind.GAUGE,
        "How many bytes of the disk budget are a part's?",
        labels=["part"],
    )
    for part in usage.parts:
        have.add([part.name], part.bytes)
        share.add([part.name], usage.planned[part.name])
    yield from (have, share)
    for name, value, asks in (
        ("max", usage.most, "How many bytes may all parts have on disk?"),
        ("room", usage.room, "How many bytes may all parts have now, as others write to the volume too?"),
        ("volume_free", usage.volume.free, "How many bytes of the volume are free?"),
        ("volume_size", usage.volume.size, "How many bytes does the volume have?"),
    ):
        yield _single(f"overwatch_storage_{name}_bytes", value, asks)
    growth = storage.growth_per_day
    if growth is not None:
        asks = "By how many bytes a day did all parts grow in the last hour?"
        yield _single("overwatch_storage_growth_bytes_per_day", growth, asks)


def _single(name: str, value: float, asks: str) -> Family:
    family = Family(name, FamilyKind.GAUGE, asks)
    family.add([], value)
    return family


def faults(aggregator: Aggregator) -> Family:
    """What the aggregator outlived."""
    family = Family(
        "overwatch_aggregator_faults",
        FamilyKind.COUNTER,
        "How many errors of its own did the aggregator meet and outlive, by what they took?",
        labels=["what"],
    )
    family.add(["checkpoint"], aggregator.checkpoint_errors)
    family.add(["sink"], aggregator.sink_errors)
    family.add(["tick"], aggregator.faults)
    return family


class SelfMetrics:
    """The page of the collector itself."""

    def __init__(self, config: MetricsConfig, context: Context) -> None:
        self._context = context
        self._resident = Resident()
        # A fresh version each time: these numbers change without any event to hang a cache on.
        exposition = Exposition(Source(families=lambda _: self._families(), version=object))
        self._listener = context.web_listener(config.address, exposition.app(), _ENTRY, config.tls)

    def start(self) -> None:
        """Serve."""
        self._context.board.note("telemetry", "http", self._listener.open(), secure=self._listener.secure)

    def stop(self) -> None:
        """Serve no more."""
        self._listener.close()

    def _families(self) -> Iterator[Family]:
        yield from self._context.tally.families()
        yield from self._own()
        if self._context.aggregator is not None:
            yield faults(self._context.aggregator)
        frame = self._context.bell.latest
        if frame is not None:
            for field, asks in TOWER.items():
                family = Family(f"overwatch_tower_{field}", FamilyKind.COUNTER, asks)
                family.add([], getattr(frame.tower, field))
                yield family
            yield from capped(frame.capped)
            latest = Family(
                "overwatch_tower_frame_timestamp_seconds",
                FamilyKind.GAUGE,
                "Which moment does the latest frame show, in Unix time?",
            )
            latest.add([], frame.tick / 1e9)
            yield latest

    def _own(self) -> Iterator[Family]:
        uptime = Family(
            "otelcol_process_uptime_seconds", FamilyKind.COUNTER, "How long has this collector run?"
        )
        uptime.add([], self._context.health.uptime_s)
        yield uptime
        cpu = Family(
            "otelcol_process_cpu_seconds", FamilyKind.COUNTER, "How much CPU time did this collector use?"
        )
        cpu.add([], time.process_time())
        yield cpu
        rss = Family(
            "otelcol_process_memory_rss_bytes", FamilyKind.GAUGE, "How much memory does this collector hold?"
        )
        if resident := self._resident():
            rss.add([], resident)
        yield rss
        held = Family(
            "overwatch_journal_held_bytes",
            FamilyKind.GAUGE,
            "How many bytes did some reader of the journal not pass yet?",
        )
        held.add([], self._context.journal.held_bytes)
        yield held
        yield from self._queues()
        yield from connections(self._context.limiters)
        yield from stored(self._context.storage)
        yield certificates(self._context.guard.certificate_ends)
        failing = Family(
            "overwatch_components_degraded",
            FamilyKind.GAUGE,
            "How many components cannot do their work right now?",
        )
        failing.add([], len(self._context.health.degraded))
        yield failing

    def _queues(self) -> Iterator[Family]:
        """What waits for each reader of the journal: bytes, as otelcol counts with `sizer: bytes`."""
        journal = self._context.journal
        size = Family(
            "otelcol_exporter_queue_size",
            FamilyKind.GAUGE,
            "How many bytes wait for an exporter?",
            labels=["exporter"],
        )
        capacity = Family(
            "otelcol_exporter_queue_capacity",
            FamilyKind.GAUGE,
            "How many bytes may wait for an exporter?",
            labels=["exporter"],
        )
        behind = Family(
            "overwatch_exporter_queue_batches",
            FamilyKind.GAUGE,
            "How many batches, those of earlier lives included, has an exporter not read?",
            labels=["exporter"],
        )
        for name, waiting in sorted(journal.backlog.items()):
            read, full = self._context.queues.get(name, lambda: (0, 0.0))()
            size.add([name], waiting + read)
            # One that gives up what waits too long has less room than the journal: as much as would fill it.
            capacity.add(
                [name], (waiting + read) / full if read + waiting and full else journal.capacity_bytes
            )
            behind.add([name], journal.lag(name).batches)
        yield size
        yield capacity
        yield behind
        about = {"service_name": "overwatch", "service_version": __version__}
        target = Family("target", FamilyKind.INFO, "Which collector is this?", tuple(about))
        target.add(tuple(about.values()), 1)
        yield target
