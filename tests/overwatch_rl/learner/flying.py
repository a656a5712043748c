"""A whole learner and an actor, in threads of a test, with a real replay server; driven step by step."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest
from click import ClickException

from overwatch.events import CheckpointSaved, LogLine
from overwatch.objects.retrying import Patience
from overwatch_rl.actor.service import TABLE, Actor, ActorConfig, Appended, Appending, Dependencies
from overwatch_rl.artifacts.signing import KEY_FILE, Verifier, make_key
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.checkpoints.store import Saving
from overwatch_rl.learner import process
from overwatch_rl.learner.config import LearnerConfig, learner_config
from overwatch_rl.learner.governed import OrchestratorSession
from overwatch_rl.learner.process import LearnerRun, LearnerSettings, Outputs
from overwatch_rl.learner.service import StopConditions
from overwatch_rl.replay.blocking import BlockingReplayClient
from overwatch_rl.replay.chunk import Chunk, Encoding
from overwatch_rl.replay.client import Access
from overwatch_rl.telemetry.meter import Meter
from overwatch_rl.telemetry.reporter import Fanout
from overwatch_rl.training.experience import Source
from overwatch_rl.weights.channels import Place, open_channel
from overwatch_rl.weights.checking import shapes_of
from overwatch_rl.weights.manifest import Accepted
from overwatch_rl.weights.subscriber import Subscriber
from tests.overwatch_rl.kept import Kept
from tests.overwatch_rl.learner.whole import ENVS, world

RUN = "r"
"""As `tests.overwatch_rl.orchestrator.threaded.Operator` asks for."""
WAIT_S = 120.0
SOON = Patience(deadline_s=0.5, request_s=5.0, first_s=0.01, most_s=0.05)


def config(**given: Any) -> LearnerConfig:
    """Updates of a few milliseconds, heartbeats more often than a run may have them."""
    small = {
        "world": "goodhart:small", "seed": 3, "batch": {"steps": 8, "envs": ENVS, "max_age": None},
        "ppo": {"epochs": 1, "minibatches": 2}, "checkpoint": {"every_steps": 64},
    }  # fmt: skip
    return learner_config(small, given).model_copy(update={"heartbeat_s": 0.1})


class Metered(Meter):
    """What was counted, and how things stand."""

    def __init__(self, *_: object) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.gauges: dict[str, float] = {}

    def count(self, name: str, n: float = 1, **labels: object) -> None:
        """By name and labels."""
        self.counts[" ".join([name, *map(str, labels.values())])] += int(n)

    def gauge(self, **values: float) -> None:
        """The newest."""
        self.gauges |= values


@dataclass
class Sent:
    """Where an actor's chunks go, and what is changed of them on the way."""

    to: Appending
    versions: list[Version] = field(default_factory=list)
    change: Callable[[Sequence[Chunk]], Sequence[Chunk]] = lambda chunks: chunks

    def declare(self, encoding: Encoding) -> bool:
        """Fix what their bytes mean."""
        return self.to.declare(encoding)

    def append(self, chunks: Sequence[Chunk]) -> Appended:
        """Append; how it ended."""
        status = self.to.append(self.change(chunks))
        if status == "ok":
            self.versions.append(Version(chunks[0].lineage, chunks[0].version))
        return status

    def queued(self) -> int:
        """Steps that wait."""
        return self.to.queued()


