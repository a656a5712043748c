"""Sets of limits by name."""

import pytest

from overwatch.catalog.presets import (
    ALGORITHMS,
    PRESETS,
    is_off_policy,
    is_supervised,
    parse_preset,
    preset_for,
)


def test_a_preset_is_known_by_its_name() -> None:
    """The four that there are."""
    assert [parse_preset(name) for name in PRESETS] == ["ppo", "ppo-continuous", "grpo", "esper"]


def test_an_algorithm_chooses_its_preset() -> None:
    """In any spelling; what is not known is judged by the default, and every choice exists."""
    assert {preset_for(algo) for algo in ("grpo", "GRPO", "Dr. GRPO".replace(". ", "-"), "RLOO")} == {"grpo"}
    assert {preset_for(a) for a in ("ppo-continuous", "ppo_continuous_action", "SAC")} == {"ppo-continuous"}
    assert {preset_for(algo) for algo in ("ppo", "PPO", "dqn", "my-own", "", None)} == {"ppo"}
    assert set(ALGORITHMS) <= set(PRESETS)


def test_for_an_unknown_preset_the_nearest_is_named() -> None:
    """The error states what was meant, or what there is."""
    with pytest.raises(ValueError, match="did you mean 'esper'"):
        parse_preset("espr")
    with pytest.raises(ValueError, match="there is ppo, ppo-continuous, grpo, esper"):
        parse_preset("zzz")


def test_what_an_algorithm_learns_from_is_known_by_its_name() -> None:
    """Of a name that is not known neither is."""
    assert [is_off_policy(algo) for algo in ("SAC", "dqn", "ppo", "mine", None)] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert [is_supervised(algo) for algo in ("SFT", "dpo", "grpo", "", None)] == [
        True,
        True,
        False,
        False,
        False,
    ]
