"""The learner's loop, as its phases: wait for experience, estimate, update, weights, checkpoint.

Rules: the trainer's own algorithm learns; what it learns from came in chunks and is used once. A service that
is away costs what it is for and nothing else: without replay the loop waits, without a place for checkpoints
or weights it trains on. Between two updates it obeys; it ends between two updates. Must not know how a
service is reached, or who started it.

Shapes: T steps, N lanes.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import torch
from torch import Tensor

from overwatch.events import Event, LogLine, Severity
from overwatch_rl.algorithms.common import Learner
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.learner.ancestry import Age, Ancestry
from overwatch_rl.learner.batches import Batches, Limits, Loss, TrainingBatch, check_encoding, on_device
from overwatch_rl.learner.config import LearnerConfig
from overwatch_rl.learner.control import Control, Progress
from overwatch_rl.learner.io import Io
from overwatch_rl.learner.ledger import Ledger
from overwatch_rl.learner.recovery import NonFiniteHandler
from overwatch_rl.learner.trace import Trace
from overwatch_rl.replay.client import Leased
from overwatch_rl.telemetry.meter import Meter
from overwatch_rl.training.delivery import Delivered, Delivery
from overwatch_rl.training.events import events_of
from overwatch_rl.training.experience import SUMMARY, encoding_of
from overwatch_rl.training.trainer import Position
from overwatch_rl.types import Reporter, Rollout, Stats, WorldSpec
from overwatch_rl.undefined import UNDEFINED

_WAIT_S: Final = 0.5
"""So long the loop waits for a lease until it looks around."""


class Weights(Protocol):
    """Where weights go."""

    def publish(self, version: Version, tensors: Mapping[str, Tensor]) -> None:
        """Have a version published."""
        ...

    def report(self) -> None:
        """Count what became of versions."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """What a loop works with."""

    weights: Weights
    reporter: Reporter
    meter: Meter
    stop: Callable[[], str | None]
    """The outcome to end with, or `None` to go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopConditions:
    """When training is done: whichever comes first; `None` for never."""

    updates: int | None = None
    env_steps: int | None = None


