"""Morphogenesis: a policy grows networks that learn, and pays rent for what it has grown.

Every env is a small host that trains on digits. In each step the policy may germinate a seed in a slot, move
it on through its gates, or prune it; then the host trains and is validated. Reward is the gain in accuracy,
less the rent of what is grown, plus a small bonus a fossilisation. The horizon is finite and the same for
all envs; the observation holds what is left of it, so the end of an episode is a termination.

Rules: two streams of randomness, so what is grown never changes a host's data. Must not know algorithms,
storage or telemetry.

Shape letters: N envs, K slots, D features.
"""

from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from overwatch.catalog.stages import BY_CODE, Stage
from overwatch.events import MetricInfo
from overwatch_rl.envs.base import WorldConfig, check_legal
from overwatch_rl.envs.blueprints import BLUEPRINTS, relative_size
from overwatch_rl.envs.hosts import Hosts, Validation, Wiring
from overwatch_rl.envs.lifecycle import EMBARGO_STEPS, Lifecycle, action_spec, slot_names
from overwatch_rl.types import ActionSpec, Observation, Step, WorldInfo

EPISODE_STEPS: Final = 60
RENT: Final = 0.002
"""Reward that one seed of unit size costs a step while it grows."""
FOSSIL_SHARE: Final = 0.5
"""What a fossil pays of that."""
FOSSIL_BONUS: Final = 0.02

GROWING: Final = (Stage.GERMINATED, Stage.TRAINING, Stage.BLENDING, Stage.HOLDING)
CONNECTED: Final = (Stage.BLENDING, Stage.HOLDING, Stage.FOSSILISED)
_LONG_AGE: Final = 10
_GLOBAL_FEATURES: Final = 6


class Morphogenesis:
    """N hosts with K slots each, as one batched computation on the CPU."""

    def __init__(self, config: WorldConfig) -> None:
        self._config = config
        self._spec = action_spec(config.num_slots)
        self._hosts = Hosts(config.num_envs, config.num_slots)
        self._slots = Lifecycle(config.num_envs, config.num_slots)
        self._rates = torch.tensor([relative_size(blueprint) for blueprint in BLUEPRINTS])
        self._clock = 0
        self._measured = self._hosts.validate(self._wiring())
        self._progress = torch.zeros(config.num_envs)  # N, accuracy gained by the last step
        self._mask = self._slots.mask()

    @property
    def num_envs(self) -> int:
        """N."""
        return self._config.num_envs

    @property
    def num_features(self) -> int:
        """D."""
        return _GLOBAL_FEATURES + self._config.num_slots * (len(BY_CODE) + 3 + len(BLUEPRINTS))

    @property
    def action_spec(self) -> ActionSpec:
        """Heads op, slot and blueprint."""
        return self._spec

    @property
    def info(self) -> WorldInfo:
        """Task digits, metric acc, the slots and the blueprints."""
        return WorldInfo(
            task="digits",
            metric=MetricInfo(name="acc", unit="1", higher_is_better=True),
            reward_mode="shaped",
            slots=slot_names(self._config.num_slots),
            embargo=EMBARGO_STEPS,
            blueprints=tuple((blueprint.id, blueprint.code) for blueprint in BLUEPRINTS),
        )

    def reset(self, seed: int) -> Observation:
        """Begin new episodes everywhere; the same seed and actions give the same numbers."""
        self._hosts.seed(seed)
        self._begin_episodes(forget=True)
        return self._observe()

    def step(self, actions: Tensor) -> Step:
        """Act, train, validate, pay; actions: N 3 int64, legal under the last mask, else `ValueError`."""
        check_legal(self._spec, self._mask, actions)
        before = self._measured.accuracy
        self._hosts.germinate(self._slots.step(actions, self._measured.gain))
        wiring = self._wiring()
        self._slots.learned(self._hosts.train(wiring))
        self._measured = self._hosts.validate(wiring)
        self._progress = self._measured.accuracy - before
        changes, checks = self._slots.take_facts()
        fossilised = [change.env_id for change in changes if change.after is Stage.FOSSILISED]
        bonus = FOSSIL_BONUS * torch.bincount(
            torch.tensor(fossilised, dtype=torch.int64), minlength=self.num_envs
        )
        rent = self._rent()
        self._slots.grow_older()
        self._clock += 1
        metric, table = self._measured.accuracy, self._slots.table()
        reward = self._progress - rent + bonus
        ended = self._clock >= EPISODE_STEPS
        if ended:
            self._begin_episodes(forget=False)
        return Step(
            observation=self._observe(),
            reward=reward,
            terminated=torch.full((self.num_envs,), ended),
            truncated=torch.zeros(self.num_envs, dtype=torch.bool),
            final_features=None,
            metric=metric,
            rent=rent,
            slots=table,
            stage_changes=changes,
            gate_checks=checks,
        )

    def _begin_episodes(self, *, forget: bool) -> None:
        self._clock = 0
        self._hosts.restart()
        self._slots.restart(forget=forget)
        self._measured = self._hosts.validate(self._wiring())
        self._progress = torch.zeros(self.num_envs)

    def _wiring(self) -> Wiring:
        alpha = torch.where(self._slots.within(*CONNECTED), self._slots.alpha, 0.0)
        isolated = self._slots.within(Stage.TRAINING)
        return Wiring(alpha=alpha, isolated=isolated, blueprint=self._slots.blueprint)

    def _rent(self) -> Tensor:
        """N float32: what each env pays for this step."""
        share = self._slots.within(*GROWING).float()
        share += FOSSIL_SHARE * self._slots.within(Stage.FOSSILISED)
        return RENT * (share * self._rates[self._slots.blueprint.clamp(min=0)]).sum(dim=1)

    def _observe(self) -> Observation:
        """Features N D, all of order one, and the mask."""
        slots, measured = self._slots, self._measured
        left = torch.full((self.num_envs,), 1.0 - self._clock / EPISODE_STEPS)
        columns = [left, measured.accuracy, self._progress * 10.0, measured.loss / 2.3]
        columns += [slots.within(stages).float().mean(dim=1) for stages in (Stage.FOSSILISED,)]
        columns.append(slots.within(*GROWING).float().mean(dim=1))
        kind = functional.one_hot(slots.blueprint + 1, len(BLUEPRINTS) + 1)[..., 1:]
        per_slot = [
            functional.one_hot(slots.stage, len(BY_CODE)).float(),
            slots.alpha[..., None],
            slots.age.clamp(max=_LONG_AGE)[..., None] / _LONG_AGE,
            _gain_feature(measured)[..., None],
            kind.float(),
        ]
        self._mask = slots.mask()
        features = torch.cat([torch.stack(columns, dim=1), torch.cat(per_slot, dim=2).flatten(1)], dim=1)
        return Observation(features=features, mask=self._mask)


def _gain_feature(measured: Validation) -> Tensor:
    """N K: the gain of each seed in tens of per cent, cut to -1..1."""
    return (measured.gain * 10.0).clamp(-1.0, 1.0)
