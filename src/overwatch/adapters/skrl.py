"""skrl: reports what its agents track and what their environments earn.

    from overwatch.adapters.skrl import watch
    watch(trainer)

Rules: `trainer.train()` is a run. An agent with rollouts reports each of its updates; one that learns at each
timestep reports as often as it writes. Of each tag the newest value counts, whether the agent writes files or
not. Where several agents learn at once the first fills the rows; the others' numbers are custom.
"""

from typing import Any

from overwatch import sdk
from overwatch.adapters.envs import EnvReporter
from overwatch.adapters.numbers import numbers
from overwatch.adapters.spaces import choices, most_entropy
from overwatch.adapters.turns import column
from overwatch.adapters.watching import Watched, plain
from overwatch.catalog import Library
from overwatch.catalog.presets import preset_for

ENTROPY_LOSS = "Loss / Entropy loss"
EVERY = 100
"""Timesteps from one report to the next of an agent that has no rollouts and writes nothing."""


def watch(trainer: Any, run: sdk.Run | None = None, *, task: str | None = None) -> None:
    """Report each `trainer.train()` to `run`, or to a run of its own."""
    _Trainer(trainer, run, task).watched.over(trainer, "train")


class _Trainer:
    def __init__(self, trainer: Any, run: sdk.Run | None, task: str | None) -> None:
        self.watched = Watched(self, run)
        self._env, self._cfg, self._task = trainer.env, trainer.cfg, task
        agents = trainer.agents
        self._agents = list(agents) if isinstance(agents, list | tuple) else [agents]

    def start(self) -> sdk.Run:
        """A run named after env and agent, with the first agent's plain settings as its configuration."""
        agent, spec = self._agents[0], getattr(self._env, "spec", None)
        algo, rollouts = type(agent).__name__, getattr(agent.cfg, "rollouts", None)
        is_continuous = preset_for(algo) == "ppo" and not choices(self._env.action_space)
        return sdk.start(
            task=self._task or (spec.id if spec else None),
            algo=algo.lower(),
            n_envs=self._env.num_envs,
            devices=[str(agent.device)],
            config=plain(vars(agent.cfg)),
            updates=rollouts and self._cfg.timesteps // rollouts,
            preset="ppo-continuous" if is_continuous else None,
        )

    def look(self) -> None:
        """At the envs and at each agent."""
        env, device = self._env, str(self._agents[0].device)
        self._choices = choices(env.action_space)
        self._envs = EnvReporter(
            self.watched.run,
            env.num_envs,
            device,
            choices=self._choices,
            resets_next=_resets_next_step(env),
        )
        self.watched.after(env, "step", self._step)
        for place, agent in enumerate(self._agents):
            self.watched.after(agent, "update", self._learned(agent, place), "learn")

    def settle(self) -> None:
        """The newest rewards."""
        self._envs.flush()

    def _step(self, result: Any, seconds: float, actions: Any) -> None:
        _, rewards, terminated, truncated, _ = result
        ends = column(terminated | truncated)
        self._envs.turn(column(rewards), seconds, ends, actions=actions if self._choices else None)

    def _learned(self, agent: Any, place: int) -> Any:
        every = 1 if hasattr(agent.cfg, "rollouts") else max(int(agent.write_interval), 0) or EVERY

        def see(_: Any, __: float, *, timestep: int, **___: Any) -> None:
            if every == 1 or not (timestep + 1) % every:
                self._report(agent, place)

        return see

    def _report(self, agent: Any, place: int) -> None:
        newest = {tag: values[-1] for tag, values in agent.tracking_data.items() if values}
        if place:
            self.watched.run.gauge(
                **numbers({f"{place}/{tag}": value for tag, value in newest.items()}, Library.SKRL)
            )
            return
        found = numbers(newest, Library.SKRL)
        scale = getattr(agent.cfg, "entropy_loss_scale", None)
        if scale and ENTROPY_LOSS in newest:
            found["entropy_nats"] = newest[ENTROPY_LOSS] / -scale
            if most := most_entropy(agent.action_space):
                found["entropy"] = found["entropy_nats"] / most
        if self._choices:
            found.pop("action_std", None)  # a choice has none: it is NaN there
        if optimizer := getattr(agent, "optimizer", None) or getattr(agent, "policy_optimizer", None):
            found["learning_rate"] = optimizer.param_groups[0]["lr"]
        self.watched.run.update(update=None, update_time=self.watched.update_time(), **found)


def _resets_next_step(env: Any) -> bool:
    """Whether the step after an episode's end resets that env and is no transition."""
    mode = (getattr(env, "metadata", None) or {}).get("autoreset_mode")
    return env.num_envs > 1 and getattr(mode, "value", mode) == "NextStep"
