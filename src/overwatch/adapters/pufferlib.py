"""PufferLib: reports what its trainer logs and what its agents earn.

    from overwatch.adapters.pufferlib import watch
    watch(trainer)

Rules: the run begins with `watch` and ends with `trainer.close()`, with an exception in `evaluate()` or
`train()`, or with the program. An update is reported where the trainer logs, four times a second at most,
with the losses of that update: its own logger gets those of the report before. Rows are agents.
"""

import time
from collections.abc import Mapping
from typing import Any

from overwatch import sdk
from overwatch.adapters import methods
from overwatch.adapters.border import Bordered, kept_out
from overwatch.adapters.envs import EnvReporter
from overwatch.adapters.loops import Phases
from overwatch.adapters.methods import Around
from overwatch.adapters.numbers import numbers
from overwatch.adapters.spaces import choices, most_entropy
from overwatch.adapters.watching import ended, plain
from overwatch.catalog import Library


def watch(trainer: Any, run: sdk.Run | None = None) -> None:
    """Report a trainer to `run`, or to a run of its own."""
    watched = _Trainer(trainer, run)
    watched.begin()


class _Trainer(Bordered):
    def __init__(self, trainer: Any, run: sdk.Run | None) -> None:
        self._trainer, self._given = trainer, run

    @kept_out
    def begin(self) -> None:
        """Start, and look at the trainer's methods."""
        trainer, vecenv = self._trainer, self._trainer.vecenv
        self._space = vecenv.single_action_space
        self.run = self._given or _started(trainer, self._space)
        self._phases = Phases(self.run)
        self._choices = choices(self._space)
        self._report = EnvReporter(self.run, trainer.total_agents, choices=self._choices)
        self._acted: Any = None
        self._received_at = time.perf_counter()
        self._is_on = True
        methods.watch(
            trainer,
            {
                "evaluate": self._around(None, "collect"),
                "train": self._around(self._trained, "learn"),
                "close": self._around(self._close),
            },
        )
        methods.watch(vecenv, {"recv": self._around(self._received), "send": self._sending})

    def _around(self, see: Any, phase: str | None = None) -> Around:
        def around(method: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                if phase is None:
                    result = method(*args, **kwargs)
                else:
                    with self._phases.during(phase):
                        result = method(*args, **kwargs)
            except BaseException as error:
                self._end(error)
                raise
            if see is not None:
                self._see(see, result)
            return result

        return around

    def _sending(self, send: Any, *args: Any, **kwargs: Any) -> Any:
        self._acted = args[0] if args and self._choices else None
        return send(*args, **kwargs)

    @kept_out
    def _see(self, see: Any, result: Any) -> None:
        if self._is_on:
            see(result)

    def _received(self, result: Any) -> None:
        _, rewards, terminals, truncations, _, ids, _ = result
        now = time.perf_counter()
        seconds, self._received_at = now - self._received_at, now
        rows = None if len(rewards) == self._trainer.total_agents else ids
        self._report.turn(rewards, seconds, terminals | truncations, rows=rows, actions=self._acted)

    def _trained(self, logs: Mapping[str, Any] | None) -> None:
        if logs is None:
            return
        newest = {**logs, **{f"losses/{name}": value for name, value in self._trainer.losses.items()}}
        found = numbers(newest, Library.PUFFERLIB)
        most = most_entropy(self._space)
        if most is not None and "entropy_nats" in found:
            found["entropy"] = found["entropy_nats"] / most
        self.run.update(update=self._trainer.epoch, **found)

    def _close(self, _: object) -> None:
        self._end(None)

    @kept_out
    def _end(self, error: BaseException | None) -> None:
        if self._is_on:
            self._is_on = False
            self._report.flush()
            self._phases.close()
            if self._given is None:
                ended(self.run, error)


def _started(trainer: Any, space: Any) -> sdk.Run:
    """A run named after the environment, with the trainer's plain settings as its configuration."""
    return sdk.start(
        task=trainer.config.get("env"),
        algo="ppo",
        n_envs=trainer.total_agents,
        devices=[str(trainer.config.get("device", "cpu"))],
        config=plain(trainer.config),
        updates=-(-trainer.config["total_timesteps"] // trainer.config["batch_size"]),
        preset=None if most_entropy(space) else "ppo-continuous",
    )
