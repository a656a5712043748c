"""Where a run's numbers go: to the tower through `overwatch.sdk`, and to files beside it.

The one place that knows `overwatch.sdk`. Rules: a number goes out as the trainer made it, never recomputed;
NaN stays NaN towards the tower and becomes null in JSON. Must not know worlds, algorithms or the loop.
"""

import contextlib
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import overwatch.sdk
from overwatch.catalog.stages import BY_CODE, Stage
from overwatch.sdk import Report, Run
from overwatch.sdk.arguments import is_url
from overwatch_rl.types import (
    ActionSpec,
    EndedEpisodes,
    GateCheck,
    Reporter,
    SlotTable,
    StageChange,
    StepReport,
    UpdateReport,
    WorldInfo,
)


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


class Tower:
    """The reporter that speaks to the tower."""

    def __init__(self, run: Run, spec: ActionSpec, info: WorldInfo, lane: str) -> None:
        self._run = run
        self._lane = lane
        self._ops = spec.heads[0].labels
        self._arguments = {
            head.name: ([row[number] for row in spec.uses], head.labels)
            for number, head in enumerate(spec.heads)
            if head.name in ("slot", "blueprint")
        }
        self._columns = {head.name: number for number, head in enumerate(spec.heads)}
        self._info = info
        self._stages = [stage.value for stage in BY_CODE]
        self.report: Report | None = None
        """What became of the records; `None` until closed."""

    @property
    def run_id(self) -> str:
        """The id under which the tower knows this run."""
        return self._run.run_id

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Measure a phase of the training loop."""
        return self._run.phase(name)

    def step(self, report: StepReport) -> None:
        """Actions, numbers of envs and slots, facts, ended episodes."""
        step = report.step
        env_ids = list(range(len(step.reward)))
        self._actions(env_ids, report)
        columns = {"reward": step.reward.numpy(), "metric": step.metric.numpy()}
        if step.rent is not None:
            columns["rent"] = step.rent.numpy()
        self._run.envs(
            env_id=env_ids, step=report.index, lane=self._lane, step_time=report.duration_s, **columns
        )
        for check in step.gate_checks:
            self._gate(check)
        for change in step.stage_changes:
            self._stage(change)
        if step.slots is not None:
            self._slots(step.slots, report.index)
        if report.ended is not None:
            self._episodes(report.ended)

    def update(self, report: UpdateReport) -> None:
        """Policy numbers, and the early stop where there was one."""
        self._run.update(update=report.index, **report.values)
        if report.early_stop is not None:
            stop = report.early_stop
            self._run.early_stopped(
                update=report.index,
                epoch=stop.epoch,
                kl_divergence=stop.kl_divergence,
                target=stop.target,
                minibatches_skipped=stop.minibatches_skipped,
            )

    def saved(self, weights: Path, updates: int, duration_s: float) -> None:
        """Say that the policy was kept, after so many updates."""
        size = weights.stat().st_size
        self._run.checkpoint_saved(weights, update=updates, size_bytes=size, duration_s=duration_s)

    def close(self, *, outcome: str, reason: str | None = None) -> None:
        """Say how the run ended and wait briefly until everything is delivered."""
        self.report = self._run.close(outcome=outcome, reason=reason)

    def _actions(self, env_ids: list[int], report: StepReport) -> None:
        actions = report.actions.tolist()
        words = {
            name: [labels[row[self._columns[name]]] if uses[row[0]] else None for row in actions]
            for name, (uses, labels) in self._arguments.items()
        }
        self._run.actions(
            env_id=env_ids,
            op=[self._ops[row[0]] for row in actions],
            slot=words.get("slot"),
            blueprint=words.get("blueprint"),
            step=report.index,
        )

    def _slots(self, table: SlotTable, index: int) -> None:
        num_envs, num_slots = table.stage.shape
        blueprints = [name for name, _ in self._info.blueprints]
        self._run.slots(
            env_id=[env for env in range(num_envs) for _ in range(num_slots)],
            slot=list(self._info.slots) * num_envs,
            stage=[self._stages[code] for code in table.stage.flatten().tolist()],
            blueprint=[None if kind < 0 else blueprints[kind] for kind in table.blueprint.flatten().tolist()],
            alpha=table.alpha.flatten().numpy(),
            age=table.age.flatten().numpy(),
            grad=table.grad.flatten().numpy(),
            step=index,
        )

    def _stage(self, change: StageChange) -> None:
        self._run.seed_stage_changed(
            env_id=change.env_id,
            slot=change.slot,
            seed_id=change.seed_id,
            before=change.before,
            after=change.after,
            blueprint=change.blueprint,
            alpha=change.alpha,
            age=change.age,
            reason=change.reason,
        )

    def _gate(self, check: GateCheck) -> None:
        self._run.gate_evaluated(
            env_id=check.env_id,
            slot=check.slot,
            seed_id=check.seed_id,
            gate=check.gate,
            passed=check.passed,
            score=check.score,
            checks_passed=check.checks_passed,
            checks_failed=check.checks_failed,
        )

    def _episodes(self, ended: EndedEpisodes) -> None:
        self._run.episodes(
            env_id=ended.env_id.numpy(),
            episode_return=ended.episode_return.numpy(),
            length=ended.length.numpy(),
            metric=ended.metric.numpy(),
        )


def start_tower(
    config: TowerConfig, spec: ActionSpec, info: WorldInfo, num_envs: int, settings: dict[str, str]
) -> Tower:
    """Start telemetry; `settings` are shown with the run. Raises `ValueError` for a wrong endpoint."""
    if config.endpoint is not None and not is_url(config.endpoint):
        raise ValueError(f"endpoint {config.endpoint!r} is no URL; write e.g. http://127.0.0.1:4318")
    run = overwatch.sdk.start(
        run_id=config.run_id,
        task=info.task,
        algo=config.algo,
        n_envs=num_envs,
        config=settings,
        reward_mode=info.reward_mode,
        devices=(config.lane,),
        slots=info.slots,
        embargo=info.embargo,
        blueprints=dict(info.blueprints),
        metric=info.metric,
        updates=config.updates,
        modes={"compile": False},
        endpoint=config.endpoint,
    )
    return Tower(run, spec, info, config.lane)


class Files:
    """The reporter that writes the trainer's own numbers into a folder.

    `updates.jsonl` has one object an update with `update` and every value under its short name, null where it
    is undefined; `summary.json` tells how the run ended.
    """

    def __init__(self, folder: Path) -> None:
        """Begin `updates.jsonl` in `folder`; raises `ValueError` when that cannot be written."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._updates = (folder / "updates.jsonl").open("w", encoding="utf-8")
        except OSError as error:
            raise ValueError(
                f"{folder} cannot be written: {error.strerror}; name another --out folder"
            ) from error
        self._folder = folder
        self._last: dict[str, object] | None = None
        self._steps = 0
        self._episodes = 0
        self._fossils = 0

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:  # noqa: ARG002 files keep no phases
        """Phases are for the tower alone."""
        yield

    def step(self, report: StepReport) -> None:
        """Count steps, episodes and fossils."""
        self._steps = report.index
        self._episodes += 0 if report.ended is None else len(report.ended.env_id)
        self._fossils += sum(change.after is Stage.FOSSILISED for change in report.step.stage_changes)

    def update(self, report: UpdateReport) -> None:
        """Write one line."""
        values = {name: value if math.isfinite(value) else None for name, value in report.values.items()}
        self._last = {"update": report.index, **values}
        self._updates.write(json.dumps(self._last) + "\n")
        self._updates.flush()

    def close(self, *, outcome: str, reason: str | None = None) -> None:
        """Write the summary once."""
        if self._updates.closed:
            return
        self._updates.close()
        summary = {
            "outcome": outcome,
            "reason": reason,
            "updates": 0 if self._last is None else self._last["update"],
            "steps": self._steps,
            "episodes": self._episodes,
            "fossilised": self._fossils,
            "last": self._last,
        }
        (self._folder / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")


class Fanout:
    """Several reporters as one, in their order."""

    def __init__(self, reporters: Sequence[Reporter]) -> None:
        self._reporters = tuple(reporters)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """A phase of all of them."""
        with contextlib.ExitStack() as stack:
            for reporter in self._reporters:
                stack.enter_context(reporter.phase(name))
            yield

    def step(self, report: StepReport) -> None:
        """Tell each."""
        for reporter in self._reporters:
            reporter.step(report)

    def update(self, report: UpdateReport) -> None:
        """Tell each."""
        for reporter in self._reporters:
            reporter.update(report)

    def close(self, *, outcome: str, reason: str | None = None) -> None:
        """Close each, even when an earlier one fails."""
        with contextlib.ExitStack() as stack:
            for reporter in reversed(self._reporters):
                stack.callback(reporter.close, outcome=outcome, reason=reason)
