"""What is found wrong with learner, actors, replay and orchestrator, by what each reported."""

import pytest

from overwatch.catalog import Scope
from overwatch.diagnose.liveness import gone_producers, gone_sources
from overwatch.events import (
    CheckpointSaved,
    Measured,
    RunFinished,
    RunStarted,
    RunStateChanged,
    Tallied,
    TallySeries,
    TrainingRecovered,
)
from tests.overwatch.services import Reported, at


@pytest.mark.parametrize(
    ("role", "name", "bad"),
    [("learner", "samples", "error"), ("actor", "appends", "error"), ("replay", "requests", "UNAVAILABLE")],
)
def test_requests_that_fail_are_found_beyond_their_share(role: str, name: str, bad: str) -> None:
    """More than one in twenty, of enough of them; what is refused or empty did not fail."""
    (problem,) = Reported().counted(role, name, 60, {"ok": 9.0, bad: 1.0}, "status").found().values()
    assert (problem.code, problem.subject) == ("replay-failing", role)
    assert "10%" in problem.message
    assert repr(bad) in problem.message
    assert Reported().counted(role, name, 60, {"ok": 99.0, bad: 1.0}, "status").found() == {}
    assert Reported().counted(role, name, 60, {"OK": 1.0, "empty": 9.0}, "status").found() == {}
    assert Reported().counted(role, name, 60, {"ok": 1.0, "waited": 9.0}, "status").found() == {}
    assert Reported().counted(role, name, 60, {bad: 0.02}, "status").found() == {}


@pytest.mark.parametrize(("resumed_s", "is_found"), [(-61.0, True), (-59.0, False), (30.0, False)])
def test_what_failed_in_a_pause_or_by_its_end_is_not_found(resumed_s: float, *, is_found: bool) -> None:
    """A window counts a minute, and what waited for the end of a pause comes late for a minute more."""
    paused = RunStateChanged(at=at(-90), before="running", after="paused")
    reported = Reported().report("orchestrator", paused)
    reported.report("orchestrator", RunStateChanged(at=at(resumed_s), before="paused", after="running"))
    reported.counted("learner", "samples", 60, {"ok": 1.0, "error": 1.0}, "status")

    assert set(reported.found()) == ({"replay-failing"} if is_found else set())


@pytest.mark.parametrize(
    ("role", "gauge", "well", "ill", "wanted"),
    [
        ("learner", "degraded", 0.0, 1.0, ("learner-degraded", "warning")),
        ("learner", "checkpoint_stalled", 0.0, 1.0, ("checkpoint-stalled", "warning")),
        ("learner", "weights_age", 299.0, 301.0, ("weights-old", "warning")),
        ("actor", "versions_behind", 8.0, 9.0, ("actor-stale", "warning")),
        ("orchestrator", "heartbeat_age", 44.0, 46.0, ("heartbeats-late", "warning")),
        ("orchestrator", "heartbeat_age", 44.0, 136.0, ("heartbeats-late", "critical")),
    ],
)
def test_a_gauge_beyond_what_it_may_be_is_found(
    role: str, gauge: str, well: float, ill: float, wanted: tuple[str, str]
) -> None:
    """While its process reports, and no longer."""
    reported = Reported().gauges(role, **{gauge: ill})
    (problem,) = reported.found().values()
    assert ((problem.code, problem.severity), problem.subject) == (wanted, role)
    assert reported.found(later_s=31.0) == {}
    assert Reported().gauges(role, **{gauge: well}).found() == {}


def test_heartbeats_that_nobody_answers_are_found() -> None:
    """One answered in the last minute is enough."""
    failing = Reported().counted("learner", "heartbeats", 60, {"ok": 0.0, "error": 0.1}, "status")
    assert set(failing.found()) == {"heartbeats-failing"}
    assert Reported().counted("learner", "heartbeats", 60, {"ok": 0.1, "error": 0.1}, "status").found() == {}
    assert Reported().counted("learner", "heartbeats", 60, {"ok": 0.1}, "status").found() == {}