class Flying:
    """A learner and an actor that checks its weights; a context manager."""

    def __init__(
        self, folder: Path, given: LearnerConfig, replay: str, *,
        bucket: str | None = None, orchestrator: str | None = None, updates: int | None = None,
        patience_s: float = 0.2,
    ) -> None:  # fmt: skip
        """It ends after `updates`; its actor waits for newer weights for `patience_s` when it is ahead."""
        self.folder = folder
        self.config = given
        self.meter, self.kept = Metered(), Kept()
        self.replay = BlockingReplayClient([replay])
        self.sent = Sent(Appending(self.replay))
        self._bucket = bucket
        self._stop: str | None = None
        self.outcome: str | None = None
        """Of the learner, once it has ended."""
        self._patience_s = patience_s
        self._failure: BaseException | None = None
        self._ends = ExitStack()
        self._settings = LearnerSettings(
            config=given, run_id=RUN, out=folder, table=TABLE, servers=(replay,), access=Access(),
            bucket=bucket, weights=None, ends=StopConditions(updates=updates), tower=None, log="json",
            governed=None if orchestrator is None else OrchestratorSession(orchestrator, RUN, None, given),
        )  # fmt: skip

    def __enter__(self) -> Self:
        with pytest.MonkeyPatch.context() as patch, ExitStack() as undo:
            patch.setattr(process, "Meter", lambda _run: self.meter)
            patch.setattr(process, "Saving", partial(Saving, patience=SOON))
            undo.enter_context(closing(self.replay))
            begun = Outputs(self._settings)
            begun.reporter = Fanout([begun.reporter, self.kept])
            flight = LearnerRun(self._settings, begun, lambda: self._stop)
            flight._keeper.again_s = 0.5
            self.loop = flight.loop
            undo.callback(begun.reporter.close, outcome="interrupted")

            def run() -> None:
                self.outcome = flight.run()

            for work in (run, self._act):
                thread = threading.Thread(target=self._guarded, args=(work,))
                thread.start()
                undo.callback(thread.join, WAIT_S)
            undo.callback(setattr, self, "_stop", "interrupted")
            self._ends = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Have both end, and wait for it. A second call does nothing."""
        self._stop = "interrupted"
        self._ends.close()

    def until(self, is_so: Callable[[], object], what: str) -> None:
        """Wait for it."""
        ends, waiter = time.monotonic() + WAIT_S, threading.Event()
        while not is_so():
            if self._failure is not None:
                raise self._failure
            assert time.monotonic() < ends, f"{what}\n" + "\n".join(self.lines()[-20:])
            waiter.wait(0.02)

    def more(self, updates: int = 3) -> None:
        """So many updates more than now."""
        wanted = self.loop.updates_done + updates
        self.until(lambda: self.loop.updates_done >= wanted, "training goes on")

    def lines(self) -> list[str]:
        """Messages of the learner's log."""
        return [fact.message for fact in list(self.kept.facts) if isinstance(fact, LogLine)]

    def saved(self) -> int:
        """Checkpoints that were written."""
        return sum(isinstance(fact, CheckpointSaved) for fact in list(self.kept.facts))

    def acknowledged(self) -> int:
        """Items that replay need not serve again."""
        return sum(one.acknowledged or 0 for tables in self.replay.stats() for one in tables)

    def _guarded(self, work: Callable[[], object]) -> None:
        try:
            work()
        except (Exception, ClickException) as error:  # noqa: BLE001 `until` raises it
            self._failure = self._failure or error

    def _act(self) -> None:
        given = self.config
        made = world(given.world)
        policy = given.kind.make(made.spec, given.learned, seed=given.seed + 1)
        state = policy.state_dict()
        shapes = shapes_of({name: state[name] for name in policy.acting_keys()})
        accepted = Accepted(
            run_id=RUN, verifier=Verifier(make_key(self.folder / KEY_FILE).public), shapes=shapes
        )
        place = Place(url=self._bucket or str(self.folder), run_id=RUN)
        own = ActorConfig(
            source=Source(run=RUN, actor=0), steps=given.batch.steps, seed=given.seed, is_checked=True,
            rows=given.rows, lead=given.lead, patience_s=self._patience_s,
            is_summarised=not given.kind.is_replayed,
        )  # fmt: skip
        with closing(Subscriber(open_channel(place), accepted, longest_pause_s=0.5)) as weights:
            around = Dependencies(
                weights=weights, experience=self.sent, reporter=Kept(), meter=Meter(),
                stop=lambda: self._stop,
            )  # fmt: skip
            Actor(made, policy, own, around).run()
