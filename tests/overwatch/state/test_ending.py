"""One producer holds a run: how and when it ended is that one's to decide, in whatever order records come."""

from itertools import permutations

import pytest

from overwatch.events import Event, Origin, Record, RunFinished
from overwatch.state import RunState, apply, new_run
from overwatch.state.caps import MAX_SOURCES
from overwatch.state.sources import holder_of
from tests import fakes
from tests.fakes import SECOND, START_NS

LOST = "trainer killed by signal 9 (SIGKILL)"


def _end(second: float, outcome: str = "completed", reason: str | None = None) -> RunFinished:
    return RunFinished(at=START_NS + int(second * SECOND), outcome=outcome, reason=reason)


def _beat(second: float) -> Event:
    return fakes.policy(START_NS + int(second * SECOND), kl_divergence=0.01)


def _start(second: float) -> Event:
    return fakes.started(START_NS + int(second * SECOND))


def _folded(*reported: tuple[str, Event], ours: bool = True) -> RunState:
    """The state after events of producers named `role/rank/epoch`, each received in the order given."""
    records = []
    for owner, event in reported:
        role, rank, epoch = owner.split("/")
        origin = Origin(run_id="r", role=role, rank=int(rank), epoch=epoch, ours=ours)
        records.append(Record(origin=origin, event=event, seq=None))
    state = new_run(records[0])
    for place, record in enumerate(records):
        apply(state, record, START_NS + place * SECOND)
    return state


def _outcome(state: RunState) -> str | None:
    return None if state.finished is None else state.finished.outcome


ZERO, ONE, ACTOR = "trainer/0/a", "trainer/1/b", "actor/3/c"


@pytest.mark.parametrize("other", [ONE, ACTOR], ids=["rank 1", "actor"])
def test_the_end_of_rank_0_is_the_end_of_the_run(other: str) -> None:
    """A worker that sent no end record, or goes on for a while, does not keep the run open."""
    state = _folded(
        (other, _start(0)), (ZERO, _start(0)), (other, _beat(1)), (ZERO, _end(2)), (other, _beat(3))
    )

    assert _outcome(state) == "completed"


@pytest.mark.parametrize("other", [ONE, ACTOR], ids=["rank 1", "actor"])
@pytest.mark.parametrize("outcome", ["completed", "failed", "lost", "interrupted"])
def test_the_end_of_another_producer_is_not_the_end_of_the_run(other: str, outcome: str) -> None:
    """However it ended; the feed names the producer, and it is no critical line of the run."""
    state = _folded((ZERO, _start(0)), (other, _start(0)), (other, _end(2, outcome)), (ZERO, _beat(3)))

    assert state.finished is None
    lines = [(line.message.rpartition(" ")[2], line.severity) for line in state.feed.items[-1:]]
    assert lines == [(outcome, "warning" if outcome in ("failed", "lost") else "info")]


def test_without_rank_0_the_lowest_rank_decides_and_without_a_trainer_the_first_producer() -> None:
    """There is always a holder; rank 0 is it from its first record on."""
    ranks = (("trainer/2/b", _start(0)), ("trainer/5/c", _start(0)))
    actors = (("actor/1/b", _start(0)), ("actor/0/c", _start(0)))

    assert _outcome(_folded(*ranks, ("trainer/5/c", _end(2)))) is None
    assert _outcome(_folded(*ranks, ("trainer/2/b", _end(2)))) == "completed"
    assert _outcome(_folded(*ranks, ("trainer/2/b", _end(2)), (ZERO, _beat(2)))) is None
    assert _outcome(_folded(*actors, ("actor/0/c", _end(2)))) is None
    assert _outcome(_folded(*actors, ("actor/1/b", _end(2)))) == "completed"


def test_a_new_attempt_of_rank_0_opens_the_run_again() -> None:
    """By its first record; a worker's late start does not, nor what is left of an earlier attempt."""
    over = ((ZERO, _start(0)), (ONE, _start(0)), (ZERO, _end(5)))

    assert _outcome(_folded(*over, ("trainer/0/new", _beat(20)))) is None
    assert _outcome(_folded(*over, ("trainer/1/new", _start(20)))) == "completed"
    again = (*over, ("trainer/0/new", _start(20)))
    assert _outcome(_folded(*again, (ZERO, _end(6, "lost", LOST)))) is None
    assert _outcome(_folded(*again, ("trainer/0/earlier", _end(-9, "failed")))) is None
    assert _outcome(_folded(*again, ("trainer/0/new", _end(30)))) == "completed"


def test_the_first_failure_among_ranks_is_the_reason_in_any_order() -> None:
    """Rank 3 fails, the others lose their peer or are stopped by the launcher: rank 3's reason counts."""
    starts = [(owner, _start(0)) for owner in (ZERO, ONE, "trainer/3/d")]
    ends = [
        (ZERO, _end(9, "interrupted", "SIGTERM")),
        (ONE, _end(8, "failed", "lost its peer")),
        ("trainer/3/d", _end(7, "failed", "CUDA error 700")),
    ]
    for order in permutations(ends):
        state = _folded(*starts, *order)
        assert state.finished == _end(9, "failed", "rank 3: CUDA error 700")


@pytest.mark.parametrize(
    ("own", "other"),
    [
        (_end(5, "completed"), _end(4, "failed", "x")),
        (_end(5, "interrupted", "ctrl-c"), _end(6, "failed", "lost its peer")),
        (_end(5, "failed", "out of memory"), _end(6, "failed", "lost its peer")),
        (_end(5, "lost", LOST), _end(4, "lost", LOST)),
    ],
)
def test_what_rank_0_ended_by_is_not_another_rank_s(own: RunFinished, other: RunFinished) -> None:
    """It completed, or what happened elsewhere came later and is a consequence."""
    for ends in permutations([(ZERO, own), (ONE, other)]):
        assert _folded((ZERO, _start(0)), (ONE, _start(0)), *ends).finished == own


def test_a_failure_of_an_earlier_attempt_is_no_reason_of_a_later_one() -> None:
    """The group shrank: rank 3 failed in an attempt that is over."""
    state = _folded(
        (ZERO, _start(0)), ("trainer/3/d", _start(0)), ("trainer/3/d", _end(5, "failed", "x")),
        ("trainer/0/new", _start(20)), ("trainer/0/new", _end(30, "interrupted", "ctrl-c")),
    )  # fmt: skip

    assert _outcome(state) == "interrupted"


def test_an_agent_and_a_foreign_helper_do_not_hold_the_run() -> None:
    """A sampler goes on for ever, a helper that has the rank by default promised nothing."""
    starts = [("agent-node1/0/x", _start(0)), (ZERO, _start(1)), ("agent-node1/0/x", _beat(2))]
    assert _outcome(_folded(*starts, (ZERO, _end(5)), ("agent-node1/0/x", _beat(90)))) == "completed"

    helper = Record(origin=Origin(run_id="r", epoch="helper"), event=_beat(7), seq=None)
    state = _folded((ZERO, _start(0)), (ZERO, _end(5)))
    apply(state, helper, START_NS + 9 * SECOND)
    assert _outcome(state) == "completed"


def test_the_holder_is_remembered_however_many_lives_come_and_go() -> None:
    """Actors that are started again and again take the places of actors."""
    lives = [(f"actor/0/{number}", _beat(number)) for number in range(MAX_SOURCES + 9)]
    state = _folded((ZERO, _start(0)), *lives)

    assert holder_of(state.sources) == ZERO
    assert len(state.sources) == MAX_SOURCES
