"""Policies with memory: what they learn from equals a plain walk, and nothing crosses a beginning."""

from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from overwatch_rl.algorithms.common import Batch
from overwatch_rl.algorithms.networks import HIDDEN, RecurrentSlots, has_memory
from overwatch_rl.algorithms.ppo import PPO, PPOConfig, loss
from overwatch_rl.telemetry.reporter import Silent
from overwatch_rl.trained import player
from overwatch_rl.training.collector import OP_PROBS, Collector, CollectorConfig
from overwatch_rl.training.trainer import Position, Trainer, TrainerConfig
from overwatch_rl.types import Observation, Rollout, Step
from tests.overwatch_rl.algorithms.small import SLOTS, SPEC, Walk, copied, ppo, same, world_spec
from tests.overwatch_rl.kept import Kept

STEPS, ENVS = 9, 6
SPECIFIC = replace(world_spec(SPEC, SLOTS), horizon=4)
CONFIG = PPOConfig(network="slots_recurrent", minibatches=3)


def collecting(config: PPOConfig = CONFIG) -> tuple[PPO, Collector]:
    """A policy whose memory matters, and what collects with it."""
    made = ppo(config, spec=SPECIFIC)
    collected = CollectorConfig(steps=STEPS, seed=3)
    return made, Collector(Walk(ENVS), made, collected, Silent(), lambda: None)


def second(config: PPOConfig = CONFIG) -> tuple[PPO, Rollout]:
    """The policy and its second rollout, which begins within episodes."""
    made, collector = collecting(config)
    for _ in range(2):
        collector.collect()
    return made, collector.rollout()


