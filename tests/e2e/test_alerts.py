"""Faults become alerts at a webhook, through a real collector, Prometheus and Alertmanager."""

import subprocess
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec
import pytest

from overwatch.catalog.alerts import alert_name, reported_codes
from overwatch.simulate import Settings
from overwatch.simulate.faults import Planned
from tests.calibration.corpus import CASES, Case
from tests.e2e.alerting import BEYOND_S, DIVISOR, Fired, Webhook, alerting, case_of, fired, play, sampled_all
from tests.e2e.collecting import collecting, until
from tests.ports import free_port
from tests.real.servers import instant_query, need

SILENT_S = 75
"""A run that fell silent is lost after a minute."""
LONGER_S = 40
"""A fault is played for so long at least, so that its alert's hold is over well before the run."""
OTHERWISE = {"slowdown": (80, 150), "clip-creep": (60, 150)}
"""Faults that are played from and until another second than where it is measured how soon they are found."""
BY_STATE = {"run-failed", "telemetry-stale", "run-lost", "non-finite"}
"""Codes whose alerts ask for a state or a counter."""
ALERTING = set(reported_codes()) | BY_STATE
SHARD = 14
"""Runs of one collector: a core has time for some dozens, and there are other programs on it."""
LEAN = (
    "service.pipelines.logs.exporters=[aggregator]",
    "service.pipelines.metrics.exporters=[aggregator]",
    "service.pipelines.traces.exporters=[aggregator]",
    "service.pipelines.snapshots.exporters=[prometheus]",
)
"""Nothing is written to files: dozens of runs at once are enough for a small machine."""
ENTROPY = {"OverwatchPolicyEntropy", "OverwatchPolicyCollapse"}
FOLLOWS = {
    "policy-collapse": {"OverwatchKlSpike"},
    "gradient-explosion": {"OverwatchSlowDrift"},
    "critic-failure": {"OverwatchSlowDrift"},
    "clip-creep": {"OverwatchPolicyClipFraction"},
    "kl-creep": {"OverwatchPolicyKlDivergence"},
    "explained-variance-creep": {"OverwatchPolicyExplainedVariance"},
}
"""What a fault brings besides its own alert: a number that creeps passes its limit, too."""
BRIEF = {("OverwatchKlSpike", "policy-collapse")}
"""What stands for about as long as two scrapes are apart: whether both see it is chance, live alone."""
NOISY = ("noisy-updates", "early-stops", "sparse-rewards", "healthy-1")


def settings(case: Case) -> Settings:
    """A case, long enough for its alert."""
    if case.label in OTHERWISE:
        at_s, seconds = OTHERWISE[case.label]
        return msgspec.structs.replace(case, at_s=at_s, seconds=seconds).settings
    more = msgspec.structs.replace(case, seconds=max(case.seconds, case.at_s + LONGER_S))
    return more.settings if case.name else msgspec.structs.replace(case, seconds=100).settings


def expected(case: Case) -> set[str]:
    """Alerts of which a fault must bring one; empty where the corpus names no finding that has an alert."""
    return {alert_name(code) for code in case.expects if code in ALERTING}


def watched_s(run: Settings) -> int:
    """Until when something of a run may still alert."""
    silent = any(fault.name == "stale" for fault in run.faults)
    return (run.faults[0].at_s + SILENT_S if silent else run.seconds) + BEYOND_S


def _collectors(stack: ExitStack, folder: Path, number: int) -> tuple[list[str], tuple[list[str], list[str]]]:
    """Some collectors, each with runs of its own: their doors, their pages of runs and of themselves."""
    doors, runs, own = [], [], []
    for place in range(number):
        (folder / f"collector-{place}").mkdir()
        own.append(f"127.0.0.1:{free_port()}")
        sets = (*LEAN, f"service.telemetry.metrics.address={own[-1]}")
        ends = stack.enter_context(collecting(folder / f"collector-{place}", *sets))
        doors.append(str(ends.otlp_http))
        runs.append(str(ends.metrics).removeprefix("http://"))
    return doors, (runs, own)


