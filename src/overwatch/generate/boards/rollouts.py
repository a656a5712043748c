"""The dashboard of rollouts: whether fresh ones reach the trainer, and from which environments."""

from overwatch.catalog import Metric, prometheus_name
from overwatch.catalog.services import (
    ACCEPTED,
    AGE,
    BATCH_SIZE,
    BATCHES,
    CAPACITY,
    DATA_AGE,
    ENVS,
    ENVS_PAUSED,
    ENVS_SILENT,
    EXPIRED,
    LEASES,
    MAX_STALENESS,
    PAUSES,
    QUEUE_GROUPS,
    QUEUE_SEQUENCES,
    REDELIVERED,
    REFUSED,
    SERVED,
    TICKETS,
    WAIT_TIME,
)
from overwatch.generate.boards import promql, words
from overwatch.generate.boards.of_runs import RUN_ALERTS, RUN_VARIABLES
from overwatch.generate.boards.questions import late, lines, rate
from overwatch.generate.boards.spec import Dashboard, Look, Panel, Query, Step
from overwatch.generate.boards.uids import Board

_RANKS = ("rl_run_id", "rank")
_ENV = ("env",)


def _gauge(row: Metric) -> str:
    return promql.total(promql.of_run(prometheus_name(row)), by=_RANKS)


def _number(row: Metric, title: str, about: str, steps: tuple[Step, ...] = words.CALM) -> Panel:
    return Panel(
        title=title, about=about, look=Look.NUMBER, queries=(Query(expr=f"sum({_gauge(row)})"),),
        decimals=0, steps=steps, width=4, height=4,
    )  # fmt: skip


ROLLOUTS = Dashboard(
    board=Board.ROLLOUTS,
    title="rollouts",
    asks="Do fresh rollouts reach the trainer, and from which environments?",
    variables=RUN_VARIABLES,
    alerts=RUN_ALERTS,
    panels=(
        _number(QUEUE_GROUPS, "Groups that wait", "Groups of answers that no trainer has taken yet."),
        _number(
            ENVS,
            "Environments",
            "Environments that are registered; each sends groups of answers with their rewards.",
        ),
        _number(
            ENVS_SILENT,
            "Silent environments",
            "Environments that have not called for longer than their lease: look at their handlers.",
            words.ANY_IS_A_WARNING,
        ),
        _number(
            ENVS_PAUSED,
            "Paused environments",
            "Environments that wait because the queue is full; all of them for long means a slow trainer.",
        ),
        _number(
            LEASES,
            "Leases",
            "Batches that a trainer has taken and not acknowledged: should it die, they are served again.",
        ),
        _number(
            TICKETS, "Tickets", "Groups that handlers may still send under tickets that have not expired."
        ),
        lines(
            "Sequences that wait",
            "Between what a batch takes and what may wait is where the queue should be: below, the trainer "
            "waits; at the upper line, handlers do.",
            Query(expr=_gauge(QUEUE_SEQUENCES), name="wait {{rl_run_id}} {{rank}}"),
            Query(expr=_gauge(BATCH_SIZE), name="a batch {{rl_run_id}} {{rank}}"),
            Query(expr=_gauge(CAPACITY), name="may wait {{rl_run_id}} {{rank}}"),
        ),
        lines(
            "Age in versions",
            "How many versions of the policy behind sequences are: the oldest that waits must stay at or "
            "below what is allowed.",
            Query(expr=_gauge(DATA_AGE), name="oldest that waits {{rl_run_id}} {{rank}}"),
            Query(expr=_gauge(MAX_STALENESS), name="allowed {{rl_run_id}} {{rank}}"),
            Query(expr=late(AGE, 0.5, ("source",)), name="half of the served, {{source}}"),
        ),
        lines(
            "Sequences accepted a second, by environment",
            "Who sends what: an environment that drops to nothing is dead, paused or refused.",
            Query(expr=rate(ACCEPTED, _ENV), name="{{env}}"),
            stacked=True,
        ),
        lines(
            "Sequences served a second, by environment",
            "The share of each environment in what the trainer learns from; it should follow the weights "
            "that were set.",
            Query(expr=rate(SERVED, _ENV), name="{{env}}"),
            stacked=True,
        ),
        lines(
            "Time that groups wait",
            "From acceptance until a trainer takes them; what waits longer is older when it is learned from.",
            Query(expr=late(WAIT_TIME, 0.5), name="p50"),
            Query(expr=late(WAIT_TIME, 0.99), name="p99"),
            unit="s",
        ),
        lines(
            "Requests for a batch, by how they ended",
            "A trainer that asks and is not served waits for handlers.",
            Query(expr=rate(BATCHES, ("status",)), name="{{status}}"),
        ),
        lines(
            "Sequences refused a second, by reason",
            "What was sent and not taken; a reason that rises for one environment is a fault of that one.",
            Query(expr=rate(REFUSED, ("reason",)), name="{{reason}}"),
            stacked=True,
        ),
        lines(
            "Sequences refused a second, by length",
            "Refusing what is long teaches the policy to be short: the long ones must not stand out here.",
            Query(expr=rate(REFUSED, ("length",)), name="up to {{length}} tokens"),
            stacked=True,
        ),
        lines(
            "Sequences that expired, and served again, a second",
            "Work that was done for nothing, and work of trainers that did not acknowledge it.",
            Query(expr=rate(EXPIRED, _ENV), name="expired {{env}}"),
            Query(expr=rate(REDELIVERED, ("rl_run_id",)), name="served again {{rl_run_id}}"),
        ),
        lines(
            "Pauses a second, by environment",
            "How often each environment was asked to rest; all of them means that the trainer is the slow "
            "part.",
            Query(expr=rate(PAUSES, _ENV), name="{{env}}"),
        ),
    ),
)
"""The dashboard."""
