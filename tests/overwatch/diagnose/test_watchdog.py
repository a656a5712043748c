"""Training that stopped is found by its own rhythm, processes that fell silent by their own intervals."""

import msgspec
import pytest

from overwatch.catalog import Scope
from overwatch.catalog.run import STEPS
from overwatch.diagnose import Assessment, Judged, assess
from overwatch.events import (
    FOLLOWER,
    CheckpointSaved,
    Event,
    Measured,
    Origin,
    PhaseBegan,
    PhaseEnded,
    Record,
    RunStarted,
    scalars,
)
from overwatch.state import RunState, apply, new_run
from tests import fakes
from tests.fakes import SECOND, START_NS


def _loop(updates: int, rank: int = 0, work_s: float = 1.0) -> list[Event]:
    """Updates of collecting and learning."""
    reported: list[Event] = []
    for number in range(updates):
        begin = START_NS + int(number * 2 * work_s * SECOND)
        reported += [
            PhaseEnded(at=begin + int(work_s * SECOND), phase="collect", duration_s=work_s),
            PhaseEnded(at=begin + int(2 * work_s * SECOND), phase="update", duration_s=work_s),
        ]
    return reported


def _beats(seconds: range) -> list[Event]:
    """Readings of the host, once a second: the process lives."""
    return [
        Measured(
            at=START_NS + second * SECOND, scope=Scope.HOST, values=scalars({"system.cpu.utilization": 0.5})
        )
        for second in seconds
    ]


def _run(by_rank: dict[int, list[Event]], service: str | None = None) -> RunState:
    records = [
        Record(
            origin=Origin(run_id="r", epoch=f"e{rank}", ours=True, rank=rank, service=service), event=event
        )
        for rank, events in by_rank.items()
        for event in events
    ]
    records.sort(key=lambda record: record.event.at)
    state = new_run(records[0])
    for record in records:
        apply(state, record, record.event.at)
    return state


