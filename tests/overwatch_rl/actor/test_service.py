"""An actor with real weights: what it acts with is what was signed, and how far behind that is."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
import torch

from overwatch.events import LogLine
from overwatch_rl.actor.service import Actor, ActorConfig, Dependencies
from overwatch_rl.actor.service import Appended as Status
from overwatch_rl.algorithms.ppo import PPO, PPOConfig
from overwatch_rl.artifacts.signing import Verifier
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.replay.chunk import Chunk, Encoding
from overwatch_rl.telemetry.meter import Meter
from overwatch_rl.training.experience import Source
from overwatch_rl.weights.channels import open_channel
from overwatch_rl.weights.checking import shapes_of
from overwatch_rl.weights.manifest import Accepted
from overwatch_rl.weights.publisher import Publisher, Publishing
from overwatch_rl.weights.subscriber import Subscriber
from tests.overwatch_rl.kept import Kept
from tests.overwatch_rl.learner.whole import world
from tests.overwatch_rl.weights.made import waited

WORLD = "goodhart:small"


class Appended:
    """Experience in memory."""

    def __init__(self) -> None:
        self.versions: list[int] = []
        self.between: Callable[[int], None] = lambda _: None
        """Called after each rollout, with how many there are."""
        self.is_away = False
        self.waiting: Iterator[int] = itertools.repeat(0)
        """Steps in the queue, at each look."""

    def declare(self, encoding: Encoding) -> bool:  # noqa: ARG002 nothing is read
        """Done, unless replay is away."""
        return not self.is_away

    def append(self, chunks: Sequence[Chunk]) -> Status:
        """Keep of which version."""
        self.versions.append(chunks[0].version)
        self.between(len(self.versions))
        return "ok"

    def queued(self) -> int:
        """The next."""
        return next(self.waiting)


class Gauges(Meter):
    """How things stood after each look for weights, and which steps were counted."""

    def __init__(self) -> None:
        super().__init__()
        self.behind: list[float] = []
        self.steps: list[float] = []

    def count(self, name: str, n: float = 1, **labels: object) -> None:  # noqa: ARG002 no label is read
        """Keep the steps."""
        self.steps += [n] if name == "steps" else []

    def gauge(self, **values: float) -> None:
        """Keep it."""
        self.behind += [values["versions_behind"]] if "versions_behind" in values else []


class Flight:
    """A learner's publisher, and an actor that checks what it acts with."""

    def __init__(self, folder: Path) -> None:
        self.world = world(WORLD)
        self.learned = PPO(self.world.spec, PPOConfig(), seed=1)
        self.policy = PPO(self.world.spec, PPOConfig(), seed=2)
        publishing = Publishing(run_id="r", folder=folder)
        self.publisher = Publisher(publishing)
        state = self.learned.state_dict()
        shapes = shapes_of({name: state[name] for name in self.learned.acting_keys()})
        accepted = Accepted(run_id="r", verifier=Verifier(self.publisher.public), shapes=shapes)
        self.weights = Subscriber(open_channel(publishing.place), accepted)
        self.appended, self.gauges, self.kept = Appended(), Gauges(), Kept()
        self.queue: int | None = None

    def publish(self, number: int) -> None:
        """The learner's weights, as this version."""
        state = self.learned.state_dict()
        tensors = {name: state[name] for name in self.learned.acting_keys()}
        self.publisher.publish(Version(1, number), tensors)
        assert waited(self.publisher).status == "ok"

    def act(self, rollouts: int, looks: float = math.inf) -> str:
        """So many, without waiting for newer weights; interrupted after so many looks whether to stop."""
        left = itertools.count()
        config = ActorConfig(
            source=Source(run="r", actor=0), steps=4, seed=0, rows=16, lead=32, is_checked=True,
            rollouts=rollouts, patience_s=0.0, queue=self.queue,
        )  # fmt: skip
        around = Dependencies(
            weights=self.weights, experience=self.appended, reporter=self.kept, meter=self.gauges,
            stop=lambda: "interrupted" if next(left) >= looks else None,
        )  # fmt: skip
        return Actor(self.world, self.policy, config, around).run()


@pytest.fixture
def flight(tmp_path: Path) -> Iterator[Flight]:
    """With one version."""
    made = Flight(tmp_path)
    with closing(made.publisher), closing(made.weights):
        made.publish(1)
        yield made


def test_weights_that_are_what_was_signed_are_acted_with(flight: Flight) -> None:
    """Each version is compared as it is taken."""
    flight.appended.between = lambda count: flight.publish(1 + count) if count < 2 else None

    assert flight.act(2) == "completed"
    assert flight.appended.versions == [1, 2]


def test_a_policy_that_acts_with_another_tensor_is_named(flight: Flight) -> None:
    """One bit of one weight, changed as it was loaded."""
    name, weight = next(iter(flight.policy.policy.named_parameters()))

    def touched(*_: object) -> None:
        with torch.no_grad():
            first = weight.view(-1)[:1]
            first.copy_(torch.nextafter(first, torch.tensor(math.inf)))

    flight.policy.policy.register_load_state_dict_post_hook(touched)
    with pytest.raises(RuntimeError, match=rf"weights 001-00000001 act with another policy\.{name} than"):
        flight.act(1)
    assert flight.appended.versions == []


def test_versions_behind_is_the_way_to_the_newest_that_is_published(flight: Flight, tmp_path: Path) -> None:
    """An actor that cannot take it acts with what it has, and both are seen."""

    def without_artifact(count: int) -> None:
        if count == 1:
            flight.publish(6)
            (tmp_path / "weights" / "001-00000006.safetensors").unlink()
        elif count == 3:
            flight.publish(7)

    flight.appended.between = without_artifact

    assert flight.act(4) == "completed"
    assert flight.appended.versions == [1, 1, 1, 7]
    assert flight.gauges.behind == [0, 5, 5, 0]
    lines = [fact.message for fact in flight.kept.facts if isinstance(fact, LogLine)]
    assert any("001-00000006" in line for line in lines)
    assert lines[-1] == "weights: they come again"


@pytest.mark.parametrize("without", ["weights", "replay"])
def test_an_actor_that_waits_reports_that_it_took_no_step(tmp_path: Path, without: str) -> None:
    """It lives: with nothing of it for ten seconds it would be found to be down."""
    made = Flight(tmp_path)
    made.appended.is_away = without == "replay"
    with closing(made.publisher), closing(made.weights):
        assert made.act(1, looks=3) == "interrupted"

    assert len(made.gauges.steps) >= 3
    assert set(made.gauges.steps) == {0}


def test_an_actor_begins_no_rollout_while_the_queue_is_full(flight: Flight) -> None:
    """However long it has waited: what it would collect could only grow old."""
    looks: list[int] = []

    def waiting() -> Iterator[int]:
        for steps in (15, 16, 40, 16, 0):
            looks.append(steps)
            yield steps

    flight.queue, flight.appended.waiting = 16, waiting()
    assert flight.act(2) == "completed"
    assert flight.appended.versions == [1, 1]
    assert looks == [15, 16, 40, 16, 0]
