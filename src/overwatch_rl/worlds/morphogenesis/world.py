"""Morphogenesis: a policy grows networks that learn, and pays rent for what it has grown.

Every env is a small host that trains on digits. In each step the policy may germinate a seed in a slot, move
it on through its gates, or prune it; then the host trains and is validated. Reward is the gain in accuracy,
less the rent of what is grown, plus a small bonus a fossilisation. The horizon is finite and the same for
all envs; the observation holds what is left of it, so the end of an episode is a termination.

Rules: two streams of randomness, so what is grown never changes a host's data. Must not know algorithms,
storage or telemetry.

Shape letters: N envs, K slots, D features.
"""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from overwatch.catalog.stages import BY_CODE, Life, Stage, of_life
from overwatch.events import MetricInfo
from overwatch_rl.settings import configured
from overwatch_rl.types import Observation, ObservationSpec, SlotLayout, Step, WorldSpec
from overwatch_rl.worlds.base import MAX_SLOTS, World, WorldConfig, check_legal
from overwatch_rl.worlds.morphogenesis.blueprints import BLUEPRINTS, relative_size
from overwatch_rl.worlds.morphogenesis.hosts import Hosts, Validation, Wiring
from overwatch_rl.worlds.morphogenesis.lifecycle import Lifecycle, action_spec, seed_facts

EPISODE_STEPS: Final = 60
RENT: Final = 0.002
"""Reward that one seed of unit size costs a step while it grows."""
FOSSIL_SHARE: Final = 0.5
"""What a fossil pays of that."""
FOSSIL_BONUS: Final = 0.02

GROWING: Final = of_life(Life.GROWING)
CONNECTED: Final = (Stage.BLENDING, Stage.HOLDING, Stage.FOSSILISED)
_LONG_AGE: Final = 10
_GLOBAL_FEATURES: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class MorphogenesisConfig:
    """Settings of this world alone."""

    slots: int = 3
    """Slots of each environment."""

    def __post_init__(self) -> None:
        if not 1 <= self.slots <= MAX_SLOTS:
            raise ValueError(f"slots is {self.slots}; use 1 to {MAX_SLOTS}")


def make(part: str, config: WorldConfig, settings: dict[str, object]) -> World:
    """The world; raises `ValueError` for a setting that is wrong or a device that it cannot use."""
    if part:
        raise ValueError(f"morphogenesis has no part {part!r}; leave it out")
    return Morphogenesis(config, configured(MorphogenesisConfig, settings, "morphogenesis"))


class Morphogenesis:
    """N hosts with K slots each, as one batched computation on the CPU."""

    def __init__(self, config: WorldConfig, own: MorphogenesisConfig) -> None:
        if config.device != "cpu":
            raise ValueError(f"device is {config.device!r}; morphogenesis runs on 'cpu'")
        self._num_envs, self._num_slots = config.num_envs, own.slots
        self._hosts = Hosts(config.num_envs, own.slots)
        self._slots = Lifecycle(config.num_envs, own.slots)
        self._rates = torch.tensor([relative_size(blueprint) for blueprint in BLUEPRINTS])
        self._clock = 0
        self._measured = self._hosts.validate(self._wiring())
        self._progress = torch.zeros(config.num_envs)  # N, accuracy gained by the last step
        self._fossils = torch.zeros(config.num_envs, dtype=torch.int64)  # N, of the running episode
        self._mask = self._slots.mask()
        layout = SlotLayout(
            shared=_GLOBAL_FEATURES, count=own.slots, width=len(BY_CODE) + 3 + len(BLUEPRINTS)
        )
        self._action = action_spec(own.slots)
        self.spec = WorldSpec(
            task="digits",
            metric=MetricInfo(name="acc", unit="1", higher_is_better=True),
            reward_mode="shaped",
            observation=ObservationSpec(shape=(layout.shared + layout.count * layout.width,), slots=layout),
            action=self._action,
            seeds=seed_facts(own.slots),
        )
        """Task digits, metric acc, heads op, slot and blueprint."""

    def reset(self, seed: int) -> Observation:
        """Begin new episodes everywhere; the same seed and actions give the same numbers."""
        self._hosts.seed(seed)
        self._begin_episodes()
        return self._observe()

    def step(self, actions: Tensor) -> Step:
        """Act, train, validate, pay; actions: N 3 int64, legal under the last mask, else `ValueError`."""
        check_legal(self._action, self._mask, actions)
        before = self._measured.accuracy
        self._hosts.germinate(self._slots.step(actions, self._measured.gain))
        wiring = self._wiring()
        self._slots.learned(self._hosts.train(wiring))
        self._measured = self._hosts.validate(wiring)
        self._progress = self._measured.accuracy - before
        fossils = self._slots.within(Stage.FOSSILISED).sum(dim=1)
        bonus = FOSSIL_BONUS * (fossils - self._fossils)
        rent = self._rent()
        self._fossils = fossils
        columns = {"metric": self._measured.accuracy, "rent": rent, **self._slots.facts()}
        self._slots.grow_older()
        self._clock += 1
        reward = self._progress - rent + bonus
        ended = self._clock >= EPISODE_STEPS
        if ended:
            self._begin_episodes()
        return Step(
            observation=self._observe(),
            reward=reward,
            terminated=torch.full((self._num_envs,), ended),
            truncated=torch.zeros(self._num_envs, dtype=torch.bool),
            columns=columns,
        )

    def state_dict(self) -> dict[str, Tensor]:
        """All that the next step depends on, generators included."""
        state = {f"hosts.{name}": value for name, value in self._hosts.state_dict().items()}
        state |= {f"slots.{name}": value for name, value in self._slots.state_dict().items()}
        measured = {
            "accuracy": self._measured.accuracy,
            "loss": self._measured.loss,
            "gain": self._measured.gain,
        }
        state |= {f"measured.{name}": value.clone() for name, value in measured.items()}
        return state | {"clock": torch.tensor(self._clock), "progress": self._progress.clone()}

    def load_state_dict(self, state: dict[str, Tensor]) -> Observation:
        """Become as it was when `state` was taken; the observation of that moment."""

        def part(name: str) -> dict[str, Tensor]:
            prefix = f"{name}."
            return {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}

        self._hosts.load_state_dict(part("hosts"))
        self._slots.load_state_dict(part("slots"))
        self._measured = Validation(**part("measured"))
        self._clock, self._progress = int(state["clock"]), state["progress"].clone()
        self._fossils = self._slots.within(Stage.FOSSILISED).sum(dim=1)
        return self._observe()

    def _begin_episodes(self) -> None:
        self._clock = 0
        self._hosts.restart()
        self._slots.restart()
        self._measured = self._hosts.validate(self._wiring())
        self._progress = torch.zeros(self._num_envs)
        self._fossils = torch.zeros(self._num_envs, dtype=torch.int64)  # N, of the running episode

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
        left = torch.full((self._num_envs,), 1.0 - self._clock / EPISODE_STEPS)
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
