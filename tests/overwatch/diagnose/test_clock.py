"""The clock of the data: as fast as producers' timestamps, whatever the pace at which it comes in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overwatch.diagnose import Assessment, assess
from overwatch.diagnose.liveness import RUNS_ON_NS, DataClock, advanced
from overwatch.events import Event, Origin, Record
from overwatch.state import RunState, apply, new_run
from tests import fakes
from tests.fakes import SECOND, START_NS
from tests.overwatch.diagnose.test_bounds import BUSY, lane_readings

TICK = SECOND // 10


def _run() -> RunState:
    return fakes.folded([fakes.started(START_NS)], delay_ns=0)


def _report(state: RunState, at: int, stamp: int, rank: int = 0) -> None:
    origin = Origin(run_id="run-1", epoch="e1", ours=True, rank=rank)
    apply(state, Record(origin=origin, event=fakes.policy(at, kl_divergence=0.01)), stamp)


def _passed(spans: list[tuple[float, float]]) -> float:
    """Seconds on the clock after spans of (seconds sent, seconds of ticks)."""
    state, clock, at, tick = _run(), DataClock(), START_NS, START_NS
    clock = begun = advanced(clock, state, tick)
    for sent_s, ticks_s in spans:
        for _ in range(round(ticks_s * 10)):
            tick += TICK
            if sent_s:
                at += int(sent_s / ticks_s * TICK)
                _report(state, at, tick)
            before, clock = clock, advanced(clock, state, tick)
            assert clock.now >= before.now
    return (clock.now - begun.now) / SECOND


@pytest.mark.parametrize(
    ("spans", "passed_s"),
    [
        ([(10, 10)], 10),
        ([(10, 10), (90, 10)], 100),
        ([(10, 10), (0, 60)], 10 + RUNS_ON_NS / SECOND),
        ([(10, 10), (0, 60), (60, 6)], 70),
    ],
    ids=["live", "a drain", "a silence", "a drain after a silence"],
)
def test_the_clock_is_on_the_data(spans: list[tuple[float, float]], passed_s: float) -> None:
    """In a silence it goes on for five seconds and stands; what it ran ahead is made up for first."""
    assert _passed(spans) == pytest.approx(passed_s, abs=0.2)


@given(st.integers(-(10**15), 10**15))
def test_skew_does_not_matter(skew_ns: int) -> None:
    """A rank whose clock is eleven days off neither hurries nor stops the run's."""
    state, clock, tick = _run(), DataClock(), START_NS
    begun = clock = advanced(clock, state, tick)
    for _ in range(50):
        tick += TICK
        _report(state, tick, tick)
        _report(state, max(1, tick + skew_ns), tick, rank=1)
        clock = advanced(clock, state, tick)

    assert clock.now - begun.now == pytest.approx(5 * SECOND, abs=2 * TICK)


def _readings(second: float, *, hot: bool) -> Event:
    return lane_readings(
        START_NS + int(second * SECOND), ["gpu0"], throttle=["thermal" if hot else None],
        utilization=[BUSY["util"]], power_w=[560.0], power_limit_w=[700.0],
        clock_hz=[1000e6 if hot else 1980e6], clock_max_hz=[1980e6],
    )  # fmt: skip


def _found(hot: range, speed: float) -> set[str]:
    """Codes of all findings of a minute of readings, received after it, so many times as fast."""
    reported = fakes.records([_readings(half / 2, hot=half // 2 in hot) for half in range(120)])
    state, before, found = new_run(reported[0]), Assessment(), set[str]()
    tick = drained = START_NS + 60 * SECOND
    while reported or tick < state.last_stamp + SECOND:
        tick += TICK
        while reported and drained + (reported[0].event.at - START_NS) / speed <= tick:
            record = reported.pop(0)
            apply(state, record, drained + int((record.event.at - START_NS) / speed))
        before = assess(state, before, tick).assessment
        found |= {item.problem.code for item in before.findings.values()}
    return found


@pytest.mark.parametrize("speed", [1, 9])
def test_a_drained_spool_is_judged_as_it_would_have_been_live(speed: int) -> None:
    """Eight seconds of heat are found and one second is not, at nine times the pace as at one."""
    assert _found(range(30, 38), speed) == {"thermal-throttle"}
    assert _found(range(30, 31), speed) == set()
