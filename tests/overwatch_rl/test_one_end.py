"""Each step, update and episode ends once, however often a training is rolled back, ends and goes on.

Trainings of poisoned hosts are ended at random places, by an error or in order, and go on from their newest
checkpoint. Everything is real but the exporter's process, whose work is done in the test.
"""

import csv
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from torch import Tensor

from overwatch.catalog import Scope
from overwatch.events import (
    ActionTaken,
    EnvRolledBack,
    EpisodeEnded,
    Event,
    Measured,
    Origin,
    Record,
    RunStarted,
)
from overwatch.state import RunState, apply, new_run
from overwatch_rl.algorithms.ppo import PPO, PPOConfig
from overwatch_rl.assembly import Flight
from overwatch_rl.checkpoints.manager import Manager
from overwatch_rl.checkpoints.reading import Checkpoint, find_checkpoint
from overwatch_rl.checkpoints.store import Retention
from overwatch_rl.resume import go_on
from overwatch_rl.telemetry.files import Files
from overwatch_rl.telemetry.reporter import Fanout, Silent
from overwatch_rl.telemetry.tower import Tower, words_of
from overwatch_rl.training.keeper import Keeper, Kept
from overwatch_rl.training.trainer import Trainer, TrainerConfig
from overwatch_rl.types import Rolled, Step
from overwatch_rl.worlds.base import WorldConfig
from overwatch_rl.worlds.morphogenesis.config import MorphogenesisConfig
from overwatch_rl.worlds.morphogenesis.world import Morphogenesis
from tests.overwatch.sdk.rollouts.local import Local

ENVS, STEPS, UPDATES = 3, 7, 6
"""A rollout is no whole number of episodes: each ends within one, and checkpoints lie within them."""
SMALL = MorphogenesisConfig(slots=2, steps=9, max_rollbacks=2, snapshot_every=2)
MOST_LIVES = 12


class Died(Exception):  # noqa: N818 it is no error of anything
    """The training ends here."""


class Poisoned(Morphogenesis):
    """Some hosts get a weight that is no number, at steps of a plan: the governor has to roll them back."""

    def __init__(self, plan: Mapping[int, int]) -> None:
        super().__init__(WorldConfig(num_envs=ENVS), SMALL)
        self._plan = plan

    def step(self, actions: Tensor) -> Step:
        """As ever; in an env of the plan the host is ruined before."""
        sick = self._plan.get(int(self.steps))
        if sick is not None:
            state = self.state_dict()
            state["hosts.host.first"][sick] = torch.nan
            self.load_state_dict(state)
        return super().step(actions)


@dataclass
class Ends(Silent):
    """A reporter in which a training dies, or by which it is asked to stop, at its n-th call of a kind."""

    kind: str
    after: int
    seen: Counter[str] = field(default_factory=Counter)

    def _count(self, kind: str) -> None:
        self.seen[kind] += 1
        if kind == self.kind and self.seen[kind] > self.after:
            raise Died

    def beat(self, step: int, duration_s: float) -> None:  # noqa: ARG002 the contract's
        """Die within a rollout, or at its first step."""
        self._count("beat")

    def rollout(self, rolled: Rolled) -> None:  # noqa: ARG002 the contract's
        """Die between collecting and learning."""
        self._count("rollout")

    def update(self, index: int, values: Mapping[str, float]) -> None:  # noqa: ARG002 the contract's
        """Die between learning and saving."""
        self._count("update")

    def stop(self) -> str | None:
        """Asked after each step."""
        self.seen["stop"] += 1
        return "interrupted" if self.kind == "stop" and self.seen["stop"] > self.after else None


def drawn(draws: random.Random) -> tuple[dict[int, int], Callable[[], tuple[Ends, bool]]]:
    """Which hosts are poisoned when, and how lives end: each with whether the others see the last call."""
    plan = {step: draws.randrange(ENVS) for step in draws.sample(range(UPDATES * STEPS), 12)}

    def end() -> tuple[Ends, bool]:
        kind = draws.choice(("beat", "beat", "stop", "stop", "rollout", "update"))
        most = 3 * STEPS if kind in ("beat", "stop") else 3
        return Ends(kind, draws.randrange(most)), draws.random() < 0.5

    return plan, end


