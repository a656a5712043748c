"""Runs as Prometheus families: the default view's snapshots of a frame, nothing else.

Rules: names come from the catalogue; every series carries `rl_run_id`, and `job` and `instance` where the
run's producers name themselves; the number of series does not depend on the number of envs. Must not know
HTTP or how a snapshot came about.

How long what a run emitted stays depends on the run's life, not on the time since a value came. All of a run
is there while it lives. Of one that ended, its end, its counters and the findings that stood then stay for
the expiration: a scrape sees them, and no alert stays for ever. Of one that is lost or silent, its state and
its moments stay until it emits again, an operator acknowledges that, or the retention is over.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from overwatch.catalog import (
    BY_NAME,
    KL,
    ROWS,
    Kind,
    Metric,
    Scope,
    Stage,
    find,
    head_of,
    label_name,
    of_scope,
    prometheus_name,
    row_of,
)
from overwatch.catalog.alerts import reported_codes
from overwatch.catalog.bounds import BoundState
from overwatch.catalog.phases import DURATION_ENDS_S
from overwatch.catalog.run import GPU_IDLE, PHASE_DURATION
from overwatch.catalog.tallies import TAKEN_LABELS, is_tally
from overwatch.serve.metrics_text import NO_LABELS, Buckets, Family, FamilyBuilder, Labels, exemplar_of
from overwatch.snapshot import Env, Exemplar, Lane, Reading, Sample, Snapshot, Tally, View

if TYPE_CHECKING:
    from prometheus_client.samples import Exemplar as PageExemplar

    from overwatch.aggregator import Frame

RUN_LABEL: Final = label_name("rl.run.id")
ENV_LABEL: Final = label_name("overwatch.env.id")
OUTLIERS: Final = 10
"""Ranks that have a series, whatever the number of envs."""

MOST_SERIES: Final = 20_000
"""Series on one page, unless configured otherwise."""
MOST_ENVS: Final = 256
"""Rows of the default view: no more envs can have series of their own."""

RUN_STATES: Final = (
    "live", "slow", "stale", "silent", "catching_up", "lost", "ended", "completed", "failed", "interrupted",
)  # fmt: skip
LEVELS: Final = ("ok", "warning", "critical")
SEVERITIES: Final = ("info", "warning", "critical")

ENV_STATES: Final = ("ok", "stalled", "degraded", "diverging", "crashed", "unknown")
_CODES: Final = reported_codes()
_COUNTER_ROWS: Final = {row.short: row for row in ROWS if row.kind is Kind.COUNTER and not is_tally(row)}
_ENDS: Final = (*map(str, DURATION_ENDS_S), "+Inf")
_ENV_FIELDS: Final = {"return": "episode_return", "step_time": "step_time_s"}
"""Fields of a snapshot's env that are not called as their row."""
_NO_END: Final = ("run-lost", "run-silent")
"""Findings about a run that sent no end record."""
_COUNTED: Final = "What did this process count here?"
_HISTOGRAM: Final = Metric(
    name="overwatch.service.custom.values",
    short="custom_values",
    kind=Kind.HISTOGRAM,
    unit="{value}",
    scope=Scope.RUN,
    asks="Which values did this process observe here?",
    label="values",
)


class Part(Enum):
    """What of a run is on the page."""

    ALL = "all"
    END = "end"
    """Identity, state, moments, counters, and what stood at the end."""
    STATE = "state"
    """Identity, state and moments."""
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageLimits:
    """What is on the page."""

    most_series: int = MOST_SERIES
    """Series on the page; what has no room is counted on it."""
    expiration_s: float = 300.0
    """For how long after a run's end its last state stays, and a reading of a machine that is not renewed."""
    lost_retention_s: float = 86_400.0
    """For how long the state of a lost or silent run stays."""
    per_env: int = 0
    """Runs of at most so many envs have series of each env, by its id; those of more have the values of as
    many of their worst, by rank, since ids that come and go would be new series for ever."""

    def part_of(self, snapshot: Snapshot) -> Part:
        """What of a run is shown."""
        age_s = snapshot.link.data_age_s or 0.0
        match snapshot.link.state:
            case "ended":
                return Part.END if age_s < self.expiration_s else Part.NONE
            case "lost" | "silent":
                seen = any(one.code in _NO_END and one.acknowledged for one in snapshot.findings)
                return Part.STATE if age_s < self.lost_retention_s and not seen else Part.NONE
            case _:
                return Part.ALL

    def is_fresh(self, age_s: float | None) -> bool:
        """Whether a reading of a machine is young enough to be shown; one of unknown age is."""
        return age_s is None or age_s < self.expiration_s


