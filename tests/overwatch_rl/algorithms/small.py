"""Small specs, a policy, rollouts and batches for the tests of the algorithms."""

from dataclasses import replace

import torch
from torch import Tensor

from overwatch.events import MetricInfo
from overwatch_rl.algorithms.common import Batch
from overwatch_rl.algorithms.ppo import PPO, PPOConfig
from overwatch_rl.types import (
    ActionSpec,
    Factored,
    Head,
    Observation,
    ObservationSpec,
    Rollout,
    SlotLayout,
    Step,
    WorldSpec,
    discrete,
)

SPEC = Factored(
    heads=(
        Head(name="op", labels=("wait", "put", "drop")),
        Head(name="slot", labels=("a", "b")),
        Head(name="kind", labels=("x", "y", "z")),
    ),
    uses=((True, False, False), (True, True, True), (True, True, False)),
)
FEATURES = 4
VECTOR = ObservationSpec(shape=(FEATURES,))
CODES = ObservationSpec(
    shape=(3, 3), dtype=torch.int8, codes=tuple(tuple(float(i == j) for j in range(3)) for i in range(3))
)
SLOTS = ObservationSpec(shape=(2 + 2 * 3,), slots=SlotLayout(shared=2, count=2, width=3))
"""Of the two slots that `SPEC` chooses from."""
MOVES = discrete(("n", "e", "s", "w"))


def world_spec(action: ActionSpec = SPEC, observation: ObservationSpec = VECTOR) -> WorldSpec:
    """A world's spec around an action and an observation."""
    metric = MetricInfo(name="m", unit="1", higher_is_better=True)
    return WorldSpec(
        task="t", metric=metric, reward_mode="r", observation=observation, action=action, horizon=4
    )


def ppo(
    config: PPOConfig | None = None, seed: int = 0, spec: WorldSpec | None = None, device: str = "cpu"
) -> PPO:
    """An untrained one, with logits that differ enough to matter."""
    made = PPO(spec or world_spec(), config or PPOConfig(), seed=seed, device=device)
    with torch.no_grad():
        for layer, _ in made.network.last_layers():
            layer.weight.mul_(300.0)
    return made


def legal(rows: int) -> Tensor:
    """In every row `drop` is illegal, and `put` only into slot b with kinds x and y."""
    mask = torch.zeros(rows, SPEC.num_outputs, dtype=torch.bool)
    ops, slots, kinds = SPEC.unpack(mask)
    ops[:, :2] = True
    slots[:, 1, 1] = True
    kinds[:, 1, :2] = True
    return torch.cat([ops, slots.flatten(1), kinds.flatten(1)], dim=1)


def observation(spec: WorldSpec, rows: int, generator: torch.Generator) -> Observation:
    """Random features; a mask where the action is `SPEC`."""
    seen = spec.observation
    features = (
        torch.randint(len(seen.codes), (rows, *seen.shape), generator=generator).to(seen.dtype)
        if seen.codes
        else torch.randn(rows, *seen.shape, generator=generator)
    )
    return Observation(features=features, mask=legal(rows) if spec.action is SPEC else None)


def rollout(made: PPO, spec: WorldSpec, *, steps: int = 8, envs: int = 8, seed: int = 0) -> Rollout:
    """What `made` did in `steps` steps on random observations, with random rewards and ends of both kinds."""
    draws = torch.Generator().manual_seed(seed)
    seen = [observation(spec, envs, draws) for _ in range(steps + 1)]
    decisions = [made.act(one, draws) for one in seen[:-1]]
    ends = torch.rand(steps, envs, generator=draws)
    masks = [one.mask for one in seen[:-1] if one.mask is not None]
    truncated = torch.zeros(steps, envs, dtype=torch.bool)
    truncated[2] = True
    truncated[6, ::2] = True
    final_at = torch.full((2, envs), steps)
    final_at[0] = 2
    final_at[1, ::2] = 6
    return Rollout(
        features=torch.stack([one.features for one in seen[:-1]]),
        mask=torch.stack(masks) if masks else None,
        actions=torch.stack([one.actions for one in decisions]),
        log_probs=torch.stack([one.log_probs for one in decisions]),
        values=torch.stack([one.values for one in decisions]),
        rewards=torch.randn(steps, envs, generator=draws),
        terminated=(ends < 0.2) & ~truncated,
        truncated=truncated,
        final=torch.stack([observation(spec, envs, draws).features for _ in range(2)]),
        final_at=final_at,
        last=seen[-1],
        columns={},
    )


