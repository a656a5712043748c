"""The machine of states."""

import itertools

import pytest

from overwatch_rl.orchestrator.states import (
    FINAL,
    LEGAL,
    RESUMABLE,
    IllegalMoveError,
    State,
    route,
)

PAIRS = list(itertools.product(LEGAL, LEGAL))


def test_every_state_is_in_the_table_and_can_be_reached() -> None:
    """From pending; only ends lead nowhere."""
    reached: set[State] = {"pending"}
    for _ in LEGAL:
        reached |= {after for before in reached for after in LEGAL[before]}

    assert reached == set(LEGAL)
    assert {"completed", "failed", "terminated"} == FINAL
    assert RESUMABLE < FINAL


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_a_route_is_legal_step_by_step(before: State, after: State) -> None:
    """A direct move is one step; what is illegal is refused with both names and what is legal."""
    reached = {before}
    for _ in LEGAL:
        reached |= {following for at in reached for following in LEGAL[at]}
    if after not in reached:
        legal = ", ".join(LEGAL[before]) or "none"
        with pytest.raises(
            IllegalMoveError, match=rf"{before} → {after} is not legal; .* these are: {legal}"
        ):
            route(before, after)
        return
    steps = route(before, after)
    for at, following in itertools.pairwise((before, *steps)):
        assert following in LEGAL[at]
    assert (steps[-1] if steps else before) == after
    assert (len(steps) == 1) == (after in LEGAL[before])


@pytest.mark.parametrize("before", sorted(FINAL))
def test_only_a_new_life_goes_on_from_an_end_that_no_operator_made(before: State) -> None:
    """What was terminated stays so."""
    with pytest.raises(IllegalMoveError, match=r"these are: none"):
        route(before, "running")
    if before in RESUMABLE:
        assert route(before, "running", is_new_life=True) == ("running",)
        assert route(before, "paused", is_new_life=True) == ("running", "paused")
    else:
        with pytest.raises(IllegalMoveError):
            route(before, "running", is_new_life=True)


def test_terminating_never_runs_again() -> None:
    """Nor does a new life make it."""
    with pytest.raises(IllegalMoveError, match=r"terminating → running is not legal"):
        route("terminating", "running", is_new_life=True)
