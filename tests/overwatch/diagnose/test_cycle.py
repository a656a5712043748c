"""What ranks spend their time on, and which ranks the others wait for, by the phases that they sent."""

import pytest

from overwatch.catalog.phases import Phase
from overwatch.diagnose import Assessment, Judged, assess
from overwatch.diagnose.lane_signals import Cycle, cycles_of
from overwatch.events import Event, Origin, PhaseEnded, Record
from overwatch.state import RunState, apply, new_run
from tests import fakes
from tests.fakes import SECOND, START_NS

Work = tuple[tuple[str, float, float], ...]
"""(phase, when it ends within an update, how long it took)."""


def _reported(work: Work, updates: int, every_s: float) -> list[Event]:
    return [
        PhaseEnded(at=START_NS + int((number * every_s + ends) * SECOND), phase=name, duration_s=took)
        for number in range(updates)
        for name, ends, took in work
    ]


def _state(by_rank: dict[int, Work], updates: int = 12, every_s: float = 2.0) -> RunState:
    """A run whose ranks do this, sent in the order of time."""
    records = [
        Record(origin=Origin(run_id="r", epoch=f"e{rank}", ours=True, rank=rank), event=event, seq=None)
        for rank, work in by_rank.items()
        for event in _reported(work, updates, every_s)
    ]
    records.sort(key=lambda record: record.event.at)
    state = new_run(records[0])
    for record in records:
        apply(state, record, record.event.at)
    return state


def _cycles(by_rank: dict[int, Work], updates: int = 12, every_s: float = 2.0) -> dict[int, Cycle]:
    return cycles_of(_state(by_rank, updates, every_s).phases)


