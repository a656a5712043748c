"""A cluster of real processes: it learns what one process learns, and survives the end of any of them."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

from overwatch_rl.algorithms.ppo import PPO
from overwatch_rl.checkpoints.reading import find_checkpoint
from overwatch_rl.cluster.process import remembered
from overwatch_rl.learner.process import spec_of
from overwatch_rl.learner.trace import Trained, surviving
from overwatch_rl.telemetry.reporter import Silent
from overwatch_rl.training.keeper import position_of
from overwatch_rl.training.trainer import Trainer, TrainerConfig
from overwatch_rl.worlds import make
from overwatch_rl.worlds.base import WorldConfig
from tests.overwatch_rl.cluster.running import Running, config, settings
from tests.overwatch_rl.learner.whole import same


@pytest.mark.timeout(300)
def test_an_actor_that_takes_turns_learns_what_one_process_learns(tmp_path: Path) -> None:
    """Through replay, files of weights and checkpoints: parameters, moments, generators equal to the bit."""
    given = config(batch={"ahead": 0})
    with Running(settings(tmp_path, given, actors=1, updates=6)) as running:
        assert running.cluster.run(lambda: None) == "completed"
    kept = position_of(find_checkpoint(tmp_path))
    world = make(given.world, WorldConfig(num_envs=given.batch.envs), given.world_settings)
    algorithm = PPO(spec_of(given), given.learned, seed=given.seed)
    limits = TrainerConfig(updates=6, steps=given.batch.steps, seed=given.seed)
    Trainer(world, algorithm, limits, Silent(), lambda: None).run()

    assert kept.updates == 6
    assert same(kept.algorithm, algorithm.state_dict())
    assert remembered(tmp_path) is not None


def steps_of(updates: Sequence[Trained]) -> Counter[tuple[str, int, int]]:
    """How often each step was trained."""
    return Counter(
        (env, episode, step)
        for update in updates
        for env, episode, first, count in update.parts
        for step in range(first, first + count)
    )


@pytest.mark.timeout(900)
def test_training_goes_on_whichever_process_is_killed(tmp_path: Path) -> None:
    """In the history of the surviving weights each step is trained once; of an episode none is left out."""
    with Running(settings(tmp_path, config())) as running:
        running.more(6, "the first updates")
        for name in ("replay", "actor-1", "orchestrator", "learner", "actor-0"):
            running.kill(name)
            running.more(6, f"after {name} was killed")
    history = surviving(tmp_path / "trace.jsonl")
    trained = steps_of(history)

    assert [one.updates for one in history] == list(range(1, len(history) + 1))
    assert set(trained.values()) == {1}
    episodes = defaultdict(list)
    for env, episode, step in trained:
        episodes[env, episode].append(step)
    whole = {key: sorted(steps) == list(range(len(steps))) for key, steps in episodes.items()}
    assert all(whole.values()), [key for key, is_whole in whole.items() if not is_whole]


@pytest.mark.timeout(600)
def test_a_folder_that_was_used_before_goes_on(tmp_path: Path) -> None:
    """With its run, its updates and a lineage of its own; nothing is trained again."""
    with Running(settings(tmp_path, config(), updates=5)) as running:
        assert running.cluster.run(lambda: None) == "completed"
    with Running(settings(tmp_path, config(), updates=9)) as running:
        assert running.cluster.run(lambda: None) == "completed"
    history = surviving(tmp_path / "trace.jsonl")

    assert [one.updates for one in history] == list(range(1, 10))
    assert set(steps_of(history).values()) == {1}
    assert find_checkpoint(tmp_path).state.version.lineage == 2


def test_more_actors_than_environments_are_refused(tmp_path: Path) -> None:
    """Before anything starts."""
    with pytest.raises(ValueError, match="actors is 9; use 1 to 8"):
        settings(tmp_path, config(), actors=9)
