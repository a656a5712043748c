"""rsl_rl: reports what its runner logs and what its envs earn.

    from overwatch.adapters.rsl_rl import watch
    watch(runner)

Rules: `runner.learn()` is a run. Names are those that the logger writes, also where it has no folder and
writes nothing. Every rank reports. Must not change `cfg["logger"]`: its writer writes beside.
"""

from collections.abc import Mapping
from typing import Any

from overwatch import sdk
from overwatch.adapters.envs import EnvReporter
from overwatch.adapters.numbers import numbers
from overwatch.adapters.turns import column
from overwatch.adapters.watching import Watched, plain
from overwatch.catalog import Library
from overwatch.catalog.presets import preset_for


def watch(runner: Any, run: sdk.Run | None = None, *, task: str | None = None) -> None:
    """Report each `runner.learn()` to `run`, or to a run of its own."""
    _Runner(runner, run, task).watched.over(runner, "learn")


class _Runner:
    def __init__(self, runner: Any, run: sdk.Run | None, task: str | None) -> None:
        self.watched = Watched(self, run)
        self._runner = runner
        self._task = task

    def start(self, num_learning_iterations: int, *_: Any, **__: Any) -> sdk.Run:
        """A run named after the env, with the settings of the runner and of the algorithm."""
        env, cfg = self._runner.env, self._runner.cfg
        algo = str(cfg["algorithm"]["class_name"]).rpartition(":")[2].rpartition(".")[2]
        return sdk.start(
            task=self._task or type(env).__name__,
            algo=algo.lower(),
            n_envs=env.num_envs,
            devices=[str(self._runner.device)],
            config={**plain(cfg), **plain(cfg["algorithm"])},
            updates=self._runner.current_learning_iteration + num_learning_iterations,
            preset="ppo-continuous" if preset_for(algo) == "ppo" else None,
        )

    def look(self) -> None:
        """At the env, the algorithm and the logger."""
        runner = self._runner
        self._report = EnvReporter(self.watched.run, runner.env.num_envs, str(runner.device))
        self.watched.after(runner.env, "step", self._step)
        self.watched.after(runner.alg, "update", lambda *_: None, "learn")
        self.watched.after(runner.logger, "log", self._log)

    def settle(self) -> None:
        """The newest rewards."""
        self._report.flush()

    def _step(self, result: Any, seconds: float, *_: Any) -> None:
        _, rewards, dones, _ = result
        self._report.turn(column(rewards), seconds, column(dones))

    def _log(self, _: Any, __: float, **logged: Any) -> None:
        found = numbers(written(self._runner.logger, logged), Library.RSL_RL)
        self.watched.run.update(update=logged["it"], update_time=self.watched.update_time(), **found)


def written(logger: Any, logged: Mapping[str, Any]) -> dict[str, Any]:
    """What the logger writes of one iteration, by the tags that it writes."""
    tags: dict[str, Any] = {f"Loss/{name}": value for name, value in logged["loss_dict"].items()}
    tags["Loss/learning_rate"] = logged["learning_rate"]
    tags["Policy/mean_std"] = logged["action_std"].mean()
    tags["Perf/collection_time"] = logged["collect_time"]
    tags["Perf/learning_time"] = logged["learn_time"]
    for tag, kept in (
        ("Train/mean_reward", logger.rewbuffer),
        ("Train/mean_episode_length", logger.lenbuffer),
    ):
        if kept:
            tags[tag] = sum(kept) / len(kept)
    return tags
