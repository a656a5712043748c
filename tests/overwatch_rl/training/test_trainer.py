"""The loop: deterministic, stoppable between two steps, honest about its numbers."""

import math

import pytest
import torch

from overwatch_rl.training.trainer import Episodes, TrainerConfig
from overwatch_rl.types import Observation, Step
from tests.overwatch_rl.kept import trainer, weights


def test_same_seed_same_training() -> None:
    """All numbers of all updates and all weights are equal to the last bit; another seed differs."""
    runs = []
    for seed in (3, 3, 4):
        made, algorithm, kept = trainer(TrainerConfig(updates=2, seed=seed))
        assert made.run() == "completed"
        runs.append((kept.numbers(), weights(algorithm)))
    (first, learned), (again, learned_again), (other, _) = runs

    assert first == again
    assert first != other
    assert all(torch.equal(value, learned_again[name]) for name, value in learned.items())


def test_kl_is_measured_anew_at_every_update() -> None:
    """Three updates, three values, none of them zero."""
    made, _, kept = trainer(TrainerConfig(updates=3))
    made.run()
    kls = [update["kl_divergence"] for update in kept.updates]

    assert len(set(kls)) == 3
    assert min(kls) > 0


def test_a_rollout_without_an_end_has_no_return() -> None:
    """NaN, not zero; and the critic's value continues the rollout."""
    made, _, kept = trainer(TrainerConfig(updates=1, steps=10))
    made.run()

    assert math.isnan(kept.updates[0]["return"])
    assert kept.beats[-1] == 10


def test_it_stops_between_two_steps() -> None:
    """The step under way is finished and reported, the unfinished rollout is not learned from."""
    made, _, kept = trainer(
        TrainerConfig(updates=None, steps=20),
        stop=lambda kept: "interrupted" if len(kept.beats) == 25 else None,
    )

    assert made.run() == "interrupted"
    assert (len(kept.beats), len(kept.updates)) == (25, 1)
    assert [(one.first_step, len(one.rewards)) for one in kept.rolled] == [(1, 20), (21, 5)]


def test_returns_and_lengths_count_each_env_from_its_own_beginning() -> None:
    """Episodes that end at different steps have their own sums and lengths; ends of both kinds begin anew."""
    episodes = Episodes(2, torch.device("cpu"))
    found = []
    for terminated, truncated in (((0, 0), (0, 0)), ((1, 0), (0, 0)), ((0, 0), (0, 1)), ((0, 0), (0, 0))):
        step = Step(
            observation=Observation(features=torch.zeros(2, 1)), reward=torch.tensor([1.0, 10.0]),
            terminated=torch.tensor(terminated, dtype=torch.bool),
            truncated=torch.tensor(truncated, dtype=torch.bool),
        )  # fmt: skip
        columns = episodes.add(step)
        found.append((columns["episode_return"].tolist(), columns["episode_length"].tolist()))

    assert found == [
        ([1.0, 10.0], [1, 1]), ([2.0, 20.0], [2, 2]), ([1.0, 30.0], [1, 3]), ([2.0, 10.0], [2, 1]),
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), [("updates", 0), ("steps", 0), ("seed", -1)])
def test_impossible_settings_are_refused(name: str, value: int) -> None:
    """The error names the value."""
    with pytest.raises(ValueError, match=f"{name} is {value}; use"):
        TrainerConfig(**{name: value})
