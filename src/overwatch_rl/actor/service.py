"""An actor: steps a world with the newest weights, and appends what it did in chunks.

Rules: it acts with weights that a learner published and nothing else; a rollout is of one version; it waits
before a rollout, never within one, for weights when it is ahead and for room in the queue of experience, and
after one while replay holds it back. No actor knows of others: they come and go while the learner trains.
What was collected is appended before anything else is collected. Must not know how weights or chunks travel.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from overwatch.events import LogLine, PhaseEnded, Severity
from overwatch_rl.algorithms.common import Algorithm
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.replay.blocking import BlockingReplayClient
from overwatch_rl.replay.chunk import Chunk, Encoding
from overwatch_rl.replay.client import ReplayError
from overwatch_rl.telemetry.meter import Meter
from overwatch_rl.training.collector import Collector, CollectorConfig
from overwatch_rl.training.experience import Chunker, Source, encoding_of
from overwatch_rl.types import Reporter
from overwatch_rl.weights.checking import check_weights
from overwatch_rl.weights.subscriber import Acting, Subscriber
from overwatch_rl.worlds.base import World

TABLE: Final = "experience"
"""The table of replay that actors fill and a learner leases from."""
_TRY_S: Final = 1.0
"""So long one try of an append lasts, until it is looked whether to stop."""
_POLL_INTERVAL_S: Final = 0.25
"""While it waits for newer weights: a channel ends that sooner."""
_FIRST_PAUSE_S: Final = 0.025
"""After the queue was full; each next pause of the same wait is twice as long, up to the interval."""


Appended: TypeAlias = Literal["ok", "waited", "error"]
"""How a try to append ended: `waited` for room in vain, or replay did not answer."""


class Appending:
    """A replay client whose calls end after a while, so that it is looked whether to stop."""

    def __init__(self, client: BlockingReplayClient) -> None:
        self._client = client

    def declare(self, encoding: Encoding) -> bool:
        """Fix what their bytes mean."""
        return _called(lambda: self._client.declare(TABLE, encoding, _TRY_S)) == "ok"

    def append(self, chunks: Sequence[Chunk]) -> Appended:
        """Append, waiting for a while."""
        return _called(lambda: self._client.append(TABLE, chunks, _TRY_S))

    def queued(self) -> int:
        """Steps that wait for a learner, in the fullest server; none of one that does not answer now."""
        try:
            tables = [one for server in self._client.stats(_TRY_S) for one in server if one.name == TABLE]
        except ReplayError:
            return 0
        return max(((one.queued or 0) * one.steps // max(1, one.items) for one in tables), default=0)


def _called(call: Callable[[], object]) -> Appended:
    try:
        call()
    except ReplayError as error:
        if error.is_final:
            raise
        return "waited" if error.is_full else "error"
    return "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorConfig:
    """How one actor of a run works."""

    source: Source
    steps: int
    """Of every env in one rollout."""
    seed: int
    rows: int
    """Env steps that an update learns from."""
    lead: int
    """Env steps that this actor alone may be ahead of the updates of its weights."""
    queue: int | None = None
    """Steps in the queue from which on no rollout begins; `None` where a limiter holds appends back."""
    patience_s: float = 5.0
    """So long it waits for newer weights when it is ahead; then it collects with what it has."""
    is_checked: bool = False
    """Whether each version is compared, as it acts, with what the learner signed."""
    is_summarised: bool = True
    """Whether the world's own numbers go with its chunks; a table of single steps has no place for them."""
    rollouts: int | None = None
    """After which it is done; `None` for never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """What an actor works with."""

    weights: Subscriber
    experience: Appending
    reporter: Reporter
    meter: Meter
    stop: Callable[[], str | None]
    """The outcome to end with, or `None` to go on."""


class Actor:
    """One world and its policy."""

    def __init__(
        self, world: World, policy: Algorithm[Any], config: ActorConfig, around: Dependencies
    ) -> None:
        self._policy = policy
        self._config = config
        self._weights, self._experience = around.weights, around.experience
        self._reporter, self._meter, self._stop = around.reporter, around.meter, around.stop
        collected = CollectorConfig(steps=config.steps, seed=config.seed)
        self._collector = Collector(world, policy, collected, around.reporter, around.stop)
        seen = self._collector.observation
        self.encoding = encoding_of(
            world.spec, has_mask=seen.mask is not None, has_summary=config.is_summarised
        )
        self._envs = len(seen.features)
        self._chunker = Chunker(config.source, self.encoding, self._envs, world.spec.summary)
        self.version: Version | None = None
        """That it acts with."""
        self._base = 0
        """The number of the version since which rollouts are counted."""
        self._steps = 0
        """Of its envs since that version."""
        self._look_at = 0.0
        """When the queue is looked at again."""
        self._pause_s = _FIRST_PAUSE_S
        self._fault: str | None = None

    def run(self) -> str:
        """Collect and append until it is done or asked to stop; the outcome in one word."""
        with self._reporter.phase("warm_up"):
            stopped = self._until(lambda: self._experience.declare(self.encoding))
        done = 0
        while stopped is None and done != self._config.rollouts:
            with self._reporter.phase("turn_wait"):
                stopped = self._adopt()
            stopped = stopped or self._collector.collect()
            if stopped is None and self.version is not None:
                chunks = self._chunker.chunks(
                    self._collector.rollout(), self.version.lineage, self.version.number
                )
                with self._reporter.phase("append"):
                    stopped = self._until(lambda chunks=chunks: self._append(chunks))  # type: ignore[misc]
                self._steps += self._config.steps * self._envs
                done += 1
        return stopped or "completed"

    def _until(self, is_done: Callable[[], bool]) -> str | None:
        """Try again until it is done; the outcome when it was asked to stop on the way."""
        while not is_done():
            self._idle()
            if (stopped := self._stop()) is not None:
                return stopped
        return None

    def _idle(self) -> None:
        """Report that it waits: a process that reports nothing for ten seconds is taken to be down."""
        self._meter.count("steps", 0)

    def _append(self, chunks: Sequence[Chunk]) -> bool:
        status = self._experience.append(chunks)
        self._meter.count("appends", status=status)
        if status == "ok":
            self._meter.count("steps", self._config.steps * self._envs)
        return status == "ok"

    def _adopt(self) -> str | None:
        """Take the newest weights; wait while it has none, is ahead, or the queue is full."""
        until = time.monotonic() + self._config.patience_s
        while (stopped := self._stop()) is None:
            began = time.perf_counter()
            found = self._weights.poll()
            if found is not None:
                self._take(found)
                took = time.perf_counter() - began
                # Waiting for the learner is no cost of weights; bringing and checking them is.
                self._reporter.fact(PhaseEnded(at=time.time_ns(), phase="weights", duration_s=took))
            if self._weights.fault != self._fault:
                self._fault = self._weights.fault
                message = f"weights: {self._fault or 'they come again'}"
                line = LogLine(
                    at=time.time_ns(), severity=Severity.WARNING, message=message, subsystem="actor"
                )
                self._reporter.fact(line)
            left = until - time.monotonic()
            if self.version is not None and (self._is_due(self.version) or left <= 0) and self._has_room():
                break
            self._idle()
            self._weights.wait(min(_POLL_INTERVAL_S, left) if left > 0 else _POLL_INTERVAL_S)
        self._report()
        return stopped

    def _is_due(self, version: Version) -> bool:
        """Whether what it collected by itself is not more than the updates since used, but for `lead`."""
        return self._steps < (version.number - self._base) * self._config.rows + self._config.lead

    def _has_room(self) -> bool:
        """Whether the queue takes more.

        Of many actors that wait for room few look at the same moment, as their pauses grow with their waits:
        so few begin for one place.
        """
        most, now = self._config.queue, time.monotonic()
        if most is None:
            return True
        if now >= self._look_at:
            if self._experience.queued() < most:
                self._pause_s = _FIRST_PAUSE_S
                return True
            self._look_at = now + random.uniform(0.5, 1.0) * self._pause_s  # noqa: S311 spreads actors
            self._pause_s = min(2 * self._pause_s, _POLL_INTERVAL_S)
        return False

    def _take(self, found: Acting) -> None:
        self._policy.load_state_dict(self._policy.state_dict() | found.tensors)
        if self._config.is_checked and (wrong := check_weights(self._policy.state_dict(), found)):
            raise RuntimeError(f"weights {found.version} act with another {wrong[0]} than was published")
        if self.version is None or found.version.lineage != self.version.lineage:
            self._base, self._steps = found.version.number, 0
        self.version = found.version

    def _report(self) -> None:
        if self.version is None:
            return
        newest = self._weights.newest or self.version
        behind = max(0, newest.number - self.version.number)
        self._meter.gauge(
            weights_version=self.version.number,
            versions_behind=behind,
            weights_age=self._weights.age_s() or 0.0,
        )
