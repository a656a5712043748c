"""An outage of the collector, as the fold sees it: a hole in the stamps, then what a spool kept."""

from collections.abc import Iterator

import pytest

from overwatch.catalog import Scope
from overwatch.events import Column, Event, Measured
from overwatch.fold import FAST_NS, Fold, next_tick
from overwatch.journal import Batch, Signal
from overwatch.otlp.encode import origin_attributes, request
from overwatch.simulate import Script, Settings
from overwatch.snapshot import Snapshot, View
from tests import fakes
from tests.fakes import ORIGIN, SECOND, START_NS

AWAY_S = 300
BEGINS_S = 60
BACK_S = 3
"""The collector is back so long before the first of what was kept comes."""
SPEED = 9
HEALTHY = Settings(gpus=2, envs=8, slots=3, rate_hz=2, seconds=480, run_id=ORIGIN.run_id)


def _stamp(at: int) -> int:
    """When the collector receives what was emitted at `at`: at once, or as the spool drains."""
    emitted_s = (at - START_NS) / 1e9
    back_s = BEGINS_S + AWAY_S
    if emitted_s < BEGINS_S:
        return at
    drained_s = back_s + (emitted_s - BEGINS_S) / SPEED
    return START_NS + int(max(emitted_s, drained_s) * 1e9)


def _batches(settings: Settings) -> Iterator[Batch]:
    seq = 1
    for number, moment in enumerate(Script(settings, START_NS).moments(), start=1):
        body = request(fakes.records(list(moment.events), ORIGIN, seq), origin_attributes(ORIGIN))
        seq += len(moment.events)
        yield Batch(sequence=number, stamp=_stamp(moment.at), signal=Signal.LOGS, body=body)


def _watched(settings: Settings, *, away: bool) -> list[Snapshot]:
    """The run's snapshots, two a second; without ticks in the hole where the collector itself was away."""
    fold, tick, waiting, seen = Fold(), next_tick(START_NS), list(_batches(settings)), []
    hole = range(START_NS + BEGINS_S * SECOND, START_NS + (BEGINS_S + AWAY_S - BACK_S) * SECOND)
    if away:
        waiting.append(Batch(sequence=0, stamp=hole.stop, signal=Signal.START, body=b"{}"))
        waiting.sort(key=lambda batch: batch.stamp)
    while waiting:
        due = [batch for batch in waiting if batch.stamp <= tick]
        del waiting[: len(due)]
        if not (away and tick in hole):
            seen.append(fold.advance(tick, due, ()).snapshots[ORIGIN.run_id, View()])
        tick += FAST_NS * 5
    return seen


@pytest.fixture(scope="module")
def healthy() -> list[Snapshot]:
    """A healthy run whose collector was away for five minutes."""
    return _watched(HEALTHY, away=True)


def test_a_healthy_run_with_an_outage_has_exactly_one_finding(healthy: list[Snapshot]) -> None:
    """Nothing but the outage is found, however fast what was kept comes in."""
    found = {finding.code for snapshot in healthy for finding in snapshot.findings}

    assert found == {"collector-away"}
    assert healthy[-1].findings == ()


def test_while_the_spool_drains_the_age_is_that_of_the_data(healthy: list[Snapshot]) -> None:
    """CATCHING UP, with an age that shrinks, the pace, and no rate above the run's own."""
    late = [snapshot for snapshot in healthy if snapshot.link.state == "catching_up"]
    ages = [snapshot.link.data_age_s or 0.0 for snapshot in late]
    rates = [snapshot.run.steps_per_s or 0.0 for snapshot in healthy]

    assert AWAY_S - 10 < ages[0] <= AWAY_S + 1
    assert ages == sorted(ages, reverse=True)
    assert late[10].link.speed == pytest.approx(SPEED, rel=0.05)
    assert late[10].link.away_s == pytest.approx(AWAY_S, abs=1)
    assert late[10].verdict.text.startswith("the collector was away for 5m; showing 2027-01-15T08:0")
    assert late[10].verdict.text.endswith("Z, catching up at 9x")
    assert late[10].verdict.note == "no alarm is raised for the gap itself"
    assert max(rates) == pytest.approx(HEALTHY.n_envs * HEALTHY.rate_hz, rel=0.11)
    assert healthy[-1].link.state in ("live", "ended")


def _drained(speed: float, hot: range) -> set[str]:
    """Codes of what is found while fifty seconds, kept while the collector was away, come in so fast."""
    settings = Settings(gpus=1, envs=2, slots=0, rate_hz=1, seconds=50, run_id=ORIGIN.run_id)
    fold, seq, waiting, back = Fold(), 1, list[Batch](), START_NS + 50 * SECOND
    for number, moment in enumerate(Script(settings, START_NS).moments(), start=1):
        second = (moment.at - START_NS) // SECOND
        events = [*moment.events, _heat(moment.at, hot=second in hot)]
        body = request(fakes.records(events, ORIGIN, seq), origin_attributes(ORIGIN))
        seq += len(events)
        stamp = back + int((moment.at - START_NS) / speed)
        waiting.append(Batch(sequence=number, stamp=stamp, signal=Signal.LOGS, body=body))
    found, tick = set[str](), next_tick(back)
    while waiting:
        due = [batch for batch in waiting if batch.stamp <= tick]
        del waiting[: len(due)]
        snapshot = fold.advance(tick, due, ()).snapshots[ORIGIN.run_id, View()]
        found |= {finding.code for finding in snapshot.findings}
        tick += FAST_NS
    return found


def _heat(at: int, *, hot: bool) -> Event:
    """What a lane reports of its throttling."""
    word = Column.of_labels(["thermal" if hot else None])
    values = {"overwatch.gpu.throttle": word, "hw.gpu.utilization": Column.of([0.9])}
    return Measured(at=at, scope=Scope.GPU, keys={"gpu_id": Column.of_labels(["hot"])}, values=values)


@pytest.mark.parametrize("speed", [9, 200])
def test_what_was_true_for_a_while_is_found_however_fast_it_comes_in(speed: float) -> None:
    """Twelve seconds of heat are found at nine times the pace and where all comes in at once; one is not."""
    assert _drained(speed, range(25, 37)) == {"thermal-throttle"}
    assert _drained(speed, range(25, 26)) == set()
