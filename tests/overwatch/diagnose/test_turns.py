"""The collectors of experience show why a learner waits for it."""

import pytest

from overwatch.diagnose.anomaly import AnomalyLimits
from overwatch.diagnose.bounds import Bound, explained, judge
from overwatch.diagnose.lane_signals import Cycle
from overwatch.diagnose.lanes import LaneFacts, Of

LEARNER = "rank 0"


def _facts(waits: float, **actors: dict[str, float]) -> list[LaneFacts]:
    """A learner that waits so long, and its actors with shares of their time."""
    cycle = Cycle(rank=0, shares={"queue_wait": waits, "update": 1 - waits})
    return [
        LaneFacts(name=LEARNER, of=Of.RANK, age_s=0.0, cycle=cycle),
        *(
            LaneFacts(name=name, of=Of.SERVICE, age_s=0.0, cycle=Cycle(rank=0, shares=shares))
            for name, shares in actors.items()
        ),
    ]


def _verdict(facts: list[LaneFacts]) -> Bound:
    bounds = judge(facts, AnomalyLimits())
    return explained(bounds, {one.name: one for one in facts})[LEARNER]


@pytest.mark.parametrize(
    ("waits", "collects", "state", "hint"),
    [
        (0.4, 0.3, "SYNC-BOUND", "let actors collect further ahead"),
        (0.8, 0.95, "STARVED!", "actors collect 95% of their time: more actors or envs"),
        (0.9, 0.05, "STARVED!", "actors collect 5% of their time: replay or the way to it is slow"),
        (0.1, 0.3, "LEARNER-BOUND", "larger minibatches"),
    ],
)
def test_a_learner_that_waits_is_judged_with_its_actors(
    waits: float, collects: float, state: str, hint: str
) -> None:
    """Taking turns is no fault; actors that are busy are too few; where nobody works the way is slow."""
    busy = {"rollout": collects}
    bound = _verdict(_facts(waits, actor=busy, other=busy))

    assert bound.state + bound.mark == state
    assert bound.hint.startswith(hint)


def test_slow_environments_are_the_cause_before_all_else() -> None:
    """An actor that is ENV-BOUND is named, with its own hint."""
    slow = {"rollout": 0.7, "env_wait": 0.6}
    bound = _verdict(_facts(0.5, actor=slow, other=slow))

    assert (bound.state, bound.hint[:19]) == ("STARVED", "actor is ENV-BOUND:")


def test_a_learner_without_actors_that_send_phases_is_starved() -> None:
    """Nothing is known of why."""
    bound = _verdict(_facts(0.5, orchestrator={}))

    assert (bound.state, bound.hint) == ("STARVED", "more actors or envs, or more epochs a batch")


def test_a_dry_queue_is_judged_once_the_waiting_is_known() -> None:
    """In the first seconds nothing has been sent twice: a dry queue is then how every run begins."""
    young = Cycle(rank=0, coming=("queue_wait", "update"))
    dry = {"name": LEARNER, "of": Of.RANK, "age_s": 0.0, "queue": 0.0, "queue_text": "queue 0/4"}
    bounds = judge([LaneFacts(**dry, cycle=young)], AnomalyLimits())
    reported = judge([LaneFacts(**dry, cycle=Cycle(rank=0))], AnomalyLimits())

    assert LEARNER not in bounds
    assert reported[LEARNER].state == "STARVED"


def test_a_learner_that_waits_for_its_checkpoint_is_io_bound() -> None:
    """Longer than for experience: with what makes room, and what the newest save took."""
    shares = {"queue_wait": 0.2, "checkpoint": 0.5, "update": 0.3}
    learner = LaneFacts(
        name=LEARNER, of=Of.RANK, age_s=0.0, cycle=Cycle(rank=0, shares=shares), is_fed=True,
        saves="the newest save took 4.2s to s3://b/r/checkpoints",
    )  # fmt: skip
    bound = _verdict([learner])
    assert (bound.state, bound.mark) == ("IO-BOUND", "!")
    assert bound.why.startswith("50% of the time waits for checkpoints, which make room in replay")
    assert bound.hint == (
        "faster storage for checkpoints, or a larger table of replay; "
        "the newest save took 4.2s to s3://b/r/checkpoints"
    )

    shares = {"queue_wait": 0.5, "checkpoint": 0.2, "update": 0.3}
    bound = _verdict([LaneFacts(name=LEARNER, of=Of.RANK, age_s=0.0, cycle=Cycle(rank=0, shares=shares))])
    assert bound.state == "STARVED"
