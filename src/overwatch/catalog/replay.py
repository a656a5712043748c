"""Rows about a replay server and an orchestrator: what they hold, what they served, how long it took.

Gauges of replay are over all tables of a process; what is counted has the table's name.
"""

from functools import partial
from typing import Final

from overwatch.catalog.metric import Direction, Kind, Metric, NonFinite, Scope
from overwatch.catalog.services import SECONDS

_replay = partial(Metric, scope=Scope.REPLAY, fmt=",.0f", non_finite=NonFinite.UNDEFINED)
_held = partial(_replay, kind=Kind.GAUGE)
_counted = partial(_replay, kind=Kind.COUNTER, labels=("table",))
_control = partial(Metric, scope=Scope.ORCHESTRATOR, fmt=",.0f", non_finite=NonFinite.UNDEFINED)

ITEMS: Final = _held(
    name="replay.items",
    unit="{item}",
    asks="How many items does replay hold?",
)
STEPS: Final = _held(
    name="replay.steps",
    unit="{step}",
    asks="How many environment steps does replay hold?",
)
BYTES: Final = _held(
    name="replay.memory",
    short="bytes",
    unit="By",
    asks="How much memory do the items of replay take?",
)
LEASES: Final = _held(
    name="replay.leases",
    unit="{lease}",
    asks="How many leases have learners taken and not acknowledged?",
)
INSERTED: Final = _counted(
    name="replay.inserted",
    unit="{item}",
    asks="How many items were inserted, by table?",
)
SAMPLED: Final = _counted(
    name="replay.sampled",
    unit="{item}",
    asks="How many items were sampled or leased, by table?",
)
REFUSED: Final = _counted(
    name="replay.refused",
    unit="{item}",
    asks="How many items were refused, by table and reason?",
    labels=("table", "reason"),
)
REMOVED: Final = _counted(
    name="replay.removed",
    unit="{item}",
    asks="How many items left replay, by table and reason?",
    labels=("table", "reason"),
)
REDELIVERED: Final = _counted(
    name="replay.redelivered",
    unit="{item}",
    asks="How many items were leased again because no acknowledgement came, by table?",
    label="redeliv",
)
LATE: Final = _replay(
    name="replay.late",
    kind=Kind.COUNTER,
    unit="{message}",
    asks="How many priorities and acknowledgements came for items that are no more, by kind?",
    labels=("kind",),
)
REQUESTS: Final = _replay(
    name="replay.requests",
    kind=Kind.COUNTER,
    unit="{request}",
    asks="How many requests did replay answer, by method and status?",
    labels=("method", "status"),
    max_series=256,
    feeds=("finding:replay-failing",),
)
REQUEST_DURATION: Final = _replay(
    name="replay.request_duration",
    kind=Kind.HISTOGRAM,
    unit="s",
    asks="How long did replay take to answer a request, by method?",
    label="req time",
    direction=Direction.DOWN,
    labels=("method",),
    buckets=SECONDS,
    fmt=".3f",
)

HEARTBEAT_LATENCY: Final = _control(
    name="orchestrator.heartbeat_latency",
    kind=Kind.HISTOGRAM,
    unit="s",
    asks="How long did the orchestrator take to accept a heartbeat?",
    label="beat lat",
    direction=Direction.DOWN,
    buckets=SECONDS,
    fmt=".3f",
)
HEARTBEAT_AGE: Final = _control(
    name="orchestrator.heartbeat_age",
    kind=Kind.GAUGE,
    unit="s",
    asks="How long ago did the newest heartbeat of the run come?",
    label="beat age",
    direction=Direction.DOWN,
    fmt=".1f",
    feeds=("finding:heartbeats-late",),
)
HTTP_DURATION: Final = _control(
    name="orchestrator.http_request_duration",
    kind=Kind.HISTOGRAM,
    unit="s",
    asks="How long did the orchestrator take to answer a request, by method, route and status?",
    label="http",
    direction=Direction.DOWN,
    labels=("method", "route", "status"),
    buckets=SECONDS,
    max_series=128,
    fmt=".3f",
)
TRANSITIONS: Final = _control(
    name="orchestrator.run_state_transitions",
    kind=Kind.COUNTER,
    unit="{transition}",
    asks="How many times did a run change its state, by the state before and after?",
    label="states",
    labels=("from", "to"),
)
HEALTH_EVENTS: Final = _control(
    name="orchestrator.health_events",
    kind=Kind.COUNTER,
    unit="{event}",
    asks="How many times did a run become healthy, stale or unresponsive, by which?",
    label="health",
    labels=("type",),
)
COMMANDS: Final = _control(
    name="orchestrator.commands",
    kind=Kind.COUNTER,
    unit="{command}",
    asks="How many commands did the orchestrator take, by kind and how they ended?",
    labels=("kind", "status"),
)

ROWS: Final = (
    ITEMS,
    STEPS,
    BYTES,
    LEASES,
    INSERTED,
    SAMPLED,
    REFUSED,
    REMOVED,
    REDELIVERED,
    LATE,
    REQUESTS,
    REQUEST_DURATION,
    HEARTBEAT_LATENCY,
    HEARTBEAT_AGE,
    HTTP_DURATION,
    TRANSITIONS,
    HEALTH_EVENTS,
    COMMANDS,
)
