"""Two processes that speak as one: flagged while both live, and not when one takes over from the other."""

from collections.abc import Sequence

import pytest

from overwatch.diagnose import Assessment, Judged, assess
from overwatch.events import Origin, Record
from overwatch.projection import project
from overwatch.snapshot import Snapshot, View
from overwatch.state import RunState, apply, new_run
from tests import fakes
from tests.fakes import SECOND, START_NS


def origin(epoch: str, rank: int = 0, role: str = "trainer") -> Origin:
    """One life of a producer."""
    return Origin(run_id="run-1", role=role, rank=rank, epoch=epoch, ours=True)


def reported(lives: Sequence[tuple[Origin, range]], *, numbered: bool = True) -> RunState:
    """A run whose lives each sent something in each of their seconds, in order of time."""
    spoken = sorted((second, place) for place, (_, seconds) in enumerate(lives) for second in seconds)
    state: RunState | None = None
    for second, place in spoken:
        owner, seconds = lives[place]
        event = fakes.policy(START_NS + second * SECOND, index=second, entropy=0.5)
        record = Record(origin=owner, event=event, seq=second - seconds.start + 1 if numbered else None)
        state = state or new_run(record)
        apply(state, record, event.at + 1_000_000)
    assert state is not None
    return state


def held(state: RunState) -> tuple[Judged, Snapshot]:
    """Judged for three seconds after the last record, so that every hold is over."""
    judged = assess(state, Assessment(), state.last_stamp)
    for step in range(1, 31):
        judged = assess(state, judged.assessment, state.last_stamp + step * SECOND // 10)
    return judged, project(state, judged, View())


def test_two_lives_at_once_are_flagged() -> None:
    """Both sources carry the flag, and one finding names who is spoken for twice."""
    state = reported(
        [(origin("a"), range(20)), (origin("b"), range(8, 20)), (origin("c", rank=1), range(20))]
    )
    _, snapshot = held(state)

    flags = [(source.name, source.overlapping) for source in snapshot.link.sources]
    assert sorted(flags) == [("trainer 0", True), ("trainer 0", True), ("trainer 1", False)]
    found = [finding for finding in snapshot.findings if finding.code == "overlapping-writers"]
    assert [finding.severity for finding in found] == ["warning"]
    assert found[0].message == "2 processes speak at once as rank 0: their values are mixed"


@pytest.mark.parametrize(
    "lives",
    [
        pytest.param([(origin("a"), range(10)), (origin("b"), range(10, 20))], id="a-restart"),
        pytest.param([(origin("a"), range(12)), (origin("b"), range(8, 20))], id="a-hand-over"),
        pytest.param([(origin("a"), range(20)), (origin("b", rank=1), range(20))], id="two-ranks"),
        pytest.param([(origin("a"), range(20)), (origin("b", role="learner"), range(20))], id="two-roles"),
        pytest.param([(origin("a"), range(10)), (origin("b"), range(2, 20))], id="one-is-gone"),
    ],
)
def test_lives_that_share_nothing_are_not(lives: list[tuple[Origin, range]]) -> None:
    """Ranks, roles and lives one after another are no overlap; neither is one that is silent by now."""
    _, snapshot = held(reported(lives))

    assert not any(source.overlapping for source in snapshot.link.sources)
    assert not [finding for finding in snapshot.findings if finding.code == "overlapping-writers"]


def test_producers_without_numbers_are_not_judged() -> None:
    """Other libraries may rightly report one run from several processes."""
    _, snapshot = held(reported([(origin("a"), range(20)), (origin("b"), range(20))], numbered=False))

    assert not any(source.overlapping for source in snapshot.link.sources)
