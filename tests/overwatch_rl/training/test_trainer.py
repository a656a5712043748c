"""The loop: deterministic, stoppable between two steps, honest about its numbers."""

import math

import pytest
import torch

from overwatch.events import LogLine, PhaseEnded
from overwatch_rl.algorithms.common import Batch
from overwatch_rl.algorithms.ppo import PPO, PPOConfig
from overwatch_rl.telemetry.tower import recompiles
from overwatch_rl.training.collector import Episodes
from overwatch_rl.training.trainer import Trainer, TrainerConfig
from overwatch_rl.types import Factored
from overwatch_rl.worlds import make
from overwatch_rl.worlds.base import WorldConfig
from tests.overwatch_rl.kept import Kept, trainer, weights


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


def compiled_trainer(updates: int) -> tuple[Trainer[Batch], PPO, Kept]:
    """A training whose network is compiled in its warm-up, for each shape anew."""
    torch._dynamo.reset()
    made, algorithm, kept = trainer(TrainerConfig(updates=updates, steps=16))

    def compile_network(_: object) -> dict[str, float]:
        algorithm.policy.compiled = (torch.compile(algorithm.network, backend="eager", dynamic=False),)
        return {}

    made.warm_up, made.host_numbers = compile_network, recompiles(kept.fact)
    return made, algorithm, kept


def test_shapes_of_the_warm_up_are_no_recompiles() -> None:
    """The first update compiles minibatches, the second rollout acting: after these nothing is new."""
    made, _, kept = compiled_trainer(4)
    made.run()

    assert [update["recompiles"] for update in kept.updates] == [0.0] * 4
    assert not [fact for fact in kept.facts if isinstance(fact, LogLine)]


def test_another_shape_is_a_recompile_with_its_reason() -> None:
    """The numbers of the update in which it was compiled again count it; the line names the guard."""
    made, algorithm, kept = compiled_trainer(4)
    other = torch.zeros(5, *made._world.spec.observation.shape)
    made.after_update = lambda: algorithm.policy(other) if made.updates_done == 3 else None  # type: ignore[assignment,return-value]
    made.run()
    [line] = [fact for fact in kept.facts if isinstance(fact, LogLine)]

    assert [update["recompiles"] for update in kept.updates] == [0.0, 0.0, 0.0, 1.0]
    assert (line.subsystem, line.fields["count"]) == ("compile", "1")
    assert "size mismatch at index 0" in line.fields["reason"]
    assert "actual 5" in line.fields["reason"]


def test_a_training_that_compiles_nothing_has_no_such_number() -> None:
    """Absent, not 0."""
    torch._dynamo.reset()
    torch._dynamo.utils.clear_compilation_metrics()
    made, _, kept = trainer(TrainerConfig(updates=1, steps=10))
    made.host_numbers = recompiles(kept.fact)
    made.run()

    assert "recompiles" not in kept.updates[0]


@pytest.mark.parametrize(
    ("world", "steps"),
    [("gym:Pendulum-v1", 8), ("gym:CartPole-v1", 40), ("goodhart:small", 8), ("morphogenesis", 8)],
)
def test_no_number_of_a_healthy_training_is_nan(world: str, steps: int) -> None:
    """Whatever is undefined is absent: entropy as a share of continuous actions, the mean of no episodes."""
    made, kept = make(world, WorldConfig(num_envs=2), {}), Kept()
    config = TrainerConfig(updates=2, steps=steps)
    Trainer(made, PPO(made.spec, PPOConfig(), seed=0), config, kept, lambda: None).run()

    odd = [name for one in kept.updates for name, value in one.items() if not math.isfinite(value)]
    assert odd == []
    assert [("entropy" in one) for one in kept.updates] == [isinstance(made.spec.action, Factored)] * 2


def test_a_rollout_without_an_end_has_no_return() -> None:
    """Neither zero nor NaN; and the critic's value continues the rollout."""
    made, _, kept = trainer(TrainerConfig(updates=1, steps=10))
    made.run()

    assert "return" not in kept.updates[0]
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


@pytest.mark.parametrize("cut", [1, 2, 4])
def test_returns_and_lengths_count_each_env_from_its_own_beginning(cut: int) -> None:
    """Episodes that end at different steps have their own sums, also over the border of a rollout."""
    episodes, found = Episodes(2, torch.device("cpu")), []
    ended = torch.tensor([[0, 0], [1, 0], [0, 1], [0, 0]], dtype=torch.bool)
    for part in ended.split(cut):
        columns = episodes.add(torch.tensor([1.0, 10.0]).expand(len(part), 2), part)
        found += zip(columns["episode_return"].tolist(), columns["episode_length"].tolist(), strict=True)

    assert found == [
        ([1.0, 10.0], [1, 1]), ([2.0, 20.0], [2, 2]), ([1.0, 30.0], [1, 3]), ([2.0, 10.0], [2, 1]),
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), [("updates", 0), ("steps", 0), ("seed", -1)])
def test_impossible_settings_are_refused(name: str, value: int) -> None:
    """The error names the value."""
    with pytest.raises(ValueError, match=f"{name} is {value}; use"):
        TrainerConfig(**{name: value})


def test_waiting_for_other_ranks_is_a_phase() -> None:
    """Of each update, where there are others; a training that is alone has none."""
    alone, _, kept = trainer(TrainerConfig(updates=2))
    alone.run()
    assert [fact for fact in kept.facts if isinstance(fact, PhaseEnded) and fact.phase == "sync"] == []

    made, _, kept = trainer(TrainerConfig(updates=2))
    waits = iter([0.25, 0.5])
    made.waited_s = lambda: next(waits)
    made.run()
    reported = [fact for fact in kept.facts if isinstance(fact, PhaseEnded) and fact.phase == "sync"]
    assert [fact.duration_s for fact in reported] == [0.25, 0.5]
