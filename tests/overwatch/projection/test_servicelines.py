"""Services in a line each: who lives, how old its weights are, what waits, who controls the run."""

from overwatch.diagnose import Assessment, assess
from overwatch.events import (
    Buckets,
    CheckpointSaved,
    CommandApplied,
    PhaseEnded,
    RunFinished,
    RunStarted,
    RunStateChanged,
    Tallied,
    TallySeries,
)
from overwatch.projection import project
from overwatch.snapshot import Service, View
from tests.fakes import SECOND
from tests.overwatch.services import SCOPE_OF_ROLE, Reported, at


def lines(reported: Reported, later_s: float = 0.0) -> dict[str, Service]:
    """The lines so long after the newest record, by name, in their order."""
    assert reported.state is not None
    judged = assess(reported.state, Assessment(), reported.state.last_stamp + round(later_s * SECOND))
    return {one.name: one for one in project(reported.state, judged, View()).processes}


def parts(reported: Reported, role: str) -> str:
    """The words of one line."""
    return " | ".join(lines(reported)[role].parts)


def test_a_learner_reads_by_its_weights_queue_and_checkpoint() -> None:
    """What is wrong with it comes first."""
    reported = Reported().counted("learner", "sgd_steps", 60, {"": 12.0}, "")
    reported.report("learner", CheckpointSaved(at=at(0), path="p"))
    series = (
        TallySeries(
            metric="learner.sample_latency",
            sum=3.0,
            count=6,
            buckets=Buckets(bounds=(0.5, 1.0), counts=(6, 0, 0)),
        ),
        TallySeries(metric="learner.rollbacks", sum=2.0),
    )
    for second in (55, 60):
        reported.report("learner", Tallied(at=at(second), scope=SCOPE_OF_ROLE["learner"], series=series))
    named = {
        "replay_queue_depth": 3.0,
        "replay_queue_limit": 4.0,
        "weights_version": 1280.0,
        "weights_age": 3.0,
    }
    reported.gauges("learner", 60.0, **named, degraded=0.0, checkpoint_stalled=0.0)

    assert parts(reported, "learner") == "v 1,280 3s ago | queue 3/4 | ckpt 1m ago | 12 sgd/s | rollbacks 2"
    reported.gauges("learner", 60.0, degraded=1.0, checkpoint_stalled=1.0)
    assert parts(reported, "learner").startswith("degraded | ckpt stalled | v 1,280")


def test_an_actor_reads_by_its_version() -> None:
    """How far it is behind, and how fast it steps."""
    reported = Reported().counted("actor", "steps", 60, {"": 820.0}, "")
    reported.gauges("actor", 60.0, weights_version=127.0, versions_behind=1.0, weights_age=4.0)
    assert parts(reported, "actor") == "v 127 1 behind | weights 4s | 820 steps/s"
    reported.gauges("actor", 60.0, versions_behind=0.0)
    assert parts(reported, "actor").startswith("v 127 | ")


def test_replay_reads_by_what_it_holds_and_what_goes_in_and_out() -> None:
    """What it refuses is at the end."""
    reported = Reported()
    for name, pace in (("inserted", 4.0), ("sampled", 3.0), ("refused", 1.0)):
        reported.counted("replay", name, 60, {"main": pace}, "table")
    held = {"items": 512.0, "steps": 65536.0, "memory": 38.0 * 2**20, "leases": 2.0}
    reported.gauges("replay", 60.0, **held)
    assert parts(reported, "replay") == (
        "512 items 65,536 steps | 38 MiB | in 4/s | out 3/s | leases 2 | refused 1/s"
    )


def test_an_orchestrator_reads_by_the_state_of_the_run() -> None:
    """The state, the newest heartbeat, the newest command."""
    reported = Reported().report("orchestrator", RunStateChanged(at=at(0), before="running", after="paused"))
    reported.report("orchestrator", CommandApplied(at=at(60), command="c", kind="pause", outcome="done"))
    reported.gauges("orchestrator", 120.0, heartbeat_age=4.0)
    assert parts(reported, "orchestrator") == "paused 2m | heartbeat 4s ago | pause done 1m ago"


