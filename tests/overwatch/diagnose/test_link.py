"""Live, slow, stale, lost, ended: each told from the others, for the run and by what its producers said."""

import pytest

from overwatch.diagnose import Assessment, assess
from overwatch.diagnose.link import judge_link
from overwatch.events import Event, Origin, Record, RunFinished
from overwatch.state import RunState, apply, new_run
from tests import fakes
from tests.fakes import SECOND, START_NS

MINUTE = 60


def _beats(seconds: range) -> list[Event]:
    return [fakes.policy(START_NS + second * SECOND, kl_divergence=0.01) for second in seconds]


def _end(second: int, outcome: str = "completed") -> RunFinished:
    return RunFinished(at=START_NS + second * SECOND, outcome=outcome, reason="out of memory")


def _run(by_rank: dict[int, list[Event]], epoch: str = "e1", state: RunState | None = None) -> RunState:
    records = [
        Record(
            origin=Origin(run_id="r", epoch=f"{epoch}-{rank}", ours=True, rank=rank), event=event, seq=None
        )
        for rank, events in by_rank.items()
        for event in events
    ]
    records.sort(key=lambda record: record.event.at)
    state = state or new_run(records[0])
    for record in records:
        apply(state, record, record.event.at)
    return state


def _seen(state: RunState, after_s: float) -> tuple[str, set[str]]:
    """The word for the link so long after the last record, and the codes of what is found then."""
    tick = state.last_stamp + int(after_s * SECOND)
    judged = assess(state, Assessment(), tick)
    return judged.link.state, {item.problem.code for item in judged.assessment.findings.values()}


@pytest.mark.parametrize(
    ("after_s", "word", "codes"),
    [
        (1, "live", set()),
        (3, "slow", set()),
        (10, "stale", {"telemetry-stale"}),
        (59, "stale", {"telemetry-stale"}),
        (61, "lost", {"run-lost"}),
        (3600, "lost", {"run-lost"}),
    ],
)
def test_a_run_that_falls_silent_is_stale_then_lost(after_s: float, word: str, codes: set[str]) -> None:
    """No end was told: it is not over."""
    assert _seen(_run({0: _beats(range(30))}), after_s) == (word, codes)


@pytest.mark.parametrize(("outcome", "codes"), [("completed", set()), ("failed", {"run-failed"})])
def test_a_run_that_told_its_end_is_over(outcome: str, codes: set[str]) -> None:
    """However long ago: it is not lost, and how it ended is what is found."""
    state = _run({0: [*_beats(range(30)), _end(30, outcome)]})

    for after_s in (1, 10, MINUTE, 60 * MINUTE):
        assert _seen(state, after_s) == ("ended", codes)


def test_a_run_is_over_when_all_its_processes_are() -> None:
    """One rank ended, the other fell silent: the run is lost, not over."""
    state = _run({0: [*_beats(range(30)), _end(30)], 1: _beats(range(30))})

    assert _seen(state, 2 * MINUTE) == ("lost", {"run-lost"})


def test_a_lost_run_that_speaks_again_is_live() -> None:
    """A new attempt: nothing of the loss is left."""
    state = _run({0: _beats(range(30))})
    assert _seen(state, 2 * MINUTE)[0] == "lost"
    again = START_NS + 200 * SECOND
    _run({0: [fakes.started(again), *_beats(range(201, 240))]}, "e2", state)

    assert _seen(state, 1) == ("live", set())


def test_a_source_is_stale_after_three_of_its_own_intervals() -> None:
    """One that speaks every twenty seconds is live for a minute, and stale beyond it."""
    state = _run({0: _beats(range(0, 400, 20))})

    assert [_seen(state, after_s)[0] for after_s in (5, 50, 70, 250)] == ["live", "live", "stale", "lost"]


def test_what_comes_together_counts_once() -> None:
    """One that tells twenty records at once each minute is not lost for being silent between them."""
    beats = [
        fakes.policy(START_NS + minute * MINUTE * SECOND + tenth * SECOND // 50, kl_divergence=0.01)
        for minute in range(20)
        for tenth in range(20)
    ]
    state = _run({0: list(beats)})

    assert [_seen(state, after_s)[0] for after_s in (59, 170, 190, 730)] == ["live", "live", "stale", "lost"]


def test_one_that_speaks_all_the_time_is_slow_after_two_seconds() -> None:
    """Ten times a second or once: as often as seconds can tell."""
    for hz in (10, 1):
        beats = [fakes.policy(START_NS + n * SECOND // hz, kl_divergence=0.01) for n in range(40 * hz)]
        state = _run({0: list(beats)})

        assert [_seen(state, after_s)[0] for after_s in (1.9, 2.1, 4.9, 5.1)] == [
            "live",
            "slow",
            "slow",
            "stale",
        ]


def test_silence_while_the_collector_was_away_is_nobody_s() -> None:
    """It counts from the collector's return."""
    state = _run({0: _beats(range(30))})
    state.back_stamp = state.last_stamp + 300 * SECOND

    assert judge_link(state, state.back_stamp + SECOND).state == "slow"
    assert judge_link(state, state.back_stamp + 10 * SECOND).state == "stale"
    assert judge_link(state, state.back_stamp + 70 * SECOND).state == "lost"
