"""What modes show, and which way a move goes."""

import pytest

from overwatch_rl.worlds.goodhart.cells import ACTION, EMPTY, FOOD, MODES, MOVES, POISON, channels


def test_the_moves_are_the_seeds_in_its_order() -> None:
    """Index, offset and word agree; the first number is x, to the right."""
    assert list(MOVES.values()) == [(-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1)]
    assert ACTION.heads[0].labels[1] == "left"
    assert ACTION.heads[0].labels[3] == "up"


def test_the_truth_is_one_hot() -> None:
    """Six channels, one for each kind of cell."""
    table = channels(MODES["ground_truth"], (1.0, 0.9), 6)

    assert table[FOOD] == (0, 0, 1, 0, 0, 0)
    assert table[POISON] == (0, 0, 0, 1, 0, 0)


@pytest.mark.parametrize("mode", ["proxy", "proxy_jammed"])
def test_a_proxy_shows_poison_almost_as_food(mode: str) -> None:
    """Channels 2 to 5 hold 1.0 for food and 0.9 for poison; nothing else differs."""
    table = channels(MODES[mode], (1.0, 0.9), 6)

    assert table[EMPTY] == (1, 0, 0, 0, 0, 0)
    assert table[FOOD] == (0, 0, 1.0, 1.0, 1.0, 1.0)
    assert table[POISON] == (0, 0, 0.9, 0.9, 0.9, 0.9)


def test_two_channels_are_those_of_food_and_poison() -> None:
    """What is left of the six is what differs."""
    assert channels(MODES["ground_truth"], (1.0, 0.9), 2)[POISON] == (0, 1)
    assert channels(MODES["proxy"], (1.0, 0.5), 2)[POISON] == (0.5, 0.5)
