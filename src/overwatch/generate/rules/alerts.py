"""Alerts that are the same for runs of any length: of the collector, of runs, of findings.

Rules: `instance` is aggregated away, so that a new attempt does not flap; a value that comes once an update
is never compared here but where it is judged, at every update, by the limits of its run; a counter is
compared with itself earlier, so that one born above 0 is seen.
"""

from collections.abc import Iterator
from functools import partial
from typing import Final

from overwatch.catalog.alerts import (
    CERTIFICATE_S,
    DISK_SLOW_S,
    DISK_STALLED_S,
    FINDINGS,
    FRAMES_LATE_S,
    QUEUE_FULL,
    SILENT_HOLD_S,
    STORAGE_FULL,
    Area,
    FindingAlert,
    alerted_rows,
    row_alert,
)
from overwatch.catalog.describe import limits_text
from overwatch.generate.rules.alert import Alert
from overwatch.generate.rules.series import BY_RUN, finding, in_state, of_job, own, reported, risen
from overwatch.generate.rules.windows import Plan, span

LOOK_BACK_S: Final = 600
"""For how long after it rose a counter is reported."""
_SIGNALS: Final = ("log_records", "metric_points", "spans")
_JOB: Final = ("job",)
_alert = partial(Alert, area=Area.COLLECTOR, by=_JOB)
_EXPORTER: Final = ("job", "exporter")
_LISTENER: Final = ("job", "listener")


def steady_alerts(plan: Plan) -> tuple[Alert, ...]:
    """All of them."""
    rows = [(row_alert(row), row) for row in alerted_rows()]
    return (
        _down(plan),
        _refusing(plan),
        _late(plan),
        *_exporting(plan),
        _storage(plan),
        _slow_disk(plan),
        _certificate(plan),
        *_lost(plan),
        *_states(plan),
        *_counters(plan),
        *(_of_finding(alert, plan) for alert in FINDINGS),
        *(
            _of_finding(alert, plan, f"Limits of preset ppo: {limits_text(row.limits)}.")
            for alert, row in rows
        ),
        _of_other_rows([alert.code for alert, _ in rows], plan),
    )


