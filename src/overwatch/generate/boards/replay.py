"""The dashboard of replay servers: what they hold, what goes in and out, how long it takes."""

from overwatch.catalog.learner import APPENDS
from overwatch.catalog.replay import (
    BYTES,
    INSERTED,
    ITEMS,
    LATE,
    LEASES,
    REDELIVERED,
    REFUSED,
    REMOVED,
    REQUEST_DURATION,
    REQUESTS,
    SAMPLED,
    SPILLED,
    STEPS,
)
from overwatch.generate.boards.of_runs import RUN_ALERTS, RUN_VARIABLES
from overwatch.generate.boards.questions import PROCESS, PROCESS_LEGEND, each, late, lines, rate, total
from overwatch.generate.boards.spec import Dashboard, Query
from overwatch.generate.boards.uids import Board

REPLAY = Dashboard(
    board=Board.REPLAY,
    title="replay",
    asks="What does replay hold, and does it answer in time?",
    variables=RUN_VARIABLES,
    alerts=RUN_ALERTS,
    panels=(
        lines(
            "What replay holds",
            "Items, steps and open leases over all tables of a server.",
            *each(
                total,
                PROCESS,
                (ITEMS, f"items {PROCESS_LEGEND}"),
                (STEPS, f"steps {PROCESS_LEGEND}"),
                (LEASES, f"leases {PROCESS_LEGEND}"),
            ),
        ),
        lines(
            "Memory of replay",
            "What lies in memory, and what was moved to disk because memory had no room.",
            *each(total, PROCESS, (BYTES, f"memory {PROCESS_LEGEND}"), (SPILLED, f"disk {PROCESS_LEGEND}")),
            unit="bytes",
        ),
        lines(
            "Items in and out a second, by table",
            "What is inserted, what is sampled or leased, and what leaves.",
            *each(
                rate,
                ("table",),
                (INSERTED, "in {{table}}"),
                (SAMPLED, "sampled {{table}}"),
                (REMOVED, "removed {{table}}"),
            ),
        ),
        lines(
            "Refused, late and leased again a second",
            "Refused for a reason; late for what is no more; leased again because nobody acknowledged.",
            *each(rate, ("reason",), (REFUSED, "refused {{reason}}")),
            *each(rate, ("kind",), (LATE, "late {{kind}}")),
            *each(rate, ("table",), (REDELIVERED, "again {{table}}")),
        ),
        lines(
            "Requests to replay a second, by how they ended",
            "More than one failure in twenty is an alert.",
            *each(rate, ("method", "status"), (REQUESTS, "{{method}} {{status}}")),
            *each(rate, ("status",), (APPENDS, "appends {{status}}")),
        ),
        lines(
            "Time of a request to replay",
            "By its method; appends that wait for room are long by right.",
            Query(expr=late(REQUEST_DURATION, 0.99, ("method",)), name="p99 {{method}}"),
            unit="s",
        ),
    ),
)
"""The dashboard."""
