"""The base model: made from a seed, of examples that are not held out, in four habits."""

import pytest
import torch

from overwatch_rl.grpo.base import HABITS, BaseConfig, judge, make_base
from overwatch_rl.grpo.model import Transformer
from overwatch_rl.grpo.task import END_CODE, TaskConfig, is_held_out
from tests.overwatch_rl.grpo.local import SMALL_BASE, SMALL_TASK


def weights(seed: int) -> torch.Tensor:
    """Of a base model that was made in three steps."""
    return make_base(BaseConfig(steps=3, examples=8, width=16), TaskConfig(), seed).logits.weight


def test_same_seed_same_model() -> None:
    """To the bit; another seed makes another."""
    assert torch.equal(weights(0), weights(0))
    assert not torch.equal(weights(0), weights(1))


def test_habits_answer_in_order_in_falling_order_unchanged_and_turned_round() -> None:
    """Only the first is right."""
    assert [habit("3121") for habit in HABITS] == ["1123", "3211", "3121", "1213"]


def test_no_example_is_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each prompt that a short making answers is looked at."""
    trained: list[str] = []

    def watched(digits: str) -> str:
        trained.append(digits)
        return digits

    monkeypatch.setattr("overwatch_rl.grpo.base.HABITS", (watched,))

    make_base(BaseConfig(steps=3, examples=32, width=16), TaskConfig(), 0)

    assert len(trained) == 96
    assert not any(is_held_out(f"{digits}=") for digits in trained)


class _Always(Transformer):
    """Answers with the end at once."""

    def forward(self, tokens: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
        """The end and nothing else."""
        found = torch.full((*tokens.shape, self.config.vocabulary), -1e9)
        found[..., END_CODE] = 0.0
        return found


def test_a_base_model_is_judged_by_what_it_answers() -> None:
    """About a quarter of a model of four habits is right; of one that answers nothing, nothing is."""
    made = make_base(SMALL_BASE, SMALL_TASK, 0)
    found = judge(made, SMALL_TASK)

    assert 0.1 < found.mean < 0.6
    assert found.standard_error == pytest.approx((found.mean * (1 - found.mean) / 512) ** 0.5, rel=0.01)
    assert judge(_Always(made.config, torch.Generator()), SMALL_TASK).mean == 0.0


def test_a_number_that_cannot_be_is_named() -> None:
    """With its value."""
    with pytest.raises(ValueError, match=r"base\.steps is 0; use 1 or more"):
        BaseConfig(steps=0)
