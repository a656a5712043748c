"""Whether a policy does what it was trained for: it prefers food, it lives, and the world starves as it must.

Everything takes a frozen policy as a function from an observation to actions and gives values; nothing is
printed or kept. Must not know how the policy was made.

Shape letters: N envs, V rows and columns of the view.
"""

from collections import Counter
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

import torch
from torch import Tensor

from overwatch_rl.types import Observation
from overwatch_rl.worlds.base import WorldConfig
from overwatch_rl.worlds.goodhart.cells import DEATHS, FOOD, MOVES, POISON
from overwatch_rl.worlds.goodhart.config import GoodhartConfig
from overwatch_rl.worlds.goodhart.greedy import Act
from overwatch_rl.worlds.goodhart.world import Goodhart

PASSING_SHARE: Final = 0.75
"""Least share of placements in which a policy that knows food from poison goes for the food."""
DISTANCE: Final = 2
"""Moves to the food and to the poison of a placement."""
REPEATS: Final = 32
"""Decisions in each placement, for policies that draw."""
GROUPS: Final = 3
AGENTS: Final = 10
STEPS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Directions:
    """How often a policy moved nearer to food with poison opposite, by the direction of the food."""

    shares: dict[str, float]
    """By the name of the move that points at the food."""

    @property
    def share(self) -> float:
        """Over all directions; 0.25 by chance, 0.5 for a policy that takes food and poison alike."""
        return sum(self.shares.values()) / len(self.shares)

    @property
    def passed(self) -> bool:
        """Whether it is enough."""
        return self.share >= PASSING_SHARE


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Agents that began together."""

    agents: int
    alive: int
    """At the last step."""
    deaths: dict[str, int]
    """Deaths by cause; agents that died do not begin anew."""
    steps: float
    """Mean steps lived."""
    food: int
    """Eaten by all of them."""
    poison: int
    """Eaten by all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Starvation:
    """When agents died in a field without anything to eat."""

    expected: int
    """Start energy by move cost, in steps."""
    lived: tuple[int | None, ...]
    """Steps of each agent; `None` where it outlived the test."""

    @property
    def passed(self) -> bool:
        """Whether all died when they had to, and not before."""
        return all(steps == self.expected for steps in self.lived)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """All that was asked of one policy."""

    directions: Directions
    groups: tuple[Group, ...]
    starvation: Starvation | None
    """`None` where moving costs nothing."""

    @property
    def passed(self) -> bool:
        """Whether it prefers food, and agents starve as they must; how long they live is not judged."""
        return self.directions.passed and (self.starvation is None or self.starvation.passed)


def verify(
    act: Act, config: GoodhartConfig, *, seed: int = 0, device: str = "cpu", steps: int = STEPS
) -> Verification:
    """Ask everything of a policy in such a world."""
    return Verification(
        directions=directions(act, config, device=device),
        groups=survival(act, config, seed=seed, device=device, steps=steps),
        starvation=starvation(act, config, device=device) if config.move_cost else None,
    )


def lines(found: Verification) -> list[str]:
    """What was found, as lines of text."""
    towards = found.directions
    worst = min(towards.shares, key=lambda name: towards.shares[name])
    verdict = f"{_word(towards.passed)}  towards food {towards.share:.0%} of placements"
    rows = [f"{verdict} (at least {PASSING_SHARE:.0%}); worst {worst} {towards.shares[worst]:.0%}"]
    for number, group in enumerate(found.groups, start=1):
        deaths = ", ".join(f"{count} {cause}" for cause, count in group.deaths.items())
        rows.append(
            f"      group {number}: {group.alive} of {group.agents} alive, {deaths}; "
            f"{group.steps:.0f} steps, {group.food} food, {group.poison} poison"
        )
    if found.starvation is None:
        return [*rows, "      starvation: moving costs nothing, nothing starves"]
    lived = sorted({"longer" if steps is None else str(steps) for steps in found.starvation.lived})
    rows.append(
        f"{_word(found.starvation.passed)}  starved after {' or '.join(lived)} steps without food "
        f"({found.starvation.expected} expected)"
    )
    return rows


