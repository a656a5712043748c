"""Morphogenesis: a policy grows networks that learn, and pays rent for what it has grown.

Every env is a small host that learns a task. In each step the policy may germinate a seed in a slot, move it
on through its gates, change how far it is let in, or prune it; then the host trains and is validated, the
governor judges it, and the reward is paid. The horizon is finite and the observation holds what is left of
it, so the end of an episode is a termination.

A host that the governor judges sick is rolled back to its newest snapshot in the same step: seeds that
learned since and are no fossils are pruned, the env pays for it, and its episode goes on; the last rollback
that is allowed ends it. An episode has one end, whatever ended it.

Rules: two streams of randomness, so what is grown never changes a host's data. Must not know algorithms,
storage or telemetry.

Shape letters: N envs, K slots, D features.
"""

from dataclasses import replace
from typing import Final, Protocol

import torch
from torch import Tensor

from overwatch import events
from overwatch.catalog.stages import BY_CODE, Stage
from overwatch_rl.settings import configured
from overwatch_rl.sync_points import sync_point
from overwatch_rl.types import Observation, ObservationSpec, SlotLayout, Step, WorldSpec
from overwatch_rl.worlds.base import World, WorldConfig, check_legal
from overwatch_rl.worlds.morphogenesis.actions import Chosen, Style, action_spec, chosen
from overwatch_rl.worlds.morphogenesis.alpha import Mode
from overwatch_rl.worlds.morphogenesis.attribution import Attribution, attribute, subsets_of
from overwatch_rl.worlds.morphogenesis.config import DIGITS, MorphogenesisConfig
from overwatch_rl.worlds.morphogenesis.data import digits
from overwatch_rl.worlds.morphogenesis.governor import REASONS, Governor, GovernorConfig
from overwatch_rl.worlds.morphogenesis.growth import gradients
from overwatch_rl.worlds.morphogenesis.hosts.base import Learned, Measured, Wiring
from overwatch_rl.worlds.morphogenesis.hosts.blueprints import MLP
from overwatch_rl.worlds.morphogenesis.hosts.mlp import MLPHosts
from overwatch_rl.worlds.morphogenesis.lifecycle import (
    CONNECTED,
    GROWING,
    Lifecycle,
    Moved,
    one_hot,
    seed_facts,
)
from overwatch_rl.worlds.morphogenesis.rewards import Evidence, RewardConfig, Rewards, occupancy, rent
from overwatch_rl.worlds.morphogenesis.seeds import SUMMARISED, counted, summary

GLOBAL_FEATURES: Final = 8
SLOT_FEATURES: Final = len(BY_CODE) + len(Style) + 8
"""Beside one for each blueprint."""
_LONG_AGE: Final = 10
_LONG_LIFE: Final = 30
_LONG_MOVE: Final = 8
_ONE_NAT_OF_TEN: Final = 2.3


class Judge(Protocol):
    """What decides that a host is sick."""

    def step(self, loss: Tensor, accuracy: Tensor, is_finite: Tensor) -> Tensor:
        """N uint8: 0 where a host is fine, else why it is rolled back."""
        ...

    def restart(self, envs: Tensor) -> None:
        """Forget the past of `envs` (N bool): a new episode begins."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """All that the next judgement depends on."""
        ...

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Become as it was."""
        ...


_ENVS: Final = "morphogenesis.envs"
IS_SHAPED: Final = True
"""Its setting `gamma` must be the learner's discount."""


def make(part: str, config: WorldConfig, settings: dict[str, object]) -> World:
    """The world; raises `ValueError` for a setting that is wrong or a device that it cannot use."""
    if part:
        raise ValueError(f"morphogenesis has no part {part!r}; leave it out")
    return Morphogenesis(config, configured(MorphogenesisConfig, settings, "morphogenesis"))