def _down(plan: Plan) -> Alert:
    jobs = f"{plan.runs_job}|{plan.collector_job}"
    refused = risen(_SIGNALS, "otelcol_receiver_refused", LOOK_BACK_S // 2)
    accepted = risen(_SIGNALS, "otelcol_receiver_accepted", LOOK_BACK_S // 2)
    return _alert(
        code="collector-down",
        severity="critical",
        expr=(
            f'1 - min by (job) (up{{job=~"{jobs}"}}) > 0\nor\nabsent(up{{job="{plan.collector_job}"}})\nor\n'
            f"(({refused}) > 0 unless ({accepted}) > 0)"
        ),
        hold_s=plan.hold(60),
        summary="The collector is down or takes nothing.",
        by=_JOB,
        bad=(of_job("up", "0", plan.collector_job),),
        good=(of_job("up", "1", plan.collector_job),),
        fires_without_data=True,
    )


def _refusing(plan: Plan) -> Alert:
    refused, accepted = "otelcol_receiver_refused", "otelcol_receiver_accepted"
    return _alert(
        code="collector-refusing",
        expr=f"({risen(_SIGNALS, refused, LOOK_BACK_S // 2)}) > 0",
        hold_s=plan.hold(120),
        summary="The collector turns away some of what it is sent.",
        bad=(*own(refused, "0+5x400", "refusing"), *own(accepted, "0+5x400", "refusing")),
        good=own(refused, "0", "refusing"),
        lead=1,
    )


def _late(plan: Plan) -> Alert:
    shown = "overwatch_tower_frame_timestamp_seconds"
    return _alert(
        code="frames-late",
        expr=f"time() - min by (job) ({shown}) > {FRAMES_LATE_S}",
        hold_s=plan.hold(120),
        summary="The collector shows its runs late.",
        bad=(of_job(shown, "-1000", "late"),),
        good=(of_job(shown, "1000000000", "late"),),
    )


def _exporting(plan: Plan) -> Iterator[Alert]:
    size, room = "otelcol_exporter_queue_size", "otelcol_exporter_queue_capacity"
    full = of_job(room, "100", "full", exporter="otlp")
    yield _alert(
        code="exporter-queue-full",
        expr=f"max by (job, exporter) ({size}) / max by (job, exporter) ({room}) > {QUEUE_FULL:g}",
        hold_s=plan.hold(60),
        summary="An exporter of the collector cannot keep up.",
        by=_EXPORTER,
        bad=(of_job(size, "90", "full", exporter="otlp"), full),
        good=(of_job(size, "10", "full", exporter="otlp"), full),
    )


def _storage(plan: Plan) -> Alert:
    """Recordings and snapshots fill their shares as they should; what counts is room, and the journal's."""
    room, most = "overwatch_storage_room_bytes", "overwatch_storage_max_bytes"
    have, share = (f'overwatch_storage_{name}_bytes{{part="journal"}}' for name in ("part", "share"))
    return _alert(
        code="storage-filling",
        expr=(
            f"min by (job) ({room} / {most}) < {STORAGE_FULL:g}\nor\n"
            f"max by (job) ({have} / {share}) > {STORAGE_FULL:g}"
        ),
        hold_s=plan.hold(60),
        summary="The collector's disk is nearly full.",
        by=_JOB,
        bad=(of_job(room, "10", "filling"), of_job(most, "100", "filling")),
        good=(of_job(room, "100", "filling"), of_job(most, "100", "filling")),
    )


def _slow_disk(plan: Plan) -> Alert:
    """By the mean of what has ended, and by what has not."""
    took, commits = "overwatch_journal_commit_seconds_total", "overwatch_journal_commits_total"
    waiting, within = "overwatch_journal_waiting_seconds", span(plan.at_least(LOOK_BACK_S // 2))
    return _alert(
        code="journal-slow",
        expr=(
            f"max by (job) (rate({took}[{within}]) / rate({commits}[{within}])) > {DISK_SLOW_S:g}\nor\n"
            f"max by (job) ({waiting}) > {DISK_STALLED_S:g}"
        ),
        hold_s=plan.hold(60),
        summary="The disk of the collector's journal is slow.",
        by=_JOB,
        bad=(of_job(took, "0+30x400", "slow"), of_job(commits, "0+10x400", "slow")),
        good=(of_job(took, "0+1x400", "slow"), of_job(commits, "0+10x400", "slow"),
              of_job(waiting, "0", "slow")),
        lead=1,
    )  # fmt: skip


def _certificate(plan: Plan) -> Alert:
    end = "overwatch_certificate_end_timestamp_seconds"
    return _alert(
        code="certificate-ending",
        expr=f"min by (job) ({end}) - time() < {CERTIFICATE_S}",
        hold_s=plan.hold(60),
        summary="A certificate of the collector ends within two weeks.",
        bad=(of_job(end, "1000000", "ending"),),
        good=(of_job(end, "1000000000", "ending"),),
    )


def _lost(plan: Plan) -> Iterator[Alert]:
    for code, name, by, hold_s, summary, more in (
        (
            "connections-refused",
            "overwatch_listener_turned_away_connections_total",
            _LISTENER,
            60,
            "A listener of the collector has as many connections as it may have, and refuses more.",
            {"listener": "x"},
        ),
        (
            "series-dropped",
            "overwatch_prometheus_dropped_series_total",
            _JOB,
            120,
            "The page of runs has no room for all series.",
            {},
        ),
        (
            "run-unjudged",
            "overwatch_tower_unjudged_total",
            _JOB,
            15,
            "A run cannot be judged or shown: a fault of Overwatch.",
            {},
        ),
        (
            "runs-refused",
            "overwatch_tower_refused_runs_total",
            _JOB,
            15,
            "The collector has as many runs as it may have, and refuses new ones.",
            {},
        ),
    ):
        yield _alert(
            code=code,
            expr=f"sum by ({', '.join(by)}) (increase({name}[{span(LOOK_BACK_S)}])) > 0",
            hold_s=plan.hold(hold_s),
            summary=summary,
            by=by,
            bad=(of_job(name, "0+5x400", "losing", **more),),
            good=(of_job(name, "0", "losing", **more),),
            lead=1,
        )


def _states(plan: Plan) -> Iterator[Alert]:
    for code, state, severity, hold_s, summary in (
        ("telemetry-stale", "stale", "warning", 15, "A run has fallen silent."),
        ("run-silent", "silent", "warning", SILENT_HOLD_S, "A run without an end record is silent for long."),
        ("run-lost", "lost", "critical", 15, "A run is lost: killed, or silent without an end record."),
        ("run-failed", "failed", "warning", 15, "A run ended with an error."),
    ):
        yield Alert(
            code=code,
            area=Area.RUN,
            severity=severity,
            expr=f'max {BY_RUN} (overwatch_run_status{{state="{state}"}}) == 1',
            hold_s=plan.hold(hold_s),
            summary=summary,
            bad=(in_state(state),),
            good=(in_state(state, "0"),),
        )


def _counters(plan: Plan) -> Iterator[Alert]:
    nan, dropped = "overwatch_run_non_finite_total", "overwatch_sdk_dropped_total"
    now, before = f"max {BY_RUN} ({nan})", f"max {BY_RUN} ({nan} offset {span(plan.at_least(LOOK_BACK_S))})"
    yield Alert(
        code="non-finite",
        area=Area.POLICY,
        severity="critical",
        # A value may be found to be none without a count of it: the finding stands beside the counter.
        expr=(
            f"{now} > ({before} or 0 * {now})\nor\n"
            f'max {BY_RUN} (overwatch_run_findings{{code="non-finite"}}) > 0'
        ),
        hold_s=plan.hold(15),
        summary="A value of a run that must be finite is not.",
        bad=(reported(nan, "1"),),
        good=(reported(nan, "0"),),
    )
    yield Alert(
        code="telemetry-dropped",
        area=Area.RUN,
        expr=f"sum {BY_RUN} (increase({dropped}[{span(LOOK_BACK_S)}])) > 0",
        hold_s=plan.hold(60),
        summary="A trainer's side drops records.",
        bad=(reported(dropped, "0+5x400"),),
        good=(reported(dropped, "0"),),
        lead=1,
    )


def _of_finding(alert: FindingAlert, plan: Plan, more: str = "") -> Alert:
    return Alert(
        code=alert.code,
        area=alert.area,
        severity=alert.severity,
        expr=f'max {BY_RUN} (overwatch_run_findings{{code="{alert.code}"}}) > 0',
        hold_s=plan.hold(alert.hold_s),
        summary=alert.summary,
        more=more,
        bad=(finding(alert.code, "1"),),
        good=(finding(alert.code, "0"),),
    )


def _of_other_rows(own_codes: list[str], plan: Plan) -> Alert:
    """Rows that only other presets judge: one alert for all, with the code as a label."""
    others = "|".join([*own_codes, *(one.code for one in FINDINGS if one.code.startswith("policy-"))])
    selector = f'overwatch_run_findings{{code=~"policy-.+",code!~"{others}"}}'
    return Alert(
        code="policy-row",
        area=Area.POLICY,
        expr=f"max by (rl_run_id, code) ({selector}) > 0",
        hold_s=plan.hold(120),
        summary="A policy metric of a run is beyond its limit.",
        by=("code", "rl_run_id"),
        bad=(finding("policy-other", "1"),),
        good=(finding("policy-other", "0"),),
    )
