"""Runs as Prometheus families: the default view's snapshots of a frame, nothing else.

Rules: names come from the catalogue; every series carries `rl_run_id`, and `job` and `instance` where the
run's producers say who they are; the number of series does not depend on the number of envs. Must not know
HTTP or how a snapshot came about.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from overwatch.catalog import KL, ROWS, Kind, Metric, Scope, Stage, find, head_of, label_name, of_scope
from overwatch.catalog.alerts import told_codes
from overwatch.catalog.bounds import BoundState
from overwatch.catalog.phases import DURATION_ENDS_S
from overwatch.catalog.run import GPU_IDLE, PHASE_DURATION
from overwatch.catalog.tallies import is_tally
from overwatch.serve.lifetime import Lifetimes, Part, is_told, part_of
from overwatch.serve.metrics_text import (
    Buckets,
    Family,
    FamilyBuilder,
    FamilyKind,
    States,
    exemplar_text,
    known,
    labels_text,
)
from overwatch.serve.services import write_gauges, write_tallies
from overwatch.snapshot import Env, Lane, PhaseTimes, Reading, Snapshot, View

if TYPE_CHECKING:
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

_RUN_STATES: Final = known("state", RUN_STATES)
_LEVELS: Final = known("level", LEVELS)
_ENV_STATES: Final = known("status", ("ok", "stalled", "degraded", "diverging", "crashed", "unknown"))
_SEVERITIES: Final = known("severity", ("info", "warning", "critical"))
_STAGES: Final = known("seed_stage", (stage.value for stage in Stage))
_CODES: Final = known("code", told_codes())
_BOUNDS: Final = known("bound", (state.label for state in BoundState))
_COUNTER_ROWS: Final = {row.short: row for row in ROWS if row.kind is Kind.COUNTER and not is_tally(row)}
_ENDS: Final = (*map(str, DURATION_ENDS_S), "+Inf")
_ENV_FIELDS: Final = {"return": "episode_return", "step_time": "step_time_s"}
"""Fields of a snapshot's env that are not called as their row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageLimits:
    """What is on the page."""

    most_series: int = MOST_SERIES
    """Series on the page; what has no room is counted on it."""
    lifetimes: Lifetimes = field(default_factory=Lifetimes)
    """How long what runs told stays."""
    per_env: int = 0
    """Runs of at most so many envs have series of each env, by its id; those of more have the values of as
    many of their worst, by rank, since ids that come and go would be new series for ever."""

    def __post_init__(self) -> None:
        if self.most_series < 1:
            raise ValueError(f"most_series {self.most_series} is not positive")
        if not 0 <= self.per_env <= MOST_ENVS:
            raise ValueError(f"per_env {self.per_env} is not within 0 and {MOST_ENVS}")


