"""Sets of limits by name."""

import pytest

from overwatch.catalog.presets import PRESETS, parse_preset


def test_a_preset_is_known_by_its_name() -> None:
    """The four that there are."""
    assert [parse_preset(name) for name in PRESETS] == ["ppo", "ppo-continuous", "grpo", "esper"]


def test_an_unknown_preset_is_told_the_nearest() -> None:
    """The error says what was meant, or what there is."""
    with pytest.raises(ValueError, match="did you mean 'esper'"):
        parse_preset("espr")
    with pytest.raises(ValueError, match="there is ppo, ppo-continuous, grpo, esper"):
        parse_preset("zzz")
