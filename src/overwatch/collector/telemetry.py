"""The collector's own metrics: what came in, what went out, what the fold did with it, what it costs.

Names are otelcol's where it has one, so that its dashboards and alerts work here. Must not know runs.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from overwatch import __version__
from overwatch.collector.auth import Role
from overwatch.collector.budget import StorageBudget
from overwatch.collector.connections import WebListener
from overwatch.collector.context import Context
from overwatch.collector.guard import Entry, plain
from overwatch.collector.limits import Resident
from overwatch.collector.tls import TlsConfig
from overwatch.serve.exposition import Exposition
from overwatch.serve.metrics_text import NO_LABELS, Family, FamilyBuilder
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
    "overlaps": "How many points did two writers send for one series at once?",
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


def capped(runs: Mapping[str, Overflow], page: FamilyBuilder) -> None:
    """What was beyond the caps of runs, and the first names that were: of each kind the worst few runs."""
    worst = sorted(runs.items(), key=lambda run: (-run[1].total, run[0]))
    for run_id, overflow in worst[:MOST_CAPPED]:
        for kind, count in sorted(overflow.counts.items()):
            about = {"rl_run_id": run_id, "kind": kind}
            asks = "How often was something beyond the most of its kind that a run may have?"
            page.counter("overwatch_tower_capped", asks, about, count)
            asks = "How often was this name beyond a cap of its run?"
            for name, times in sorted(overflow.offenders.get(kind, {}).items()):
                named = {**about, "name": name[:LONGEST_NAME]}
                page.counter("overwatch_tower_offender", asks, named, times)


def stored(storage: StorageBudget, page: FamilyBuilder) -> None:
    """What lies on the disk, how much may, and how fast it grows."""
    usage = storage.usage
    if usage is None:
        return
    for part in usage.parts:
        labels = {"part": part.name}
        asks = "How many bytes does a part of what is written have on disk?"
        page.gauge("overwatch_storage_part_bytes", asks, labels, part.bytes)
        asks = "How many bytes of the disk budget are a part's?"
        page.gauge("overwatch_storage_share_bytes", asks, labels, usage.shares[part.name])
        asks = "How many bytes did a part let go of to keep within its limits?"
        page.counter("overwatch_storage_removed_bytes", asks, labels, storage.removed[part.name])
    for name, value, asks in (
        ("max_bytes", usage.most, "How many bytes may all parts have on disk?"),
        (
            "room_bytes",
            usage.room,
            "How many bytes may all parts have now, as others write to the volume too?",
        ),
        ("volume_free_bytes", usage.volume.free, "How many bytes of the volume are free?"),
        ("volume_size_bytes", usage.volume.size, "How many bytes does the volume have?"),
        (
            "growth_bytes_per_day",
            storage.growth_per_day,
            "By how many bytes a day did all parts grow in the last hour?",
        ),
    ):
        page.gauge(f"overwatch_storage_{name}", asks, NO_LABELS, value)


class SelfMetrics:
    """The numbers of one collector."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._resident = Resident()

    def listener(self, config: MetricsConfig) -> WebListener:
        """Their page, made anew for each that asks: they change without any event to hang a cache on."""
        app = Exposition(self._families).app()
        return self._context.web_listener(config.address, app, _ENTRY, config.tls)

    def _families(self) -> Iterator[Family]:
        page = FamilyBuilder()
        self._context.tally.write(page)
        self._process(page)
        self._queues(page)
        self._listeners(page)
        stored(self._context.storage, page)
        self._fold(page)
        return page.families()

    def _process(self, page: FamilyBuilder) -> None:
        asks = "How long has this collector run?"
        page.counter("otelcol_process_uptime_seconds", asks, NO_LABELS, self._context.health.uptime_s)
        asks = "How much CPU time did this collector use?"
        page.counter("otelcol_process_cpu_seconds", asks, NO_LABELS, time.process_time())
        asks = "How much memory does this collector hold?"
        page.gauge("otelcol_process_memory_rss_bytes", asks, NO_LABELS, self._resident() or None)
        asks = "How many components cannot do their work right now?"
        page.gauge("overwatch_components_degraded", asks, NO_LABELS, len(self._context.health.degraded))
        about = {"service_name": "overwatch", "service_version": __version__}
        page.info("target", "Which collector is this?", about)

    def _queues(self, page: FamilyBuilder) -> None:
        """What waits for each reader of the journal: bytes, as otelcol counts with `sizer: bytes`."""
        journal = self._context.journal
        asks = "How many bytes did some reader of the journal not pass yet?"
        page.gauge("overwatch_journal_held_bytes", asks, NO_LABELS, journal.held_bytes)
        if (pace := journal.pace) is not None:
            asks = "How often was what waited written to the journal's disk and synced?"
            page.counter("overwatch_journal_commits", asks, NO_LABELS, pace.commits)
            asks = "How long did the journal's disk take to write and sync?"
            page.counter("overwatch_journal_commit_seconds", asks, NO_LABELS, pace.took_s)
            asks = "For how long has what is being written waited for the journal's disk?"
            page.gauge("overwatch_journal_waiting_seconds", asks, NO_LABELS, pace.waiting_s)
        for name, waiting in sorted(journal.backlog.items()):
            labels = {"exporter": name}
            asks = "How many bytes wait for an exporter?"
            page.gauge("otelcol_exporter_queue_size", asks, labels, waiting)
            asks = "How many bytes may wait for an exporter?"
            page.gauge("otelcol_exporter_queue_capacity", asks, labels, journal.capacity_bytes)
            asks = "How many batches, those of earlier lives included, has an exporter not read?"
            page.gauge("overwatch_exporter_queue_batches", asks, labels, journal.lag(name).batches)

    def _listeners(self, page: FamilyBuilder) -> None:
        """The connections of each web listener, which were refused, and when certificates end."""
        for listener, one in sorted(self._context.limiters.items()):
            labels = {"listener": listener}
            page.gauge("overwatch_listener_connections", "How many connections are open?", labels, one.size)
            asks = "How many connections may be open?"
            page.gauge("overwatch_listener_connections_limit", asks, labels, one.most)
            asks = "How many connections were beyond the most that a listener takes?"
            page.counter("overwatch_listener_turned_away_connections", asks, labels, one.turned_away)
            asks = "How many connections took too long?"
            page.counter("overwatch_listener_cut_connections", asks, labels, one.cut)
        asks = "When does the first certificate of a file that is shown to clients end, in Unix time?"
        for file, end in sorted(self._context.guard.certificate_ends.items()):
            page.gauge("overwatch_certificate_end_timestamp_seconds", asks, {"file": file}, end)

    def _fold(self, page: FamilyBuilder) -> None:
        """What the aggregator outlived, and what the fold did up to the latest frame."""
        aggregator, frame = self._context.aggregator, self._context.notifier.latest
        if aggregator is not None:
            asks = "How many errors of its own did the aggregator meet and outlive, by what they took?"
            for what, count in (
                ("checkpoint", aggregator.checkpoint_errors),
                ("sink", aggregator.sink_errors),
                ("tick", aggregator.faults),
            ):
                page.counter("overwatch_aggregator_faults", asks, {"what": what}, count)
        if frame is None:
            return
        for field, asks in TOWER.items():
            page.counter(f"overwatch_tower_{field}", asks, NO_LABELS, getattr(frame.tower, field))
        capped(frame.capped, page)
        asks = "Which moment does the latest frame show, in Unix time?"
        page.gauge("overwatch_tower_frame_timestamp_seconds", asks, NO_LABELS, frame.tick / 1e9)
