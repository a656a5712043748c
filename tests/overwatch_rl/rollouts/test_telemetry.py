"""What the server reports: each thing once, by the names of the catalogue."""

from collections.abc import Sequence
from typing import Any

import pytest

from overwatch.catalog import Scope
from overwatch.events import Measured, Tallied
from overwatch_rl.rollouts import queue
from overwatch_rl.rollouts.answers import Limits, Offer, Outcome
from overwatch_rl.rollouts.state import State
from overwatch_rl.rollouts.telemetry import ROLE, Telemetry
from overwatch_rl.rollouts.wire import Admission, PolicyVersion, VersionMove
from overwatch_rl.web.faults import Fault, RefusedError
from tests.overwatch_rl.recording import KeptRun
from tests.overwatch_rl.rollouts.driven import Batch, NoBatch, env_of, leased, registration

SECOND = 1_000_000_000


class Reported:
    """A queue that is reported, and what was sent."""

    def __init__(self, **limits: Any) -> None:
        self.run = KeptRun(role=ROLE)
        self.tower = Telemetry(self.run)
        self.state = State(limits=Limits(**limits))
        self.now = SECOND

    def do(self, answer: Any) -> Any:
        """Report what a decision counted, as the service does once it is committed; its answer."""
        self.tower.emit(self.state.reports)
        self.state.reports.clear()
        return answer

    def start(self) -> None:
        """A trainer with batches of four, and two environments: 0 and 1."""
        self.do(queue.register_trainer(self.state, registration(4), self.now))
        self.do(queue.batch(self.state, self.now))
        for name in ("maths", "code"):
            self.do(queue.register_env(self.state, env_of(name, 2), self.now))

    def send(self, *offers: Offer) -> tuple[Outcome, ...]:
        """What became of some groups."""
        outcomes: tuple[Outcome, ...] = self.do(queue.accept(self.state, offers, self.now))
        return outcomes

    def query(self, *, is_explicit: bool = True) -> Batch | NoBatch:
        """A batch."""
        answer: Batch | NoBatch = self.do(leased(self.state, self.now, is_explicit=is_explicit))
        return answer

    def tallies(self) -> dict[tuple[str, ...], float]:
        """The newest total of each series: the metric and the values of its labels."""
        self.run.close()
        series = [one for event in self.run.of(Tallied) for one in event.series]
        return {(one.metric.rpartition(".")[2], *one.labels.values()): one.sum for one in series}

    def gauges(self) -> dict[str, float]:
        """The newest value of each gauge of the service."""
        found = [event for event in self.run.of(Measured) if event.scope is Scope.ROLLOUTS]
        names = [(name, value) for event in found for name, value in event.values.items()]
        return {name.removeprefix("overwatch.rollouts."): value.first() for name, value in names}


def offers(env_id: int, count: int, **changed: Any) -> Sequence[Offer]:
    """Groups of two sequences with three tokens each."""
    values = {"sequences": 2, "tokens": 6, **changed}
    return [Offer(env_id=env_id, **values) for _ in range(count)]


def test_everything_that_happens_to_a_group_is_counted() -> None:
    """Accepted, refused with its reason and length, served once acknowledged, and served again."""
    reported = Reported()
    reported.start()
    reported.send(*offers(0, 3), *offers(0, 1, fault=Fault("", "wrong"), tokens=600))
    reported.send(*offers(1, 1, sequences=5))
    reported.now += 2 * SECOND
    first = reported.query()
    assert isinstance(first, Batch)
    reported.do(queue.release(reported.state, first.lease, reported.now))
    second = reported.query()
    assert isinstance(second, Batch)
    reported.do(queue.acknowledge(reported.state, second.lease, reported.now))
    assert isinstance(reported.query(), NoBatch)

    assert reported.tallies() == {
        ("accepted", "maths_0"): 6, ("refused", "maths_0", "invalid", "1024"): 2,
        ("refused", "code_0", "too_large", "256"): 5, ("served", "maths_0"): 4, ("redelivered",): 4,
        ("batches", "served"): 2, ("batches", "few"): 2, ("wait_time",): 8, ("age", "assumed"): 0,
    }  # fmt: skip
    assert reported.run.link.refused == []


def test_a_full_queue_is_a_pause() -> None:
    """Its groups are counted as refused for want of room, their sender as asked to rest."""
    reported = Reported(max_queued_batches=1)
    reported.start()
    reported.send(*offers(0, 2))
    with pytest.raises(RefusedError):
        queue.accept(reported.state, offers(1, 2), reported.now)
    reported.do(None)

    assert reported.tallies() == {
        ("accepted", "maths_0"): 4, ("refused", "code_0", "full", "256"): 4, ("pauses", "code_0"): 1,
        ("batches", "few"): 1,
    }  # fmt: skip


def test_an_environment_that_lacks_tickets_pauses_once() -> None:
    """Asking again while it waits is the same pause."""
    reported = Reported(max_staleness=0)
    reported.start()
    for _ in range(3):
        reported.do(queue.admit(reported.state, Admission(env_id=0, groups=3), reported.now))

    assert reported.tallies()["pauses", "maths_0"] == 1


def test_how_things_stand_is_sent() -> None:
    """By the names of the catalogue; what there is not is absent."""
    reported = Reported(max_queued_batches=5)
    reported.tower.swept(reported.state, reported.now)
    assert reported.gauges() == {
        "queue.groups": 0, "queue.sequences": 0, "envs": 0, "envs_paused": 0, "envs_silent": 0, "leases": 0,
        "tickets": 0,
    }  # fmt: skip
    reported.start()
    reported.send(*offers(0, 3, version=PolicyVersion(number=0)))
    reported.do(queue.move_version(reported.state, VersionMove(number=2), reported.now))
    reported.query()
    reported.now += 5 * SECOND
    reported.tower.swept(reported.state, reported.now)

    assert reported.gauges() == {
        "queue.groups": 1, "queue.sequences": 2, "envs": 2, "envs_paused": 0, "envs_silent": 0, "leases": 1,
        "tickets": 0, "data_age": 2, "env_silence": 5, "capacity": 20, "batch_size": 4, "max_staleness": 3,
    }  # fmt: skip
    assert reported.run.link.refused == []