def _lacking(hook: Webhook, wanted: dict[str, set[str]]) -> dict[str, set[str]]:
    """Runs of which none of their alerts has arrived."""
    reported = hook.reported["page"] | hook.reported["ticket"]
    return {
        run: names
        for run, names in wanted.items()
        if names and not any((name, run) in reported for name in names)
    }


def prove(folder: Path, runs: list[Settings], wanted: dict[str, set[str]]) -> Fired:
    """Play runs live, then the same runs to promtool: each wanted alert arrived, and both fired the same."""
    for name in ("prometheus", "prometheus-alertmanager", "promtool"):
        need(name)
    seconds = max(watched_s(run) for run in runs)
    with ExitStack() as stack:
        doors, pages = _collectors(stack, folder, -(-len(runs) // SHARD))
        url, hook = stack.enter_context(alerting(folder, *pages))
        until(lambda: instant_query(url, f"count(up == 1) == {2 * len(doors)}"), "all pages", 60)
        began = time.monotonic()
        feeders = [
            threading.Thread(target=play, args=(runs[number :: len(doors)], listener), daemon=True)
            for number, listener in enumerate(doors)
        ]
        for feeder in feeders:
            feeder.start()
        for feeder in feeders:
            feeder.join(seconds * 3)
            assert not feeder.is_alive()
        time.sleep(max(0.0, seconds - (time.monotonic() - began)))
        with suppress(AssertionError):
            until(lambda: not _lacking(hook, wanted), "alerts", 60)
        assert _lacking(hook, wanted) == {}
        live = fired(url)
        reported = {one for one in hook.reported["page"] | hook.reported["ticket"] if one[1]}
    print(f"\n{len(runs)} runs, {len(live)} alerts, holds divided by {DIVISOR}: {sorted(live)}")
    assert reported <= live
    series = sampled_all(runs, [*map(watched_s, runs)])
    (folder / "case.yaml").write_text(case_of(series, live - BRIEF, seconds))
    done = subprocess.run(
        ["promtool", "test", "rules", "case.yaml"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return live


def test_a_nan_pages_and_a_healthy_run_does_not(tmp_path: Path) -> None:
    """The counter moves, the rule fires, the page arrives; the run beside it is left alone."""
    base = {"gpus": 1, "envs": 4, "slots": 0, "seconds": 20, "seed": 3}
    runs = [
        Settings(run_id="poisoned", faults=(Planned(name="nan", at_s=6),), **base),  # type: ignore[arg-type]  # numbers
        Settings(run_id="well", **base),  # type: ignore[arg-type]  # as above
    ]
    live = prove(tmp_path, runs, {"poisoned": {"OverwatchNonFinite"}})

    assert {run for _, run in live} == {"poisoned"}


QUIET = {"entropy-collapse"}
"""Faults that must not be reported: with its return at its best, a policy of little entropy has converged."""


@pytest.mark.long
@pytest.mark.timeout(900)
def test_all_alerting_faults_arrive_and_health_does_not(tmp_path: Path) -> None:
    """Every fault that has an alert, all at once, beside noisy healthy runs: each as itself, none else."""
    faults = [case for case in CASES if expected(case)]
    healthy = [case for case in CASES if case.label in NOISY]
    wanted = {case.label: expected(case) - (ENTROPY if case.label in QUIET else set()) for case in faults}
    live = prove(tmp_path, [settings(case) for case in faults + healthy], wanted)

    names = {run: {alert for alert, of in live if of == run} for run in (*wanted, *NOISY)}
    surplus = {
        run: reported - wanted.get(run, set()) - FOLLOWS.get(run, set()) for run, reported in names.items()
    }
    assert {run: alerts for run, alerts in surplus.items() if alerts} == {}
