"""The task: prompts, which of them are held out, and what is right."""

import random
from itertools import permutations

import pytest

from overwatch_rl.grpo.task import (
    PAD,
    VOCABULARY,
    TaskConfig,
    decode,
    draw,
    encode,
    is_held_out,
    reward,
    right_answer,
)


def source(seed: int) -> random.Random:
    """Draws of prompts."""
    return random.Random(seed)  # noqa: S311 prompts, no secrets


def test_only_the_digits_in_order_and_the_end_are_right() -> None:
    """Neither more nor less nor another order."""
    assert right_answer("4131=") == "1134."
    assert [reward("4131=", given) for given in ("1134.", "4311.", "1134", "1134..", "")] == [1, 0, 0, 0, 0]


def test_a_prompt_is_held_out_with_every_order_of_its_digits() -> None:
    """So no training saw the right answer to it."""
    trained = set(map(right_answer, draw(3000, TaskConfig(), source(0))))
    held_out = set(map(right_answer, draw(500, TaskConfig(), source(1), held_out=True)))

    assert len(held_out) > 200
    assert not trained & held_out
    assert {is_held_out("".join(digits) + "=") for digits in permutations("2207")} in ({True}, {False})


def test_prompts_have_the_lengths_that_were_asked_for() -> None:
    """All of them, the end of the prompt not counted."""
    lengths = {len(prompt) - 1 for prompt in draw(200, TaskConfig(least=2, most=4), source(0))}

    assert lengths == {2, 3, 4}


def test_codes_and_letters_are_one_another() -> None:
    """No letter has the code of the empty place."""
    text = "0123456789=."

    assert decode(encode(text)) == text
    assert PAD not in encode(text)
    assert max(encode(text)) == VOCABULARY - 1
    assert decode([PAD]) == "_"


def test_lengths_that_cannot_be_are_refused() -> None:
    """With both."""
    with pytest.raises(ValueError, match="least is 3 and most 2"):
        TaskConfig(least=3, most=2)
