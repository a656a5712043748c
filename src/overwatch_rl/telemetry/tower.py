"""The reporter that sends to the tower: the one place that knows `overwatch.sdk`.

Rules: a number goes out as the trainer made it, never recomputed; NaN stays NaN. Words are not made here:
codes go out with the tables of their words. Must not know worlds, algorithms or the loop.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import msgspec

import overwatch.sdk
from overwatch.catalog import Scope, find
from overwatch.events import Event
from overwatch.sdk import Recompiles, Report, Run, WordTables
from overwatch.sdk.arguments import is_url
from overwatch.sdk.identity import identify
from overwatch_rl.types import Factored, Rolled, WorldSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class TowerConfig:
    """Which run this is and where it reports to."""

    run_id: str | None = None
    """`None` lets the SDK find or make one."""
    endpoint: str | None = None
    """OTLP endpoint; `None` lets the SDK find one."""
    algo: str = "ppo"
    lane: str = "cpu"
    """Id of the device that trains."""
    updates: int | None = None
    """Planned updates."""
    resumed: int | None = None
    """Updates that lie behind it, where it goes on from a checkpoint."""
    role: str = "trainer"
    rank: int | None = None
    """Number among those of the same role; `None` lets the SDK find it."""
    env_offset: int | None = None
    """Number of its first environment in the run."""
    is_quiet: bool = False
    """Whether it neither samples the machine nor prints, as others of the run do."""


_CODED: Final = ("slot_", "gate", "governor", "episode_", "op_probs")
"""How names of columns begin that are no rows of envs and have a meaning."""


@cache
def _is_row(name: str) -> bool:
    """Whether a column of envs is one of the catalogue's; others are for summaries and files."""
    return find(name, Scope.ENV) is not None


class Tower:
    """The reporter that speaks to the tower."""

    def __init__(self, run: Run, spec: WorldSpec, lane: str) -> None:
        self._run = run
        self._spec = spec
        self._lane = lane
        self.report: Report | None = None
        """What became of the records; `None` until closed."""

    @property
    def run(self) -> Run:
        """The run itself, for spans of what the trainer takes from others."""
        return self._run

    @property
    def run_id(self) -> str:
        """The id under which the tower knows this run."""
        return self._run.run_id

    def traceparent(self) -> str:
        """A header of W3C Trace Context, of the turn of the loop that runs now; empty before the first."""
        return self._run.traceparent

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Measure a phase of the training loop."""
        return self._run.phase(name)

    def beat(self, step: int, duration_s: float) -> None:
        """Report that a step was taken."""
        self._run.beat(step, duration_s)

    def rollout(self, rolled: Rolled) -> None:
        """Report the steps of one rollout, dense."""
        steps, envs = rolled.rewards.shape
        columns: dict[str, Any] = {
            name: column
            for name, column in rolled.columns.items()
            if name.startswith(_CODED) or _is_row(name)
        }
        if isinstance(self._spec.action, Factored):
            columns["actions"] = rolled.actions
        self._run.rollout(
            first_step=rolled.first_step,
            steps=steps,
            envs=envs,
            at_first=rolled.at_first,
            at_last=rolled.at_last,
            lane=self._lane,
            reward=rolled.rewards,
            terminated=rolled.terminated,
            truncated=rolled.truncated,
            episode_return=rolled.episode_return,
            episode_length=rolled.episode_length,
            **columns,
        )

    def update(self, index: int, values: Mapping[str, float]) -> None:
        """Policy numbers."""
        self._run.update(update=index, **values)

    def fact(self, event: Event) -> None:
        """What happened once."""
        self._run.fact(event)

    def close(self, *, outcome: str, reason: str | None = None) -> None:
        """Report how the run ended and wait briefly until everything is delivered."""
        self.report = self._run.close(outcome=outcome, reason=reason)


def recompiles(report: Callable[[Event], object]) -> Callable[[], dict[str, float]]:
    """What counts, asked after each update, how often something was compiled again; `report` takes why."""
    return Recompiles(report).values


def named(run_id: str | None, task: str) -> str:
    """The id of a run without telemetry: as given, else its launcher's, else a new one."""
    return identify(run_id, task).run_id


def start_tower(
    config: TowerConfig, spec: WorldSpec, num_envs: int | None, settings: Mapping[str, str]
) -> Tower:
    """Start telemetry; `settings` are shown with the run, `num_envs` are those that this process steps.

    Raises `ValueError` for a wrong endpoint.
    """
    if config.endpoint is not None and not is_url(config.endpoint):
        raise ValueError(f"endpoint {config.endpoint!r} is no URL; write e.g. http://127.0.0.1:4318")
    seeds = spec.seeds
    run = overwatch.sdk.start(
        run_id=config.run_id,
        task=spec.task,
        algo=config.algo,
        n_envs=num_envs,
        config=settings,
        reward_mode=spec.reward_mode,
        devices=(config.lane,),
        slots=() if seeds is None else seeds.slots,
        embargo=None if seeds is None else seeds.embargo,
        blueprints={} if seeds is None else dict(seeds.blueprints),
        metric=spec.metric,
        updates=config.updates,
        resumed=config.resumed,
        modes={"compile": False},
        words=words_of(spec),
        endpoint=config.endpoint,
        role=config.role,
        rank=config.rank,
        env_offset=config.env_offset,
        sample=not config.is_quiet,
        quiet=config.is_quiet,
    )
    return Tower(run, spec, config.lane)


def words_of(spec: WorldSpec) -> WordTables:
    """The words that the codes of a rollout's columns count into."""
    action, seeds = spec.action, spec.seeds
    tables = WordTables()
    if isinstance(action, Factored):
        heads = tuple((head.name, head.labels) for head in action.heads)
        tables = WordTables(heads=heads, uses=action.uses)
    if seeds is not None:
        tables = msgspec.structs.replace(
            tables,
            slots=seeds.slots,
            blueprints=tuple(name for name, _ in seeds.blueprints),
            reasons=seeds.reasons,
            gates=seeds.gates,
            styles=seeds.styles,
            curves=seeds.curves,
            tempos=seeds.tempos,
            sizes=seeds.sizes,
            panics=seeds.panics,
        )
    return tables
