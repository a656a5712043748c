"""Morphogenesis: a policy grows networks that learn, and pays rent for what it has grown.

Every env is a small host that learns a task. In each step the policy may germinate a seed in a slot, move it
on through its gates, change how far it is let in, or prune it; then the host trains and is validated, and the
reward is paid. The horizon is finite and the observation holds what is left of it, so the end of an episode
is a termination.

A host whose loss, accuracy or gradients are not finite is rolled back to its newest snapshot in the same
step: seeds that learned since and are no fossils are pruned, the env pays for it, and its episode goes on;
the last rollback that is allowed ends it. An episode has one end, whatever ended it.

Rules: two streams of randomness, so what is grown never changes a host's data; runs on a CPU. Must not know
algorithms, storage or telemetry.

Shape letters: N envs, K slots, M subsets, D features.
"""

from dataclasses import dataclass
from functools import cache
from itertools import combinations
from math import factorial
from typing import Final

import torch
from torch import Tensor

from overwatch import events
from overwatch.catalog.stages import BY_CODE, Stage
from overwatch_rl.settings import configured
from overwatch_rl.sync_points import sync_point
from overwatch_rl.types import Observation, ObservationSpec, SlotLayout, Step, WorldSpec
from overwatch_rl.worlds.base import World, WorldConfig, check_legal
from overwatch_rl.worlds.morphogenesis import lifecycle
from overwatch_rl.worlds.morphogenesis.actions import Action, Style, action_spec
from overwatch_rl.worlds.morphogenesis.config import MorphogenesisConfig
from overwatch_rl.worlds.morphogenesis.hosts import BLUEPRINTS, Hosts, TrainingResult, Wiring
from overwatch_rl.worlds.morphogenesis.lifecycle import (
    CONNECTED,
    GROWING,
    Lifecycle,
    Transition,
    one_hot,
    seed_facts,
)
from overwatch_rl.worlds.morphogenesis.rewards import SUMMARISED, Evidence, Rewards, seed_counts, summary

GLOBAL_FEATURES: Final = 8
SLOT_FEATURES: Final = len(BY_CODE) + len(Style) + 8
"""Beside one for each blueprint."""
EXACT_SLOTS: Final = 4
"""Slots up to which all subsets are validated, and Shapley values are known."""
_LONG_AGE: Final = 10
_LONG_LIFE: Final = 30
_LONG_MOVE: Final = 8
_ONE_NAT_OF_TEN: Final = 2.3
IS_SHAPED: Final = True
"""Its setting `gamma` must be the learner's discount."""