def _judged(state: RunState, after_s: float = 0.0) -> Judged:
    """The judgement after three seconds of ticks from then on."""
    before, judged = Assessment(), None
    first = state.last_stamp + int(after_s * SECOND)
    for tick in range(first, first + 3 * SECOND, SECOND // 10):
        judged = assess(state, before, tick)
        before = judged.assessment
    assert judged is not None
    return judged


def _found(judged: Judged) -> dict[str, str]:
    return {item.problem.code: item.problem.message for item in judged.assessment.findings.values()}


def test_a_phase_that_does_not_end_is_a_stall() -> None:
    """Twenty seconds in a phase of one, while the process goes on speaking: what, who, for how long."""
    judged = _judged(_run({0: [*_loop(10), *_beats(range(41))]}))

    assert _found(judged) == {"training-stalled": "training hangs: rank 0 in collect for 20s, usually 1s"}


@pytest.mark.parametrize(("for_s", "severity"), [(21, "warning"), (125, "critical")])
def test_a_stall_that_lasts_is_critical(for_s: int, severity: str) -> None:
    """Thirty times the usual, and two minutes."""
    judged = _judged(_run({0: [*_loop(10), *_beats(range(20 + for_s))]}))
    severities = {item.problem.code: item.problem.severity for item in judged.assessment.findings.values()}

    assert severities == {"training-stalled": severity}


def test_files_that_are_not_written_to_show_no_process_that_hangs() -> None:
    """A follower of files lives, whatever became of the program: a state, whether or not it goes on."""
    reported = [*_loop(10), *_beats(range(20 + 1501))]
    judged = _judged(_run({0: reported}, FOLLOWER))
    later = _judged(_run({0: [RunStarted(at=START_NS), *reported]}, FOLLOWER), after_s=600)

    assert _found(judged) == {"run-silent": "nothing was written for 25m, usual 1s"}
    assert [one.problem.severity for one in judged.assessment.findings.values()] == ["info"]
    assert set(_found(later)) == {"run-silent"}
    assert later.link.state == "silent"


def _steps(seconds: range, per_s: int = 10) -> list[Event]:
    """Totals of steps, once a second, as `run.beat` sends them."""
    return [
        Measured(
            at=START_NS + second * SECOND,
            scope=Scope.RUN,
            values=scalars({STEPS.name: float(second * per_s)}),
        )
        for second in seconds
    ]


def test_a_long_collect_whose_steps_go_on_is_no_stall() -> None:
    """Ten times as long as usual: each step that is counted shows that training goes on."""
    assert _found(_judged(_run({0: [*_loop(10), *_beats(range(41)), *_steps(range(1, 41))]}))) == {}


@pytest.mark.parametrize("repeated", [0, 25])
def test_a_collect_whose_steps_stop_is_a_stall(repeated: int) -> None:
    """From the last step that was counted; a total that is repeated is no step."""
    steps = _steps(range(1, 26))
    steps += [
        msgspec.structs.replace(steps[-1], at=START_NS + at * SECOND) for at in range(26, 26 + repeated)
    ]
    judged = _judged(_run({0: [*_loop(10), *_beats(range(51)), *steps]}))

    assert _found(judged) == {"training-stalled": "training hangs: rank 0 in collect for 25s, usually 1s"}


def test_steps_of_another_role_show_nothing_of_the_trainer() -> None:
    """Its actors go on stepping, the learner stands."""
    learner = _run({0: [*_loop(10), *_beats(range(41))]})
    actor = Origin(run_id="r", epoch="a", ours=True, rank=0, role="rollouts")
    for event in _steps(range(1, 41)):
        apply(learner, Record(origin=actor, event=event, seq=None), event.at)

    assert "training-stalled" in _found(_judged(learner))


@pytest.mark.parametrize("stopped_s", [3, 8])
def test_a_pause_is_no_stall(stopped_s: int) -> None:
    """Below eight seconds nothing is reported, whatever is usual."""
    assert _found(_judged(_run({0: [*_loop(10), *_beats(range(20 + stopped_s))]}))) == {}


def test_slow_phases_have_patience_of_their_own() -> None:
    """Five minutes in a phase that takes one are within six times."""
    judged = _judged(_run({0: [*_loop(10, work_s=60.0), *_beats(range(1200, 1500))]}))

    assert _found(judged) == {}


@pytest.mark.parametrize("between", [20, 200, 1000])
def test_a_rare_unannounced_pause_is_no_stall_each_time(between: int) -> None:
    """An evaluation of thirty seconds comes again after many updates: the first of them is remembered."""
    reported: list[Event] = []
    at = 0.0
    for _ in range(3):
        for _ in range(between):
            reported.append(PhaseEnded(at=START_NS + int((at + 1) * SECOND), phase="collect", duration_s=1.0))
            reported.append(PhaseEnded(at=START_NS + int((at + 2) * SECOND), phase="update", duration_s=1.0))
            at += 2
        at += 30
    end = int(at - 30)

    assert _found(_judged(_run({0: [*reported, *_beats(range(end, end + 31))]}))) == {}
    assert set(_found(_judged(_run({0: [*reported, *_beats(range(end, end + 90))]})))) == {"training-stalled"}


@pytest.mark.parametrize("name", ["eval", "validation", "checkpoint", "record a video"])
def test_a_pause_that_is_announced_is_no_stall_when_it_begins(name: str) -> None:
    """The first of its kind may take minutes; the loop goes on afterwards by its own rhythm."""
    began = PhaseBegan(at=START_NS + 20 * SECOND, phase=name)
    pausing: list[Event] = [*_loop(10), began, *_beats(range(20, 320))]
    ended = PhaseEnded(at=START_NS + 319 * SECOND, phase=name, duration_s=299.0)
    after = [*_loop(10), began, *_beats(range(20, 320)), ended, *_beats(range(320, 325))]

    assert _found(_judged(_run({0: pausing}))) == {}
    assert _found(_judged(_run({0: after}))) == {}


def test_the_last_checkpoint_is_not_measured_by_those_before() -> None:
    """It waits until all is written; they took what copying takes."""
    reported = _loop(10)
    for start in (20, 21, 22):
        reported.append(PhaseBegan(at=START_NS + start * SECOND, phase="checkpoint"))
        reported.append(
            PhaseEnded(at=START_NS + start * SECOND + SECOND // 10, phase="checkpoint", duration_s=0.1)
        )

    def found(name: str) -> set[str]:
        last = PhaseBegan(at=START_NS + 23 * SECOND, phase=name)
        return set(_found(_judged(_run({0: [*reported, last, *_beats(range(23, 90))]}))))

    assert found("checkpoint") == {"training-stalled"}
    assert found("last_checkpoint") == set()


def test_an_announced_pause_has_a_rhythm_of_its_own() -> None:
    """One that takes many times as long as it ever did is a stall, and named; so is one without an end."""
    reported = _loop(10)
    for start in (20, 30, 40):
        reported.append(PhaseBegan(at=START_NS + start * SECOND, phase="eval"))
        reported.append(PhaseEnded(at=START_NS + (start + 5) * SECOND, phase="eval", duration_s=5.0))
    again = PhaseBegan(at=START_NS + 50 * SECOND, phase="eval")
    first = PhaseBegan(at=START_NS + 20 * SECOND, phase="eval")

    assert _found(_judged(_run({0: [*reported, again, *_beats(range(50, 75))]}))) == {}
    assert _found(_judged(_run({0: [*reported, again, *_beats(range(50, 92))]}))) == {
        "training-stalled": "training hangs: rank 0 in eval for 41s, usually 5s"
    }
    assert set(_found(_judged(_run({0: [*_loop(10), first, *_beats(range(20, 2000))]})))) == {
        "training-stalled"
    }


def test_updates_go_on_having_a_rhythm_beside_phases_of_pauses() -> None:
    """A run that reports only its evaluations is still watched by its updates."""
    reported: list[Event] = []
    for i in range(30):
        reported.append(fakes.policy(START_NS + i * SECOND, index=i, kl_divergence=0.01))
        if i % 10 == 5:
            reported.append(PhaseEnded(at=START_NS + i * SECOND + 1, phase="eval", duration_s=0.1))

    assert list(_found(_judged(_run({0: [*reported, *_beats(range(60))]})))) == ["training-stalled"]


def test_a_saved_checkpoint_is_a_sign_of_training() -> None:
    """A phase within which checkpoints are saved goes on."""
    saved = CheckpointSaved(at=START_NS + 35 * SECOND, path="c", update=10)

    assert _found(_judged(_run({0: [*_loop(10), *_beats(range(41)), saved]}))) == {}


def test_the_rank_that_stopped_first_is_named() -> None:
    """The others stopped because they wait for it: one finding."""
    state = _run({0: [*_loop(10), *_beats(range(42))], 1: [*_loop(9), *_beats(range(42))]})

    assert _found(_judged(state)) == {
        "training-stalled": "training hangs: rank 1 in collect for 23s, usually 1s; "
        "1 other rank stopped after it"
    }


def test_a_run_that_begins_again_is_not_measured_by_what_was_before() -> None:
    """A new attempt may take a minute to compile."""
    again = fakes.started(START_NS + 21 * SECOND)

    assert _found(_judged(_run({0: [*_loop(10), *_beats(range(80)), again]}))) == {}
