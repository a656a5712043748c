"""The factored distribution: legal choices only, unused heads silent, probabilities right."""

import math

import pytest
import torch
from overwatch_rl.algos.networks import player

from overwatch_rl.types import ActionSpec, Head
from tests.overwatch_rl.algos.small import SPEC, observation, policy

ROWS = 4000


def test_only_legal_choices_are_drawn_and_all_of_them() -> None:
    """No `drop`, no slot a, no kind z; and an unused head is 0."""
    drawn = policy().act(observation(ROWS), torch.Generator().manual_seed(1)).actions

    seen = {tuple(row) for row in drawn.tolist()}
    assert seen == {(0, 0, 0), (1, 1, 0), (1, 1, 1)}


def test_log_probabilities_are_those_of_the_softmax_over_legal_choices() -> None:
    """By hand for every row: the joint one is a product over the heads that the operation uses."""
    made, seen = policy(), observation(50)
    actions = torch.tensor([[1, 1, 1]]).expand(50, 3)
    decision = made.judge(seen, actions)
    logits = SPEC.unpack(0.25 * made.actor(seen.features))
    op = logits[0][:, :2].softmax(dim=1)[:, 1]
    kind = logits[2][:, 1, :2].softmax(dim=1)[:, 1]

    assert torch.allclose(decision.log_probs.sum(dim=1), (op * kind).log(), atol=1e-5)
    assert torch.equal(decision.log_probs[:, 1], torch.zeros(50))
    assert decision.num_legal.tolist() == [[2, 1, 2]] * 50


def test_unused_heads_cost_nothing() -> None:
    """Waiting has the log-probability and the entropy of the operation alone."""
    decision = policy().judge(observation(5), torch.zeros(5, 3, dtype=torch.int64))

    assert decision.used.tolist() == [[True, False, False]] * 5
    assert decision.log_probs[:, 1:].abs().sum() == 0
    assert decision.entropy[:, 1:].abs().sum() == 0
    assert bool((decision.entropy[:, 0] > 0).all())


def test_entropy_of_an_even_choice_is_the_logarithm_of_its_size() -> None:
    """A policy with equal logits over two legal operations has ln 2."""
    made = policy()
    with torch.no_grad():
        made.actor[-1].weight.zero_()
    decision = made.judge(observation(3), torch.tensor([[1, 1, 0]]).expand(3, 3))

    assert decision.entropy[0].tolist() == pytest.approx([math.log(2), 0.0, math.log(2)], abs=1e-6)


def test_a_player_without_generator_takes_the_likeliest() -> None:
    """It is the same every time, and legal."""
    made, seen = policy(), observation(20)
    first, again = player(made)(seen), player(made)(seen)

    assert torch.equal(first, again)
    assert bool((first[:, 0] < 2).all())


def test_the_same_generator_makes_the_same_network() -> None:
    """Weights come from the passed generator alone."""
    torch.manual_seed(1)
    first = policy(5).state_dict()
    torch.manual_seed(2)
    again = policy(5).state_dict()

    assert all(torch.equal(first[name], again[name]) for name in first)


@pytest.mark.parametrize(
    ("uses", "said"),
    [(((True,),), "2 rows of 1 entries"), (((True,), (False,)), "every operation uses the first head")],
)
def test_a_spec_that_does_not_fit_is_refused(uses: tuple[tuple[bool, ...], ...], said: str) -> None:
    """The error says what is missing."""
    with pytest.raises(ValueError, match=said):
        ActionSpec(heads=(Head(name="op", labels=("wait", "go")),), uses=uses)