class Morphogenesis:
    """N hosts with K slots each, as one batched computation."""

    def __init__(self, config: WorldConfig, own: MorphogenesisConfig, judge: Judge | None = None) -> None:
        """`judge` replaces the governor."""
        if config.device != "cpu":
            raise ValueError(f"device is {config.device!r}; morphogenesis runs on 'cpu'")
        self._own, self._blueprints = own, MLP
        data = digits()
        self._device = config.device
        self._num_envs, self._num_slots = config.num_envs, own.slots
        self._action = action_spec(own.slots, tuple(blueprint.id for blueprint in self._blueprints))
        self._hosts = MLPHosts(config.num_envs, own.slots, data, torch.device(config.device))
        self._slots = Lifecycle(config.num_envs, own, self._action, config.device)
        self._judge = judge or Governor(
            config.num_envs, GovernorConfig(diverged_loss=own.diverged_loss), config.device
        )
        self._priced = RewardConfig(mode=own.reward_mode, rent=own.rent, shaping=own.shaping, gamma=own.gamma)
        shape = (config.num_envs, own.slots)
        self._rewards = Rewards(shape, self._priced, self._action.heads[0].labels, config.device)
        self._subsets = subsets_of(own.slots).to(config.device)
        self._unknown = _unknown(*shape, config.device)
        self._shown = torch.full((config.num_envs, 3 + 3 * own.slots), torch.nan)  # the newest attribution
        self._born = torch.full(shape, torch.nan)  # N K, accuracy just before each seed germinated
        self._steps = 0  # of the world since its reset
        codes = tuple(blueprint.code for blueprint in self._blueprints)
        self._all = torch.ones(config.num_envs, dtype=torch.bool, device=self._device)
        self._clock = torch.zeros(config.num_envs, dtype=torch.int64)  # N, steps of the running episode
        self._rollbacks = torch.zeros_like(self._clock)  # N, in the running episode
        self._pruned = torch.zeros_like(self._clock)  # N, seeds pruned in the running episode
        self._progress = torch.zeros(config.num_envs)  # N, accuracy gained by the last step
        self._best = torch.zeros(config.num_envs)  # N, best accuracy of the running episode
        self._stalled = torch.zeros_like(self._clock)  # N, steps since it was reached
        self._measured = self._hosts.validate(self._wiring())
        self._mask = self._slots.mask()
        width = SLOT_FEATURES + len(self._blueprints)
        self.spec = WorldSpec(
            task=DIGITS,
            metric=events.MetricInfo(name="acc", unit="1", higher_is_better=True),
            reward_mode=own.reward_mode,
            observation=ObservationSpec(
                shape=(GLOBAL_FEATURES + own.slots * width,),
                slots=SlotLayout(shared=GLOBAL_FEATURES, count=own.slots, width=width),
            ),
            action=self._action,
            seeds=replace(
                seed_facts(self._action, codes, own),
                sizes=tuple(int(size) for size in self._hosts.sizes.tolist()),
                panics=REASONS,
            ),
            summary=summary,
            summarised=SUMMARISED,
        )
        """Task digits, metric acc, eight heads."""

    def reset(self, seed: int) -> Observation:
        """Begin new episodes everywhere; the same seed and actions give the same numbers."""
        self._hosts.seed(seed)
        self._steps = 0
        self._begin_episodes(self._all)
        return self._observe()

    def step(self, actions: Tensor) -> Step:
        """Act, train, validate, judge, pay; actions: N 8 int64; `ValueError` where the mask forbids one."""
        with sync_point(_ENVS):
            check_legal(self._action, self._mask, actions)
        action, before = chosen(actions), self._measured.accuracy
        moved = self._slots.step(action, self._measured.contribution)
        self._hosts.germinate(_rows(moved.germinated))
        self._born = torch.where(moved.germinated, before[:, None], self._born)
        learned = self._hosts.train(self._wiring())
        self._slots.learned(learned.health, learned.ratio)
        self._measured = self._hosts.validate(self._wiring())
        judged = self._judge.step(self._measured.loss, self._measured.accuracy, learned.is_finite)
        self._roll_back(judged > 0)
        self._count(before)
        ended = (self._clock >= self._own.steps) | (self._rollbacks >= self._own.max_rollbacks)
        self._keep(moved.fossilised.any(dim=1) & ~ended)
        attributed = self._attribute()
        self._show(attributed, moved.germinated)
        new = self._slots.within(Stage.PRUNED) & (moved.stage_before != Stage.PRUNED.code)
        self._pruned = self._pruned + new.sum(dim=1)
        evidence = self._evidence(action, moved, judged, ended, attributed.pairs)
        paid = self._rewards.step(evidence)
        columns = {
            **self._columns(learned, evidence),
            **paid.columns,
            **counted(evidence, self._priced),
        }
        self._slots.grow_older()
        if _any(ended):
            self._begin_episodes(ended)
        return Step(
            observation=self._observe(),
            reward=paid.reward,
            terminated=ended,
            truncated=torch.zeros_like(ended),
            columns=columns,
        )

    def facts(self) -> dict[str, Tensor]:
        """Columns of slots and `stalled_steps`, of what the policy sees now; for rules that do not learn."""
        own = {"slot_contribution": self._measured.contribution, "stalled_steps": self._stalled}
        return self._slots.facts() | {name: value.clone() for name, value in own.items()}

    def gradients(self) -> Tensor:
        """N K B: what a seed of each blueprint would have in each dormant slot; see `growth`."""
        return gradients(self._hosts, self._wiring(), self._slots.within(Stage.DORMANT))

    def state_dict(self) -> dict[str, Tensor]:
        """All that the next step depends on, generators included."""
        parts_of = {
            "hosts": self._hosts,
            "slots": self._slots,
            "judge": self._judge,
            "rewards": self._rewards,
        }
        state = {
            f"{part}.{name}": value
            for part, holder in parts_of.items()
            for name, value in holder.state_dict().items()  # type: ignore[attr-defined]  # all of them have it
        }
        measured = self._measured
        state |= {
            f"measured.{name}": getattr(measured, name).clone()
            for name in ("accuracy", "loss", "contribution")
        }
        state["env.steps"] = torch.tensor(self._steps)
        return state | {f"env.{name}": getattr(self, f"_{name}").clone() for name in _OWN}

    def load_state_dict(self, state: dict[str, Tensor]) -> Observation:
        """Become as it was when `state` was taken; the observation of that moment."""

        def part(name: str) -> dict[str, Tensor]:
            prefix = f"{name}."
            return {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}

        self._hosts.load_state_dict(part("hosts"))
        self._slots.load_state_dict(part("slots"))
        self._judge.load_state_dict(part("judge"))
        self._rewards.load_state_dict(part("rewards"))
        self._measured = Measured(**part("measured"))
        own = part("env")
        self._steps = int(own.pop("steps"))
        for name, value in own.items():
            setattr(self, f"_{name}", value.clone())
        return self._observe()

    def _begin_episodes(self, envs: Tensor) -> None:
        """New hosts and empty slots in `envs` (N bool)."""
        rows = _rows(envs)
        self._hosts.restart(rows)
        self._slots.restart(envs)
        self._judge.restart(envs)
        self._rewards.restart(envs)
        self._born = self._born.where(~envs[:, None], torch.nan)
        self._shown = self._shown.where(~envs[:, None], torch.nan)
        self._pruned = torch.where(envs, 0, self._pruned)
        self._hosts.keep(rows)
        self._clock = torch.where(envs, 0, self._clock)
        self._rollbacks = torch.where(envs, 0, self._rollbacks)
        self._stalled = torch.where(envs, 0, self._stalled)
        self._progress = torch.where(envs, 0.0, self._progress)
        self._measure_again(envs)
        self._best = torch.where(envs, self._measured.accuracy, self._best)

    def _measure_again(self, envs: Tensor) -> None:
        """Validate the hosts of `envs` (N bool), which are others now."""
        new, old = self._hosts.validate(self._wiring()), self._measured
        self._measured = Measured(
            accuracy=torch.where(envs, new.accuracy, old.accuracy),
            loss=torch.where(envs, new.loss, old.loss),
            contribution=torch.where(envs[:, None], new.contribution, old.contribution),
        )

    def _roll_back(self, envs: Tensor) -> None:
        """The hosts of `envs` (N bool) become as in their snapshots; a germinated seed begins anew."""
        if not _any(envs):
            return
        self._rollbacks = self._rollbacks + envs
        self._hosts.roll_back(_rows(envs))
        self._slots.discard(envs)
        self._hosts.germinate(_rows(self._slots.within(Stage.GERMINATED) & envs[:, None]))
        self._measure_again(envs)

    def _keep(self, also: Tensor) -> None:
        """Take snapshots of sound hosts: of `also` (N bool), and of each now and then."""
        due = also | (self._clock % self._own.snapshot_every == 0)
        due &= self._measured.loss < self._own.diverged_loss
        if _any(due):
            self._hosts.keep(_rows(due))

    def _count(self, before: Tensor) -> None:
        """Time, progress since the accuracy `before` (N), and the best so far."""
        accuracy = self._measured.accuracy
        self._clock, self._steps = self._clock + 1, self._steps + 1
        self._progress = accuracy - before
        is_best = accuracy > self._best
        self._best = torch.maximum(self._best, accuracy)
        self._stalled = torch.where(is_best, 0, self._stalled + 1)

    def _wiring(self) -> Wiring:
        alpha = torch.where(self._slots.within(*CONNECTED), self._slots.alpha.value, 0.0)
        return Wiring(
            alpha=alpha,
            isolated=self._slots.within(Stage.TRAINING),
            blueprint=self._slots.blueprint,
            algorithm=self._slots.algorithm,
        )

    def _sizes(self) -> Tensor:
        """N K float32: parameters of each branch, 0 where there is none."""
        blueprint = self._slots.blueprint
        return self._hosts.sizes[blueprint.clamp(min=0)] * (blueprint >= 0)

    def _attribute(self) -> Attribution:
        """What connected branches are worth now; NaN where it is not the time."""
        every, wiring = self._own.attribute_every, self._wiring()
        if not every or self._steps % every:
            return self._unknown
        accuracies = self._hosts.masked(wiring, self._subsets)
        return attribute(accuracies, self._subsets, wiring.alpha > 0)

    def _show(self, found: Attribution, germinated: Tensor) -> None:
        """Keep what was attributed last for the columns, and count how old it is; a new seed has nothing."""
        if found is not self._unknown:
            of_env = torch.stack([found.synergy, found.baseline, torch.zeros_like(found.synergy)], dim=1)
            self._shown = torch.cat([of_env, found.interaction, found.boost, found.shapley], dim=1)
            return
        of_env = self._shown[:, :3] + torch.tensor([0.0, 0.0, 1.0])
        of_slots = self._shown[:, 3:].where(~germinated.repeat(1, 3), torch.nan)
        self._shown = torch.cat([of_env, of_slots], dim=1)

    def _evidence(
        self, action: Chosen, moved: Moved, judged: Tensor, ended: Tensor, pairs: Tensor
    ) -> Evidence:
        slots = self._slots
        grown = self._sizes() * slots.within(*GROWING, Stage.FOSSILISED)
        return Evidence(
            progress=self._progress,
            accuracy=self._measured.accuracy,
            contribution=self._measured.contribution,
            improvement=self._measured.accuracy[:, None] - self._born,
            pairs=pairs,
            stage_before=moved.stage_before,
            stage=slots.stage,
            age=slots.age + 1,
            age_before=moved.age_before,
            life=slots.life,
            auto_pruned=moved.auto_pruned,
            alpha_change=slots.alpha.value - moved.alpha_before,
            overhead=grown.sum(dim=1) / self._hosts.num_parameters,
            op=action.op,
            slot=action.slot,
            refused=moved.refused,
            governor=judged,
            step=self._clock - 1,
            is_end=ended,
        )

    def _newest(self, share: Tensor) -> Tensor:
        """N: what the newest connected seed has of `share` (N K); NaN where no seed is connected."""
        is_seen = self._slots.within(Stage.BLENDING, Stage.HOLDING) & share.isfinite()
        life = torch.where(is_seen, self._slots.life, self._own.steps + 1)
        found = share.gather(1, life.argmin(dim=1, keepdim=True)).squeeze(1)
        return torch.where(is_seen.any(dim=1), found, torch.nan)

    def _columns(self, learned: Learned, evidence: Evidence) -> dict[str, Tensor]:
        """What telemetry and the summary see of the step, beside what it paid."""
        synergy, without, age = self._shown[:, :3].unbind(dim=1)
        interaction, boost, shapley = self._shown[:, 3:].chunk(3, dim=1)
        fossil = (self._sizes() * self._slots.within(Stage.FOSSILISED)).sum(dim=1)
        return {
            "metric": self._measured.accuracy,
            "rent": -(rent(evidence, self._priced) + occupancy(evidence, self._priced)),
            "host_loss": self._measured.loss,
            "metric_best": self._best,
            "stalled_steps": self._stalled.to(torch.int32),
            "fossil_parameters": fossil,
            "growth_ratio": 1 + fossil / self._hosts.num_parameters,
            "seed_share": self._newest(learned.share),
            "synergy": synergy,
            "metric_without": without,
            "attribution_age": age,
            "episode_fossils": self._slots.within(Stage.FOSSILISED).sum(dim=1).to(torch.int16),
            "episode_prunes": self._pruned.to(torch.int16),
            "governor": evidence.governor.to(torch.uint8),
            "slot_interaction": interaction,
            "slot_boost": boost,
            "slot_shapley": shapley,
            **self._slots.facts(),
        }

    def _observe(self) -> Observation:
        """Features N D, all of order one: of the env, then of each slot in turn; and the mask."""
        slots, measured, own = self._slots, self._measured, self._own
        columns = [
            1.0 - self._clock / own.steps,
            measured.accuracy,
            self._progress * 10.0,
            (measured.loss / _ONE_NAT_OF_TEN).nan_to_num().clamp(max=10.0),
            slots.within(Stage.FOSSILISED).float().mean(dim=1),
            slots.within(*GROWING).float().mean(dim=1),
            self._stalled.clamp(max=_LONG_AGE) / _LONG_AGE,
            self._rollbacks / own.max_rollbacks,
        ]
        alpha = slots.alpha
        numbers = [
            alpha.value,
            alpha.target,
            (alpha.mode == Mode.UP).float() - (alpha.mode == Mode.DOWN).float(),
            alpha.left / _LONG_MOVE,
            slots.age.clamp(max=_LONG_AGE) / _LONG_AGE,
            slots.life.clamp(max=_LONG_LIFE) / _LONG_LIFE,
            (measured.contribution * 10.0).nan_to_num().clamp(-1.0, 1.0),
            slots.health.nan_to_num().clamp(0.0, 1.0),
        ]
        per_slot = [
            one_hot(slots.stage, len(BY_CODE)),
            one_hot(slots.blueprint, len(self._blueprints)),
            one_hot(slots.style, len(Style)),
            torch.stack(numbers, dim=2),
        ]
        self._mask = slots.mask()
        features = [torch.stack(columns, dim=1), torch.cat(per_slot, dim=2).flatten(1)]
        return Observation(features=torch.cat(features, dim=1), mask=self._mask)


_OWN: Final = ("clock", "rollbacks", "pruned", "shown", "progress", "best", "stalled", "born")
"""Tensors of envs that the next step depends on."""


def _unknown(envs: int, slots: int, device: str) -> Attribution:
    """Nothing was attributed."""
    of_pair = torch.full((envs, slots, slots), torch.nan, device=device)
    of_slot, of_env = of_pair[:, :, 0], of_pair[:, 0, 0]
    return Attribution(
        baseline=of_env,
        combined=of_env,
        individual=of_slot,
        pairs=of_pair,
        synergy=of_env,
        shapley=of_slot,
        interaction=of_slot,
        boost=of_slot,
    )


def _rows(where: Tensor) -> Tensor:
    """Places that are true, counted through all dimensions, int64."""
    with sync_point(_ENVS):
        return where.flatten().nonzero().squeeze(1)


def _any(where: Tensor) -> bool:
    """Whether one is true."""
    with sync_point(_ENVS):
        return bool(where.any())
