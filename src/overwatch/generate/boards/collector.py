"""The dashboard of collectors: whether what the other dashboards show can be trusted."""

from overwatch.catalog.alerts import DISK_SLOW_S, QUEUE_FULL
from overwatch.generate.boards import promql, words
from overwatch.generate.boards.spec import Dashboard, Look, Panel, Query, Step, Variable, Word
from overwatch.generate.boards.uids import Board

_MINE = "overwatch_components_degraded"
"""A series that only a collector of ours has."""
_BY = ("job", "instance")
_SIGNALS = ("log_records", "metric_points", "spans")
_UP = (
    f"{promql.of_collector('up')} and on (job, instance) "
    f"last_over_time({promql.of_collector(_MINE)}[$__range])"
)
_FILLED = (
    f"{promql.worst(promql.of_collector('otelcol_exporter_queue_size'), by=(*_BY, 'exporter'))} / "
    f"{promql.worst(promql.of_collector('otelcol_exporter_queue_capacity'), by=(*_BY, 'exporter'))}"
)
_QUEUE_STEPS = (
    Step(at=None, colour=words.GREEN),
    Step(at=QUEUE_FULL / 2, colour=words.YELLOW),
    Step(at=QUEUE_FULL, colour=words.RED),
)


def _rates(names: str, by: tuple[str, ...] = ()) -> str:
    """How fast counters of all three signals grow together; `names` has a place for the signal."""
    parts = [promql.total(promql.rate(promql.of_collector(names.format(one))), by=by) for one in _SIGNALS]
    return " + ".join(parts) if by else " + ".join(part.replace(" by ()", "") for part in parts)


def _number(title: str, about: str, expr: str, unit: str, steps: tuple[Step, ...]) -> Panel:
    return Panel(
        title=title,
        about=about,
        look=Look.NUMBER,
        queries=(Query(expr=expr, name=title),),
        unit=unit,
        steps=steps,
        width=4,
        height=4,
    )


def _lines(title: str, about: str, queries: tuple[Query, ...], unit: str) -> Panel:
    return Panel(title=title, about=about, look=Look.LINES, queries=queries, unit=unit, width=8, height=7)


_DROPS = (
    Query(expr=_rates("otelcol_exporter_send_failed_{}_total"), name="not exported"),
    Query(
        expr=f"sum({promql.rate(promql.of_collector('overwatch_exporter_lost_lines_total'))})",
        name="lines not written",
    ),
    Query(
        expr=f"sum({promql.rate(promql.of_collector('overwatch_tower_overflowed_total'))})",
        name="names beyond a cap",
    ),
    Query(
        expr=f"sum({promql.rate(promql.of_collector('overwatch_tower_problems_total'))})", name="malformed"
    ),
    Query(
        expr=f"sum({promql.rate(promql.of_collector('overwatch_tower_unjudged_total'))})",
        name="runs not judged",
    ),
)

