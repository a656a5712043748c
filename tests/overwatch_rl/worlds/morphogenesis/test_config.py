"""Settings are refused with their value and what to use."""

import pytest

from overwatch_rl.worlds.morphogenesis.config import MorphogenesisConfig


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"slots": 0}, "slots is 0; use 1 to 64"),
        ({"slots": 65}, "slots is 65; use 1 to 64"),
        ({"steps": 0}, "steps is 0; use 1 or more"),
        ({"max_seeds": 0}, "max_seeds is 0; use 1 or more, or none"),
        ({"hosts": "rnn"}, "hosts is 'rnn'; use mlp"),
        ({"data": "/no/such"}, "data is '/no/such'; use digits"),
        ({"gates": "lax"}, "gates is 'lax'; use permissive or strict"),
        ({"embargo": 0}, "embargo is 0; use 1 or more"),
        ({"min_train": -1}, "min_train is -1; use 0 or more"),
        ({"max_hold": 2}, "max_hold is 2; use more than min_hold, which is 2"),
        ({"min_health": 1.5}, r"min_health is 1.5; use 0 to 1"),
        ({"max_ratio": 0.1}, r"max_ratio is 0.1; use more than min_ratio, which is 0.1"),
        ({"max_rollbacks": 0}, "max_rollbacks is 0; use 1 or more"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, object], error: str) -> None:
    """With what to use instead."""
    with pytest.raises(ValueError, match=error):
        MorphogenesisConfig(**settings)  # type: ignore[arg-type]  # wrong on purpose


def test_gates_that_ask_themselves_are_named() -> None:
    """By the flags that are set."""
    assert MorphogenesisConfig().auto_gates == set()
    assert MorphogenesisConfig(auto_g1=True, auto_g3=True).auto_gates == {"G1", "G3"}
