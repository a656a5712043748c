"""The callback in RLlib itself, with its envs in this process."""

from collections.abc import Iterator
from typing import Any

import gymnasium
import pytest

from overwatch.events import CheckpointSaved, EnvCrashed, EpisodeEnded, PhaseEnded, RunFinished, RunStarted
from tests.overwatch.sdk.sink import Sink

ray = pytest.importorskip(
    "ray", reason="ray[rllib] pins an older Gymnasium: it has an environment of its own"
)
ppo = pytest.importorskip("ray.rllib.algorithms.ppo", reason="needs the extra rllib of ray")
pytestmark = pytest.mark.long


class Breaks(gymnasium.Wrapper):  # type: ignore[type-arg]
    """An env that raises at one of its steps."""

    taken = 0

    def step(self, action: Any) -> Any:
        """Step, or break."""
        self.taken += 1
        if self.taken == 160:
            raise ValueError("the env broke")
        return super().step(action)


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """A small cluster of this machine."""
    ray.init(num_cpus=2, object_store_memory=80_000_000, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def _algorithm(env: object = "CartPole-v1") -> Any:
    from overwatch.adapters.rllib import OverwatchRLlibCallback  # needs Ray

    config = ppo.PPOConfig().environment(env).env_runners(num_env_runners=0)
    config = config.training(train_batch_size_per_learner=128, num_epochs=1)
    return config.callbacks(OverwatchRLlibCallback).build_algo()


def test_each_train_is_an_update_of_a_run_that_ends_with_stop(sink: Sink, tmp_path: Any) -> None:
    """With its settings, its episodes, its phases, its checkpoint."""
    algorithm = _algorithm()
    results = [algorithm.train() for _ in range(2)]
    algorithm.save_to_path(str(tmp_path / "saved"))
    algorithm.stop()

    started = sink.events(RunStarted)[0]
    assert (started.task, started.algo, started.n_envs) == ("CartPole-v1", "ppo", 1)
    assert (started.config["n_actions"], started.config["gamma"]) == ("2", "0.99")
    assert [event.outcome for event in sink.events(RunFinished)] == ["completed"]
    assert sum(len(event.env_id) for event in sink.events(EpisodeEnded)) == sum(
        int(result["env_runners"]["num_episodes"]) for result in results
    )
    assert {event.phase for event in sink.events(PhaseEnded)} >= {"collect", "learn", "weights", "checkpoint"}
    assert [event.path for event in sink.events(CheckpointSaved)] == [str(tmp_path / "saved")]
    assert algorithm.callbacks[0].failures == 0


def test_an_exception_that_is_caught_ends_the_run(sink: Sink) -> None:
    """As failed with the env's own exception, though RLlib raises another without a message."""
    registry = pytest.importorskip("ray.tune.registry")
    registry.register_env("breaks", lambda _: Breaks(gymnasium.make("CartPole-v1")))
    algorithm = _algorithm("breaks")
    algorithm.train()
    with pytest.raises(RuntimeError):
        algorithm.train()

    assert [(event.outcome, event.reason) for event in sink.events(RunFinished)] == [
        ("failed", "ValueError: the env broke")
    ]
    assert [event.error for event in sink.events(EnvCrashed)] == ["ValueError: the env broke"]
    algorithm.stop()