class LearnerLoop:
    """One algorithm that learns from what actors append."""

    def __init__(
        self,
        algorithm: Learner[Rollout, Any],
        spec: WorldSpec,
        config: LearnerConfig,
        around: Dependencies,
        ends: StopConditions,
    ) -> None:
        self.algorithm = algorithm
        self._spec = spec
        self._config = config
        self._device = torch.device(config.device)
        self.feed: Io
        """Where experience comes from; set before it runs."""
        self._weights = around.weights
        self._reporter, self._meter, self._stop = around.reporter, around.meter, around.stop
        self._ends = ends
        self.control: Control | None = None
        """What commands it."""
        self.non_finite = NonFiniteHandler(config.recovery, self)
        self.non_finite.rate = config.learned.learning_rate
        self.non_finite.counted = self._counted
        self.counts: Counter[str] = Counter()
        """What was lost and what was done about it, of all lives of the run; `samples.late` of a status."""
        self.updates_done = 0
        """Of the run; those that a rollback took back, too."""
        self.trained = 0
        """Updates that are in the weights."""
        self.is_whole = True
        """Whether the weights are those after `trained` updates; not within one."""
        self.ancestry = Ancestry()
        self.after_update: Callable[[], None] = lambda: None
        """Called after an update and its weights, for checkpoints."""
        self.trace: Trace | None = None
        """Where it is written which steps are in the weights; nowhere without."""
        self.idle: Callable[[float], None] = lambda _: None
        """Called while there is nothing to learn from, with the seconds since there was; they are infinite
        where nothing can come before a checkpoint is written."""
        self.notes: dict[str, str] = {}
        """What a heartbeat reports besides, by its subject."""
        self.checkpoint_version: str | None = None
        limits = Limits(
            steps=config.batch.steps, lanes=config.batch.envs, max_age=config.batch.max_age,
            is_abandoned_used=config.batch.abandoned == "weighted",
            is_rounded=config.weights.dtype != "float32",
        )  # fmt: skip
        self._batches = Batches(spec, limits, self._age, self._lost)
        self.tunable = config.kind.tunable
        """Settings that a command may change."""
        self._optimiser_steps = config.kind.optimiser_steps(config.learned)
        self._ledgers: dict[int, Ledger] = {}
        self._kept: list[tuple[int, list[list[Any]]]] = []
        self._delivery = Delivery()
        self._score: float | None = None
        self._loss: float | None = None
        self._returns = _Returns()
        self._summary: dict[str, float] = {}
        self._is_known = False
        self._rate: float | None = None

    @property
    def version(self) -> Version:
        """Of the weights of now."""
        return self.ancestry.version(self.trained)

    @property
    def env_steps(self) -> int:
        """Steps that were trained on."""
        return self.updates_done * self._config.rows

    def run(self) -> str:
        """Train until it is done, commanded or asked to stop; the outcome in one word."""
        self._trace_beginning()
        self._publish()
        fed = time.monotonic()
        while True:
            command = None if self.control is None else self.control.between(self.progress())
            outcome = command or self._stop()
            if outcome is not None or self._is_done():
                break
            if self._turn():
                fed = time.monotonic()
            else:
                self.idle(math.inf if self.feed.is_held_back else time.monotonic() - fed)
        for delivered in self._delivery.rest():
            self._deliver(delivered)
        return outcome or "completed"

    def progress(self) -> Progress:
        """Where training is, for heartbeats."""
        return Progress(
            lineage=self.version.lineage,
            step=self.env_steps,
            samples_per_sec=self._rate,
            loss=self._loss,
            checkpoint_version=self.checkpoint_version,
            notes="; ".join(f"{name}: {why}" if why else name for name, why in self.notes.items()) or None,
        )

    def position(self) -> Position:
        """All that goes into a checkpoint."""
        return Position(
            updates=self.updates_done,
            steps=self.updates_done * self._config.batch.steps,
            score=self._score,
            own={},
            algorithm=self.algorithm.state_dict(),
            world={},
            version=self.version,
            cursor=self.cursor(),
        )

    def cursor(self) -> dict[str, Any]:
        """What a checkpoint keeps of experience: where each server is, and from where the weights come."""
        ledgers = [self._ledgers[shard] for shard in sorted(self._ledgers)]
        return {
            "servers": [[ledger.cursor, ledger.used] for ledger in ledgers] or self._kept,
            "lives": self.ancestry.kept(),
            "trained": self.trained,
            "recovery": self.non_finite.kept(),
            "counts": dict(sorted(self.counts.items())),
            "returns": self._returns.kept(),
        }

    def go_on(self, position: Position, first: Version) -> None:
        """Become as it was at `position`, as the life that begins with `first`."""
        kept = dict(position.cursor or {})
        self.algorithm.load_state_dict(position.algorithm)
        self.updates_done, self._score = position.updates, position.score
        self.trained = int(kept.get("trained", position.updates))
        self.ancestry = Ancestry.of(kept.get("lives", Ancestry().kept())).resumed(self.trained, first)
        self._kept = list(kept.get("servers", []))
        self.counts = Counter(kept.get("counts", {}))
        self._returns = _Returns(kept.get("returns", ()))
        self.non_finite.resume(kept.get("recovery", {}), self.updates_done)

    def roll_back(self, position: Position) -> None:
        """Become as it was at `position` in all that was learned; what came since is not served again.

        Versions go on: the next one is of a line that goes on from there.
        """
        kept = dict(position.cursor or {})
        self.algorithm.load_state_dict(position.algorithm)
        newest = self.version
        lost = self.trained
        self.trained = int(kept.get("trained", position.updates))
        self.ancestry = self.ancestry.resumed(self.trained, Version(newest.lineage, newest.number + 1))
        self._count_abandoned(lost - self.trained)
        self._trace_beginning()

    def _count_abandoned(self, updates: int) -> None:
        """What so many updates learned from is in the weights no more."""
        self._counted("samples", updates, status="abandoned")

    def acting(self) -> dict[str, Tensor]:
        """Every tensor that acting reads."""
        state = self.algorithm.state_dict()
        return {name: state[name] for name in sorted(self.algorithm.acting_keys())}

    def safe(self, cursor: Mapping[str, Any]) -> None:
        """A checkpoint with this cursor is written: what is in it need not be served again."""
        servers = [int(one[0]) for one in cursor["servers"]]
        if servers:
            self.feed.acknowledge(servers)

    def log(self, severity: Severity, message: str) -> None:
        """A line of the run's log."""
        line = LogLine(at=time.time_ns(), severity=severity, message=message, subsystem="learner")
        self._reporter.fact(line)

    def fact(self, event: Event) -> None:
        """What happened."""
        self._reporter.fact(event)

    def _trace_beginning(self) -> None:
        if self.trace is not None:
            self.trace.began(self.trained, self.version)

    def _is_done(self) -> bool:
        updates, steps = self._ends.updates, self._ends.env_steps
        return (updates is not None and self.updates_done >= updates) or (
            steps is not None and self.env_steps >= steps
        )

    def _turn(self) -> bool:
        """Learn where there is something to learn from."""
        # What the table is full of is acknowledged by a checkpoint: that is what is waited for then.
        with self._reporter.phase("checkpoint" if self.feed.is_held_back else "queue_wait"):
            made = self._wait()
        self._look()
        if made is None:
            return False
        self._train(made)
        return True

    def _wait(self) -> TrainingBatch | None:
        """The next rollout; `None` after a while without one."""
        until = time.monotonic() + _WAIT_S
        while (made := self._batches.take()) is None:
            leased = self.feed.next(max(0.0, until - time.monotonic()))
            if leased is not None:
                self._accept(leased)
            elif time.monotonic() >= until:
                self._meter.count("samples", status="empty")
                return None
        return made

    def _accept(self, leased: Leased) -> None:
        encoding = self.feed.encoding
        if encoding is None:
            raise AssertionError("a lease has come without its encoding")
        if not self._is_known:
            has_mask, has_summary = "mask" in encoding.by_name, SUMMARY in encoding.by_name
            check_encoding(encoding, encoding_of(self._spec, has_mask=has_mask, has_summary=has_summary))
            self._report_gaps()
            self._is_known = True
        ledger = self._ledgers[leased.shard]
        items = leased.lease.items
        again = sum(item.is_redelivered for item in items)
        if again:
            self._counted("redelivered", again)
        self._batches.add(encoding, [item.chunk for item in items], leased.lease.number, ledger)

    def _report_gaps(self) -> None:
        """Make a ledger for each server, and report what is not there any more after a resume."""
        for shard, resumed in enumerate(self.feed.resumed or ()):
            cursor, used = self._kept[shard] if shard < len(self._kept) else (0, [])
            self._ledgers[shard] = Ledger(cursor, used)
            if resumed.is_unknown and cursor:
                self._gap(f"replay {shard} does not know lease {cursor} of the checkpoint: it began anew")
            elif resumed.gap:
                self._gap(f"{resumed.gap} leases of replay {shard} after the checkpoint's are gone")

    def _gap(self, what: str) -> None:
        self._counted("replay_gaps")
        self.log(Severity.WARNING, f"{what}; these weights lack what was in them")

    def _look(self) -> None:
        """How things stand, between two updates."""
        away, limit = self.feed.away, self._config.pause_after_s
        self._weights.report()
        self._meter.gauge(**self._queue(), degraded=float(away is not None))
        if away is None:
            if self.notes.pop("degraded", None) is not None:
                self.log(Severity.INFO, "replay answers again; training goes on")
            return
        is_late = time.monotonic() - away.since >= limit
        what = f"replay is away, paused after {limit:g} s" if is_late else "replay is away"
        if self.notes.get("degraded") != what:
            self.notes["degraded"] = what
            self.log(Severity.WARNING, f"{what}: {away.why}")

    def _queue(self) -> dict[str, float]:
        """How much is fetched ahead, and how much may be."""
        depth, limit = float(self.feed.depth()), max(1.0, self._config.depth)
        return {"replay_queue_depth": depth, "replay_queue_limit": limit}

    def _train(self, made: TrainingBatch) -> None:
        began = time.perf_counter()
        self.is_whole = False
        with self._reporter.phase("prepare"):
            self._returns.add(made)
            self._summary = summary_of(made, self._spec.summarised)
            for age in self._ages(made):
                self._meter.observe("data_age", age)
            rollout = on_device(made.rollout, self._device)
        with self._reporter.phase("estimate"):
            batch = self.algorithm.prepare(rollout)
        with self._reporter.phase("update"):
            stats = self.algorithm.update(batch)
        made.use()
        if self.trace is not None:
            self.trace.trained(self.trained + 1, made)
        self._finish(stats, time.perf_counter() - began)

    def _finish(self, stats: Stats, update_time_s: float) -> None:
        """An update is done."""
        self.updates_done += 1
        self.trained += 1
        self.is_whole = True
        with self._reporter.phase("log"):
            self._send(stats, update_time_s)
        # After the phase: a turn of the loop ends with the report of its update.
        for delivered in self._delivery.arrived():
            self._deliver(delivered)
        self._publish()
        self.after_update()

    @torch.no_grad()
    def _send(self, stats: Stats, update_time_s: float) -> None:
        host = {"update_time": update_time_s} | self._returns.numbers() | self._summary
        self._rate = self._config.rows / update_time_s
        self._delivery.send(self.updates_done, stats, host)

    def _ages(self, made: TrainingBatch) -> list[int]:
        """Of each chunk, for the weights before the update."""
        return [self._age(part.version).updates for lane in made.lanes for part in lane]

    def _deliver(self, delivered: Delivered) -> None:
        """Report the numbers of an update that have come, and do what they ask for."""
        values = dict(delivered.values)
        not_finite = round(values.get("minibatches_not_finite", 0.0))
        for event in events_of(self.algorithm.config, delivered.index, values, time.time_ns()):
            self._reporter.fact(event)
        self._score = values.get("return", self._score)
        self._loss = values.get("total_loss", self._loss)
        self._reporter.update(delivered.index, values)
        named = {name: values[name] for name in ("policy_loss", "value_loss", "entropy") if name in values}
        self._meter.gauge(**named)
        skipped = round(values.get("minibatches_skipped", 0.0))
        self._meter.count("sgd_steps", self._optimiser_steps - skipped)
        self.non_finite.judge(delivered.index, not_finite)

    def _publish(self) -> None:
        with self._reporter.phase("weights"):
            self._weights.publish(self.version, self.acting())

    def _age(self, version: Version) -> Age:
        return self.ancestry.age(version, self.trained)

    def _counted(self, name: str, n: int = 1, **labels: str) -> None:
        """Count it in telemetry, for this process, and in checkpoints, for the run."""
        self._meter.count(name, n, **labels)
        self.counts[".".join([name, *labels.values()])] += n

    def _lost(self, loss: Loss, steps: int, why: str) -> None:
        self._counted("samples", status=loss)
        if loss == "refused":
            self.log(Severity.WARNING, f"{steps} steps of experience are refused: {why}")