class RunPage:
    """The page of all runs, frame after frame; remembers what only may grow."""

    def __init__(self, limits: PageLimits | None = None) -> None:
        self._limits = limits or PageLimits()
        self._dropped = 0
        self._breaches: dict[tuple[str, str, str], int] = {}
        """By run, metric and level: what was shown already, since a breach may be forgiven later."""

    def families(self, frame: "Frame | None") -> Iterator[Family]:
        """The families of all runs of a frame; none before the first frame.

        Runs with the newest data come first where there is no room for all.
        """
        if frame is None:
            return
        builder = FamilyBuilder(self._limits.most_series)
        plain = View()
        chosen = {run: snapshot for (run, view), snapshot in frame.snapshots.items() if view == plain}
        self._breaches = {key: count for key, count in self._breaches.items() if key[0] in chosen}
        for run_id in sorted(chosen, key=lambda run: (_age_s(chosen[run]), run)):
            self._run(builder, run_id, chosen[run_id])
        self._dropped += builder.dropped
        yield from builder.families()
        about, most = FamilyBuilder(), self._limits.most_series
        for name, asks, value in (
            ("", "How many series of runs are on this page?", most - builder.room),
            ("_limit", "How many series of runs may be on this page?", most),
            ("_dropped", "How many series have no room on this page?", builder.dropped),
        ):
            about.gauge(f"overwatch_prometheus_series{name}", asks, NO_LABELS, value)
        asks = "How many series had no room, over all pages so far?"
        about.counter("overwatch_prometheus_dropped_series", asks, NO_LABELS, self._dropped)
        yield from about.families()

    def _run(self, builder: FamilyBuilder, run_id: str, snapshot: Snapshot) -> None:
        part = self._limits.part_of(snapshot)
        if part is Part.NONE:
            return
        labels = _labels(run_id, snapshot)
        _identity(builder, labels, snapshot)
        _liveness(builder, labels, snapshot)
        if part is Part.STATE:
            return
        _counters(builder, labels, snapshot)
        _phases(builder, labels, snapshot)
        _tallies(builder, labels, snapshot.tallies)
        for short, reading in snapshot.policy.items():
            self._breached(builder, labels, (run_id, short), reading)
        _findings(builder, labels, snapshot)
        if part is Part.END:
            return
        for short, reading in snapshot.policy.items():
            _policy(builder, labels, short, reading)
        _services(builder, labels, snapshot.services)
        self._machines(builder, labels, snapshot)
        _fleet(builder, labels, snapshot)
        self._envs(builder, labels, snapshot)

    def _breached(
        self, builder: FamilyBuilder, labels: Labels, where: tuple[str, str], reading: Reading
    ) -> None:
        """How many updates were beyond a limit; of KL from the first scrape on."""
        short = where[1]
        row = row_of(short)
        if row is None or (reading.status == "absent" and row is not KL):
            return
        for level, count in (("warning", reading.warnings), ("critical", reading.criticals)):
            if count or row is KL:
                stated = self._breaches[*where, level] = max(count, self._breaches.get((*where, level), 0))
                builder.counter(
                    "overwatch_policy_updates_beyond_limit",
                    "How many updates were beyond this limit of a policy metric, and no further?",
                    {**labels, "metric": short, "level": level},
                    stated,
                )

    def _machines(self, builder: FamilyBuilder, labels: Labels, snapshot: Snapshot) -> None:
        for lane in snapshot.system.gpus:
            if self._limits.is_fresh(lane.age_s):
                _lane(builder, labels, lane)
        host = snapshot.system.host
        if host is not None and self._limits.is_fresh(host.age_s):
            for row in of_scope(Scope.HOST):
                builder.row(row, labels, _field(host, row.short))

    def _envs(self, builder: FamilyBuilder, labels: Labels, snapshot: Snapshot) -> None:
        """Values of single envs, where they were asked for."""
        most, n = self._limits.per_env, sum(snapshot.board.counts.values())
        if not most:
            return
        if n <= most:
            for env in snapshot.envs:
                _env(builder, "", {**labels, ENV_LABEL: str(env.env_id)}, env)
            return
        for rank, env in enumerate(_worst(snapshot)[:most], start=1):
            _env(builder, "outlier_", {**labels, "rank": str(rank)}, env)


def _age_s(snapshot: Snapshot) -> float:
    age = snapshot.link.data_age_s
    return math.inf if age is None else age


def _labels(run_id: str, snapshot: Snapshot) -> Labels:
    run = snapshot.run
    owner = {"job": run.service, "instance": run.instance} if run.service else {}
    return {RUN_LABEL: run_id, **{name: word for name, word in owner.items() if word}}


