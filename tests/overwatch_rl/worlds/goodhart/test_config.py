"""The defaults are the seed's, and what cannot be is refused."""

import pytest

from overwatch_rl.worlds.goodhart.config import goodhart_config


def test_the_defaults_are_the_seeds() -> None:
    """Field, view, energies, interest and curriculum as the seed describes them."""
    own = goodhart_config("", {})

    assert (own.size, own.view, own.channels) == (100, 11, 6)
    assert (own.start_energy, own.food_energy, own.poison_energy, own.move_cost) == (50, 5, 3, 0.05)
    assert (own.food_interest, own.poison_interest) == (1.0, 0.9)
    assert (own.min_food, own.max_food, own.min_poison, own.max_poison) == (50, 200, 20, 100)
    assert (own.reward_scale, own.shaping, own.gamma) == (0.1, 0.5, 0.99)


def test_a_part_changes_the_defaults_and_a_setting_changes_the_part() -> None:
    """`goodhart:small` with one value of its own, given as text."""
    own = goodhart_config("small", {"horizon": "32", "mortal": "no"})

    assert own.size < 100
    assert (own.horizon, own.mortal) == (32, False)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"mode": "truth"}, "mode is 'truth'; use one of ground_truth, proxy, proxy_jammed"),
        ({"channels": 3}, "channels is 3; use one of 6, 2"),
        ({"view": 10}, "view is 10; use an odd number"),
        ({"size": 9}, "size is 9; use 11 to 1024"),
        ({"horizon": 0}, "horizon is 0; use 1 to"),
        ({"move_cost": -1}, "move_cost is -1.0; use 0 or more"),
        ({"start_energy": 0}, "start_energy is 0.0; use a number above 0"),
        ({"reward_scale": "nan"}, "reward_scale is .nan.; use a finite number"),
        ({"poison_interest": 1.5}, "poison_interest is 1.5; use 0 to 1"),
        ({"min_food": 9, "max_food": 8}, "min_food is 9 and max_food is 8"),
        ({"size": 11, "max_food": 100}, "leave no room in 121 cells"),
        ({"food": 1}, "goodhart has no setting 'food'"),
    ],
)
def test_what_cannot_be_is_refused(settings: dict[str, object], error: str) -> None:
    """The error names the setting, its value and the fix."""
    with pytest.raises(ValueError, match=error):
        goodhart_config("", settings)


def test_an_unknown_part_is_refused() -> None:
    """The error names the parts that there are."""
    with pytest.raises(ValueError, match="goodhart has no part 'tiny'; use goodhart:small"):
        goodhart_config("tiny", {})