def summary_of(made: TrainingBatch, names: Sequence[str]) -> dict[str, float]:
    """The world's own numbers of the rollouts that a batch is of, weighted by their steps in it.

    Those of one rollout are as its actor made them; what is undefined in all of them is left out.
    """
    parts = [part for lane in made.lanes for part in lane if SUMMARY in part.columns]
    if not parts:
        return {}
    values = np.stack([part.columns[SUMMARY] for part in parts]).astype(np.float64)
    steps = np.where(values == UNDEFINED, 0.0, np.array([[part.steps] for part in parts]))
    sums, counts = (steps * values).sum(axis=0), steps.sum(axis=0)
    both = zip(names, sums.tolist(), counts.tolist(), strict=True)
    return {name: value / count for name, value, count in both if count}


class _Returns:
    """Returns of whole episodes, from the rewards of their chunks in order."""

    def __init__(self, kept: Sequence[Sequence[Any]] = ()) -> None:
        """`kept` is of a checkpoint."""
        self._sums: dict[str, tuple[int, int, float]] = {
            env: (episode, step, so_far) for env, episode, step, so_far in kept
        }
        """By env: the episode, the next step, the sum so far."""
        self._ended: list[tuple[float, int]] = []

    def kept(self) -> list[list[Any]]:
        """The running ones, for a checkpoint."""
        return [[env, *sums] for env, sums in sorted(self._sums.items())]

    def add(self, made: TrainingBatch) -> None:
        """Count the steps of a batch."""
        self._ended = []
        for part in (part for lane in made.lanes for part in lane):
            chunk, first = part.chunk, part.first_step
            reward = float(part.columns["reward"][part.start : part.stop].sum(dtype="float64"))
            episode, step, so_far = self._sums.pop(chunk.env, (chunk.episode, 0, 0.0))
            if (episode, step) != (chunk.episode, first):
                if first:
                    continue  # Its beginning was trained elsewhere: the return is not known.
                so_far = 0.0
            if part.is_open:
                self._sums[chunk.env] = (chunk.episode, first + part.steps, so_far + reward)
            else:
                self._ended.append((so_far + reward, first + part.steps))

    def numbers(self) -> dict[str, float]:
        """Means of the episodes that ended in the batch; nothing where none did."""
        if not self._ended:
            return {}
        returns, lengths = zip(*self._ended, strict=True)
        return {
            "return": sum(returns) / len(returns),
            "episode_length": sum(lengths) / len(lengths),
        }
