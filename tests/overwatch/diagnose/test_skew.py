"""A clock that is ahead is reported, with how far; late data is not taken for a clock that is behind."""

import pytest

from overwatch.diagnose import Assessment, assess
from overwatch.events import Origin, Record
from overwatch.projection import project
from overwatch.snapshot import Snapshot, View
from overwatch.state import RunState, apply, new_run
from tests import fakes
from tests.fakes import SECOND, START_NS


def reported(ahead_s: dict[int, float], seconds: int = 10) -> RunState:
    """A run whose ranks sent something every second, each by a clock so far ahead of the collector's."""
    state: RunState | None = None
    for second in range(seconds):
        for rank, ahead in ahead_s.items():
            stamp = START_NS + second * SECOND + rank
            origin = Origin(run_id="run-1", role="trainer", rank=rank, epoch="a", ours=True)
            event = fakes.policy(stamp + round(ahead * SECOND), index=second, entropy=0.5)
            record = Record(origin=origin, event=event, seq=second + 1)
            state = state or new_run(record)
            apply(state, record, stamp)
    assert state is not None
    return state


def right_from_now_on(state: RunState, seconds: range) -> None:
    """Rank 0 alone goes on, by a clock that is right."""
    origin = Origin(run_id="run-1", role="trainer", rank=0, epoch="a", ours=True)
    for second in seconds:
        stamp = START_NS + second * SECOND
        event = fakes.policy(stamp, index=second, entropy=0.5)
        apply(state, Record(origin=origin, event=event, seq=second + 1), stamp)


def seen(state: RunState, after_s: float = 3.0) -> Snapshot:
    """Judged ten times a second from the last record on."""
    judged = assess(state, Assessment(), state.last_stamp)
    for step in range(1, round(10 * after_s) + 1):
        judged = assess(state, judged.assessment, state.last_stamp + step * SECOND // 10)
    return project(state, judged, View())


def stated(snapshot: Snapshot) -> list[str]:
    """What is reported of clocks."""
    return [finding.message for finding in snapshot.findings if finding.code == "clock-ahead"]


def test_a_clock_that_is_ahead_is_reported_with_how_far() -> None:
    """Of the ranks that have it, not of the others; their sources carry it as a number."""
    snapshot = seen(reported({0: 0.0, 1: 42.0, 2: 7.0}))

    assert stated(snapshot) == ["clock of rank 1, rank 2 is 42 s ahead: what it sends is from the future"]
    assert [source.clock_ahead_s for source in snapshot.link.sources] == [None, 42.0, 7.0]


@pytest.mark.parametrize("ahead_s", [1.9, 0.0, -1.0, -3600.0], ids=["little", "none", "late", "an hour late"])
def test_nothing_is_reported_of_what_may_have_waited(ahead_s: float) -> None:
    """Late data may come from a spool, and clocks are never quite alike."""
    snapshot = seen(reported({0: ahead_s}))

    assert stated(snapshot) == []
    assert [source.clock_ahead_s for source in snapshot.link.sources] == [None]


def test_a_clock_that_was_set_right_is_not_spoken_of_any_more() -> None:
    """What counts is the newest record, not the worst one."""
    state = reported({0: 42.0})
    assert stated(seen(state))
    right_from_now_on(state, range(10, 20))

    assert stated(seen(state)) == []


@pytest.mark.parametrize("ahead_s", [42.0, 365 * 86_400.0], ids=["a little", "a year"])
def test_what_came_from_the_future_does_not_make_old_what_comes_now(ahead_s: float) -> None:
    """Ages are those of the newest records again once the clock is right."""
    state = reported({0: ahead_s})
    right_from_now_on(state, range(10, 20))
    link = seen(state, after_s=1.0).link

    assert (link.state, link.lag_s, link.data_age_s) == ("live", 0.0, 1.0)
