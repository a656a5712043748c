"""The loop: deterministic, stoppable between two steps, honest about its numbers."""

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from overwatch_rl.envs import make
from overwatch_rl.envs.base import WorldConfig
from overwatch_rl.envs.evaluation import play
from overwatch_rl.trainer import EpisodeTally, Trainer, TrainerConfig, load_policy

from overwatch_rl.types import Observation, Step, StepReport, UpdateReport

TINY = WorldConfig(num_envs=2, num_slots=1)


class Kept:
    """A reporter that keeps what it is told."""

    def __init__(self) -> None:
        self.updates: list[UpdateReport] = []
        self.steps: list[StepReport] = []

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:  # noqa: ARG002 kept steps and updates are enough
        """Nothing to keep."""
        yield

    def step(self, report: StepReport) -> None:
        """Keep it."""
        self.steps.append(report)

    def update(self, report: UpdateReport) -> None:
        """Keep it."""
        self.updates.append(report)

    def close(self, *, outcome: str, reason: str | None = None) -> None:
        """Nothing to keep."""


def trained(config: TrainerConfig) -> tuple[Trainer, Kept]:
    """A finished run on the tiny world."""
    kept = Kept()
    trainer = Trainer(make("morphogenesis", TINY), config, kept, lambda: None)
    trainer.run()
    return trainer, kept


def numbers(kept: Kept) -> list[dict[str, float]]:
    """All values but the time."""
    return [
        {name: v for name, v in report.values.items() if name != "update_time"} for report in kept.updates
    ]


def test_same_seed_same_training() -> None:
    """All numbers of all updates and all weights are equal to the last bit; another seed differs."""
    first, kept = trained(TrainerConfig(updates=2, seed=3))
    again, kept_again = trained(TrainerConfig(updates=2, seed=3))
    _, other = trained(TrainerConfig(updates=2, seed=4))

    assert numbers(kept) == numbers(kept_again)
    assert numbers(kept) != numbers(other)
    weights = again.policy.state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in first.policy.state_dict().items())


def test_kl_is_measured_anew_at_every_update() -> None:
    """Three updates, three values, none of them zero."""
    _, kept = trained(TrainerConfig(updates=3))
    kls = [report.values["kl_divergence"] for report in kept.updates]

    assert len(set(kls)) == 3
    assert min(kls) > 0


def test_a_rollout_without_an_end_has_no_return() -> None:
    """NaN, not zero; and the critic's value continues the rollout."""
    _, kept = trained(TrainerConfig(updates=1, steps=10))

    assert math.isnan(kept.updates[0].values["return"])
    assert kept.steps[-1].index == 10


def test_it_stops_between_two_steps() -> None:
    """The step under way is finished and reported, the unfinished rollout is not learned from."""
    kept = Kept()
    trainer = Trainer(
        make("morphogenesis", TINY),
        TrainerConfig(updates=None, steps=20),
        kept,
        lambda: "interrupted" if len(kept.steps) == 25 else None,
    )

    assert trainer.run() == "interrupted"
    assert (len(kept.steps), len(kept.updates)) == (25, 1)


def test_a_kept_policy_plays_as_the_trained_one(tmp_path: Path) -> None:
    """Saved and loaded, it earns the same returns; in another world's shape it is refused."""
    trainer, _ = trained(TrainerConfig(updates=1))
    trainer.save(tmp_path, "morphogenesis", TINY.num_slots)
    loaded = load_policy(tmp_path)
    env = make("morphogenesis", TINY)

    def act(observation: Observation) -> torch.Tensor:
        with torch.no_grad():
            return trainer.policy.act(observation, None).actions

    assert torch.equal(play(env, loaded.player(env), 1).returns, play(env, act, 1).returns)
    with pytest.raises(ValueError, match="trained with 1 slots in morphogenesis"):
        loaded.player(make("morphogenesis", WorldConfig(num_envs=1, num_slots=2)))


def test_a_folder_without_policy_is_refused(tmp_path: Path) -> None:
    """The error says which folder to name."""
    with pytest.raises(ValueError, match="holds no policy; name the --out folder"):
        load_policy(tmp_path)


def test_the_tally_counts_each_env_from_its_own_beginning() -> None:
    """Episodes that end at different steps have their own sums and lengths."""
    tally = EpisodeTally(2)
    ends = [(False, False), (True, False), (False, True)]
    ended = [
        tally.add(
            Step(
                observation=Observation(features=torch.zeros(2, 1), mask=torch.ones(2, 1, dtype=torch.bool)),
                reward=torch.tensor([1.0, 10.0]), terminated=torch.tensor(row),
                truncated=torch.zeros(2, dtype=torch.bool), final_features=None,
                metric=torch.tensor([0.1, 0.2]),
            )
        )
        for row in ends
    ]  # fmt: skip

    assert ended[0] is None
    assert ended[1] is not None
    assert ended[2] is not None
    assert (ended[1].env_id.tolist(), ended[1].episode_return.tolist(), ended[1].length.tolist()) == (
        [0],
        [2.0],
        [2],
    )
    assert (ended[2].env_id.tolist(), ended[2].episode_return.tolist(), ended[2].length.tolist()) == (
        [1],
        [30.0],
        [3],
    )
    assert tally.take_mean() == 16.0
    assert math.isnan(tally.take_mean())


@pytest.mark.parametrize(("name", "value"), [("updates", 0), ("steps", 0), ("seed", -1)])
def test_impossible_settings_are_refused(name: str, value: int) -> None:
    """The error names the value."""
    with pytest.raises(ValueError, match=f"{name} is {value}; use"):
        TrainerConfig(**{name: value})


def test_too_little_data_for_its_minibatches_is_refused() -> None:
    """Before anything is trained."""
    with pytest.raises(ValueError, match="1 steps of 2 envs are too few for 4 minibatches"):
        Trainer(make("morphogenesis", TINY), TrainerConfig(steps=1), Kept(), lambda: None)