def batch(made: PPO, spec: WorldSpec | None = None, *, seed: int = 0, envs: int = 8) -> Batch:
    """The estimates of such a rollout."""
    return made.prepare(rollout(made, spec or world_spec(), seed=seed, envs=envs))


def copied(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """A state that later updates do not change."""
    return {name: value.clone() for name, value in state.items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Whether two states are equal to the bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


class Walk:
    """A resumable world of random observations; episodes end in both ways, by each env's own clock."""

    def __init__(self, num_envs: int, seen: ObservationSpec = SLOTS, horizon: int = 4) -> None:
        self.spec = replace(world_spec(SPEC, seen), horizon=horizon)
        self._draws = torch.Generator()
        self._clock = torch.zeros(num_envs, dtype=torch.int64)
        self._features = torch.zeros(num_envs, *seen.shape)

    def _draw(self) -> Tensor:
        return torch.randn(self._features.shape, generator=self._draws)

    def _seen(self) -> Observation:
        return Observation(features=self._features, mask=legal(len(self._features)))

    def reset(self, seed: int) -> Observation:
        """Begin; clocks differ from env to env."""
        self._draws.manual_seed(seed)
        self._clock = torch.arange(len(self._clock)) % self.spec.horizon
        self._features = self._draw()
        return self._seen()

    def step(self, actions: Tensor) -> Step:
        """One step; the reward is what was done."""
        final, self._features = self._draw(), self._draw()
        terminated = torch.rand(len(final), generator=self._draws) < 0.15
        truncated = (self._clock + 1 >= (self.spec.horizon or 1)) & ~terminated
        self._clock = torch.where(terminated | truncated, 0, self._clock + 1)
        self._features = torch.where((terminated | truncated)[:, None], self._features, final)
        return Step(
            observation=self._seen(),
            reward=actions[:, 0].float(),
            terminated=terminated,
            truncated=truncated,
            final=final,
        )

    def state_dict(self) -> dict[str, Tensor]:
        """All of it."""
        return {
            "draws": self._draws.get_state(), "clock": self._clock.clone(), "seen": self._features.clone()
        }  # fmt: skip

    def load_state_dict(self, state: dict[str, Tensor]) -> Observation:
        """Become as it was."""
        self._draws.set_state(state["draws"])
        self._clock, self._features = state["clock"].clone(), state["seen"].clone()
        return self._seen()


class Blank:
    """A world of one observation, with random rewards and truncations."""

    def __init__(
        self, num_envs: int, device: str, *, action: ActionSpec = MOVES, seen: ObservationSpec = CODES
    ) -> None:
        self.spec = world_spec(action, seen)
        self._num_envs = num_envs
        self._device = device

    def _observation(self) -> Observation:
        seen = self.spec.observation
        return Observation(
            features=torch.zeros(self._num_envs, *seen.shape, dtype=seen.dtype, device=self._device)
        )

    def reset(self, seed: int) -> Observation:
        """Begin."""
        torch.manual_seed(seed)
        return self._observation()

    def step(self, actions: Tensor) -> Step:
        """One step."""
        reward = torch.rand(self._num_envs, device=actions.device)
        seen = self._observation()
        return Step(
            observation=seen,
            reward=reward,
            terminated=reward < 0.0,
            truncated=reward > 0.95,
            final=seen.features,
            columns={"metric": reward},
        )

    def state_dict(self) -> dict[str, Tensor]:
        """Nothing."""
        return {}

    def load_state_dict(self, state: dict[str, Tensor]) -> Observation:  # noqa: ARG002 there is nothing
        """Begin."""
        return self._observation()