class RunPage:
    """The page of all runs, frame after frame; remembers what only may grow."""

    def __init__(self, limits: PageLimits | None = None) -> None:
        self._limits = limits or PageLimits()
        self._dropped = 0
        self._breaches: dict[tuple[str, str, str], int] = {}
        """By run, metric and level: what was said already, since a breach may be forgiven later."""

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
        found = list(builder.families())
        yield from found
        yield from self._about(builder.dropped, sum(family.n for family in found))

    def _about(self, dropped: int, series: int) -> Iterator[Family]:
        """What the page says of itself."""
        yield _single("overwatch_prometheus_series", "How many series of runs are on this page?", series)
        asks = "How many series of runs may be on this page?"
        yield _single("overwatch_prometheus_series_limit", asks, self._limits.most_series)
        asks = "How many series have no room on this page?"
        yield _single("overwatch_prometheus_series_dropped", asks, dropped)
        counter = Family(
            "overwatch_prometheus_dropped_series",
            FamilyKind.COUNTER,
            "How many series had no room, over all pages so far?",
        )
        counter.put("", self._dropped)
        yield counter

    def _run(self, builder: FamilyBuilder, run_id: str, snapshot: Snapshot) -> None:
        part = part_of(snapshot, self._limits.lifetimes)
        if part is Part.NONE:
            return
        labels = _labels(run_id, snapshot)
        _identity(builder, labels, snapshot)
        _liveness(builder, labels, snapshot)
        if part is Part.STATE:
            return
        _counters(builder, labels, snapshot)
        _phases(builder, labels, snapshot)
        write_tallies(builder, labels, snapshot.tallies)
        for short, reading in snapshot.policy.items():
            self._breached(builder, labels, (run_id, short), reading)
        _findings(builder, labels, snapshot)
        if part is Part.END:
            return
        for short, reading in snapshot.policy.items():
            _policy(builder, labels, short, reading)
        write_gauges(builder, labels, snapshot.services)
        self._machines(builder, labels, snapshot)
        _fleet(builder, labels, snapshot)
        self._envs(builder, labels, snapshot)

    def _breached(
        self, builder: FamilyBuilder, labels: str, where: tuple[str, str], reading: Reading
    ) -> None:
        """How many updates were beyond a limit; of KL from the first scrape on."""
        short = where[1]
        row = find(short, Scope.POLICY)
        if row is None or (reading.status == "absent" and row is not KL):
            return
        for level, count in (("warning", reading.warnings), ("critical", reading.criticals)):
            if count or row is KL:
                said = self._breaches[*where, level] = max(count, self._breaches.get((*where, level), 0))
                builder.counter(
                    "overwatch_policy_updates_beyond_limit",
                    "How many updates were beyond this limit of a policy metric, and no further?",
                    f'{labels},metric="{short}",{_LEVELS[level]}',
                    said,
                )

    def _machines(self, builder: FamilyBuilder, labels: str, snapshot: Snapshot) -> None:
        for lane in snapshot.system.gpus:
            if is_told(lane.age_s, self._limits.lifetimes):
                _lane(builder, labels, lane)
        host = snapshot.system.host
        if host is not None and is_told(host.age_s, self._limits.lifetimes):
            for row in of_scope(Scope.HOST):
                builder.row(row, labels, _field(host, row.short))

    def _envs(self, builder: FamilyBuilder, labels: str, snapshot: Snapshot) -> None:
        """Values of single envs, where they were asked for."""
        most, n = self._limits.per_env, sum(snapshot.board.counts.values())
        if not most:
            return
        if n <= most:
            for env in snapshot.envs:
                _env(builder, "", f'{labels},{ENV_LABEL}="{env.env_id}"', env)
            return
        for rank, env in enumerate(_worst(snapshot)[:most], start=1):
            _env(builder, "outlier_", f'{labels},rank="{rank}"', env)


def _single(name: str, asks: str, value: float) -> Family:
    family = Family(name, FamilyKind.GAUGE, asks)
    family.put("", value)
    return family


def _age_s(snapshot: Snapshot) -> float:
    age = snapshot.link.data_age_s
    return math.inf if age is None else age


def _labels(run_id: str, snapshot: Snapshot) -> str:
    run = snapshot.run
    who = {"job": run.service, "instance": run.instance} if run.service else {}
    return labels_text({RUN_LABEL: run_id, **{name: word for name, word in who.items() if word}})


def _identity(builder: FamilyBuilder, labels: str, snapshot: Snapshot) -> None:
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
    words = labels_text({name: word or "" for name, word in about.items()})
    builder.gauge("overwatch_run_info", "What is this run?", f"{labels},{words}", 1)
    if run.service:
        resource = {"host_name": run.node or "", "service_name": run.service.rpartition("/")[2]}
        builder.info("target", "Who produces this run?", f"{labels},{labels_text(resource)}")
    builder.gauge(
        "overwatch_run_start_timestamp_seconds", "When did this run start, in Unix time?", labels, run.started
    )


def _liveness(builder: FamilyBuilder, labels: str, snapshot: Snapshot) -> None:
    link, run = snapshot.link, snapshot.run
    state = run.outcome or "ended" if link.state == "ended" else link.state
    states = _RUN_STATES if state in _RUN_STATES else {**_RUN_STATES, **known("state", [state])}
    builder.states("overwatch_run_status", "In which state is this run?", labels, States(states, {state: 1}))
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


def _counters(builder: FamilyBuilder, labels: str, snapshot: Snapshot) -> None:
    for bound, seconds in snapshot.system.idle_gpu_s.items():
        builder.row(GPU_IDLE, f"{labels},{labels_text({'bound': bound})}", seconds)
    for short, value in snapshot.counters.items():
        if short in _COUNTER_ROWS and short != GPU_IDLE.short:
            builder.row(_COUNTER_ROWS[short], labels, value)


def _phases(builder: FamilyBuilder, labels: str, snapshot: Snapshot) -> None:
    for told in snapshot.phases:
        builder.histogram(PHASE_DURATION, f"{labels},{labels_text({'phase': told.name})}", _buckets(told))


def _buckets(told: PhaseTimes) -> Buckets:
    exemplars = {}
    for one in told.exemplars:
        span = {"trace_id": one.trace_id, "span_id": one.span_id}
        text = exemplar_text(span, one.duration_s, one.at)
        if text is not None:
            exemplars[one.bucket] = text
    cumulated = dict(zip(_ENDS, accumulate(told.counts), strict=True))
    return Buckets(cumulated=cumulated, total=told.total_s, exemplars=exemplars)


