"""What follows from gradients that are not finite, over any sequence of updates."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overwatch_rl.algorithms.recovery import (
    Abort,
    Continue,
    Cut,
    Recovery,
    RecoveryConfig,
    Remedy,
    RollBack,
    judge,
    resumed,
)

CONFIG = RecoveryConfig(rollback_after=3, most_rollbacks=1, calm=2)


def played(counts: list[int], config: RecoveryConfig = CONFIG) -> tuple[Recovery, list[Remedy]]:
    """The remedies of updates from 1."""
    state, found = Recovery(), []
    for update, count in enumerate(counts, start=1):
        state, remedy = judge(state, config, update=update, not_finite=count)
        found.append(remedy)
    return state, found


def test_a_bad_update_cuts_the_rate_and_repeats_roll_back() -> None:
    """The third in a row names the first of them; the cut holds."""
    _, remedies = played([0, 1, 2, 1, 0])
    assert remedies == [
        Continue(),
        Cut(scale=0.5),
        Cut(scale=0.25),
        RollBack(before=2, scale=0.125),
        Continue(),
    ]


def test_a_finite_update_between_starts_the_count_anew() -> None:
    """Single bad updates cut, and never roll back."""
    _, remedies = played([1, 0, 1, 0, 1])
    assert [type(one) for one in remedies] == [Cut, Continue, Cut, Continue, Cut]


def test_a_run_that_rolled_back_in_vain_ends_with_its_reason() -> None:
    """It names how often, and the rate."""
    _, remedies = played([1] * 6)
    last = remedies[-1]
    assert isinstance(last, Abort)
    assert "3 updates in a row, after 1 rollbacks and with the learning rate at 0.015625" in last.reason


def test_calm_allows_another_rollback() -> None:
    """After `calm` finite updates in a row."""
    _, remedies = played([1, 1, 1, 0, 0, 1, 1, 1])
    assert isinstance(remedies[-1], RollBack)


def test_numbers_of_a_dropped_policy_are_passed_over() -> None:
    """They come up to two updates after the rollback."""
    state, _ = played([1, 1, 1])
    state = resumed(state, update=5)
    for update in (4, 5):
        state, remedy = judge(state, CONFIG, update=update, not_finite=1)
        assert remedy == Continue()
    state, remedy = judge(state, CONFIG, update=6, not_finite=1)
    assert isinstance(remedy, Cut)


@given(counts=st.lists(st.integers(0, 3), max_size=60))
def test_the_rate_only_falls_and_keeps_above_its_least(counts: list[int]) -> None:
    """Whatever comes, and a finite update changes nothing."""
    state, scale = Recovery(), 1.0
    for update, count in enumerate(counts, start=1):
        state, remedy = judge(state, CONFIG, update=update, not_finite=count)
        if not count:
            assert remedy == Continue()
        if isinstance(remedy, Cut | RollBack):
            assert CONFIG.least <= remedy.scale <= scale
            scale = remedy.scale
        assert state.bad < CONFIG.rollback_after or isinstance(remedy, Abort)


@pytest.mark.parametrize(
    ("name", "value", "fix"),
    [
        ("cut", 1.0, "between 0 and 1"), ("least", 0.0, "above 0"), ("rollback_after", 0, "1 or more"),
        ("calm", 0, "1 or more"), ("most_rollbacks", -1, "0 or more"),
    ],
)  # fmt: skip
def test_impossible_settings_are_refused(name: str, value: float, fix: str) -> None:
    """The error names the value and the fix."""
    with pytest.raises(ValueError, match=f"{name} is {value}; use .*{fix}"):
        RecoveryConfig(**{name: value})  # type: ignore[arg-type]  # any of them
