"""Producers that count steps and episodes themselves: what they send adds up, over restarts and ranks."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overwatch.catalog import KL, Scope
from overwatch.catalog.run import EPISODES, STEPS
from overwatch.events import Column, Measured, Origin, Record, scalars
from overwatch.state import RunState, apply, dump, load, new_run
from tests import fakes

S = 1_000_000_000
ENTROPY = "overwatch.policy.entropy"


def reported(at: int, rank: int = 0, **totals: float) -> Record:
    """What a foreign producer counted up to a second."""
    values = scalars({f"overwatch.run.{name}": total for name, total in totals.items()})
    return Record(
        origin=Origin(run_id="r", rank=rank), event=Measured(at=at * S, scope=Scope.RUN, values=values)
    )


def folded(records: list[Record]) -> RunState:
    """The state after these."""
    state = new_run(records[0])
    for number, record in enumerate(records):
        apply(state, record, record.event.at + number)
    return state


def test_totals_that_rise_are_the_runs_totals() -> None:
    """The newest word counts, not the sum of all words; the rate follows."""
    state = folded([reported(1, steps=100, episodes=2), reported(2, steps=350, episodes=2)])

    assert state.reported_counts == {"steps": 350, "episodes": 2}
    assert state.steps == 350
    assert state.step_marks.items[-1] == (2 * S, 350)


def test_a_total_that_began_again_takes_nothing_back() -> None:
    """A restarted producer counts from 0; the run goes on from where it was."""
    state = load(dump(folded([reported(1, steps=100), reported(2, steps=30), reported(3, steps=50)])))

    assert state.steps == 150


def test_ranks_add_up() -> None:
    """Each rank counts its own steps."""
    assert folded([reported(1, 0, steps=10), reported(1, 1, steps=20), reported(2, 0, steps=15)]).steps == 35


@pytest.mark.parametrize("first", [100, 0])
def test_steps_that_a_rank_counts_itself_are_not_counted_by_their_numbers_too(first: int) -> None:
    """Totals of its own and numbered steps of its envs are the same steps, whichever came first."""
    numbered = Record(origin=Origin(run_id="r"), event=fakes.envs(2 * S, [0, 1], index=50, reward=[0.0, 0.0]))
    later = Record(origin=Origin(run_id="r"), event=fakes.envs(4 * S, [0, 1], index=100, reward=[0.0, 0.0]))
    state = folded(
        [reported(1, steps=first), numbered, reported(3, steps=150), later, reported(5, steps=200)]
    )

    assert state.steps == 200


def test_ranks_that_count_and_ranks_that_number_their_steps_add_up() -> None:
    """Each by its own means."""
    numbered = [
        Record(
            origin=Origin(run_id="r", rank=1), event=fakes.envs(at * S, [2, 3], index=at, reward=[0.0, 0.0])
        )
        for at in range(1, 6)
    ]
    assert folded([reported(1, 0, steps=10), *numbered]).steps == 20


@pytest.mark.parametrize("total", [math.nan, math.inf, -1.0])
def test_a_total_that_cannot_be_is_passed_over(total: float) -> None:
    """Nothing is made of it."""
    assert folded([reported(1, steps=10), reported(2, steps=total), reported(3, steps=12)]).steps == 12


@given(st.lists(st.tuples(st.sampled_from(["steps", "episodes"]), st.integers(0, 10**6)), max_size=40))
def test_the_runs_totals_never_fall(words: list[tuple[str, int]]) -> None:
    """Whatever producers send, in whatever order."""
    state = new_run(reported(0, steps=0))
    before = (0, 0.0)
    for at, (name, total) in enumerate(words, start=1):
        apply(state, reported(at, **{name: total}), at * S)
        counts = (state.steps, state.reported_counts.get("episodes", 0.0))
        assert counts >= before
        before = counts
    assert {STEPS.short, EPISODES.short} >= {key.split()[0] for key in state.reported}


def test_a_value_that_ended_is_absent() -> None:
    """Its series is forgotten, the others stay, and no update is counted for it."""
    first = Measured(at=S, scope=Scope.POLICY, values=scalars({KL.name: 0.01, ENTROPY: 0.5}))
    nothing = {KL.name: Column(dtype="<f8", data=b"")}
    ended = Measured(at=2 * S, scope=Scope.RUN, values=nothing)
    state = folded([Record(origin=Origin(run_id="r"), event=event) for event in (first, ended)])

    assert KL.name not in state.policy
    assert (ENTROPY in state.policy, state.updates) == (True, 1)
