"""What services report and count, as a view may know it."""

import pytest

from overwatch.catalog import Scope
from overwatch.events import Buckets, Event, Measured, Origin, Record, Tallied, TallySeries, scalars
from overwatch.projection.services import gauges, quantile, tallies, totals
from overwatch.snapshot import Tally, Total
from overwatch.state import RunState, apply, new_run
from overwatch.state.services import Amount
from tests.fakes import SECOND, START_NS

WAIT = "overwatch.rollouts.wait_time"


def owner(role: str, rank: int = 0) -> Origin:
    """One process."""
    return Origin(run_id="run-1", role=role, rank=rank, epoch="e", ours=True)


def folded(*reported: tuple[Origin, Event]) -> RunState:
    """The state after these events."""
    state = new_run(Record(origin=reported[0][0], event=reported[0][1]))
    for origin, event in reported:
        apply(state, Record(origin=origin, event=event), event.at + 1)
    return state


def counted(second: float, metric: str, total: float, **labels: str) -> Tallied:
    """A counter so far."""
    series = TallySeries(metric=metric, labels=labels, sum=total)
    return Tallied(at=START_NS + round(second * SECOND), scope=Scope.ROLLOUTS, series=(series,))


def waited(second: float, counts: tuple[int, ...], total: float) -> Tallied:
    """A histogram so far, with ends 1 and 2."""
    held = Buckets(bounds=(1.0, 2.0), counts=counts)
    series = TallySeries(metric=WAIT, sum=total, count=sum(counts), buckets=held)
    return Tallied(at=START_NS + round(second * SECOND), scope=Scope.ROLLOUTS, series=(series,))


def test_gauges_of_two_processes_are_both_there() -> None:
    """The first by role and rank has the name, the other its own behind it; each states whose it is."""
    name = "overwatch.rollouts.queue.groups"
    reported = [
        Measured(at=START_NS, scope=Scope.ROLLOUTS, values=scalars({name: n, "x": n})) for n in (7.0, 9.0)
    ]
    found = gauges(
        folded((owner("rollouts", 1), reported[1]), (owner("rollouts", 0), reported[0])), START_NS + SECOND
    )

    assert {key: (one.value, one.role, one.rank, one.status) for key, one in found.items()} == {
        name: (7.0, "rollouts", 0, "ok"), f"{name}#rollouts/1": (9.0, "rollouts", 1, "ok"),
        "x": (7.0, "rollouts", 0, "ok"), "x#rollouts/1": (9.0, "rollouts", 1, "ok"),
    }  # fmt: skip
    assert next(iter(found)) == name


def test_what_is_counted_is_there_by_process_and_labels() -> None:
    """In order of name, process and labels; a histogram with its buckets; a name no row knows is custom."""
    state = folded(
        (owner("rollouts"), counted(0, "overwatch.rollouts.accepted", 5.0, env="b")),
        (owner("rollouts"), counted(1, "overwatch.rollouts.accepted", 3.0, env="a")),
        (owner("actor"), counted(1, "overwatch.custom.mine", 1.0)),
        (owner("rollouts"), waited(1, (1, 2, 0), 4.0)),
    )

    assert tallies(state) == (
        Tally(name="mine", role="actor", rank=0, is_custom=True, total=1.0),
        Tally(name="overwatch.rollouts.accepted", role="rollouts", rank=0, labels={"env": "a"}, total=3.0),
        Tally(name="overwatch.rollouts.accepted", role="rollouts", rank=0, labels={"env": "b"}, total=5.0),
        Tally(
            name=WAIT, role="rollouts", rank=0, total=4.0, count=3, bounds=(1.0, 2.0), counts=(1, 2, 0)
        ),
    )  # fmt: skip


def test_a_row_that_is_sent_as_another_kind_is_custom() -> None:
    """A counter sent as a histogram, or a gauge sent as a counter, has no place among the row's own."""
    wrong = [
        counted(0, WAIT, 1.0), counted(0, "overwatch.policy.entropy", 1.0),
        Tallied(at=START_NS, scope=Scope.ROLLOUTS, series=(
            TallySeries(metric="overwatch.rollouts.accepted", sum=1.0, count=1),
        )),
    ]  # fmt: skip
    assert all(one.is_custom for one in tallies(folded(*((owner("rollouts"), event) for event in wrong))))


def test_totals_are_over_all_processes_and_labels() -> None:
    """A rate is what came in the last minute before the newest record of each process."""
    state = folded(
        *(
            (owner("rollouts"), counted(s, "overwatch.rollouts.accepted", 10.0 * s, env="a"))
            for s in range(120)
        ),
        *((owner("rollouts", 1), counted(s, "overwatch.rollouts.accepted", 2.0 * s)) for s in range(30)),
    )

    found = totals(state)["overwatch.rollouts.accepted"]
    assert found.total == 1190.0 + 58.0
    assert found.rate == pytest.approx(12.0, rel=0.1)
    assert (found.count, found.p50) == (None, None)


def test_quantiles_are_of_late() -> None:
    """What was slow an hour ago does not hide that it is fast now."""
    state = folded(
        (owner("rollouts"), waited(0, (0, 0, 900), 2700.0)),
        (owner("rollouts"), waited(3600, (100, 0, 900), 2750.0)),
    )

    found = totals(state)[WAIT]
    assert found == Total(total=2750.0, count=1000, rate=pytest.approx(100 / 60), p50=0.5, p99=0.99)


def test_one_record_has_no_rate() -> None:
    """What was counted before it is not known to be of late."""
    found = totals(folded((owner("rollouts"), waited(0, (1, 1, 0), 2.0))))[WAIT]
    assert found == Total(total=2.0, count=2)


@pytest.mark.parametrize(
    ("counts", "which", "expected"),
    [((4, 0, 0), 0.5, 0.5), ((0, 4, 0), 0.5, 1.5), ((0, 0, 4), 0.99, 2.0), ((0, 0, 0), 0.5, None)],
)
def test_a_quantile_lies_in_its_bucket(counts: tuple[int, ...], which: float, expected: float | None) -> None:
    """Evenly spread from 0 on; above the last end at that end."""
    held = Buckets(bounds=(1.0, 2.0), counts=counts)
    assert quantile(Amount(count=sum(counts), buckets=held), which) == expected
    assert quantile(Amount(count=3), which) is None