COLLECTOR = Dashboard(
    board=Board.COLLECTOR,
    title="collector",
    asks="Can what the other dashboards show be trusted?",
    variables=(
        Variable(name="job", label="Job", query=f"label_values({_MINE}, job)"),
        Variable(name="instance", label="Collector", query=f'label_values({_MINE}{{job=~"$job"}}, instance)'),
    ),
    alerts='ALERTS{alertname=~"OverwatchCollector.+",alertstate="firing"}',
    panels=(
        Panel(
            title="Worst collector",
            about="DOWN means that the newest scrape failed and all runs of that collector look frozen; "
            "start it again, its trainers keep what they could not deliver.",
            look=Look.NUMBER,
            queries=(Query(expr=f"min({_UP})", name="up"),),
            unit="none",
            words={0: Word(text="DOWN", colour=words.RED), 1: Word(text="UP", colour=words.GREEN)},
            width=4,
            height=4,
        ),
        _number(
            "Refused a second",
            "Requests that were sent away because memory or a queue is full: nothing is lost yet, "
            "senders try again.",
            _rates("otelcol_receiver_refused_{}_total"),
            "cps",
            (Step(at=None, colour=words.GREEN), Step(at=0.001, colour=words.RED)),
        ),
        _number(
            "Fullest queue",
            f"How full the fullest queue to an exporter is; from {QUEUE_FULL:.0%} on find out which exporter "
            "is slow before senders are refused.",
            f"max({_FILLED})",
            "percentunit",
            _QUEUE_STEPS,
        ),
        _number(
            "Age of the shown moment",
            "How far behind the clock what is shown lies: seconds are usual, minutes mean that the fold "
            "cannot keep up or that a backlog is worked off.",
            f"time() - min({promql.of_collector('overwatch_tower_frame_timestamp_seconds')})",
            "s",
            words.CALM,
        ),
        _number(
            "Parts in trouble",
            "How many parts of the collectors cannot do their work right now; the log and the health "
            "page name them.",
            f"sum({promql.of_collector(_MINE)})",
            "none",
            words.ANY_IS_BAD,
        ),
        _number(
            "Series left out of /metrics",
            "Series of runs that had no room on the page that Prometheus reads; raise `max_series` or find "
            "what makes so many.",
            "sum(overwatch_prometheus_series_dropped)",
            "none",
            words.ANY_IS_A_WARNING,
        ),
        Panel(
            title="Which collectors answer",
            about="Each collector over time; a gap is a restart, and what came meanwhile arrives late, "
            "not never.",
            look=Look.STATES,
            queries=(Query(expr=_UP, name="{{instance}}"),),
            unit="none",
            words={0: Word(text="DOWN", colour=words.RED), 1: Word(text="UP", colour=words.GREEN)},
            width=24,
            height=4,
        ),
        _lines(
            "Taken and refused, a second",
            "Records, points and spans at the doors: the refused line should lie at zero.",
            (
                Query(expr=_rates("otelcol_receiver_accepted_{}_total"), name="taken"),
                Query(expr=_rates("otelcol_receiver_refused_{}_total"), name="refused"),
            ),
            "cps",
        ),
        Panel(
            title="Queues, filled",
            about="How full each exporter's queue is: one that climbs belongs to a reader that is slow "
            "or away.",
            look=Look.LINES,
            queries=(Query(expr=_FILLED, name="{{exporter}} {{instance}}"),),
            unit="percentunit",
            steps=_QUEUE_STEPS,
            top=1,
            width=8,
            height=7,
        ),
        _lines(
            "Lost or left out, a second",
            "What did not get to where it should, by why; anything above zero is a gap in the other "
            "dashboards.",
            _DROPS,
            "cps",
        ),
        _lines(
            "Memory",
            "What each collector holds: a line that never stops rising is a leak, steps are new runs.",
            (
                Query(
                    expr=promql.worst(promql.of_collector("otelcol_process_memory_rss_bytes"), by=_BY),
                    name="{{instance}}",
                ),
            ),
            "bytes",
        ),
        _lines(
            "Processor time",
            "How many cores each collector uses: near one for long it is about to fall behind; give it "
            "fewer runs.",
            (
                Query(
                    expr=promql.total(
                        promql.rate(promql.of_collector("otelcol_process_cpu_seconds_total")), by=_BY
                    ),
                    name="{{instance}}",
                ),
            ),
            "none",
        ),
        _lines(
            "Time of a write to the journal's disk",
            "How long the journal's disk takes to write and sync what waited, before it is acknowledged and "
            f"shown; from {DISK_SLOW_S:g} s on look who else uses that disk.",
            (
                Query(
                    expr=promql.worst(
                        promql.rate(promql.of_collector("overwatch_journal_commit_seconds_total"))
                        + " / "
                        + promql.rate(promql.of_collector("overwatch_journal_commits_total")),
                        by=_BY,
                    ),
                    name="{{instance}}",
                ),
            ),
            "s",
        ),
        _lines(
            "Journal not yet read",
            "Bytes on disk that some exporter has not passed yet; it shrinks by itself once that "
            "exporter works again.",
            (
                Query(
                    expr=promql.worst(promql.of_collector("overwatch_journal_held_bytes"), by=_BY),
                    name="{{instance}}",
                ),
            ),
            "bytes",
        ),
    ),
)
"""The dashboard."""