def test_a_learner_that_lives_and_takes_no_steps_is_stalled() -> None:
    """After ten minutes, unless the run is paused; weights that grow old meanwhile are no fault either.

    Time counts from the end of a pause.
    """
    reported = Reported().counted("learner", "sgd_steps", 10, {"": 4.0}, "")
    assert reported.gauges("learner", 600.0, weights_age=0.0).found() == {}
    (problem,) = reported.gauges("learner", 611.0, weights_age=0.0).found().values()
    assert problem.code == "learner-stalled"
    assert problem.message == "no optimiser step for 10m"
    reported.report("orchestrator", RunStateChanged(at=at(612), before="running", after="paused"))
    assert reported.gauges("learner", 613.0, weights_age=400.0).found() == {}
    reported.report("orchestrator", RunStateChanged(at=at(614), before="paused", after="running"))
    assert reported.gauges("learner", 615.0, weights_age=400.0).found() == {}
    assert set(reported.gauges("learner", 930.0, weights_age=700.0).found()) == {"weights-old"}
    assert "learner-stalled" in reported.gauges("learner", 1215.0, weights_age=0.0).found()


def test_experience_that_is_missing_after_a_resume_is_found() -> None:
    """Counted in its first minute, or with its very first record."""
    gap = Tallied(at=at(0), scope=Scope.LEARNER, series=(TallySeries(metric="learner.replay_gaps", sum=1.0),))
    reported = Reported().report("learner", gap)
    assert set(reported.found()) == {"replay-gap"}
    assert set(reported.gauges("learner", 59.0, degraded=0.0).found()) == {"replay-gap"}
    assert reported.gauges("learner", 61.0, degraded=0.0).found() == {}


def test_what_training_did_about_broken_numbers_is_found_for_ten_minutes() -> None:
    """With what it was and is, and because of which update; a skipped step is in the feed alone."""
    cut = TrainingRecovered(
        at=at(0), action="learning_rate_cut", update=7, cause=5, before=3e-4, after=1.5e-4
    )
    reported = Reported().report("learner", cut, TrainingRecovered(at=at(1), action="skip", update=7))
    (problem,) = reported.found().values()
    assert problem.code == "learning-rate-cut"
    assert problem.message == "learning rate cut: 0.0003 > 0.00015, because of update 5"
    reported.report("learner", TrainingRecovered(at=at(599), action="rollback", before=9.0, after=4.0))
    assert set(reported.found()) == {"learning-rate-cut", "rolled-back"}
    assert set(reported.gauges("learner", 601.0, degraded=0.0).found()) == {"rolled-back"}


def test_checkpoints_that_take_more_than_a_minute_are_found() -> None:
    """By the slowest of twenty but one; two are too few to be judged."""

    def saved(*seconds: float) -> set[str]:
        events = [CheckpointSaved(at=at(n), path="p", duration_s=took) for n, took in enumerate(seconds)]
        return set(Reported().report("learner", *events).found())

    assert saved(61.0, 61.0, 61.0) == {"checkpoint-slow"}
    assert saved(61.0, 61.0) == set()
    assert saved(*[1.0] * 19, 61.0) == set()
    assert saved(*[1.0] * 18, 61.0, 61.0) == {"checkpoint-slow"}


@pytest.mark.parametrize("role", ["replay", "orchestrator", "actor", "rollouts"])
def test_a_service_that_is_gone_is_down(role: str) -> None:
    """By its name; one that ended well is not, and no other finding speaks of it."""
    reported = Reported().report("learner", RunStarted(at=at(0)))
    beats = [Measured(at=at(s), scope=Scope.RUN, values={}) for s in range(1, 41)]
    reported.report(role, RunStarted(at=at(0)), *beats[:20], rank=1)
    reported.report("learner", *beats)
    assert reported.state is not None
    keys = tuple(gone_sources(reported.state, at(40)))
    (problem,) = gone_producers(reported.state, keys, at(40))
    assert (problem.code, problem.subject, problem.severity) == ("service-down", f"{role} 1", "warning")
    assert "silent for 20s" in problem.message
    reported.report(role, Measured(at=at(40.5), scope=Scope.RUN, values={}), rank=1)
    assert list(gone_producers(reported.state, keys, at(40))) == [], "it has reported since it was looked at"
    reported.report(role, RunFinished(at=at(41), outcome="completed"), rank=1)
    assert list(gone_producers(reported.state, tuple(gone_sources(reported.state, at(42))), at(42))) == []


def test_an_actor_that_reports_no_steps_is_not_down() -> None:
    """It waits: for weights, or for room in replay."""
    reported = Reported().report("learner", RunStarted(at=at(0)))
    reported.report("actor", RunStarted(at=at(0)), rank=1)
    for second in range(1, 60):
        reported.report("learner", Measured(at=at(second), scope=Scope.RUN, values={}))
        idle = Tallied(at=at(second), scope=Scope.ACTOR, series=(TallySeries(metric="actor.steps", sum=0.0),))
        reported.report("actor", idle, rank=1)
    assert reported.state is not None
    assert list(gone_sources(reported.state, at(60))) == []
