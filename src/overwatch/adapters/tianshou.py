"""Tianshou: reports what its trainer logs and what its environments earn.

    from overwatch.adapters.tianshou import watch
    watch(algorithm)

Rules: `algorithm.run_training()` is a run, a training step an update with the step's number; of its gradient
steps the last is reported, as the library logs it. Names are those that the library's logger writes, with
`training/`, `update/` and `test/`; that logger works as before, at its own intervals.
"""

import functools
from dataclasses import asdict
from typing import Any

import numpy as np

from overwatch import sdk
from overwatch.adapters.envs import EnvReporter
from overwatch.adapters.numbers import flat, numbers
from overwatch.adapters.spaces import choices, most_entropy
from overwatch.adapters.watching import Watched, plain
from overwatch.catalog import Library
from overwatch.catalog.presets import preset_for


def watch(algorithm: Any, run: sdk.Run | None = None) -> None:
    """Report each `algorithm.run_training()` to `run`, or to a run of its own."""
    _Algorithm(algorithm, run).watched.over(algorithm, "run_training")


class _Algorithm:
    def __init__(self, algorithm: Any, run: sdk.Run | None) -> None:
        self.watched = Watched(self, run)
        self._algorithm = algorithm
        self._report: EnvReporter | None = None
        self._tested: dict[str, Any] = {}

    def start(self, params: Any) -> sdk.Run:
        """A run named after env and algorithm, with the trainer's plain settings as its configuration."""
        collector = getattr(params, "training_collector", None)
        spec = None if collector is None else collector.env.spec[0]
        algo, space = type(self._algorithm).__name__, self._algorithm.policy.action_space
        steps = getattr(params, "collection_step_num_env_steps", None)
        return sdk.start(
            task=spec.id if spec else None,
            algo=algo.lower(),
            n_envs=None if collector is None else collector.env_num,
            config=plain(vars(params)),
            updates=steps and params.max_epochs * -(-params.epoch_num_steps // steps),
            preset="ppo-continuous" if preset_for(algo) == "ppo" and not choices(space) else None,
        )

    def look(self) -> None:
        """At the trainer that is made now."""
        self._report, self._tested, self._update = None, {}, 0
        self._choices = choices(self._algorithm.policy.action_space)
        self._most_entropy = most_entropy(self._algorithm.policy.action_space)
        self.watched.after(self._algorithm, "create_trainer", self._made)

    def settle(self) -> None:
        """The newest rewards; a last evaluation has no update after it."""
        if self._report is not None:
            self._report.flush()
        if self._tested:
            self.watched.run.update(update=self._update, **numbers(self._tested, Library.TIANSHOU))

    def _made(self, trainer: Any, _: float, params: Any) -> None:
        self._trainer = trainer
        if collector := getattr(params, "training_collector", None):
            report = EnvReporter(self.watched.run, collector.env_num, choices=self._choices)
            self._report = report
            self.watched.after(collector.env, "step", functools.partial(self._step, collector.env, report))
            self.watched.after(
                collector.env, "reset", lambda _, __, env_id=None, **___: report.forget(env_id)
            )
        self.watched.after(self._algorithm, "update", lambda *_, **__: None, "learn")
        self.watched.after(trainer, "_training_step", self._trained)
        self.watched.after(trainer, "_test_step", self._test, "evaluation")

    def _step(
        self, env: Any, report: EnvReporter, result: Any, seconds: float, *acted: Any, **_: Any
    ) -> None:
        _, rewards, terminated, truncated, infos = result
        rows = None if len(rewards) == len(env) and not env.is_async else [info["env_id"] for info in infos]
        actions = acted[0] if acted and self._choices else None
        report.turn(rewards, seconds, np.logical_or(terminated, truncated), rows=rows, actions=actions)

    def _test(self, result: Any, *_: Any, **__: Any) -> None:
        self._tested = dict(flat(asdict(result[0]), "/", "test/"))

    def _trained(self, result: Any, _: float) -> None:
        collected, learned = result.get_collect_stats(), result.get_training_stats()
        logged, self._tested = self._tested, {}
        if collected is not None:
            logged.update(flat(asdict(collected), "/", "training/"))
        if learned is not None:
            logged.update(flat(asdict(learned), "/", "update/"))
        found = numbers(logged, Library.TIANSHOU)
        if self._most_entropy is not None and "entropy_nats" in found:
            found["entropy"] = found["entropy_nats"] / self._most_entropy
        optim = getattr(self._algorithm, "optim", None) or getattr(self._algorithm, "policy_optim", None)
        if optim is not None:
            found["learning_rate"] = optim.state_dict()["param_groups"][0]["lr"]
        self._update += 1
        self.watched.run.update(update=self._update, update_time=self.watched.update_time(), **found)
