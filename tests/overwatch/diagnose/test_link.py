"""Live, slow, stale, lost, ended: each apart from the others, for the run and by what its producers sent."""

from collections.abc import Iterable

import pytest

from overwatch.diagnose import Assessment, assess
from overwatch.diagnose.liveness import judge_link
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
    """No end was sent: it is not over."""
    assert _seen(_run({0: _beats(range(30))}), after_s) == (word, codes)


@pytest.mark.parametrize(("outcome", "codes"), [("completed", set()), ("failed", {"run-failed"})])
def test_a_run_that_sent_its_end_is_over(outcome: str, codes: set[str]) -> None:
    """However long ago: it is not lost, and how it ended is what is found."""
    state = _run({0: [*_beats(range(30)), _end(30, outcome)]})

    for after_s in (1, 10, MINUTE, 60 * MINUTE):
        assert _seen(state, after_s) == ("ended", codes)


def test_a_killed_trainer_is_lost_at_once_with_its_reason() -> None:
    """Its exporter saw it go: no minute of waiting, and no guess."""
    reason = "trainer killed by signal 9 (SIGKILL)"
    end = RunFinished(at=START_NS + 30 * SECOND, outcome="lost", reason=reason)
    state = _run({0: [*_beats(range(30)), end]})

    for after_s in (0.1, 10, 60 * MINUTE):
        judged = assess(state, Assessment(), state.last_stamp + int(after_s * SECOND))
        assert judged.link.state == "lost"
        (found,) = [item.problem for item in judged.assessment.findings.values()]
        assert (found.code, found.severity, found.message) == ("run-lost", "critical", f"LOST: {reason}")
        assert found.factors == ("last update 30", "no checkpoint seen")


def _worker(state: RunState, seconds: range, role: str = "actor", *, ours: bool = True) -> RunState:
    """The same run after a producer beside the trainer has emitted once in each of these seconds."""
    for event in _beats(seconds):
        apply(
            state,
            Record(origin=Origin(run_id="r", role=role, rank=7, epoch="w", ours=ours), event=event),
            event.at,
        )
    return state


@pytest.mark.parametrize("role", ["actor", "env-worker", "trainer"])
def test_a_worker_that_falls_silent_is_gone_and_the_run_lives(role: str) -> None:
    """Killed with its exporter, or never closed: never stale, never lost, whatever its rhythm was."""
    for ours in (True, False):
        state = _run({0: _beats(range(200))})
        _worker(state, range(20), role, ours=ours)
        word, codes = _seen(state, 1)
        assert word == "live"
        assert not codes & {"telemetry-stale", "run-lost", "run-silent"}


def test_a_worker_that_emits_does_not_hide_a_trainer_that_is_lost() -> None:
    """The actors of a dead trainer wait for ever."""
    state = _worker(_run({0: _beats(range(30))}), range(200))

    assert _seen(state, 1) == ("lost", {"run-lost"})


def test_ranks_of_the_trainer_speak_for_each_other() -> None:
    """One whose exporter died is gone; the training goes on while another emits."""
    state = _run({0: _beats(range(30)), 1: _beats(range(200))})

    assert _seen(state, 1)[0] == "live"
    assert _seen(state, 10)[0] == "stale"


def test_a_finished_rank_0_is_the_end_whatever_others_did() -> None:
    """One rank sent no end record, an actor emits on: the run is over, as old as rank 0's end."""
    state = _run({0: [*_beats(range(30)), _end(30)], 1: _beats(range(30))})
    assert _seen(state, 2 * MINUTE) == ("ended", set())

    _worker(state, range(30, 200))
    judged = judge_link(state, START_NS + 200 * SECOND)
    assert (judged.state, judged.data_age_s) == ("ended", 170)


def _foreign(seconds: Iterable[float], *, ours: bool = False) -> RunState:
    """What a producer that promised no end record emitted at these seconds."""
    reported = [fakes.policy(START_NS + int(second * SECOND), kl_divergence=0.01) for second in seconds]
    origin = Origin(run_id="r", epoch="f", ours=ours)
    state = new_run(Record(origin=origin, event=reported[0]))
    for event in reported:
        apply(state, Record(origin=origin, event=event), event.at)
    return state


def test_an_interval_that_is_not_known_yet_is_not_0() -> None:
    """A stock OpenTelemetry SDK exports once a minute: after its first export nothing is late for minutes."""
    for exports in ([0.0], [0.0, 60.0], [0.0, 60.0, 120.0]):
        state = _foreign(exports)
        assert [_seen(state, after_s) for after_s in (6, 61, 170)] == [("live", set())] * 3


@pytest.mark.parametrize("interval_s", [1, 5, 10, 60, 120, 600])
def test_a_producer_that_promised_no_end_is_silent_never_lost(interval_s: int) -> None:
    """By its own rhythm: a warning, however long ago; a clean shutdown of it looks the same."""
    state = _foreign(range(0, 12 * interval_s, interval_s))

    assert _seen(state, 2 * interval_s + 1) == ("live", set())
    for after_s in (max(60, 3 * interval_s) + 5, 3 * 3600, 48 * 3600):
        assert _seen(state, after_s) == ("silent", {"run-silent"})
    (found,) = assess(state, Assessment(), state.last_stamp + 3600 * SECOND).assessment.findings.values()
    assert found.problem.severity == "warning"


def test_one_long_pause_does_not_make_silence_endless() -> None:
    """A machine that slept for a day: a killed trainer becomes known within half an hour."""
    state = _foreign([*range(0, 100, 10), *range(86_400, 86_900, 10)])

    assert _seen(state, 30 * MINUTE) == ("silent", {"run-silent"})


def test_a_foreign_producer_that_sends_a_start_promised_its_end() -> None:
    """It can send `overwatch.run_finished`, so its silence is a loss."""
    state = _foreign(range(30))
    origin = Origin(run_id="r", epoch="f")
    apply(state, Record(origin=origin, event=fakes.started(START_NS + 29 * SECOND)), START_NS + 29 * SECOND)

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
    """One that sends twenty records at once each minute is not lost for being silent between them."""
    beats = [
        fakes.policy(START_NS + minute * MINUTE * SECOND + tenth * SECOND // 50, kl_divergence=0.01)
        for minute in range(20)
        for tenth in range(20)
    ]
    state = _run({0: list(beats)})

    assert [_seen(state, after_s)[0] for after_s in (59, 170, 190, 730)] == ["live", "live", "stale", "lost"]


def test_one_that_speaks_all_the_time_is_slow_after_two_seconds() -> None:
    """Ten times a second or once: as often as seconds resolve."""
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
