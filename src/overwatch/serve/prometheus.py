"""Runs as Prometheus families: the default view's snapshots of a frame, nothing else.

Rules: names come from the catalogue; every series carries `rl_run_id`; what is absent has no sample and a
non-finite value never looks like a healthy number; the number of series does not depend on the number of
envs. Must not know HTTP or how a snapshot came about.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from prometheus_client import Metric as Family
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

from overwatch.catalog import ROWS, Kind, Metric, Scope, Stage, find, label_name, of_scope, prometheus_name
from overwatch.catalog.run import GPU_IDLE
from overwatch.snapshot import Lane, Reading, Snapshot, View

if TYPE_CHECKING:
    from overwatch.aggregator import Frame

RUN_LABEL: Final = label_name("rl.run.id")
OUTLIERS: Final = 10
"""Ranks that have a series, whatever the number of envs."""

MOST_SERIES: Final = 20_000
"""Series on one page, unless configured otherwise."""

RUN_STATES: Final = ("live", "slow", "stale", "lost", "ended", "completed", "failed", "interrupted")
LEVELS: Final = ("ok", "warning", "critical")
ENV_STATES: Final = ("ok", "stalled", "degraded", "diverging", "crashed", "unknown")
SEVERITIES: Final = ("info", "warning", "critical")

_COUNTER_ROWS: Final = {row.short: row for row in ROWS if row.kind is Kind.COUNTER}


class _Table:
    """Families under construction; one family gathers the samples of all runs, up to a number of series."""

    def __init__(self, most: int) -> None:
        self._families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        self._room = most
        self.dropped = 0

    def gauge(self, name: str, asks: str, labels: Mapping[str, str], value: float | None) -> None:
        """Add one sample; an absent or non-finite value adds none."""
        if value is None or not math.isfinite(value) or not self._take_room():
            return
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = GaugeMetricFamily(name, asks, labels=list(labels))
        family.add_metric(list(labels.values()), value)

    def counter(self, row: Metric, labels: Mapping[str, str], value: float) -> None:
        """Add one sample of a row that counts."""
        if not self._take_room():
            return
        name = prometheus_name(row)
        family = self._families.get(name)
        if family is None:
            family = CounterMetricFamily(name.removesuffix("_total"), row.asks, labels=list(labels))
            self._families[name] = family
        family.add_metric(list(labels.values()), value)

    def row(self, row: Metric, labels: Mapping[str, str], value: float | None) -> None:
        """Add one sample of a row that measures."""
        constant = {label_name(key): word for key, word in row.attributes.items()}
        self.gauge(prometheus_name(row), row.asks, {**labels, **constant}, value)

    def states(self, name: str, asks: str, label: str, counts: "States") -> None:
        """Add one series for each known word, 0 where nothing is in that state."""
        for word in counts.known:
            self.gauge(name, asks, {**counts.labels, label: word}, counts.values.get(word, 0))

    def _take_room(self) -> bool:
        if self._room:
            self._room -= 1
            return True
        self.dropped += 1
        return False

    def families(self) -> Iterator[Family]:
        """All families in order of name."""
        for name in sorted(self._families):
            yield self._families[name]


class States:
    """How many things are in each of a closed set of states."""

    __slots__ = ("known", "labels", "values")

    def __init__(self, labels: Mapping[str, str], known: Iterable[str], values: Mapping[str, float]) -> None:
        self.labels = dict(labels)
        self.known = tuple(known)
        self.values = values


def families(frame: "Frame | None", most_series: int = MOST_SERIES) -> Iterator[Family]:
    """The families of all runs of a frame; none before the first frame.

    Runs with the newest data come first where `most_series` has no room for all.
    """
    if frame is None:
        return
    table = _Table(most_series)
    plain = View()
    chosen = {run: snapshot for (run, view), snapshot in frame.snapshots.items() if view == plain}
    for run_id in sorted(chosen, key=lambda run: (_age_s(chosen[run]), run)):
        _run(table, run_id, chosen[run_id])
    yield from table.families()
    dropped = GaugeMetricFamily("overwatch_prometheus_series_dropped", "How many series had no room here?")
    dropped.add_metric([], table.dropped)
    yield dropped


def _age_s(snapshot: Snapshot) -> float:
    age = snapshot.link.data_age_s
    return math.inf if age is None else age


def _run(table: _Table, run_id: str, snapshot: Snapshot) -> None:
    labels = {RUN_LABEL: run_id}
    _identity(table, labels, snapshot)
    _liveness(table, labels, snapshot)
    for short, reading in snapshot.policy.items():
        _policy(table, labels, short, reading)
    for name, reading in snapshot.services.items():
        row = find(name)
        if row is not None and row.kind is Kind.COUNTER and reading.value is not None:
            table.counter(row, labels, reading.value)
        elif row is not None:
            table.row(row, labels, reading.value)
    for lane in snapshot.system.gpus:
        _lane(table, labels, lane)
    if snapshot.system.host is not None:
        for row in of_scope(Scope.HOST):
            table.row(row, labels, _field(snapshot.system.host, row.short))
    for bound, seconds in snapshot.system.idle_gpu_s.items():
        table.counter(GPU_IDLE, {**labels, "bound": bound}, seconds)
    for short, value in snapshot.counters.items():
        if short in _COUNTER_ROWS and short != GPU_IDLE.short:
            table.counter(_COUNTER_ROWS[short], labels, value)
    _fleet(table, labels, snapshot)


def _identity(table: _Table, labels: Mapping[str, str], snapshot: Snapshot) -> None:
    run = snapshot.run
    about = {
        "rl_environment_name": run.task,
        "rl_algorithm": run.algo,
        "vcs_ref_head_revision": run.git_sha,
        "host_name": run.node,
        "preset": run.preset,
        "reward_mode": run.reward_mode,
        "group": run.group,
        "attempt": None if run.attempt is None else str(run.attempt),
        "amp": run.modes.amp,
        "compile": None if run.modes.compile is None else str(run.modes.compile).lower(),
        "ddp": None if run.modes.ddp is None else str(run.modes.ddp),
    }
    words = {name: word or "" for name, word in about.items()}
    table.gauge("overwatch_run_info", "What is this run?", {**labels, **words}, 1)
    table.gauge("overwatch_run_update", "At which update is this run?", labels, run.update)
    table.gauge("overwatch_run_steps_per_second", "How many env steps a second?", labels, run.steps_per_s)
    table.gauge(
        "overwatch_run_start_timestamp_seconds", "When did this run start, in Unix time?", labels, run.started
    )


def _liveness(table: _Table, labels: Mapping[str, str], snapshot: Snapshot) -> None:
    link = snapshot.link
    state = snapshot.run.outcome or "ended" if link.state == "ended" else link.state
    known = RUN_STATES if state in RUN_STATES else (*RUN_STATES, state)
    table.states(
        "overwatch_run_status", "In which state is this run?", "state", States(labels, known, {state: 1})
    )
    age = link.data_age_s
    data_age = find("overwatch.run.data_age")
    if age is None or data_age is None:
        return
    table.row(data_age, labels, age)
    table.gauge(
        "overwatch_run_last_update_timestamp_seconds",
        "When did the newest record of this run come, in Unix time?",
        labels,
        snapshot.time - age,
    )


def _policy(table: _Table, labels: Mapping[str, str], short: str, reading: Reading) -> None:
    row = find(short, Scope.POLICY)
    if row is None:
        custom = {**labels, "name": short}
        table.gauge("overwatch_policy_custom", "What did the trainer report here?", custom, reading.value)
        return
    table.row(row, labels, reading.value)
    if reading.status in LEVELS:
        table.states(
            "overwatch_policy_status",
            "On which side of its limits is this policy metric?",
            "level",
            States({**labels, "metric": row.short}, LEVELS, {reading.status: 1}),
        )


def _lane(table: _Table, labels: Mapping[str, str], lane: Lane) -> None:
    lane_labels = {**labels, label_name("hw.id"): lane.uuid or lane.gpu_id}
    for row in of_scope(Scope.GPU):
        value = _field(lane, row.short)
        if row.kind is not Kind.COUNTER:
            table.row(row, lane_labels, value)
        elif value is not None:
            constant = {label_name(key): word for key, word in row.attributes.items()}
            table.counter(row, {**lane_labels, **constant}, value)


def _field(holder: object, short: str) -> float | None:
    value = getattr(holder, short, None)
    return float(value) if isinstance(value, int | float) else None


def _fleet(table: _Table, labels: Mapping[str, str], snapshot: Snapshot) -> None:
    if snapshot.board.counts:
        states = States(labels, ENV_STATES, snapshot.board.counts)
        table.states("overwatch_run_envs", "How many envs are in each state?", "status", states)
    if snapshot.aggregates.seed_census:
        census = States(labels, (stage.value for stage in Stage), snapshot.aggregates.seed_census)
        table.states("overwatch_run_slots", "How many slots are in each seed stage?", "seed_stage", census)
    found = States(labels, SEVERITIES, snapshot.verdict.counts)
    table.states("overwatch_findings", "How many findings are open?", "severity", found)
    worst = sorted(snapshot.envs, key=lambda env: -env.anomaly.score)
    for rank, env in enumerate(worst[:OUTLIERS], start=1):
        place = {**labels, "rank": str(rank)}
        score = env.anomaly.score
        table.gauge("overwatch_outlier_anomaly", "How far from normal is the env here?", place, score)
        table.gauge("overwatch_outlier_env", "Which env is at this rank?", place, env.env_id)