def _after_seconds(state: RunState, seconds: int = 4) -> Judged:
    """The judgement after some seconds of ticks at the run's end."""
    before = Assessment()
    for tick in range(state.last_stamp, state.last_stamp + seconds * SECOND, SECOND // 10):
        judged = assess(state, before, tick)
        before = judged.assessment
    return judged


def test_phases_within_phases_are_each_of_the_whole_time() -> None:
    """Waiting for envs within collecting is a share of the update, not of the sum of all phases."""
    cycle = _cycles({0: (("env_wait", 1.1, 1.0), ("collect", 1.5, 1.4), ("update", 2.0, 0.5))})[0]

    assert cycle.share(Phase.ENV_WAIT) == pytest.approx(0.5)
    assert cycle.share(Phase.ROLLOUT) == pytest.approx(0.7)
    assert cycle.share(Phase.UPDATE) == pytest.approx(0.25)
    assert cycle.share(Phase.SYNC) is None


def test_a_phase_of_many_times_an_update_has_its_share() -> None:
    """A hundred short waits are as much as one long one."""
    waits = tuple(("env_wait", 0.01 * (step + 1), 0.008) for step in range(100))
    cycle = _cycles({0: (*waits, ("update", 2.0, 1.0))})[0]

    assert cycle.share(Phase.ENV_WAIT) == pytest.approx(0.4, rel=0.05)


def test_updates_of_minutes_have_shares() -> None:
    """Four rounds are enough, however long they take."""
    cycle = _cycles({0: (("collect", 90.0, 90.0), ("update", 120.0, 30.0))}, updates=5, every_s=120.0)[0]

    assert cycle.share(Phase.UPDATE) == pytest.approx(0.25)


def test_a_phase_that_is_no_part_of_the_loop_any_more_has_no_share() -> None:
    """Loading at the start is not what holds a run back an hour later."""
    reported = _reported((("load", 1.0, 1.0),), 5, 1.5) + _reported((("update", 1.0, 1.0),), 200, 1.0)
    cycle = cycles_of(fakes.folded(reported).phases)[0]

    assert cycle.share(Phase.LOAD) == 0.0


def _ranks(slow: int, work_s: float = 1.6) -> dict[int, Work]:
    """Four ranks of which one works longer; the others wait for it at the barrier."""
    works = {rank: work_s if rank == slow else 1.0 for rank in range(4)}
    return {
        rank: (("update", own, own), ("sync", work_s, work_s - own + 0.01)) for rank, own in works.items()
    }


def test_the_rank_that_works_longest_and_waits_least_is_the_straggler() -> None:
    """It is named, with its work against that of the others; they are reported to wait for it."""
    judged = _after_seconds(_state(_ranks(slow=2), every_s=1.6))
    found = [finding.problem for finding in judged.assessment.findings.values()]

    assert [(problem.code, problem.subject, problem.severity) for problem in found] == [
        ("straggler", "rank 2", "critical")
    ]
    assert found[0].message.startswith("straggler: update 1.59s against 0.99s (rank 2)")
    assert found[0].message.endswith("3 ranks wait")
    assert judged.bound is not None
    assert judged.bound.why == "38% of each step waits for rank 2"


def test_a_straggler_may_pay_for_the_exchange_too() -> None:
    """Where each exchange takes long: it waits half as long as the others at most. At more nobody is slow."""

    def codes(slow_waits: float, others_wait: float) -> list[str]:
        waits = {0: others_wait, 1: slow_waits}
        ranks = {rank: (("update", 2.0, 2.0), ("sync", 2.0, own)) for rank, own in waits.items()}
        judged = _after_seconds(_state(ranks))
        return [finding.problem.code for finding in judged.assessment.findings.values()]

    assert codes(0.5, 1.2) == ["straggler"]
    assert codes(0.8, 1.2) == []


@pytest.mark.parametrize("gone_updates", [0, 5])
def test_a_rank_that_was_killed_is_no_straggler_of_those_that_go_on(gone_updates: int) -> None:
    """While the others wait at the barrier it is the one; five updates later nobody waits for it."""
    ranks = _ranks(slow=2)
    state = _state(ranks, every_s=1.6)
    for number in range(12, 12 + gone_updates):
        for rank in (0, 1, 3):
            for name, ends, took in ranks[rank]:
                at = START_NS + int((number * 1.6 + ends) * SECOND)
                origin = Origin(run_id="r", epoch=f"e{rank}", ours=True, rank=rank)
                event = PhaseEnded(at=at, phase=name, duration_s=took)
                apply(state, Record(origin=origin, event=event, seq=None), at)

    assert (2 in cycles_of(state.phases)) is (gone_updates == 0)


def test_ranks_that_work_alike_have_no_straggler() -> None:
    """A tenth more is no straggler, and a hundredth of waiting is no bound."""
    judged = _after_seconds(_state(_ranks(slow=2, work_s=1.1), every_s=1.1))

    assert judged.assessment.findings == {}
    assert judged.bound is None or judged.bound.state == "LEARNER-BOUND"


def test_waiting_before_the_first_update_is_how_a_run_begins() -> None:
    """A learner whose actors are still starting is judged from its first update on, or when that is late."""
    begins = _reported((("queue_wait", 1.0, 1.0),), 10, 1.0)
    learns = [
        PhaseEnded(at=START_NS + int((10 + number + ends) * SECOND), phase=name, duration_s=took)
        for number in range(6)
        for name, ends, took in (("queue_wait", 0.1, 0.1), ("update", 1.0, 0.9))
    ]

    def share(events: list[Event]) -> float | None:
        records = [
            Record(origin=Origin(run_id="r", epoch="e", ours=True, rank=0), event=event, seq=None)
            for event in events
        ]
        state = new_run(records[0])
        for record in records:
            apply(state, record, record.event.at)
        return cycles_of(state.phases)[0].share(Phase.QUEUE_WAIT)

    assert share(begins) is None
    assert share([*begins, *learns]) == pytest.approx(0.1, abs=0.02)
    assert share(_reported((("queue_wait", 1.0, 1.0),), 40, 1.0)) == pytest.approx(1.0)
