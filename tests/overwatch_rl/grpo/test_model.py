"""The transformer: what it draws a letter at a time is what it thinks of the whole."""

import pytest
import torch

from overwatch_rl.algorithms.grpo import distribution, log_probs_of
from overwatch_rl.grpo.base import padded
from overwatch_rl.grpo.model import ModelConfig, Transformer, answer

PROMPTS = [[3, 4, 5], [1], [2, 2, 2, 2, 6], [5, 1]]
END = 7
MOST = 6


def model(seed: int = 0) -> Transformer:
    """A small one with random weights."""
    config = ModelConfig(vocabulary=9, positions=16, width=16, layers=2, heads=2)
    return Transformer(config, torch.Generator().manual_seed(seed))


def drawn(count: int = 1, seed: int = 0) -> tuple[list[list[int]], list[list[int]], list[list[float]]]:
    """Prompts, answers and log-probabilities."""
    prompts = PROMPTS * count
    found = answer(model(), prompts, most=MOST, end=END, generator=torch.Generator().manual_seed(seed))
    sizes = found.lengths.tolist()
    return (
        prompts,
        [row[:size] for row, size in zip(found.tokens.tolist(), sizes, strict=True)],
        [row[:size] for row, size in zip(found.log_probs.tolist(), sizes, strict=True)],
    )


def test_drawn_log_probs_are_those_of_the_whole_sequence() -> None:
    """Kept keys and values, and prompts of different lengths, change nothing but roundings."""
    prompts, answers, chances = drawn(count=8)
    tokens = padded([prompt + drawn_one for prompt, drawn_one in zip(prompts, answers, strict=True)])
    with torch.no_grad():
        whole = log_probs_of(distribution(model(), tokens), tokens)

    for row, (prompt, drawn_one) in enumerate(zip(prompts, answers, strict=True)):
        first = len(prompt) - 1
        again = whole[row, first : first + len(drawn_one)]
        assert torch.allclose(again, torch.tensor(chances[row]), atol=1e-5)


def test_an_answer_ends_once_or_is_cut() -> None:
    """The end is its last letter and stands nowhere else; the empty place is never drawn."""
    _, answers, _ = drawn(count=32)

    assert {END in one for one in answers} == {True, False}
    for drawn_one in answers:
        assert 0 not in drawn_one
        assert drawn_one.index(END) + 1 == len(drawn_one) if END in drawn_one else len(drawn_one) == MOST


def test_letters_are_drawn_as_often_as_the_model_predicts() -> None:
    """First letters after one prompt, 4,000 of them, within four standard errors each."""
    count = 4000
    made = model()
    found = answer(made, [PROMPTS[0]] * count, most=1, end=END, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted = torch.softmax(made(torch.tensor([PROMPTS[0]]))[0, -1], dim=0)

    shares = torch.bincount(found.tokens[:, 0], minlength=9) / count
    assert bool(((shares - wanted).abs() <= 4 * (wanted * (1 - wanted) / count).sqrt()).all())


def test_same_seed_same_model_and_same_answers() -> None:
    """Another seed, others."""
    assert torch.equal(model().logits.weight, model().logits.weight)
    assert not torch.equal(model().logits.weight, model(1).logits.weight)
    assert drawn() == drawn()
    assert drawn() != drawn(seed=1)


def test_a_width_that_heads_do_not_divide_is_refused() -> None:
    """With both numbers."""
    with pytest.raises(ValueError, match="width is 10; use a multiple of the 4 heads"):
        ModelConfig(vocabulary=3, positions=3, width=10)
