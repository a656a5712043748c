"""Groups as a sampler makes them, read by the trainer's own decoding."""

from pathlib import Path

import msgspec
import pytest
import torch

from overwatch_rl.algorithms.grpo import distribution, log_probs_of
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.grpo.decoding import decode_batch
from overwatch_rl.grpo.model import ModelConfig, Transformer
from overwatch_rl.grpo.sampler import Sampler
from overwatch_rl.grpo.task import END_CODE, VOCABULARY, TaskConfig, decode, is_held_out, reward
from overwatch_rl.grpo.weights import Weights, newest, publish

TASK = TaskConfig(least=2, most=3)


def model(seed: int) -> Transformer:
    """Random weights."""
    config = ModelConfig(vocabulary=VOCABULARY, positions=TASK.positions, width=16)
    return Transformer(config, torch.Generator().manual_seed(seed))


@pytest.fixture
def weights(tmp_path: Path) -> Weights:
    """Version 2-5, as it lies in a folder."""
    publish(tmp_path, Version(lineage=2, number=5), model(0), TASK)
    found = newest(tmp_path)
    assert found is not None
    return found


def test_groups_are_whole_and_state_how_they_were_drawn(weights: Weights) -> None:
    """What the trainer reads is what the model computes; scores are the task's; no prompt is held out."""
    groups = Sampler(weights, group_size=4, seed=1).groups(3)
    raw = [msgspec.json.decode(msgspec.json.encode(group)) for group in groups]
    found = decode_batch(raw, [5] * 3, vocabulary=VOCABULARY, end=END_CODE)
    assert found.refused == ()
    assert found.answers is not None
    with torch.no_grad():
        again = log_probs_of(distribution(weights.made(), found.answers.tokens), found.answers.tokens)

    assert torch.allclose(torch.where(found.answers.learned, again, 0.0), found.answers.behaviour, atol=1e-5)
    assert len(found.answers.scores) == 12
    for group in groups:
        assert group["version"] == {"lineage": 2, "number": 5}
        prompts = set()
        for tokens, masks, score in zip(group["tokens"], group["masks"], group["scores"], strict=True):
            first = masks.count(-100)
            prompts.add(decode(tokens[:first]))
            assert masks[first:] == tokens[first:]
            assert score == reward(decode(tokens[:first]), decode(tokens[first:]))
        assert len(prompts) == 1
        assert not is_held_out(*prompts)


def test_newer_weights_are_drawn_with_and_named(weights: Weights, tmp_path: Path) -> None:
    """The draws go on where they were."""
    publish(tmp_path, Version(lineage=2, number=6), model(1), TASK)
    newer = newest(tmp_path, weights.version)
    assert newer is not None
    one, other = (Sampler(weights, group_size=2, seed=1) for _ in range(2))
    other.take(newer)

    assert other.groups(1)[0]["version"] == {"lineage": 2, "number": 6}
    assert one.groups(1)[0]["inference_logprobs"] != other.groups(1)[0]["inference_logprobs"]


def test_a_group_of_one_is_refused(weights: Weights) -> None:
    """It can be compared with nothing."""
    with pytest.raises(ValueError, match="group_size is 1; use 2 or more"):
        Sampler(weights, group_size=1, seed=0)