def _identity(builder: FamilyBuilder, labels: Labels, snapshot: Snapshot) -> None:
    run = snapshot.run
    about = {
        "rl_environment_name": run.task,
        "rl_algorithm": run.algo,
        "vcs_ref_head_revision": run.git_sha,
        "dirty": None if run.dirty is None else str(run.dirty).lower(),
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
    builder.gauge("overwatch_run_info", "What is this run?", {**labels, **words}, 1)
    if run.service:
        resource = {"host_name": run.node or "", "service_name": run.service.rpartition("/")[2]}
        builder.info("target", "Who produces this run?", {**labels, **resource})
    builder.gauge(
        "overwatch_run_start_timestamp_seconds", "When did this run start, in Unix time?", labels, run.started
    )


def _liveness(builder: FamilyBuilder, labels: Labels, snapshot: Snapshot) -> None:
    link, run = snapshot.link, snapshot.run
    state = run.outcome or "ended" if link.state == "ended" else link.state
    states = dict.fromkeys((*RUN_STATES, state))
    asks = "In which state is this run?"
    builder.states("overwatch_run_status", asks, labels, "state", {state: 1}, words=states)
    data_age = find("overwatch.run.data_age")
    if link.data_age_s is not None and data_age is not None:
        builder.row(data_age, labels, link.data_age_s)
        builder.gauge(
            "overwatch_run_last_update_timestamp_seconds",
            "When did the newest record of this run come, in Unix time?",
            labels,
            snapshot.time - link.data_age_s,
        )
    if run.checkpoint_age_s is not None:
        builder.gauge(
            "overwatch_run_last_checkpoint_timestamp_seconds",
            "When was the newest checkpoint of this run saved, in Unix time?",
            labels,
            snapshot.time - run.checkpoint_age_s,
        )


def _counters(builder: FamilyBuilder, labels: Labels, snapshot: Snapshot) -> None:
    for bound, seconds in snapshot.system.idle_gpu_s.items():
        builder.row(GPU_IDLE, {**labels, "bound": bound}, seconds)
    for short, value in snapshot.counters.items():
        if short in _COUNTER_ROWS and short != GPU_IDLE.short:
            builder.row(_COUNTER_ROWS[short], labels, value)


def _phases(builder: FamilyBuilder, labels: Labels, snapshot: Snapshot) -> None:
    for phase in snapshot.phases:
        exemplars = {one.bucket: _exemplar(one, one.duration_s) for one in phase.exemplars}
        cumulated = dict(zip(_ENDS, accumulate(phase.counts), strict=True))
        buckets = Buckets(cumulated=cumulated, total=phase.total_s, exemplars=exemplars)
        builder.histogram(PHASE_DURATION, {**labels, "phase": phase.name}, buckets)


def _exemplar(one: Exemplar | Sample, value: float) -> "PageExemplar | None":
    return exemplar_of({"trace_id": one.trace_id, "span_id": one.span_id}, value, one.at)


def _services(builder: FamilyBuilder, labels: Labels, readings: Mapping[str, Reading]) -> None:
    """What processes report; what no row knows is in a family for all such, by `name`."""
    for key, reading in readings.items():
        name = key.partition("#")[0]
        row = BY_NAME.get(name)
        owner = {**labels, "role": reading.role or "", "rank": str(reading.rank or 0)}
        if row is not None:
            builder.row(row, owner, reading.value)
        else:
            asks = "What did this process report here?"
            builder.gauge("overwatch_service_custom", asks, {**owner, "name": name}, reading.value)


def _tallies(builder: FamilyBuilder, labels: Labels, tallies: Iterable[Tally]) -> None:
    """What processes count, each with their role and rank; no two samples have the same labels."""
    written = set[tuple[object, ...]]()
    for one in tallies:
        row = None if one.is_custom else find(one.name)
        words = {"role": one.role, "rank": str(one.rank)} | ({} if row else {"name": one.name})
        owner = {**labels, **words, **_own_labels(one.labels)}
        key = one.name if row else one.count is None, *sorted(owner.items())
        if key not in written:
            written.add(key)
            _tally(builder, row, owner, one)


def _own_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Labels by names that Prometheus takes; those of the page itself keep their meaning."""
    names = {name: label_name(name) for name in labels}
    return {f"label_{to}" if to in TAKEN_LABELS else to: labels[name] for name, to in names.items()}


def _tally(builder: FamilyBuilder, row: Metric | None, labels: Labels, one: Tally) -> None:
    if one.count is not None:
        ends = (*map(str, one.bounds), "+Inf")
        cumulated = dict(zip(ends, accumulate(one.counts or (one.count,)), strict=True))
        exemplars = {sample.bucket: _exemplar(sample, sample.value) for sample in one.samples}
        buckets = Buckets(cumulated=cumulated, total=one.total, exemplars=exemplars)
        builder.histogram(row or _HISTOGRAM, labels, buckets)
    elif one.total is not None:
        name = "overwatch_service_counted" if row is None else prometheus_name(row).removesuffix("_total")
        builder.counter(name, _COUNTED if row is None else row.asks, labels, one.total)


def _policy(builder: FamilyBuilder, labels: Labels, short: str, reading: Reading) -> None:
    row = row_of(short)
    if (part := head_of(short)) is not None:
        of_head = {**labels, "metric": part[0].short, part[0].parts: part[1]}
        builder.gauge(
            "overwatch_policy_head", "What is this policy metric of one head?", of_head, reading.value
        )
        return
    if row is None:
        asks = "What did the trainer report here?"
        builder.gauge("overwatch_policy_custom", asks, {**labels, "name": short}, reading.value)
        return
    builder.row(row, labels, reading.value)
    if reading.status in LEVELS:
        builder.states(
            "overwatch_policy_status",
            "On which side of its limits is this policy metric?",
            {**labels, "metric": row.short},
            "level",
            {reading.status: 1},
            words=LEVELS,
        )


def _lane(builder: FamilyBuilder, labels: Labels, lane: Lane) -> None:
    lane_labels = {**labels, label_name("hw.id"): lane.uuid or lane.gpu_id}
    for row in of_scope(Scope.GPU):
        builder.row(row, lane_labels, _field(lane, row.short))
    builder.gauge(
        "overwatch_gpu_memory_full_seconds",
        "In how many seconds is the memory of this GPU full, if its peaks go on rising?",
        lane_labels,
        lane.oom_s,
    )
    if lane.bound is not None:
        bound, asks = {BoundState(lane.bound.state).label: 1}, "What holds this GPU back?"
        states = (state.label for state in BoundState)
        builder.states("overwatch_gpu_bound", asks, lane_labels, "bound", bound, words=states)


def _field(holder: object, short: str) -> float | None:
    value = getattr(holder, short, None)
    return float(value) if isinstance(value, int | float) else None


def _fleet(builder: FamilyBuilder, labels: Labels, snapshot: Snapshot) -> None:
    run, board = snapshot.run, snapshot.board
    builder.gauge("overwatch_run_update", "At which update is this run?", labels, run.update)
    builder.gauge("overwatch_run_steps_per_second", "How many env steps a second?", labels, run.steps_per_s)
    if board.counts:
        asks = "How many envs are in each state?"
        builder.states("overwatch_run_envs", asks, labels, "status", board.counts, words=ENV_STATES)
    if snapshot.aggregates.seed_census:
        asks, census = "How many slots are in each seed stage?", snapshot.aggregates.seed_census
        stages = (stage.value for stage in Stage)
        builder.states("overwatch_run_slots", asks, labels, "seed_stage", census, words=stages)
    for rank, env in enumerate(_worst(snapshot)[:OUTLIERS], start=1):
        place = {**labels, "rank": str(rank)}
        score = env.anomaly.score
        builder.gauge("overwatch_outlier_anomaly", "How far from normal is the env here?", place, score)
        builder.gauge("overwatch_outlier_env", "Which env is at this rank?", place, env.env_id)


def _findings(builder: FamilyBuilder, labels: Labels, snapshot: Snapshot) -> None:
    """Open findings by severity, and by code those above information that are not acknowledged."""
    asks, counts = "How many findings are open?", snapshot.verdict.counts
    builder.states("overwatch_findings", asks, labels, "severity", counts, words=SEVERITIES)
    codes: dict[str, float] = {}
    for one in snapshot.findings:
        if one.cleared_at is None and not one.acknowledged and one.severity != "info":
            codes[one.code] = codes.get(one.code, 0) + 1
    asks = "How many warnings or criticals of this kind are open and not acknowledged?"
    words = dict.fromkeys((*_CODES, *codes))
    builder.states("overwatch_run_findings", asks, labels, "code", codes, words=words)


def _worst(snapshot: Snapshot) -> list[Env]:
    return sorted(snapshot.envs, key=lambda env: -env.anomaly.score)


def _env(builder: FamilyBuilder, prefix: str, labels: Labels, env: Env) -> None:
    """All values of one env that its row of the board has."""
    for row in of_scope(Scope.ENV):
        value = _field(env, _ENV_FIELDS.get(row.short, row.short))
        if row.kind is not Kind.GAUGE or value is None:
            continue
        if prefix:
            builder.gauge(f"overwatch_{prefix}{row.short}", f"{row.asks} By rank.", labels, value)
        else:
            builder.row(row, labels, value)
