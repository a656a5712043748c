"""What an operator has seen: it stays seen while it is as bad as then, and is no report of the run itself."""

import pytest

from overwatch.diagnose import Assessment, Judged, assess
from overwatch.diagnose.assess import dump, load
from overwatch.events import EnvCrashed, Event, FindingAcknowledged, Record
from overwatch.fold import FAST_NS, Fold
from overwatch.journal import Batch, Signal
from overwatch.otlp.encode import origin_attributes, request
from overwatch.projection import project
from overwatch.snapshot import Snapshot, View
from overwatch.state import RunState, apply
from tests import fakes
from tests.fakes import ORIGIN, SECOND, START_NS

CRASH = "env-crashed:env:3"


def _crashed(at: int) -> EnvCrashed:
    return EnvCrashed(at=at, env_id=3, error="boom")


def _unnumbered(event: Event) -> Record:
    return Record(origin=ORIGIN, event=event)


@pytest.fixture
def crashed() -> tuple[RunState, Judged]:
    """An env that crashed, and the finding about it."""
    state = fakes.folded([fakes.started(START_NS), fakes.envs(START_NS, [1, 3], reward=[0.0, 0.0])])
    apply(state, _unnumbered(_crashed(START_NS + SECOND)), START_NS + SECOND)
    return state, assess(state, Assessment(), START_NS + SECOND)


def _seen(state: RunState, judged: Judged) -> Snapshot:
    return project(state, judged, View())


def _acknowledge(state: RunState, finding: str = CRASH) -> None:
    event = FindingAcknowledged(at=START_NS + 2 * SECOND, finding=finding, by="kim")
    apply(state, _unnumbered(event), START_NS + 2 * SECOND)


def test_a_finding_that_was_seen_leaves_the_verdict_and_stays_in_the_count(
    crashed: tuple[RunState, Judged],
) -> None:
    """The word is that of the worst one that nobody has seen; the feed states who saw it."""
    state, judged = crashed
    before = _seen(state, judged)
    _acknowledge(state)
    judged = assess(state, judged.assessment, START_NS + 2 * SECOND)
    after = _seen(state, judged)

    assert (before.verdict.severity, before.verdict.acknowledged) == ("critical", 0)
    assert (after.verdict.severity, after.verdict.acknowledged) == ("ok", 1)
    assert after.verdict.text == "nothing new; 1 acknowledged"
    assert [(finding.id, finding.acknowledged) for finding in after.findings] == [(CRASH, True)]
    assert after.feed[-1].fields == {"finding": CRASH, "by": "kim"}


def test_it_stays_seen_and_survives_a_checkpoint(crashed: tuple[RunState, Judged]) -> None:
    """Later ticks, and a new life of the tower, know it."""
    state, judged = crashed
    _acknowledge(state)
    judged = assess(state, judged.assessment, START_NS + 2 * SECOND)
    judged = assess(state, load(dump(judged.assessment)), START_NS + 3 * SECOND)

    assert judged.assessment.findings[CRASH].acknowledged


def test_one_that_ends_and_starts_anew_was_not_seen(crashed: tuple[RunState, Judged]) -> None:
    """An acknowledgement is of one occurrence."""
    state, judged = crashed
    _acknowledge(state)
    judged = assess(state, judged.assessment, START_NS + 2 * SECOND)
    apply(state, _unnumbered(fakes.envs(START_NS + 3 * SECOND, [3], reward=[0.0])), START_NS + 3 * SECOND)
    judged = assess(state, judged.assessment, START_NS + 3 * SECOND)
    assert judged.assessment.findings[CRASH].cleared_at is not None
    apply(state, _unnumbered(_crashed(START_NS + 4 * SECOND)), START_NS + 4 * SECOND)
    judged = assess(state, judged.assessment, START_NS + 4 * SECOND)

    assert not judged.assessment.findings[CRASH].acknowledged


def test_a_finding_that_got_worse_was_not_seen_as_it_is_now() -> None:
    """A warning that was acknowledged and becomes critical is an alarm again."""
    state = fakes.folded([fakes.started(START_NS)])
    known = Assessment()

    def update(number: int, kl: float) -> Judged:
        at = START_NS + number * SECOND
        apply(state, _unnumbered(fakes.policy(at, index=number, kl_divergence=kl)), at)
        return assess(state, known, at)

    for number in range(1, 31):
        known = update(number, 0.01 if number < 25 else 0.02).assessment
    (key,) = known.findings
    _acknowledge(state, key)
    known = assess(state, known, START_NS + 30 * SECOND).assessment
    assert known.findings[key].acknowledged
    for number in range(31, 36):
        known = update(number, 0.05).assessment

    assert known.findings[key].problem.severity == "critical"
    assert not known.findings[key].acknowledged


def test_an_acknowledgement_of_nothing_changes_nothing(crashed: tuple[RunState, Judged]) -> None:
    """A finding that is not open cannot be seen."""
    state, judged = crashed
    _acknowledge(state, "env-crashed:env:99")
    judged = assess(state, judged.assessment, START_NS + 2 * SECOND)

    assert [item.acknowledged for item in judged.assessment.findings.values()] == [False]


def test_an_operators_word_is_no_word_of_the_run(crashed: tuple[RunState, Judged]) -> None:
    """It makes no source, and a silent run is no less silent for it."""
    state, judged = crashed
    sources, stamp, reported = list(state.sources), state.last_stamp, state.last_at
    _acknowledge(state)

    assert (list(state.sources), state.last_stamp, state.last_at) == (sources, stamp, reported)
    assert assess(state, judged.assessment, START_NS + 400 * SECOND).link.state in ("stale", "lost")


def test_an_acknowledgement_makes_no_run() -> None:
    """That of an unknown run is counted and left out."""
    fold = Fold()
    body = request([_unnumbered(FindingAcknowledged(at=START_NS, finding=CRASH))], origin_attributes(ORIGIN))
    frame = fold.advance(
        START_NS + FAST_NS, [Batch(sequence=1, stamp=START_NS, signal=Signal.LOGS, body=body)], []
    )

    assert (dict(frame.snapshots), frame.tower.unattributed) == ({}, 1)
