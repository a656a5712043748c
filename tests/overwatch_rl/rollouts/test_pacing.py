"""Two levels, so that a handler does not flutter around one."""

from hypothesis import given
from hypothesis import strategies as st

from overwatch_rl.rollouts.pacing import Pacing


def paused(*queued: int) -> list[bool]:
    """Whether a handler pauses after each size of the queue; it pauses above 24 sequences."""
    pacing, found = Pacing.of(3, 8), []
    for size in queued:
        pacing = pacing.after(size)
        found.append(pacing.is_paused)
    return found


def test_it_pauses_above_the_upper_level_and_goes_on_at_the_lower_one() -> None:
    """24 is not above 24; 25 is; 13 is not yet the half; 12 is."""
    assert paused(24, 25, 24, 13, 12, 24, 25) == [False, True, True, True, False, False, True]


@given(st.integers(13, 24), st.integers(1, 50))
def test_between_the_levels_nothing_changes(size: int, times: int) -> None:
    """However often it looks, a queue between the levels leaves it as it is."""
    assert len(set(paused(0, *[size] * times))) == 1
    assert len(set(paused(25, *[size] * times))) == 1
