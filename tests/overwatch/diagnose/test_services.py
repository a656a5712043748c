"""What is found wrong with a rollouts service, by what it reported."""

from dataclasses import dataclass, field

import pytest

from overwatch.catalog import Scope
from overwatch.diagnose.problem import Problem
from overwatch.diagnose.services import service_problems
from overwatch.events import Measured, Origin, Record, Tallied, TallySeries, scalars
from overwatch.fold import Fold
from overwatch.journal import Batch, Signal
from overwatch.otlp.encode import request
from overwatch.state import RunState, apply, new_run
from tests.fakes import SECOND, START_NS

WELL = {
    "queue.groups": 4.0, "queue.sequences": 40.0, "batch_size": 64.0, "capacity": 640.0, "data_age": 1.0,
    "max_staleness": 2.0, "envs": 8.0, "envs_silent": 0.0,
}  # fmt: skip
"""What a service reports that has nothing wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Minute:
    """What a service reported for a minute: its gauges, and what it counted in each second."""

    gauges: dict[str, float] = field(default_factory=dict)
    accepted: float = 8.0
    served: float = 8.0
    expired: float = 0.0
    requested: float = 1.0
    status: str = "few"
    seconds: int = 61
    rank: int = 0

    def records(self) -> list[Record]:
        """A record of gauges and one of counters a second."""
        origin = Origin(run_id="run-1", role="rollouts", rank=self.rank, epoch="e", ours=True)
        reported = []
        for second in range(self.seconds):
            at = START_NS + second * SECOND
            named = {f"overwatch.rollouts.{name}": value for name, value in (WELL | self.gauges).items()}
            reported.append(Measured(at=at, scope=Scope.ROLLOUTS, values=scalars(named)))
            counted = {"accepted": self.accepted, "served": self.served, "expired": self.expired,
                       "batches": self.requested}  # fmt: skip
            series = tuple(
                TallySeries(
                    metric=f"overwatch.rollouts.{name}",
                    labels={"status": self.status} if name == "batches" else {},
                    sum=pace * second,
                )
                for name, pace in counted.items()
            )
            reported.append(Tallied(at=at, scope=Scope.ROLLOUTS, series=series))
        return [Record(origin=origin, event=event, seq=n) for n, event in enumerate(reported, start=1)]

    def state(self) -> RunState:
        """The state after it."""
        records = self.records()
        state = new_run(records[0])
        for record in records:
            apply(state, record, record.event.at)
        return state


def found(minute: Minute, later_s: float = 0.0) -> dict[str, Problem]:
    """What is wrong so long after its last record, by code."""
    state = minute.state()
    return {one.code: one for one in service_problems(state, state.last_stamp + round(later_s * SECOND))}


def test_nothing_is_wrong_with_a_service_that_is_well() -> None:
    """Nor with one that waits for the next batch, which is near."""
    assert found(Minute()) == {}
    assert found(Minute(served=0.0)) == {}


@pytest.mark.parametrize("accepted", [0.0, 0.1])
def test_a_trainer_that_asks_in_vain_is_starved(accepted: float) -> None:
    """Where no sequence comes, or so few that the next batch is minutes away."""
    (problem,) = found(Minute(accepted=accepted, served=0.0)).values()
    assert (problem.code, problem.severity) == ("rollouts-starved", "warning")
    assert (problem.scope, problem.subject) == ("service", "rollouts")
    assert "40 of 64 sequences wait" in problem.message
    assert ("4m" in problem.message) == (accepted > 0)


def test_a_service_that_does_not_ask_is_not_starved() -> None:
    """A service without a trainer, or with one that learns from what it has, waits for nothing."""
    assert found(Minute(accepted=0.0, served=0.0, requested=0.0)) == {}
    assert found(Minute(accepted=0.0, served=0.0, status="done")) == {}
    assert found(Minute(accepted=0.0, served=0.0, gauges={"queue.sequences": 64.0})) == {}


@pytest.mark.parametrize(("served", "words"), [(3.0, "takes 3/s"), (0.0, "took none for a minute")])
def test_a_queue_without_room_is_full(served: float, words: str) -> None:
    """The message states whether the trainer takes any."""
    (problem,) = found(Minute(served=served, gauges={"queue.sequences": 640.0})).values()
    assert problem.code == "rollouts-full"
    assert words in problem.message


def test_what_waits_beyond_the_allowed_age_is_stale() -> None:
    """By its age, or by how much expires; an age that nothing has any more counts nothing."""
    assert set(found(Minute(gauges={"data_age": 3.0}))) == {"rollouts-stale"}
    assert set(found(Minute(expired=1.0))) == {"rollouts-stale"}
    assert found(Minute(gauges={"data_age": 2.0}, expired=0.5)) == {}
    assert found(Minute(gauges={"data_age": 3.0, "queue.sequences": 0.0})) == {}


@pytest.mark.parametrize(("silent", "severity"), [(1.0, "warning"), (8.0, "critical")])
def test_an_environment_beyond_its_lease_is_dead(silent: float, severity: str) -> None:
    """All of them at once is critical."""
    (problem,) = found(Minute(gauges={"envs_silent": silent, "env_silence": 250.0})).values()
    assert (problem.code, problem.severity) == ("rollouts-env-dead", severity)
    assert problem.message.startswith(f"{silent:.0f} of 8 environments silent, the longest for 4m")


def test_what_was_not_reported_makes_no_finding() -> None:
    """A service that reports its queue alone is judged by nothing else."""
    origin = Origin(run_id="r", role="rollouts", epoch="e", ours=True)
    gauges = scalars({"overwatch.rollouts.queue.sequences": 0.0})
    record = Record(origin=origin, event=Measured(at=START_NS, scope=Scope.ROLLOUTS, values=gauges), seq=1)
    state = new_run(record)
    apply(state, record, START_NS)
    assert list(service_problems(state, START_NS)) == []


def test_old_reports_are_judged_by_nothing() -> None:
    """A service that has been silent for half a minute is silent, no more is known."""
    minute = Minute(gauges={"envs_silent": 8.0})
    assert set(found(minute, 29.0)) == {"rollouts-env-dead"}
    assert found(minute, 31.0) == {}


def test_two_services_of_a_run_are_judged_apart() -> None:
    """Each finding names its process."""
    state = Minute(gauges={"envs_silent": 1.0}).state()
    for record in Minute(gauges={"envs_silent": 2.0}, rank=1).records():
        apply(state, record, record.event.at)
    problems = list(service_problems(state, state.last_stamp))
    assert [one.subject for one in problems] == ["rollouts", "rollouts 1"]
    assert len({one.id for one in problems}) == 2


def test_a_finding_opens_after_it_held_and_is_in_the_snapshot() -> None:
    """Through the fold: half a minute of silence of an environment, then a finding with its words."""
    opened: list[tuple[int, str]] = []
    fold, tick = Fold(), START_NS
    reported = Minute(gauges={"envs_silent": 1.0, "env_silence": 40.0}).records()
    for second in range(50):
        body = request(reported[2 * second : 2 * second + 2], {})
        batch = Batch(sequence=second + 1, stamp=tick, signal=Signal.LOGS, body=body)
        for step in range(10):
            frame = fold.advance(tick, [batch] if not step else [], [])
            tick += SECOND // 10
        (snapshot,) = frame.snapshots.values()
        opened += [(second, one.code) for one in snapshot.findings if one.code.startswith("rollouts")]
        lines = snapshot.processes
    assert opened
    assert opened[0][0] in range(29, 34)
    (line,) = lines
    assert (line.name, line.status) == ("rollouts", "warning")
    assert "4 groups 40 seq" in line.parts
    assert "env 7/8 (1 silent 40s)" in line.parts