def _policy(builder: FamilyBuilder, labels: str, short: str, reading: Reading) -> None:
    row = find(short, Scope.POLICY)
    if (part := head_of(short)) is not None:
        of_head = f"{labels},{labels_text({'metric': part[0].short, part[0].parts: part[1]})}"
        builder.gauge(
            "overwatch_policy_head", "What is this policy metric of one head?", of_head, reading.value
        )
        return
    if row is None:
        asks = "What did the trainer report here?"
        custom = f"{labels},{labels_text({'name': short})}"
        builder.gauge("overwatch_policy_custom", asks, custom, reading.value)
        return
    builder.row(row, labels, reading.value)
    if reading.status in _LEVELS:
        builder.states(
            "overwatch_policy_status",
            "On which side of its limits is this policy metric?",
            f'{labels},metric="{row.short}"',
            States(_LEVELS, {reading.status: 1}),
        )


def _lane(builder: FamilyBuilder, labels: str, lane: Lane) -> None:
    lane_labels = f"{labels},{labels_text({label_name('hw.id'): lane.uuid or lane.gpu_id})}"
    for row in of_scope(Scope.GPU):
        builder.row(row, lane_labels, _field(lane, row.short))
    builder.gauge(
        "overwatch_gpu_memory_full_seconds",
        "In how many seconds is the memory of this GPU full, if its peaks go on rising?",
        lane_labels,
        lane.oom_s,
    )
    if lane.bound is not None:
        bound = States(_BOUNDS, {BoundState(lane.bound.state).label: 1})
        builder.states("overwatch_gpu_bound", "What holds this GPU back?", lane_labels, bound)


def _field(holder: object, short: str) -> float | None:
    value = getattr(holder, short, None)
    return float(value) if isinstance(value, int | float) else None


def _fleet(builder: FamilyBuilder, labels: str, snapshot: Snapshot) -> None:
    run, board = snapshot.run, snapshot.board
    builder.gauge("overwatch_run_update", "At which update is this run?", labels, run.update)
    builder.gauge("overwatch_run_steps_per_second", "How many env steps a second?", labels, run.steps_per_s)
    if board.counts:
        states = States(_ENV_STATES, board.counts)
        builder.states("overwatch_run_envs", "How many envs are in each state?", labels, states)
    if snapshot.aggregates.seed_census:
        census = States(_STAGES, snapshot.aggregates.seed_census)
        builder.states("overwatch_run_slots", "How many slots are in each seed stage?", labels, census)
    for rank, env in enumerate(_worst(snapshot)[:OUTLIERS], start=1):
        place = f'{labels},rank="{rank}"'
        score = env.anomaly.score
        builder.gauge("overwatch_outlier_anomaly", "How far from normal is the env here?", place, score)
        builder.gauge("overwatch_outlier_env", "Which env is at this rank?", place, env.env_id)


def _findings(builder: FamilyBuilder, labels: str, snapshot: Snapshot) -> None:
    """Open findings by severity, and by code those above information that are not acknowledged."""
    counts = States(_SEVERITIES, snapshot.verdict.counts)
    builder.states("overwatch_findings", "How many findings are open?", labels, counts)
    codes: dict[str, float] = {}
    for one in snapshot.findings:
        if one.cleared_at is None and not one.acknowledged and one.severity != "info":
            codes[one.code] = codes.get(one.code, 0) + 1
    words = _CODES if codes.keys() <= _CODES.keys() else _CODES | known("code", codes)
    asks = "How many warnings or criticals of this kind are open and not acknowledged?"
    builder.states("overwatch_run_findings", asks, labels, States(words, codes))


def _worst(snapshot: Snapshot) -> list[Env]:
    return sorted(snapshot.envs, key=lambda env: -env.anomaly.score)


def _env(builder: FamilyBuilder, prefix: str, labels: str, env: Env) -> None:
    """All values of one env that its row of the board has."""
    for row in of_scope(Scope.ENV):
        value = _field(env, _ENV_FIELDS.get(row.short, row.short))
        if row.kind is Kind.GAUGE and value is not None:
            _env_row(builder, prefix, labels, row, value)


def _env_row(builder: FamilyBuilder, prefix: str, labels: str, row: Metric, value: float) -> None:
    if prefix:
        builder.gauge(f"overwatch_{prefix}{row.short}", f"{row.asks} By rank.", labels, value)
    else:
        builder.row(row, labels, value)


def families(frame: "Frame | None", limits: PageLimits | None = None) -> Iterator[Family]:
    """The families of one frame alone."""
    yield from RunPage(limits).families(frame)