class Plain:
    """The same policy as torch's own cell, one env and one step at a time."""

    def __init__(self, made: PPO) -> None:
        self.network = cast("RecurrentSlots", made.network)
        self.cell = nn.LSTMCell(HIDDEN, HIDDEN)
        remember = self.network.remember
        del self.cell.weight_ih, self.cell.weight_hh, self.cell.bias_ih, self.cell.bias_hh
        cell = cast("Any", self.cell)
        cell.weight_ih, cell.bias_ih = remember.seen.weight, remember.seen.bias
        cell.weight_hh, cell.bias_hh = remember.given.weight, torch.zeros(4 * HIDDEN)

    def step(self, features: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Outputs, value and memory of one step of one env, from S and M."""
        seen, slots = self.network.body(features[None])
        given, held = self.cell(seen, (memory[None, :HIDDEN], memory[None, HIDDEN:]))
        outputs = self.network.choose(seen + given, slots)
        value = self.network.value(seen + given)
        return outputs[0], value[0, 0], torch.cat([given, held], dim=1)[0]

    def walk(self, rollout: Rollout) -> tuple[Tensor, Tensor, Tensor]:
        """Outputs T N L, values T N and memories T N M, from the memory that the rollout begins with."""
        assert rollout.memory is not None
        columns = []
        for env in range(ENVS):
            memory, found = rollout.memory[env], []
            for step in range(STEPS):
                if step and bool(rollout.terminated[step - 1, env] | rollout.truncated[step - 1, env]):
                    memory = torch.zeros(2 * HIDDEN)
                found.append(self.step(rollout.features[step, env], memory))
                memory = found[-1][2]
            columns.append([torch.stack(one) for one in zip(*found, strict=True)])
        outputs, values, memories = (torch.stack(one, dim=1) for one in zip(*columns, strict=True))
        return outputs, values, memories


def test_a_rollout_holds_what_was_remembered_before_its_first_step() -> None:
    """What acting gave is what a walk from there gives, over ends of both kinds; some envs begin with it."""
    made, rollout = second()
    assert rollout.memory is not None
    with torch.no_grad():
        outputs, values, _ = Plain(made).walk(rollout)
        mask = None if rollout.mask is None else rollout.mask.flatten(0, 1)
        judged = made.actions.evaluate(outputs.flatten(0, 1), mask, rollout.actions.flatten(0, 1))

    assert bool(rollout.terminated.any())
    assert bool(rollout.truncated.any())
    assert 0 < int((rollout.memory == 0).all(dim=1).sum()) < ENVS
    assert torch.allclose(values, rollout.values, atol=1e-5)
    assert torch.allclose(judged.log_probs.view_as(rollout.log_probs), rollout.log_probs, atol=1e-5)


def test_the_first_ratio_is_one() -> None:
    """The update's walk gives the probabilities that acting gave; the memory's size is that of the walk."""
    made, rollout = second()
    with torch.no_grad():
        memories = Plain(made).walk(rollout)[2]
    once = ppo(replace(CONFIG, epochs=1, minibatches=1), spec=SPECIFIC)
    once.load_state_dict(copied(made.state_dict()))
    stats = once.update(once.prepare(rollout))

    assert float(stats["hidden_rms"]) == pytest.approx(float(memories.square().mean().sqrt()), rel=1e-5)
    assert float(made.update(made.prepare(rollout))["first_ratio_error"]) < 1e-5


@pytest.mark.parametrize("popart", [False, True])
def test_gradients_equal_those_of_a_walk_step_by_step(popart: bool) -> None:  # noqa: FBT001  # a parameter
    """Of every weight: through time where an episode goes on, and not where one begins."""
    made, rollout = second(replace(CONFIG, popart=popart))
    data = made.prepare(rollout)
    made.benchmark_backward(data)
    found = {name: one.grad.clone() for name, one in made.policy.named_parameters() if one.grad is not None}
    made.policy.zero_grad()

    outputs, values, _ = Plain(made).walk(rollout)
    scaled = made._scaled(data)
    spread = data.advantages.double().std(unbiased=False) + 1e-8
    centred = data.advantages - data.advantages.double().mean()
    part = replace(scaled, sequences=None, advantages=(centred / spread).float())
    judged = made.actions.evaluate(outputs.flatten(0, 1), part.mask, part.actions)
    (loss(judged, values.flatten(), part, made.config)[0] / len(part)).backward()  # type: ignore[no-untyped-call]
    expected = {name: one.grad for name, one in made.policy.named_parameters() if one.grad is not None}

    assert found.keys() == expected.keys()
    assert all(torch.allclose(found[name], expected[name], atol=1e-6, rtol=1e-4) for name in expected)
    assert bool((found["network.remember.given.weight"] != 0).any())


def test_an_episode_cut_short_is_continued_with_its_own_memory() -> None:
    """The value of each final observation, and of the last, is that of one more step of the walk."""
    made, rollout = second(replace(CONFIG, gamma=0.9, gae_lambda=0.0))
    plain = Plain(made)
    found = made.prepare(rollout).advantages.view(STEPS, ENVS)
    assert rollout.final is not None
    assert rollout.final_at is not None
    seen = 0
    with torch.no_grad():
        memories = plain.walk(rollout)[2]
        for place, env in (rollout.final_at < STEPS).nonzero().tolist():
            at = int(rollout.final_at[place, env])
            value = plain.step(rollout.final[place, env], memories[at, env])[1]
            expected = rollout.rewards[at, env] + 0.9 * value - rollout.values[at, env]
            assert float(found[at, env]) == pytest.approx(float(expected), abs=1e-5)
            seen += 1
        for env in range(ENVS):
            if bool(rollout.terminated[-1, env] | rollout.truncated[-1, env]):
                continue
            value = plain.step(rollout.last.features[env], memories[-1, env])[1]
            expected = rollout.rewards[-1, env] + 0.9 * value - rollout.values[-1, env]
            assert float(found[-1, env]) == pytest.approx(float(expected), abs=1e-5)
    assert seen > ENVS


def test_nothing_crosses_a_beginning() -> None:
    """What was seen before it, a NaN too, changes nothing after it; where none begins it does."""
    made, rollout = second()
    network = cast("RecurrentSlots", made.network)
    memory = torch.full((ENVS, network.num_memory), torch.nan)
    begins = torch.zeros(STEPS, ENVS, dtype=torch.bool)
    begins[0, :3] = True
    with torch.no_grad():
        outputs, values, _ = network.unroll(rollout.features, memory, begins)

    assert bool(outputs[:, :3].isfinite().all())
    assert bool(values[:, :3].isfinite().all())
    assert bool(outputs[:, 3:].isnan().all())


def test_minibatches_are_whole_envs_and_each_env_counts_once_an_epoch() -> None:
    """Their rows are those of the rollout, in the order of time."""
    made, rollout = second()
    data = replace(made.prepare(rollout), values=torch.arange(STEPS * ENVS, dtype=torch.float32))
    assert data.num_samples == ENVS
    seen: list[float] = []
    for envs in torch.tensor([4, 0, 5, 2, 1, 3]).tensor_split(3):
        part = data.drawn(envs)
        assert part.sequences is not None
        assert rollout.memory is not None
        rows = part.values.view(STEPS, 2)
        assert torch.equal(rows, torch.arange(STEPS)[:, None] * ENVS + envs)
        assert torch.equal(part.features.view(STEPS, 2, -1), rollout.features[:, envs])
        assert torch.equal(part.sequences.memory, rollout.memory[envs])
        assert part.chunks(4) == [part]
        seen += rows.flatten().tolist()
    assert sorted(seen) == data.values.tolist()


def test_the_probabilities_of_operations_are_a_column() -> None:
    """They are those by which was drawn, of legal ones; they add up to one."""
    made, collector = collecting()
    collector.collect()
    rollout = collector.rollout()
    found = rollout.columns[OP_PROBS]
    taken = found.gather(2, rollout.actions[..., :1]).squeeze(2)

    assert found.shape == (STEPS, ENVS, 3)
    assert torch.allclose(found.sum(dim=2), torch.ones(STEPS, ENVS), atol=1e-6)
    assert torch.allclose(taken.log(), rollout.log_probs[..., 0], atol=1e-5)
    assert not bool(found[..., 2].any())
    assert made.act(Observation(features=torch.zeros(2, 8)), None, greedy=True).choices is not None


def training(updates: int, *, steps: int = 6) -> tuple[Trainer[Batch], PPO, Kept]:
    """A training whose rollouts end within episodes."""
    kept, made = Kept(), ppo(CONFIG, spec=SPECIFIC)
    config = TrainerConfig(updates=updates, steps=steps, seed=5)
    return Trainer(Walk(ENVS), made, config, kept, lambda: None), made, kept


def frozen(position: Position) -> Position:
    """A copy that later steps do not change."""
    own, algorithm, world = (copied(one) for one in (position.own, position.algorithm, position.world))
    return replace(position, own=own, algorithm=algorithm, world=world)


def test_a_training_goes_on_to_the_bit_with_what_was_remembered() -> None:
    """Two updates and two more equal four; without its memory they do not."""
    whole, learned, numbers = training(4)
    whole.run()
    first, _, _ = training(2)
    first.run()
    position = frozen(first.position())
    assert bool((position.own["memory"] != 0).any())
    rest, resumed, others = training(4)
    rest.go_on(position)
    rest.run()
    forgetful, forgotten, _ = training(4)
    forgetful.go_on(
        replace(position, own={name: one for name, one in position.own.items() if name != "memory"})
    )
    forgetful.run()

    assert same(learned.state_dict(), resumed.state_dict())
    assert numbers.numbers()[2:] == others.numbers()
    assert not same(learned.state_dict(), forgotten.state_dict())


def test_acting_needs_the_policy_alone() -> None:
    """What `acting_keys` names, and the memory that it gave: the same decisions to the bit."""
    made, rollout = second()
    other = ppo(CONFIG, spec=SPECIFIC, seed=9)
    keys = made.acting_keys()
    other.load_state_dict(other.state_dict() | {name: made.state_dict()[name] for name in keys})
    seen = Observation(features=rollout.features[0], memory=rollout.memory)
    one, two = (policy.act(seen, None, greedy=True) for policy in (made, other))

    assert one.memory is not None
    assert two.memory is not None
    assert torch.equal(one.values, two.values)
    assert torch.equal(one.memory, two.memory)


def test_a_player_remembers_from_its_first_step_on() -> None:
    """Its likeliest actions are those of the policy with the memory of its own steps."""
    made, rollout = second()
    act, memory = player(made), None
    fresh = []
    for features, mask in zip(rollout.features, cast("Tensor", rollout.mask), strict=True):
        decision = made.act(Observation(features=features, mask=mask, memory=memory), None, greedy=True)
        memory = decision.memory
        assert torch.equal(act(Observation(features=features, mask=mask)), decision.actions)
        fresh.append(made.act(Observation(features=features, mask=mask), None, greedy=True).values)
        assert len(fresh) == 1 or not torch.equal(fresh[-1], decision.values)


def test_older_experience_is_refused() -> None:
    """It holds no memory; the error names the network and the fix."""
    made, rollout = second()
    age = torch.zeros(STEPS, ENVS, dtype=torch.int64)

    with pytest.raises(ValueError, match=r"'slots_recurrent' has a memory, which .* use a network without"):
        made.prepare(replace(rollout, age=age))


def test_a_network_with_memory_is_known_by_its_name() -> None:
    """And one that there is not has none."""
    assert has_memory("slots_recurrent")
    assert not any(has_memory(name) for name in ("slots", "mlp", "lstm"))


class Recall(Walk):
    """A sign is shown in the first of three steps; in the last the operation that it stands for is paid."""

    def _seen(self) -> Observation:
        if int(self._clock[0]) == 0:
            self._sign = torch.randint(2, (len(self._clock),), generator=self._draws)
        is_shown = int(self._clock[0]) == 0
        self._features.zero_()
        self._features[:, 0] = self._clock / 2
        self._features[:, 1] = (2.0 * self._sign - 1.0) * is_shown
        return Observation(features=self._features.clone())

    def reset(self, seed: int) -> Observation:
        """Begin everywhere at once."""
        self._draws.manual_seed(seed)
        self._clock.zero_()
        return self._seen()

    def step(self, actions: Tensor) -> Step:
        """One step."""
        ended = self._clock == 2
        reward = ((actions[:, 0] == self._sign) & ended).float()
        self._clock = torch.where(ended, 0, self._clock + 1)
        return Step(
            observation=self._seen(), reward=reward, terminated=ended, truncated=torch.zeros_like(ended)
        )


def test_what_was_seen_before_is_learned_from() -> None:
    """A sign that is gone when it matters: with a memory nearly all is right, without one half at most."""
    found = {}
    for name in ("slots", "slots_recurrent"):
        world, kept = Recall(32), Kept()
        config = PPOConfig(network=name, logit_scale=1.0, entropy_coef=0.0, gamma=0.9)
        trainer = Trainer(
            world, PPO(world.spec, config, seed=1), TrainerConfig(updates=25, steps=6), kept, lambda: None
        )
        trainer.run()
        found[name] = kept.mean("return", slice(-5, None))

    assert found["slots"] < 0.65
    assert found["slots_recurrent"] > 0.9