def test_the_worst_comes_first_and_who_reports_no_more_is_silent() -> None:
    """By what is found, then by name."""
    reported = Reported().gauges("replay", 0.0, items=1.0).gauges("learner", 40.0, degraded=1.0)
    reported.gauges("actor", 40.0, versions_behind=0.0)
    found = lines(reported, 6.0)
    assert [(one.name, one.status) for one in found.values()] == [
        ("replay", "silent"), ("actor", "ok"), ("learner", "ok"),
    ]  # fmt: skip
    assert found["replay"].age_s == 46.0


def _phases(seconds: int, **took: float) -> list[PhaseEnded]:
    """Each phase once a second, so long."""
    return [
        PhaseEnded(at=at(second + place / 10), phase=name, duration_s=share)
        for second in range(1, seconds)
        for place, (name, share) in enumerate(took.items())
    ]


def test_a_slow_actor_is_env_bound_and_the_learner_starved_because_of_it() -> None:
    """Phases of an actor are its own, though it has the learner's rank; the hint names who is slow."""
    reported = Reported().report("learner", *_phases(30, queue_wait=0.7, update=0.1))
    reported.report("actor", *_phases(30, env_wait=0.8, inference=0.1))
    reported.gauges("learner", 30.0, weights_version=1.0).gauges("actor", 30.0, weights_version=1.0)
    assert reported.state is not None
    judged = assess(reported.state, Assessment(), reported.state.last_stamp)
    later = assess(reported.state, judged.assessment, reported.state.last_stamp + SECOND)
    snapshot = project(reported.state, later, View())

    (actor,) = (one for one in snapshot.processes if one.name == "actor")
    assert actor.bound is not None
    assert (actor.bound.state, actor.bound.hint) == (
        "ENV-BOUND",
        "more envs a worker, asynchronous envs, more cores",
    )
    assert snapshot.system.bound is not None
    assert snapshot.system.bound.state == "STARVED"
    assert snapshot.system.bound.hint == f"actor is ENV-BOUND: {actor.bound.hint}"
    assert [one.code for one in snapshot.findings] == ["queue-starved"]
    assert snapshot.findings[0].hint == snapshot.system.bound.hint


def test_a_dry_queue_is_a_starved_learner() -> None:
    """By the learner's own rows, where it sends no wait; a full one makes the learner what is slow."""
    reported = Reported().report("learner", *_phases(30, update=0.3))
    reported.gauges("learner", 30.0, replay_queue_depth=0.0, replay_queue_limit=4.0)
    assert reported.state is not None
    judged = assess(reported.state, Assessment(), reported.state.last_stamp)
    assert judged.bound is not None
    assert (judged.bound.state, "queue 0/4" in (judged.bound.why or "")) == ("STARVED", True)
    for second in (31.0, 32.0, 33.0):
        reported.gauges("learner", second, replay_queue_depth=4.0, replay_queue_limit=4.0)
    judged = assess(reported.state, Assessment(), reported.state.last_stamp)
    assert judged.bound is not None
    assert judged.bound.state == "LEARNER-BOUND"


def test_services_of_a_run_that_ended_are_as_old_as_they_were_at_its_end() -> None:
    """Nobody has to report after that; one that was silent by then stays so."""
    reported = Reported().gauges("replay", 0.0, items=3.0)
    for second in (0.0, 60.0):
        reported.gauges("actor", second, weights_version=1.0).gauges("learner", second, weights_version=2.0)
    reported.report("learner", RunFinished(at=at(61), outcome="completed"))
    found = lines(reported, later_s=840.0)

    assert {name: line.status for name, line in found.items()} == {
        "replay": "silent", "actor": "ok", "learner": "ok",
    }  # fmt: skip
    assert (found["replay"].age_s, found["actor"].age_s) == (61.0, 1.0)


def test_the_envs_of_a_run_are_those_of_all_its_actors() -> None:
    """A learner and servers have none; each actor its own."""
    reported = Reported()
    for role, rank, envs in (("actor", 0, 64), ("actor", 1, 64), ("learner", 0, None), ("replay", 0, None)):
        reported.report(role, RunStarted(at=at(0), n_envs=envs), rank=rank)
    assert reported.state is not None
    judged = assess(reported.state, Assessment(), reported.state.last_stamp)

    assert project(reported.state, judged, View()).run.n_envs == 128