def make(part: str, config: WorldConfig, settings: dict[str, object]) -> World:
    """Return the world; raises `ValueError` for a setting that is wrong or a device that it cannot use."""
    if part:
        raise ValueError(f"morphogenesis has no part {part!r}; leave it out")
    return Morphogenesis(config, configured(MorphogenesisConfig, settings, "morphogenesis"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """What each connected branch is worth, from a host's accuracy with some of its branches alone.

    NaN for slots without a connected branch. Shapley values (Shapley 1953) are known where all subsets of the
    slots were validated.
    """

    baseline: Tensor  # N, accuracy of the host without any branch
    synergy: Tensor  # N, what all add together beyond what each adds alone
    pairs: Tensor  # N K K, what two add together beyond what each adds alone; NaN on the diagonal
    interaction: Tensor  # N K, the sum of its pairs
    boost: Tensor  # N K, the largest of its pairs; 0 where none is positive
    shapley: Tensor  # N K, its fair share of all that they add


@cache
def subsets_of(slots: int) -> Tensor:
    """M K bool: no slot, each slot, each pair, all; every subset where slots are few."""
    sizes = range(slots + 1) if slots <= EXACT_SLOTS else (0, 1, 2, slots)
    chosen = [subset for size in sizes for subset in combinations(range(slots), size)]
    return torch.tensor([[slot in subset for slot in range(slots)] for subset in chosen])


def attribute(accuracies: Tensor, live: Tensor) -> Attribution:
    """Conclude from `accuracies` N M of `subsets_of` K; `live` N K bool, where a branch is connected."""
    slots = live.shape[1]
    subsets = subsets_of(slots)
    sizes = subsets.sum(dim=1)
    baseline, alone = accuracies[:, 0], accuracies[:, sizes == 1]
    individual = alone - baseline[:, None]
    pairs = torch.full((*live.shape, slots), torch.nan)
    first, second = torch.combinations(torch.arange(slots)).T if slots > 1 else torch.zeros(2, 0).long()
    together = accuracies[:, sizes == 2] - baseline[:, None] - individual[:, first] - individual[:, second]
    together = together.where(live[:, first] & live[:, second], torch.nan)
    pairs[:, first, second], pairs[:, second, first] = together, together
    shares = torch.full((len(subsets), slots), torch.nan)
    if slots <= EXACT_SLOTS:
        # Of a subset of size s: (s-1)! (K-s)! / K! for each of its slots, -s! (K-s-1)! / K! for the others.
        before = sizes[:, None] - subsets.long()
        orders = [factorial(s) * factorial(slots - s - 1) / factorial(slots) for s in range(slots)]
        shares = torch.tensor([*orders, 0.0])[before] * torch.where(subsets, 1.0, -1.0)
    known = pairs.nan_to_num()
    return Attribution(
        baseline=baseline,
        synergy=accuracies[:, -1] - baseline - individual.where(live, 0.0).sum(dim=1),
        pairs=pairs,
        interaction=known.sum(dim=2).where(live, torch.nan),
        boost=known.clamp(min=0.0).amax(dim=2).where(live, torch.nan),
        shapley=(accuracies @ shares).where(live, torch.nan),
    )


class Morphogenesis:
    """N hosts with K slots each, as one batched computation."""

    STATE: Final = (
        "accuracy", "loss", "contribution", "clock", "rollbacks", "pruned", "progress", "best", "stalled",
        "accuracy_before", "host_attribution", "slot_attribution", "steps",
    )  # fmt: skip
    """Tensors of envs that the next step depends on."""

    def __init__(self, config: WorldConfig, settings: MorphogenesisConfig) -> None:
        if config.device != "cpu":
            raise ValueError(f"device is {config.device!r}; morphogenesis runs on 'cpu'")
        envs, slots = config.num_envs, settings.slots
        self._settings = settings
        self._action = action_spec(slots, [blueprint.id for blueprint in BLUEPRINTS])
        self.hosts = Hosts(envs, slots)
        self._slots = Lifecycle(envs, settings, self._action)
        self._rewards = Rewards(envs, settings)
        self.steps = torch.zeros((), dtype=torch.int64)  # of the world since its reset
        self.clock = torch.zeros(envs, dtype=torch.int64)  # N, steps of the running episode
        self.rollbacks = torch.zeros_like(self.clock)  # N, in the running episode
        self.pruned = torch.zeros_like(self.clock)  # N, seeds pruned in the running episode
        self.stalled = torch.zeros_like(self.clock)  # N, steps since the best accuracy was reached
        self.accuracy, self.loss, self.best, self.progress = (torch.zeros(envs) for _ in range(4))
        """N each: accuracy, loss, best accuracy of the running episode, accuracy gained by the last step."""
        self.contribution, self.accuracy_before = (torch.full((envs, slots), torch.nan) for _ in range(2))
        """N K each: accuracy that a branch adds; accuracy just before each seed germinated."""
        self.host_attribution = torch.full((envs, 3), torch.nan)  # synergy, baseline, age of the newest
        self.slot_attribution = torch.full((envs, slots, 3), torch.nan)  # interaction, boost, Shapley value
        self._mask = self._slots.mask()
        width = SLOT_FEATURES + len(BLUEPRINTS)
        codes = [blueprint.code for blueprint in BLUEPRINTS]
        self.spec = WorldSpec(
            task="digits",
            metric=events.MetricInfo(name="acc", unit="1", higher_is_better=True),
            reward_mode="shaped",
            observation=ObservationSpec(
                shape=(GLOBAL_FEATURES + slots * width,),
                slots=SlotLayout(shared=GLOBAL_FEATURES, count=slots, width=width),
            ),
            action=self._action,
            seeds=seed_facts(self._action, codes, self.hosts.sizes.int().tolist(), settings.embargo),
            summary=summary,
            summarised=SUMMARISED,
        )
        """Task digits, metric acc, eight heads."""

    def reset(self, seed: int) -> Observation:
        """Begin new episodes everywhere; the same seed and actions give the same numbers."""
        self.hosts.seed(seed)
        self.steps.zero_()
        self._begin_episodes(torch.ones_like(self.clock, dtype=torch.bool))
        return self._observe()

    def step(self, actions: Tensor) -> Step:
        """Act, train, validate, judge, pay; actions: N 8 int64; `ValueError` where the mask forbids one."""
        with sync_point("morphogenesis.envs"):
            check_legal(self._action, self._mask, actions)
            return self._step(Action(*actions.unbind(dim=1)))

    def _step(self, action: Action) -> Step:
        before, slots = self.accuracy, self._slots
        moved = slots.step(action, self.contribution)
        self.hosts.germinate(moved.germinated, slots.blueprint)
        self.accuracy_before = torch.where(moved.germinated, before[:, None], self.accuracy_before)
        trained = self.hosts.train(self._wiring())
        slots.record_gradients(trained.health, trained.ratio)
        everyone = torch.ones_like(trained.is_finite)
        self._measure(everyone)
        ruined = ~(trained.is_finite & self.loss.isfinite())
        self._roll_back(ruined)
        self._count(before)
        limits = self._settings
        ended = (self.clock >= limits.steps) | (self.rollbacks >= limits.max_rollbacks)
        is_due = (moved.fossilised.any(dim=1) & ~ended) | (self.clock % limits.snapshot_every == 0)
        self.hosts.save(is_due & self.loss.isfinite())
        pairs = self._attribute(moved.germinated)
        new = slots.within(Stage.PRUNED) & (moved.stage_before != Stage.PRUNED.code)
        self.pruned = self.pruned + new.sum(dim=1)
        evidence = self._evidence(action, moved, ruined, ended, pairs)
        reward, columns = self._rewards.step(evidence)
        columns = self._columns(trained, evidence, columns) | columns | seed_counts(evidence)
        slots.end_step()
        self._begin_episodes(ended)
        return Step(
            observation=self._observe(),
            reward=reward,
            terminated=ended,
            truncated=torch.zeros_like(ended),
            columns=columns,
        )

    def state_dict(self) -> dict[str, Tensor]:
        """All that the next step depends on, generators included."""
        state = {f"hosts.{name}": value for name, value in self.hosts.state_dict().items()}
        for prefix, part, names in self._parts():
            state |= {f"{prefix}.{name}": getattr(part, name).clone() for name in names}
        return state

    def load_state_dict(self, state: dict[str, Tensor]) -> Observation:
        """Become as it was when `state` was taken; the observation of that moment."""
        prefix = "hosts."
        self.hosts.load_state_dict(
            {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
        )
        for prefix, part, names in self._parts():
            for name in names:
                setattr(part, name, state[f"{prefix}.{name}"].clone())
        return self._observe()

    def _parts(self) -> tuple[tuple[str, object, tuple[str, ...]], ...]:
        return (
            ("slots", self._slots, lifecycle.STATE),
            ("rewards", self._rewards, Rewards.STATE),
            ("env", self, self.STATE),
        )

    def _begin_episodes(self, envs: Tensor) -> None:
        """New hosts and empty slots in `envs` (N bool)."""
        if not bool(envs.any()):
            return
        self.hosts.restart(envs)
        self._slots.restart(envs)
        self._rewards.restart(envs)
        for name in ("clock", "rollbacks", "pruned", "stalled", "progress"):
            setattr(self, name, getattr(self, name).masked_fill(envs, 0))
        for name in ("accuracy_before", "host_attribution", "slot_attribution"):
            value = getattr(self, name)
            setattr(self, name, value.masked_fill(envs.view(-1, *[1] * (value.dim() - 1)), torch.nan))
        self._measure(envs)
        self.best = torch.where(envs, self.accuracy, self.best)

    def _measure(self, envs: Tensor) -> None:
        """Validate the hosts of `envs` (N bool), which are others now."""
        new = self.hosts.validate(self._wiring())
        self.accuracy = torch.where(envs, new.accuracy, self.accuracy)
        self.loss = torch.where(envs, new.loss, self.loss)
        self.contribution = torch.where(envs[:, None], new.contribution, self.contribution)

    def _roll_back(self, envs: Tensor) -> None:
        """The hosts of `envs` (N bool) become as in their snapshots; a germinated seed begins anew."""
        if not bool(envs.any()):
            return
        self.rollbacks = self.rollbacks + envs
        self.hosts.roll_back(envs)
        self._slots.discard(envs)
        young = self._slots.within(Stage.GERMINATED) & envs[:, None]
        self.hosts.germinate(young, self._slots.blueprint)
        self._measure(envs)

    def _count(self, before: Tensor) -> None:
        """Time, progress since the accuracy `before` (N), and the best so far."""
        self.clock, self.steps = self.clock + 1, self.steps + 1
        self.progress = self.accuracy - before
        self.stalled = torch.where(self.accuracy > self.best, 0, self.stalled + 1)
        self.best = torch.maximum(self.best, self.accuracy)

    def _wiring(self) -> Wiring:
        slots = self._slots
        return Wiring(
            alpha=torch.where(slots.within(*CONNECTED), slots.alpha, 0.0),
            isolated=slots.within(Stage.TRAINING),
            blueprint=slots.blueprint,
            style=slots.style,
        )

    def _attribute(self, germinated: Tensor) -> Tensor:
        """N K K: interactions, NaN where it is not the time; the newest attribution is kept and grows older.

        A seed that has just `germinated` has none.
        """
        every, wiring = self._settings.attribute_every, self._wiring()
        if not every or int(self.steps) % every:
            age = torch.tensor([0.0, 0.0, 1.0])
            self.host_attribution = self.host_attribution + age
            self.slot_attribution = self.slot_attribution.masked_fill(germinated[..., None], torch.nan)
            return torch.full((*germinated.shape, germinated.shape[1]), torch.nan)
        subsets = subsets_of(self._settings.slots)
        new = attribute(self.hosts.masked(wiring, subsets), wiring.alpha > 0)
        age = torch.zeros_like(new.synergy)
        self.host_attribution = torch.stack([new.synergy, new.baseline, age], dim=1)
        self.slot_attribution = torch.stack([new.interaction, new.boost, new.shapley], dim=2)
        return new.pairs

    def _evidence(
        self, action: Action, moved: Transition, ruined: Tensor, ended: Tensor, pairs: Tensor
    ) -> Evidence:
        slots = self._slots
        return Evidence(
            progress=self.progress,
            accuracy=self.accuracy,
            contribution=self.contribution,
            improvement=self.accuracy[:, None] - self.accuracy_before,
            pairs=pairs,
            stage_before=moved.stage_before,
            stage=slots.stage,
            age=slots.age + 1,
            age_before=moved.age_before,
            life=slots.life,
            auto_pruned=moved.auto_pruned,
            alpha_change=slots.alpha - moved.alpha_before,
            overhead=self._parameters(*GROWING, Stage.FOSSILISED) / self.hosts.num_parameters,
            op=action.op,
            slot=action.slot,
            refused=moved.refused,
            governor=ruined.to(torch.uint8),
            step=self.clock - 1,
            is_end=ended,
        )

    def _parameters(self, *stages: Stage) -> Tensor:
        """N: of all branches in such stages."""
        blueprint = self._slots.blueprint
        sizes = self.hosts.sizes[blueprint.clamp(min=0)] * (blueprint >= 0)
        return (sizes * self._slots.within(*stages)).sum(dim=1)

    def _newest(self, share: Tensor) -> Tensor:
        """N: what the newest connected seed has of `share` (N K); NaN where no seed is connected."""
        is_tried = self._slots.within(Stage.BLENDING, Stage.HOLDING) & share.isfinite()
        life = torch.where(is_tried, self._slots.life, self._settings.steps + 1)
        newest = share.gather(1, life.argmin(dim=1, keepdim=True)).squeeze(1)
        return torch.where(is_tried.any(dim=1), newest, torch.nan)

    def _columns(
        self, trained: TrainingResult, evidence: Evidence, paid: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        """What telemetry and the summary see of the step, beside what it `paid`."""
        synergy, without, age = self.host_attribution.unbind(dim=1)
        interaction, boost, shapley = self.slot_attribution.unbind(dim=2)
        fossils = self._parameters(Stage.FOSSILISED)
        return {
            "metric": self.accuracy,
            "rent": -(paid["reward_rent"] + paid["reward_occupancy"]),
            "host_loss": self.loss,
            "metric_best": self.best,
            "stalled_steps": self.stalled.to(torch.int32),
            "fossil_parameters": fossils,
            "growth_ratio": 1 + fossils / self.hosts.num_parameters,
            "seed_share": self._newest(trained.share),
            "synergy": synergy,
            "metric_without": without,
            "attribution_age": age,
            "episode_fossils": self._slots.within(Stage.FOSSILISED).sum(dim=1).to(torch.int16),
            "episode_prunes": self.pruned.to(torch.int16),
            "governor": evidence.governor,
            "slot_interaction": interaction,
            "slot_boost": boost,
            "slot_shapley": shapley,
            **self._slots.facts(),
        }

    def _observe(self) -> Observation:
        """Features N D, all of order one: of the env, then of each slot in turn; and the mask."""
        slots, limits = self._slots, self._settings
        columns = [
            1.0 - self.clock / limits.steps,
            self.accuracy,
            self.progress * 10.0,
            (self.loss / _ONE_NAT_OF_TEN).nan_to_num().clamp(max=10.0),
            slots.within(Stage.FOSSILISED).float().mean(dim=1),
            slots.within(*GROWING).float().mean(dim=1),
            self.stalled.clamp(max=_LONG_AGE) / _LONG_AGE,
            self.rollbacks / limits.max_rollbacks,
        ]
        numbers = [
            slots.alpha,
            slots.alpha_end,
            (slots.alpha_end - slots.alpha).sign() * (slots.alpha_left > 0),
            slots.alpha_left / _LONG_MOVE,
            slots.age.clamp(max=_LONG_AGE) / _LONG_AGE,
            slots.life.clamp(max=_LONG_LIFE) / _LONG_LIFE,
            (self.contribution * 10.0).nan_to_num().clamp(-1.0, 1.0),
            slots.health.nan_to_num().clamp(0.0, 1.0),
        ]
        per_slot = [
            one_hot(slots.stage, len(BY_CODE)),
            one_hot(slots.blueprint, len(BLUEPRINTS)),
            one_hot(slots.style, len(Style)),
            torch.stack(numbers, dim=2),
        ]
        self._mask = slots.mask()
        features = [torch.stack(columns, dim=1), torch.cat(per_slot, dim=2).flatten(1)]
        return Observation(features=torch.cat(features, dim=1), mask=self._mask)
