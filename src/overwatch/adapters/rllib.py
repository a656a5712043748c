"""RLlib: a callback that reports what an algorithm, its learners and its env runners have.

    from overwatch.adapters.rllib import OverwatchRLlibCallback
    config = PPOConfig().environment("CartPole-v1").callbacks(OverwatchRLlibCallback)

Rules: RLlib makes one instance for the algorithm and one in each env runner; each has the hooks that are its
own. What they report is in `rllib_training` and `rllib_envs`.
"""

from collections.abc import Sequence
from typing import Any

from ray.rllib.callbacks.callbacks import RLlibCallback

from overwatch import sdk
from overwatch.adapters.border import Bordered, kept_out
from overwatch.adapters.rllib_envs import Envs
from overwatch.adapters.rllib_training import Training


class OverwatchRLlibCallback(RLlibCallback, Bordered):  # type: ignore[misc]  # where Ray is not installed
    """Reports each `train()`, and the steps and episodes of the env runners, to a run of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._training: Training | None = None
        self._envs: Envs | None = None

    @property
    def run(self) -> sdk.Run | None:
        """Of the algorithm's instance the run, while it lasts; also where numbers of your own go."""
        return None if self._training is None else self._training.run

    @kept_out
    def on_algorithm_init(self, /, *, algorithm: Any, **_: object) -> None:
        """Start the run, and have it end as the algorithm does."""
        self._training = Training(algorithm)

    @kept_out
    def on_env_runners_recreated(
        self, /, *, env_runner_indices: list[int], is_evaluation: bool, **_: object
    ) -> None:
        """New processes are in the place of those that failed."""
        if self._training is not None and not is_evaluation:
            self._training.restarted(env_runner_indices)

    @kept_out
    def on_train_result(self, /, *, result: dict[str, Any], **_: object) -> None:
        """A `train()` has ended."""
        if self._training is not None:
            self._training.trained(result)

    def report_envs(self, envs: Envs) -> None:
        """From now on report what the envs of this instance's runner do."""
        self._envs = envs

    @kept_out
    def on_environment_created(self, /, *, env_runner: Any, **_: object) -> None:
        """This runner has made its envs, or has made them anew."""
        if self._envs is not None:
            self._envs.watch(env_runner.env)

    @kept_out
    def on_episode_step(self, /, *, episode: Any, env_index: int, **_: object) -> None:
        """One env of this runner has stepped."""
        if self._envs is not None:
            self._envs.step(env_index, episode)

    @kept_out
    def on_episode_end(
        self, /, *, episode: Any, env_index: int, prev_episode_chunks: Sequence[Any] = (), **_: object
    ) -> None:
        """One env's episode has ended."""
        if self._envs is not None:
            self._envs.ended(env_index, [*prev_episode_chunks, episode])

    @kept_out
    def on_sample_end(self, /, **_: object) -> None:
        """This runner's part of the experience is complete."""
        if self._envs is not None:
            self._envs.sampled()
