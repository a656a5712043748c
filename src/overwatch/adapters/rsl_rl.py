"""rsl_rl: reports what its runner logs and what its envs earn.

    from overwatch.adapters.rsl_rl import watch
    watch(runner)

Rules: `runner.learn()` is a run. Every scalar of the logger's writer is reported; where it has no folder, and
so no writer, what it would write. Every rank reports. Must not change `cfg["logger"]`.
"""

from collections.abc import Iterable, Mapping
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
        self._written: dict[str, Any] = {}
        self._extras: list[Mapping[str, Any]] = []
        self.watched.after(runner.logger, "init_logging_writer", self._look_at_writer)
        self.watched.after(runner.logger, "log", self._log)
        self._look_at_writer()

    def _look_at_writer(self, *_: Any) -> None:
        """rsl_rl makes its writer when `learn()` begins."""
        if writer := getattr(self._runner.logger, "writer", None):
            self.watched.after(writer, "add_scalar", self._wrote)

    def _wrote(self, _: Any, __: float, tag: str, value: Any, *___: Any, **____: Any) -> None:
        self._written[tag] = value

    def settle(self) -> None:
        """The newest rewards."""
        self._report.flush()

    def _step(self, result: Any, seconds: float, *_: Any) -> None:
        _, rewards, dones, extras = result
        self._report.turn(column(rewards), seconds, column(dones))
        if not getattr(self._runner.logger, "writer", None):
            self._extras.append(extras.get("episode") or extras.get("log") or {})

    def _log(self, _: Any, __: float, **logged: Any) -> None:
        tags = self._written or written(self._runner.logger, logged, self._extras)
        self._written, self._extras = {}, []
        found = numbers(tags, Library.RSL_RL)
        self.watched.run.update(update=logged["it"], update_time=self.watched.update_time(), **found)


def written(
    logger: Any, logged: Mapping[str, Any], extras: Iterable[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """What the logger would write of one iteration; of `extras`, one mapping a step, means over the steps."""
    by_name: dict[str, list[float]] = {}
    for name, value in ((name, value) for of_step in extras for name, value in of_step.items()):
        by_name.setdefault(name if "/" in name else f"Episode/{name}", []).extend(column(value).reshape(-1))
    tags: dict[str, Any] = {name: sum(all_) / len(all_) for name, all_ in by_name.items() if all_}
    tags |= {f"Loss/{name}": value for name, value in logged["loss_dict"].items()}
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
