"""Groups as they come: what is right becomes tensors, what is wrong is named by its path and left out."""

import math
from typing import Any

import pytest
import torch

from overwatch_rl.grpo.decoding import decode_batch

END = 12
GROUP: dict[str, Any] = {
    "tokens": [[1, 11, 1, 12], [1, 11, 2]],
    "masks": [[-100, -100, 1, 12], [-100, -100, 2]],
    "scores": [1.0, 0.0],
    "inference_logprobs": [[1.0, 1.0, -0.5, -0.25], [1.0, 1.0, -2.0]],
    "messages": None,
}


def changed(**values: object) -> dict[str, Any]:
    """The group with other values; `None` takes a key out."""
    return {name: one for name, one in {**GROUP, **values}.items() if one is not None}


def decoded(*groups: dict[str, Any]) -> Any:
    """Of versions from 3 on."""
    return decode_batch(groups, list(range(3, 3 + len(groups))), vocabulary=13, end=END)


def test_a_group_becomes_rows_of_letters_after_the_first() -> None:
    """Prompt and empty places are not learned; an answer without its end was cut."""
    found = decoded(changed(), changed(scores=[0.0, 0.5]))

    assert found.refused == ()
    assert found.answers.tokens.tolist() == [[1, 11, 1, 12], [1, 11, 2, 0]] * 2
    assert found.answers.learned.tolist() == [[False, True, True], [False, True, False]] * 2
    assert torch.equal(found.answers.behaviour, torch.tensor([[0.0, -0.5, -0.25], [0.0, -2.0, 0.0]] * 2))
    assert found.answers.scores.tolist() == [1.0, 0.0, 0.0, 0.5]
    assert found.answers.groups.tolist() == [0, 0, 1, 1]
    assert found.answers.versions == (3, 3, 4, 4)
    assert found.answers.cut.tolist() == [False, True] * 2


@pytest.mark.parametrize("absent", ["left out", "null"])
def test_absent_log_probs_are_refused_by_their_path_and_never_zero(absent: str) -> None:
    """The other groups of the batch are learned from."""
    bad = changed(inference_logprobs=None)
    if absent == "null":
        bad = {**GROUP, "inference_logprobs": None}

    found = decoded(changed(), bad, changed())

    (line,) = found.refused
    assert line.startswith("batch[1].inference_logprobs: is absent")
    assert found.answers.versions == (3, 3, 5, 5)


@pytest.mark.parametrize(
    ("values", "path"),
    [
        (
            {"inference_logprobs": [[1.0, 1.0, -0.5, 1.0], [1.0, 1.0, -2.0]]},
            "batch[0].inference_logprobs[0][3]: 1.0",
        ),
        (
            {"inference_logprobs": [[1.0, 1.0, -0.5], [1.0, 1.0, -2.0]]},
            "batch[0].inference_logprobs: has rows",
        ),
        ({"masks": [[-100, -100, 1, 12], [2]]}, "batch[0].masks: has rows"),
        ({"masks": [[-100, -100, 1, 12], [1, -100, 2]]}, "batch[0].masks[1][0]: nothing comes before"),
        ({"tokens": [[1, 11, 1, 13], [1, 11, 2]]}, "batch[0].tokens[0][3]: 13 is no letter"),
        ({"scores": [1.0]}, "batch[0].scores: has 1 numbers for 2"),
        ({"scores": ["a", "b"]}, "batch[0]: Expected `float`"),
        (
            {"tokens": [[1, 11, 2]], "masks": [[-100, -100, 2]], "scores": [1.0]},
            "batch[0].tokens: has 1 sequences",
        ),
    ],
)
def test_what_is_wrong_is_named_by_its_path(values: dict[str, object], path: str) -> None:
    """And nothing is left to learn from."""
    found = decoded(changed(**values))

    assert found.answers is None
    assert [line[: len(path)] for line in found.refused] == [path]


def test_a_log_prob_that_is_not_finite_is_refused() -> None:
    """By its place."""
    bad = changed(inference_logprobs=[[1.0, 1.0, math.nan, -0.25], [1.0, 1.0, -2.0]])

    assert decoded(bad).refused[0].startswith("batch[0].inference_logprobs[0][2]: nan")
