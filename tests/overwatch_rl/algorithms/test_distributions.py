"""Distributions: legal choices only, unused heads silent, probabilities right."""

import math

import pytest
import torch

from overwatch_rl.algorithms.policy import Categorical, Gaussian
from overwatch_rl.types import Box, Factored, Head
from tests.overwatch_rl.algorithms.small import SPEC, legal

ROWS = 4000


def outputs(rows: int, seed: int = 0) -> torch.Tensor:
    """Random, with differences that matter."""
    return 3.0 * torch.randn(rows, SPEC.num_outputs, generator=torch.Generator().manual_seed(seed))


def test_only_legal_choices_are_drawn_and_all_of_them() -> None:
    """No `drop`, no slot a, no kind z; and an unused head is 0."""
    generator = torch.Generator().manual_seed(1)
    drawn = Categorical(SPEC).sample(outputs(ROWS), legal(ROWS), generator, greedy=False).actions

    assert {tuple(row) for row in drawn.tolist()} == {(0, 0, 0), (1, 1, 0), (1, 1, 1)}


def test_choices_are_drawn_as_often_as_they_are_likely() -> None:
    """Within five standard errors of a binomial count."""
    spec = Factored(heads=(Head(name="op", labels=("a", "b", "c")),), uses=((True,),) * 3)
    flat = torch.tensor([[0.0, 4.0, 8.0]]).expand(20_000, 3)
    draws = torch.Generator().manual_seed(2)
    drawn = Categorical(spec, logit_scale=0.25).sample(flat, None, draws, greedy=False).actions
    for choice, share in enumerate(torch.tensor([0.0, 1.0, 2.0]).softmax(dim=0).tolist()):
        error = math.sqrt(share * (1 - share) / 20_000)
        assert float((drawn == choice).double().mean()) == pytest.approx(share, abs=5 * error)


def test_a_draw_of_zero_does_not_choose_what_is_illegal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The least possible exponential draw makes no illegal choice certain."""

    def least(tensor: torch.Tensor, *, generator: torch.Generator | None = None) -> torch.Tensor:
        return tensor.fill_(0.0)

    monkeypatch.setattr(torch.Tensor, "exponential_", least)
    drawn = Categorical(SPEC).sample(outputs(50), legal(50), None, greedy=False).actions

    assert bool((drawn[:, 0] < 2).all())


def test_unused_heads_cost_nothing_and_get_no_gradient() -> None:
    """Waiting has the log-probability, the entropy and the gradient of the operation alone."""
    flat = outputs(5).requires_grad_()
    judged = Categorical(SPEC).evaluate(flat, legal(5), torch.zeros(5, 3, dtype=torch.int64))
    (judged.log_probs.sum() + judged.entropy.sum()).backward()

    assert judged.used.tolist() == [[True, False, False]] * 5
    assert judged.log_probs[:, 1:].abs().sum() == 0
    assert judged.entropy[:, 1:].abs().sum() == 0
    assert bool((judged.entropy[:, 0] > 0).all())
    assert flat.grad is not None
    assert bool(flat.grad.isfinite().all())
    assert float(flat.grad[:, 3:].abs().sum()) == 0
    assert float(flat.grad[:, :2].abs().sum()) > 0


def test_greedy_takes_the_likeliest_legal_choice() -> None:
    """It is the same every time."""
    first = Categorical(SPEC).sample(outputs(20), legal(20), None, greedy=True).actions
    again = Categorical(SPEC).sample(outputs(20), legal(20), None, greedy=True).actions

    assert torch.equal(first, again)
    assert torch.equal(first[:, 0], outputs(20)[:, :2].argmax(dim=1))


def test_a_gaussian_has_the_densities_of_torchs_own() -> None:
    """Joint over dimensions, entropy too; greedy gives the means."""
    made = Gaussian(Box(low=(-1.0, -1.0), high=(1.0, 1.0)))
    with torch.no_grad():
        made.log_std.copy_(torch.tensor([-0.5, 0.3]))
    means, actions = torch.randn(6, 2), torch.randn(6, 2)
    theirs = torch.distributions.Normal(means, made.log_std.exp())
    judged = made.evaluate(means, None, actions)

    assert torch.allclose(judged.log_probs[:, 0], theirs.log_prob(actions).sum(dim=1), atol=1e-5)
    assert torch.allclose(judged.entropy[:, 0], theirs.entropy().sum(dim=1), atol=1e-6)
    assert torch.equal(made.sample(means, None, None, greedy=True).actions, means)
    assert not judged.possible.any()


def test_a_gaussian_draws_with_its_deviation() -> None:
    """Mean and deviation of many draws, within five standard errors."""
    made = Gaussian(Box(low=(-1.0,), high=(1.0,)))
    with torch.no_grad():
        made.log_std.fill_(math.log(0.5))
        means = torch.full((20_000, 1), 2.0)
        drawn = made.sample(means, None, torch.Generator().manual_seed(3), greedy=False)

    assert float(drawn.actions.mean()) == pytest.approx(2.0, abs=5 * 0.5 / math.sqrt(20_000))
    assert float(drawn.actions.std()) == pytest.approx(0.5, abs=5 * 0.5 / math.sqrt(40_000))


@pytest.mark.parametrize(
    ("uses", "words"),
    [(((True,),), "2 rows of 1 entries"), (((True,), (False,)), "every operation uses the first head")],
)
def test_a_spec_that_does_not_fit_is_refused(uses: tuple[tuple[bool, ...], ...], words: str) -> None:
    """The error names what is missing."""
    with pytest.raises(ValueError, match=words):
        Factored(heads=(Head(name="op", labels=("wait", "go")),), uses=uses)