def live(folder: Path, plan: Mapping[int, int], ends: Ends, *, is_last: bool) -> tuple[bool, list[Event]]:
    """One life, from the newest checkpoint where there is one: whether all is done, and its events."""
    checkpoint = newest(folder)
    world = Poisoned(plan)
    local = Local(words_of(world.spec), ENVS)
    state = None if checkpoint is None else checkpoint.state
    files = Files(folder, done=(0, 0) if state is None else (state.updates, state.steps))
    tower = Tower(local.run, world.spec, "cpu")
    reporter = Fanout([tower, files, ends] if is_last else [ends, tower, files])
    algorithm = PPO(world.spec, PPOConfig(epochs=1, minibatches=1), seed=3)
    config = TrainerConfig(updates=UPDATES, steps=STEPS, seed=3)
    trainer = Trainer(world, algorithm, config, reporter, ends.stop)
    manager = Manager(folder / "checkpoints", Retention(keep=2), after=0 if state is None else state.lineage)
    keeper = Keeper(trainer, manager, Kept(run_id="r", config={}, config_hash="c"), reporter, every=2)
    resumed = None if state is None else state.updates
    local.run.fact(RunStarted(at=time.time_ns(), n_envs=ENVS, resumed=resumed))
    if checkpoint is not None:
        go_on(trainer, checkpoint)
    flight = Flight(
        trainer=trainer, run=trainer.run, reporter=reporter, tower=tower, keeper=keeper, close=lambda: None
    )
    try:
        flight.fly()
    except Died:
        return False, local.events()
    return trainer.updates_done == UPDATES, local.events()


def newest(folder: Path) -> Checkpoint | None:
    """The one to go on from."""
    try:
        return find_checkpoint(folder)
    except ValueError:
        return None


def folded(lives: list[list[Event]]) -> RunState:
    """What the tower makes of all lives."""
    records = [
        Record(origin=Origin(run_id="r", epoch=f"e{life}", ours=True), event=event, seq=seq)
        for life, events in enumerate(lives)
        for seq, event in enumerate(events, 1)
    ]
    state = new_run(records[0])
    for record in records:
        apply(state, record, record.event.at)
    return state


def episodes(lives: list[list[Event]]) -> dict[tuple[int, int], tuple[int, float]]:
    """Length and return by env and step; those of a repeated step are the same to the last bit."""
    found: dict[tuple[int, int], tuple[int, float]] = {}
    for events in lives:
        own: Counter[tuple[int, int]] = Counter()
        for event in events:
            if isinstance(event, EpisodeEnded):
                assert event.step is not None
                assert event.length is not None
                columns = (event.env_id, event.length, event.episode_return)
                for env, length, earned in zip(*(one.array().tolist() for one in columns), strict=True):
                    own[env, event.step] += 1
                    assert found.setdefault((env, event.step), (length, earned)) == (length, earned)
        assert set(own.values()) <= {1}
    return found


def check(folder: Path, lives: list[list[Event]]) -> None:
    """Every end is there once: in the records, in what the tower counts, and in the run's own files."""
    ended, state = episodes(lives), folded(lives)
    every = [event for events in lives for event in events]
    last = max(event.step for event in every if isinstance(event, ActionTaken) and event.step is not None)
    for env in range(ENVS):
        before = 0
        for step, (length, _) in sorted((step, end) for (of, step), end in ended.items() if of == env):
            assert length == step - before, (env, step)
            before = step
        assert last - before < SMALL.steps
    indices = [one.index for one in every if isinstance(one, Measured) and one.scope is Scope.POLICY]
    undone = {(one.env_id, one.step) for one in every if isinstance(one, EnvRolledBack)}

    assert set(indices) == set(range(1, UPDATES + 1))
    assert (state.updates, state.update, state.steps) == (UPDATES, UPDATES, ENVS * last)
    assert (state.episodes, state.rollbacks) == (len(ended), len(undone))
    assert undone
    counts = Counter(env for env, _ in ended)
    assert state.envs.episodes[:ENVS].tolist() == [counts[env] for env in range(ENVS)]
    with (folder / "episodes.csv").open() as file:
        rows = [(int(row["env"]), int(row["step"])) for row in csv.DictReader(file)]
    assert sorted(rows) == sorted(ended)
    with (folder / "updates.csv").open() as file:
        assert [int(row["update"]) for row in csv.DictReader(file)] == list(range(1, UPDATES + 1))


@pytest.mark.parametrize(
    "trainings", [3, pytest.param(60, marks=[pytest.mark.long, pytest.mark.timeout(3600)])]
)
def test_every_step_update_and_episode_ends_once(tmp_path: Path, trainings: int) -> None:
    """Rolled back, broken off and resumed at random: none is missing, and none counts twice."""
    for number in range(trainings):
        seed = random.randrange(1 << 30)  # noqa: S311 places of ends
        plan, end = drawn(random.Random(seed))  # noqa: S311 the same
        lives: list[list[Event]] = []
        is_done = False
        while not is_done:
            if newest(tmp_path / str(number)) is None:
                lives.clear()  # What died before its first checkpoint has nothing to go on from: a new run.
            ends, is_last = end() if len(lives) < MOST_LIVES else (Ends("never", 0), True)
            is_done, events = live(tmp_path / str(number), plan, ends, is_last=is_last)
            lives.append(events)
        print(f"seed {seed}: {len(lives)} lives")
        check(tmp_path / str(number), lives)