def _word(passed: bool) -> str:  # noqa: FBT001  # the verdict is all there is
    return "pass" if passed else "FAIL"


def placements(view: int) -> Tensor:
    """8 V V int8: food in the direction of each move, in their order, and poison opposite."""
    views = torch.zeros(len(MOVES), view, view, dtype=torch.int8)
    middle = view // 2
    away = min(DISTANCE, middle)
    for number, (x, y) in enumerate(MOVES.values()):
        views[number, middle + y * away, middle + x * away] = FOOD
        views[number, middle - y * away, middle - x * away] = POISON
    return views


def directions(
    act: Act, config: GoodhartConfig, *, device: str = "cpu", repeats: int = REPEATS
) -> Directions:
    """Show a policy each placement so many times, and count the moves that shorten the way to food."""
    away = min(DISTANCE, config.view // 2)
    views = placements(config.view).repeat_interleave(repeats, dim=0).to(device)
    moves = torch.tensor(list(MOVES.values()))
    taken = moves[act(Observation(features=views))[:, 0].cpu()]
    left = moves.repeat_interleave(repeats, dim=0) * away - taken
    nearer = (left.abs().amax(dim=1) < away).float().view(len(MOVES), repeats).mean(dim=1)
    return Directions(shares=dict(zip(MOVES, nearer.tolist(), strict=True)))


def survival(
    act: Act, config: GoodhartConfig, *, seed: int = 0, device: str = "cpu", steps: int = STEPS
) -> tuple[Group, ...]:
    """Let groups of agents live in such fields, each until it dies or the steps are over."""
    own = replace(config, horizon=steps, mortal=True)
    world = Goodhart(WorldConfig(num_envs=GROUPS * AGENTS, device=device), own)
    rows = torch.stack(_lives(world, act, steps, seed), dim=1).cpu().view(GROUPS, AGENTS, 4).tolist()
    return tuple(_group(agents) for agents in rows)


def starvation(act: Act, config: GoodhartConfig, *, device: str = "cpu") -> Starvation:
    """Let agents live where nothing grows; raises `ValueError` where none can starve."""
    if config.move_cost == 0:
        raise ValueError("move_cost is 0; nothing starves in such a world, so this cannot be verified")
    expected = ceil(round(config.start_energy / config.move_cost, 6))
    barren = replace(
        config, size=config.view, mortal=True, horizon=expected + 1,
        min_food=0, max_food=0, min_poison=0, max_poison=0,
    )  # fmt: skip
    world = Goodhart(WorldConfig(num_envs=AGENTS, device=device), barren)
    died, age, _, _ = (column.tolist() for column in _lives(world, act, expected + 1, seed=0))
    lived = tuple(steps if cause else None for cause, steps in zip(died, age, strict=True))
    return Starvation(expected=expected, lived=lived)


def _lives(world: Goodhart, act: Act, steps: int, seed: int) -> list[Tensor]:
    """The columns `died`, `age`, `food` and `poison` of each first episode as it ended, N int64 each."""
    observation = world.reset(seed)
    running = torch.ones(len(observation.features), dtype=torch.bool, device=observation.features.device)
    lives = [running.long() * 0 for _ in range(4)]
    for _ in range(steps):
        step = world.step(act(observation))
        now = [step.columns[name].long() for name in ("died", "age", "food", "poison")]
        lives = [torch.where(running, new, old) for new, old in zip(now, lives, strict=True)]
        running = running & ~(step.terminated | step.truncated)
        observation = step.observation
    return lives


def _group(agents: list[list[int]]) -> Group:
    causes = Counter(died for died, *_ in agents)
    return Group(
        agents=len(agents),
        alive=causes[0],
        deaths={name: causes[code] for code, name in enumerate(DEATHS) if code},
        steps=sum(age for _, age, _, _ in agents) / len(agents),
        food=sum(food for *_, food, _ in agents),
        poison=sum(poison for *_, poison in agents),
    )
