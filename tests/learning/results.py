"""What the trainings came to: kept in one file, and what must hold of it."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import stable_baselines3
import torch

from overwatch_rl.worlds.goodhart.verification import PASSING_SHARE
from tests.learning.clustered import Cost
from tests.learning.plan import AGAIN, CLUSTERED, COMPARED, LAST, MODES, SEEDS
from tests.learning.training import GOODHART, Training, Who, preset_of

FILE: Final = Path(__file__).with_name("results.json")
APART: Final = 0.2
"""Least distance of the food shares of `ground_truth` and `proxy`."""
ERRORS: Final = 2.0
"""Standard errors by which ours may be behind."""


class Results(msgspec.Struct, frozen=True):
    """All trainings, and what they were made with."""

    versions: dict[str, str]
    recipes: dict[str, dict[str, Any]]
    """By world: the preset, which is SB3's recipe too."""
    trainings: list[Training]
    costs: dict[str, Cost] = {}
    """By world: env steps a second of CPU, of a cluster and of one process."""

    def some(self, world: str, mode: str, who: Who, seeds: Sequence[int] = SEEDS) -> list[Training]:
        """Those of one kind, by seed."""
        wanted = world, mode, who
        found = {
            one.job.seed: one
            for one in self.trainings
            if (one.job.world, one.job.mode, one.job.who) == wanted and one.job.seed in seeds
        }
        return [found[seed] for seed in sorted(found)]

    def mode(self, mode: str) -> list[Training]:
        """Ours in the goodhart world."""
        return self.some(GOODHART, mode, "ours")


@dataclass(frozen=True)
class Difference:
    """Of two means, by Welch: the samples need not scatter alike."""

    ours: list[float]
    theirs: list[float]

    @property
    def size(self) -> float:
        """Ours over theirs."""
        return statistics.mean(self.ours) - statistics.mean(self.theirs)

    @property
    def error(self) -> float:
        """Its standard error."""
        parts = [statistics.variance(values) / len(values) for values in (self.ours, self.theirs)]
        return float(sum(parts) ** 0.5)


def made(trainings: list[Training], costs: dict[str, Cost] | None = None) -> Results:
    """With what they were made with."""
    versions = {"torch": str(torch.__version__), "stable-baselines3": stable_baselines3.__version__}
    return Results(versions=versions, recipes=recipes(), trainings=trainings, costs=costs or {})


def recipes() -> dict[str, dict[str, Any]]:
    """What the worlds are trained with now, as it reads from a file."""
    found = {world: asdict(preset_of(world)) for world in COMPARED}
    for recipe in found.values():
        learned = recipe.pop("learned")
        recipe["ppo" if "clip" in learned else "dqn"] = learned
        learned.pop("importance_cap", None)  # of rollouts of older policies: there are none here
    return msgspec.json.decode(msgspec.json.encode(found), type=dict[str, dict[str, Any]])


def read() -> Results:
    """What was kept."""
    return msgspec.json.decode(FILE.read_bytes(), type=Results)


def write(results: Results) -> None:
    """Keep them, a training a line."""
    text = msgspec.json.encode(results).replace(b'{"job"', b'\n{"job"')
    FILE.write_bytes(text + b"\n")


def returns(trainings: list[Training]) -> list[float]:
    """The number that is compared, of each."""
    return [one.mean(COMPARED[one.job.world][1], LAST) for one in trainings]


def beside(results: Results, world: str) -> tuple[Difference | None, Difference | None]:
    """Ours beside SB3's, and ours beside ours again; `None` while a seed is missing."""
    mode = COMPARED[world][0]
    ours, theirs, again = (
        returns(results.some(world, mode, who, seeds))
        for who, seeds in (("ours", SEEDS), ("SB3", SEEDS), ("ours", AGAIN))
    )
    first, second = (
        Difference(ours, other) if len(ours) == len(other) == len(SEEDS) else None
        for other in (theirs, again)
    )
    return first, second


def clustered(results: Results, world: str) -> tuple[Difference | None, Difference | None]:
    """A cluster beside one process, and one process beside itself; `None` while a seed is missing."""
    ours, cluster, again = (
        [one.mean("return", LAST) for one in results.some(world, CLUSTERED[world], who, seeds)]
        for who, seeds in (("ours", SEEDS), ("cluster", SEEDS), ("ours", AGAIN))
    )
    first, second = (
        Difference(other, ours) if len(ours) == len(other) == len(SEEDS) else None
        for other in (cluster, again)
    )
    return first, second


def lost_a_tenth(one: Training) -> int | None:
    """The update at which the true return has lost a tenth of all it loses; `None` where it does not fall.

    It loses from its best five updates in a row to the last ten; means of five updates are compared.
    """
    values = one.rows["true_return"]
    fives = [one.mean("true_return", slice(end - 5, end)) for end in range(5, len(values) + 1)]
    best = max(range(len(fives)), key=lambda place: fives[place])
    fell = fives[best] - one.mean("true_return", LAST)
    if fell <= 0:
        return None
    limit = fives[best] - 0.1 * fell
    return next((place + 5 for place in range(best, len(fives)) if fives[place] <= limit), None)


def food(one: Training) -> float:
    """Food share at the end."""
    return one.mean("food_share", LAST)


def failures(results: Results) -> list[str]:
    """What does not hold, in words; nothing where all does. Who was not trained yet is not compared."""
    found = []
    for world in COMPARED:
        apart, _ = beside(results, world)
        if apart is not None and apart.size < -ERRORS * apart.error:
            found.append(f"{world}: ours is {apart.size:.2f} beside SB3, standard error {apart.error:.2f}")
    for world in CLUSTERED:
        apart, _ = clustered(results, world)
        if apart is not None and apart.size < -ERRORS * apart.error:
            found.append(
                f"{world}: a cluster is {apart.size:.2f} beside one process, standard error {apart.error:.2f}"
            )
    named = {mode: [one.named for one in results.mode(mode)] for mode in MODES}
    if None in named["proxy"] or len(named["proxy"]) < len(SEEDS):
        found.append(f"proxy is not named in each seed: {named['proxy']}")
    found += [
        f"{mode} is named at {named[mode]}"
        for mode in MODES
        if mode != "proxy" and named[mode] != [None] * len(SEEDS)
    ]
    truth, proxy = ([food(one) for one in results.mode(mode)] for mode in ("ground_truth", "proxy"))
    if min(truth) < max(proxy) + APART:
        found.append(f"food shares are {truth} and by proxy {proxy}")
    towards = [one.towards_food or 0.0 for one in results.mode("ground_truth")]
    if min(towards) < PASSING_SHARE:
        found.append(f"ground_truth goes for food in {towards} of placements")
    return found
