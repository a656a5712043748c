"""What branches are worth: exact against a plain reference, and what an estimate keeps."""

from collections.abc import Callable
from itertools import permutations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from overwatch_rl.worlds.morphogenesis.attribution import EXACT_SLOTS, attribute, subsets_of

Game = Callable[[frozenset[int]], float]


def members(row: Tensor) -> frozenset[int]:
    """The slots of a subset."""
    return frozenset(row.nonzero().flatten().tolist())


def played(game: Game, slots: int) -> Tensor:
    """1 M: what a game gives for each subset."""
    return torch.tensor([[game(members(row)) for row in subsets_of(slots)]])


def reference(game: Game, slots: int) -> list[float]:
    """Shapley values by their definition: the mean over all orders of what a slot adds."""
    values = [0.0] * slots
    orders = list(permutations(range(slots)))
    for order in orders:
        for place, slot in enumerate(order):
            values[slot] += game(frozenset(order[: place + 1])) - game(frozenset(order[:place]))
    return [value / len(orders) for value in values]


def drawn(seed: int, slots: int) -> Game:
    """A game with a random number for every subset."""
    numbers = torch.rand(2**slots, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return lambda subset: float(numbers[sum(2**slot for slot in subset)])


@settings(max_examples=20)
@given(seed=st.integers(0, 2**31), slots=st.integers(1, EXACT_SLOTS))
def test_shapley_values_of_few_slots_are_exact(seed: int, slots: int) -> None:
    """Against the definition, in a game where every subset is worth what chance gives it."""
    game = drawn(seed, slots)
    found = attribute(played(game, slots), subsets_of(slots), torch.ones(1, slots, dtype=torch.bool))

    assert found.shapley[0].tolist() == pytest.approx(reference(game, slots), abs=1e-5)


@settings(max_examples=15)
@given(seed=st.integers(0, 2**31), slots=st.integers(1, 12))
def test_shapley_values_add_up_to_all_that_is_gained(seed: int, slots: int) -> None:
    """Efficiency, for exact values and for estimates alike."""
    live = torch.ones(1, slots, dtype=torch.bool)
    found = attribute(played(drawn(seed, slots), slots), subsets_of(slots), live)

    assert float(found.shapley.sum()) == pytest.approx(float(found.combined - found.baseline), abs=1e-5)


@pytest.mark.parametrize("slots", [3, 6, 9, 20])
def test_estimates_are_exact_where_branches_interact_in_pairs(slots: int) -> None:
    """Each slot gets what it adds alone and half of each of its pairs."""
    draws = torch.Generator().manual_seed(slots)
    alone = torch.randn(slots, generator=draws, dtype=torch.float64)
    bonds = torch.randn(slots, slots, generator=draws, dtype=torch.float64).triu(1)

    def game(subset: frozenset[int]) -> float:
        inside = sorted(subset)
        paired = sum(float(bonds[one, other]) for one in inside for other in inside)
        return sum(float(alone[slot]) for slot in inside) + paired

    found = attribute(played(game, slots), subsets_of(slots), torch.ones(1, slots, dtype=torch.bool))
    expected = alone + (bonds + bonds.T).sum(dim=1) / 2

    assert found.shapley[0].tolist() == pytest.approx(expected.tolist(), abs=1e-4)
    assert found.interaction[0].tolist() == pytest.approx((bonds + bonds.T).sum(dim=1).tolist(), abs=1e-4)
    assert float(found.synergy) == pytest.approx(float(bonds.sum()), abs=1e-4)


def test_two_branches_that_help_each_other_have_synergy_and_boost() -> None:
    """Alone 0.1 and 0.2, together 0.5: the pair adds 0.2, which both receive; a third does harm to one."""
    worth = {(): 0.4, (0,): 0.5, (1,): 0.6, (2,): 0.4, (0, 1): 0.9, (0, 2): 0.4, (1, 2): 0.6, (0, 1, 2): 0.8}
    accuracies = played(lambda subset: worth[tuple(sorted(subset))], 3)
    found = attribute(accuracies, subsets_of(3), torch.ones(1, 3, dtype=torch.bool))

    assert float(found.baseline) == pytest.approx(0.4)
    assert float(found.combined) == pytest.approx(0.8)
    assert found.individual[0].tolist() == pytest.approx([0.1, 0.2, 0.0], abs=1e-6)
    assert float(found.pairs[0, 0, 1]) == pytest.approx(0.2, abs=1e-6)
    assert float(found.pairs[0, 0, 2]) == pytest.approx(-0.1, abs=1e-6)
    assert found.pairs[0].diagonal().isnan().all()
    assert torch.equal(found.pairs[0].nan_to_num(), found.pairs[0].T.nan_to_num())
    assert found.boost[0].tolist() == pytest.approx([0.2, 0.2, 0.0], abs=1e-6)
    assert found.interaction[0].tolist() == pytest.approx([0.1, 0.2, -0.1], abs=1e-6)
    assert float(found.synergy) == pytest.approx(0.1, abs=1e-6)


def test_a_slot_without_a_branch_has_no_number_and_takes_none() -> None:
    """Its values are absent, and those of the others are the same as if it were not there."""
    full = attribute(played(drawn(5, 2), 2), subsets_of(2), torch.ones(1, 2, dtype=torch.bool))
    accuracies = played(lambda subset: drawn(5, 2)(subset - {2}), 3)
    found = attribute(accuracies, subsets_of(3), torch.tensor([[True, True, False]]))

    assert found.shapley[0, :2].tolist() == pytest.approx(full.shapley[0].tolist(), abs=1e-6)
    assert float(found.synergy) == pytest.approx(float(full.synergy), abs=1e-6)
    for column in (found.individual, found.shapley, found.interaction, found.boost):
        assert column[0, 2].isnan()
    assert found.pairs[0, 2].isnan().all()
    assert found.pairs[0, :, 2].isnan().all()


def test_subsets_are_all_of_few_slots_and_few_of_many() -> None:
    """16 of four slots; of six less than the 64 there are; none twice; first none and last all."""
    for slots, number in ((1, 2), (4, 16), (6, 41)):
        subsets = subsets_of(slots)
        assert len(subsets) == len(subsets.unique(dim=0)) == number
        assert not bool(subsets[0].any())
        assert bool(subsets[-1].all())
    with pytest.raises(ValueError, match="slots is 0"):
        subsets_of(0)


def test_accuracies_of_other_subsets_are_refused() -> None:
    """The error names both numbers."""
    with pytest.raises(ValueError, match=r"4 accuracies of 4 subsets; subsets_of\(3\) has 8"):
        attribute(torch.zeros(1, 4), subsets_of(3)[:4], torch.ones(1, 3, dtype=torch.bool))
