"""The verdict of a run that is over, or silent: how it ended, and what stood then."""

import math

import pytest

from overwatch.catalog.runbooks import RUNBOOKS
from overwatch.diagnose import Assessment, assess
from overwatch.diagnose.liveness import OF_THE_LINE
from overwatch.events import Event, FindingAcknowledged, Origin, Record, RunFinished
from overwatch.projection import project
from overwatch.projection.verdict import PHRASES
from overwatch.snapshot import Snapshot, View
from overwatch.state import apply, new_run
from tests import fakes
from tests.fakes import SECOND, START_NS

COLLAPSED = {"kl_divergence": 0.2, "clip_fraction": 0.8, "entropy": 0.01}
WELL = {"kl_divergence": 0.01, "clip_fraction": 0.1, "entropy": 0.6}


def _updates(sick: int) -> list[Event]:
    """Sixty updates of a second each, the newest of which are sick."""
    return [
        fakes.policy(START_NS + n * SECOND, index=n + 1, **(COLLAPSED if n >= 60 - sick else WELL))
        for n in range(60)
    ]


def _shown(events: list[Event], *, ours: bool = True, after_s: float = 30.0) -> Snapshot:
    """What is shown so long after the last event, judged at each event and each second."""
    reported = [Record(origin=Origin(run_id="r", epoch="e", ours=ours), event=event) for event in events]
    state, kept = new_run(reported[0]), Assessment()
    for record in reported:
        apply(state, record, record.event.at)
        judged = assess(state, kept, record.event.at)
        kept = judged.assessment
    for second in range(1, int(after_s) + 1):
        judged = assess(state, kept, state.last_stamp + second * SECOND)
        kept = judged.assessment
    return project(state, judged, View())


def _end(outcome: str, reason: str | None = None) -> RunFinished:
    return RunFinished(at=START_NS + 60 * SECOND, outcome=outcome, reason=reason)


@pytest.mark.parametrize(
    ("end", "well", "sick"),
    [
        (
            _end("completed"),
            ("ok", "run completed after 60 updates"),
            "completed; ended in policy collapse (open 11s)",
        ),
        (
            _end("interrupted", "SIGTERM"),
            ("ok", "run interrupted after 60 updates: SIGTERM"),
            "interrupted: SIGTERM; ended in policy collapse (open 11s)",
        ),
        (
            _end("failed", "CUDA error 700"),
            ("critical", "FAILED: CUDA error 700"),
            "FAILED: CUDA error 700; ended in policy collapse (open 11s)",
        ),
        (
            _end("lost", "trainer killed by signal 9 (SIGKILL)"),
            ("critical", "LOST: trainer killed by signal 9 (SIGKILL)"),
            "LOST: trainer killed by signal 9 (SIGKILL); ended in policy collapse (open 11s)",
        ),
    ],
    ids=["completed", "interrupted", "failed", "lost"],
)
def test_how_it_ended_and_what_stood(end: RunFinished, well: tuple[str, str], sick: str) -> None:
    """In one line, with the worst severity; findings have the moment of the end and are not cleared.

    That a run is lost goes on: how long ago that was grows.
    """
    good, bad = _shown([*_updates(0), end]), _shown([*_updates(12), end])

    assert (good.verdict.severity, good.verdict.text) == well
    assert (bad.verdict.severity, bad.verdict.text) == ("critical", sick)
    assert bad.verdict.counts["critical"] == len([f for f in bad.findings if f.severity == "critical"])
    ends = {(one.cleared_at, one.ended_at) for one in bad.findings if one.code != "run-lost"}
    assert ends == {(None, end.at / 1e9)}
    assert {one.ended_at for one in bad.findings if one.code == "run-lost"} <= {None}
    assert bad.run.outcome == end.outcome


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"kl_divergence": math.nan}, "non-finite values"),
        ({"learning_rate": 0.0}, "zero learning rate"),
        ({"grad_norm": 0.0}, "zero gradients"),
    ],
)
def test_what_stood_is_named_by_a_phrase(values: dict[str, float], name: str) -> None:
    """A code alone does not read as a noun, and a phrase that implies its row does not repeat it."""
    started = {"learning_rate": 0.001, "grad_norm": 0.5}
    events = [
        fakes.policy(START_NS + n * SECOND, index=n + 1, **WELL | started | (values if n >= 40 else {}))
        for n in range(60)
    ]

    assert f"; ended in {name} (open " in _shown([*events, _end("completed")]).verdict.text


def test_each_phrase_is_of_a_finding_that_outlives_a_run() -> None:
    """What is true only of telemetry that comes never stands at an end."""
    assert PHRASES.keys() <= RUNBOOKS.keys() - OF_THE_LINE


def test_a_run_that_was_lost_by_silence_ended_in_what_stood() -> None:
    """Killed with its exporter: no more is known of it, and nothing of it is healed."""
    shown = _shown(_updates(12), after_s=90)

    assert shown.verdict.text.startswith(
        "LOST: no end record, last update 60, no checkpoint seen; ended in policy collapse"
    )
    assert shown.link.state == "lost"


def test_a_foreign_run_that_fell_silent_keeps_its_collapse() -> None:
    """It may have ended, was killed, or pauses: a warning about the line, and what stood stays."""
    shown = _shown(_updates(12), ours=False, after_s=90)

    assert shown.verdict.text == (
        "no telemetry for 1m30s; last record 2027-01-15T08:00:59Z from rank 0; "
        "it sends no end record: finished or killed"
    )
    assert (shown.link.state, shown.verdict.severity) == ("silent", "warning")
    assert [(finding.code, finding.ended_at) for finding in shown.findings] == [
        ("policy-collapse", None), ("run-silent", None),
    ]  # fmt: skip


def test_what_was_acknowledged_at_the_end_is_counted_beside_it() -> None:
    """An operator knows."""
    seen = FindingAcknowledged(at=START_NS + 61 * SECOND, finding="policy-collapse:policy:")
    shown = _shown([*_updates(12), _end("completed"), seen])

    assert (shown.verdict.severity, shown.verdict.text) == ("ok", "run completed after 60 updates")
    assert shown.verdict.acknowledged == 1


def test_a_gone_worker_is_in_the_list_and_not_in_the_verdict_of_the_end() -> None:
    """What is merely info is nothing that a run ended in."""
    worker = Origin(run_id="r", role="worker", rank=3, epoch="w", ours=True)
    records = [Record(origin=worker, event=fakes.policy(START_NS, entropy=0.5))]
    records += [Record(origin=Origin(run_id="r", epoch="e", ours=True), event=event) for event in _updates(0)]
    lost = RunFinished(at=START_NS + 30 * SECOND, outcome="lost", reason="killed by signal 9 (SIGKILL)")
    records += [Record(origin=worker, event=lost), Record(origin=records[-1].origin, event=_end("completed"))]
    state, kept, seen = new_run(records[0]), Assessment(), set()
    for record in sorted(records, key=lambda record: record.event.at):
        apply(state, record, record.event.at)
        for tenth in range(10):
            judged = assess(state, kept, record.event.at + tenth * SECOND // 10)
            kept = judged.assessment
            seen |= {item.problem.message for item in kept.findings.values()}
    shown = project(state, judged, View())

    assert "worker 3 lost: killed by signal 9 (SIGKILL), while the run goes on" in seen
    assert (shown.verdict.severity, shown.verdict.text) == ("ok", "run completed after 60 updates")
