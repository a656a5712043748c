"""Findings over time: hold before they open, patience before they clear, linger, cooldown."""

import msgspec
import pytest

from overwatch.diagnose.problem import (
    LINGER_NS,
    UPDATES,
    Followed,
    Now,
    Patience,
    Problem,
    follow,
    rank_of,
    standing,
)
from tests.fakes import SECOND

PATIENT = Patience(hold=2 * SECOND, clear=3 * SECOND, cooldown=30 * SECOND)


def _problem(severity: str = "warning", patience: Patience = PATIENT) -> Problem:
    return Problem(
        code="c", severity=severity, scope="run", subject=None, at=7, message="m", hint="h", patience=patience
    )


def _after(*spans: tuple[float, bool], patience: Patience = PATIENT, last: str = "warning") -> Followed:
    """Ticks of 100 ms: seconds with or without the problem; `last` is its severity in the last span."""
    followed, tick = Followed(), 0
    for place, (seconds, wrong) in enumerate(spans):
        severity = last if place == len(spans) - 1 else "warning"
        for _ in range(round(seconds * 10)):
            tick += SECOND // 10
            followed = follow(followed, [_problem(severity, patience)] if wrong else [], Now(tick, tick))
    return followed


def _states(followed: Followed) -> list[str]:
    return ["open" if item.cleared_at is None else "cleared" for item in followed.open.values()]


def test_a_fact_opens_and_clears_at_once() -> None:
    """Without patience the finding is there at the first tick and cleared at the first without it."""
    fact = Patience()

    assert _states(_after((0.1, True), patience=fact)) == ["open"]
    assert _states(_after((0.1, True), (0.1, False), patience=fact)) == ["cleared"]
    assert _states(_after((0.1, True), (0.1, False), (0.1, True), patience=fact)) == ["open"]


@pytest.mark.parametrize(
    ("spans", "states"),
    [
        ([(1.9, True)], []),
        ([(2.1, True)], ["open"]),
        ([(1.9, True), (0.1, False), (1.9, True)], []),
        ([(2.1, True), (2.9, False)], ["open"]),
        ([(2.1, True), (2.9, False), (1.0, True), (2.9, False)], ["open"]),
        ([(2.1, True), (3.2, False)], ["cleared"]),
        ([(2.1, True), (3.2 + LINGER_NS / SECOND, False)], []),
        ([(2.1, True), (9.0, False), (1.9, True)], []),
        ([(2.1, True), (9.0, False), (2.1, True)], ["open"]),
        ([(2.1, True), (9.0, False), (2.1, True), (29.0, False)], ["open"]),
        ([(2.1, True), (9.0, False), (2.1, True), (31.0, False)], ["cleared"]),
    ],
)
def test_a_judgement_needs_patience(spans: list[tuple[float, bool]], states: list[str]) -> None:
    """Hold two seconds, clear after three, linger five; what comes again clears after the cooldown."""
    assert _states(_after(*spans)) == states


@pytest.mark.parametrize("gap_s", [4.0, 20.0])
def test_what_comes_again_is_the_same_finding(gap_s: float) -> None:
    """Within its cooldown: it began when it first did, however often it came and went."""
    spans = [(2.5, True), (gap_s, False)] * 5
    followed, tick, begun = Followed(), 0, set()
    for seconds, wrong in spans:
        for _ in range(round(seconds * 10)):
            tick += SECOND // 10
            found = [msgspec.structs.replace(_problem(), at=tick)] if wrong else []
            followed = follow(followed, found, Now(tick, tick))
            begun |= {item.since for item in followed.open.values()}

    assert begun == {SECOND // 10}


@pytest.mark.parametrize(("update_s", "rounds"), [(60, 20), (0.1, 300)], ids=["long updates", "short ones"])
def test_the_cooldown_of_the_policy_counts_updates_and_seconds(update_s: float, rounds: int) -> None:
    """A row that comes and goes is one finding for 20 updates and 30 s after it went, then another one."""
    followed, begun = Followed(), set()
    for update in range(4 * rounds + 6):
        tick = int(update * update_s * SECOND)
        wrong = update in (0, 2, rounds, 4 * rounds + 4)
        found = [msgspec.structs.replace(_problem(patience=UPDATES), at=update)] if wrong else []
        followed = follow(followed, found, Now(tick, tick, update))
        begun |= {item.since for item in followed.open.values()}

    assert begun == {0, 4 * rounds + 4}


def test_what_explains_others_better_is_as_old_as_they_are() -> None:
    """The cause was there when the first symptom was."""
    symptom = msgspec.structs.replace(_problem(patience=Patience()), code="producer-gone", at=3)
    cause = msgspec.structs.replace(symptom, code="training-stalled", absorbs=("producer-gone",), at=9)
    before = follow(Followed(), [symptom], Now(SECOND, SECOND))
    (item,) = follow(before, [cause], Now(2 * SECOND, 2 * SECOND)).open.values()

    assert (item.problem.code, item.since) == ("training-stalled", 3)


def test_what_wastes_a_run_comes_before_what_slows_it() -> None:
    """Of one severity; then the oldest."""
    codes = ("thermal-throttle", "policy-collapse", "non-finite", "straggler")
    found = [
        msgspec.structs.replace(_problem("critical", Patience()), code=code, at=at)
        for at, code in enumerate(codes)
    ]
    opened = follow(Followed(), found, Now(SECOND, SECOND)).open.values()

    assert [item.problem.code for item in sorted(opened, key=rank_of)] == [codes[n] for n in (1, 2, 0, 3)]


def test_a_finding_keeps_its_beginning() -> None:
    """`since` is when it first was true, whatever was waited for."""
    (item,) = _after((2.1, True), (1.0, False), (5.0, True)).open.values()

    assert item.since == 7


def test_a_symptom_leaves_with_its_cause_and_does_not_linger() -> None:
    """A finding that a later one takes over was not cured: it is gone at once, and no line states cleared."""
    single = msgspec.structs.replace(_problem(patience=Patience()), code="env-crashed")
    storm = msgspec.structs.replace(
        _problem(patience=Patience()), code="crash-storm", absorbs=("env-crashed",)
    )
    before = follow(Followed(), [single], Now(SECOND, SECOND))

    after = follow(before, [storm], Now(2 * SECOND, 2 * SECOND))

    assert [item.problem.code for item in before.open.values()] == ["env-crashed"]
    assert [item.problem.code for item in after.open.values()] == ["crash-storm"]


def test_what_was_usual_when_it_opened_stays_so() -> None:
    """While a finding stands, its rule gets the level of the beginning, whatever it reports later."""
    first = msgspec.structs.replace(_problem(patience=Patience()), usual=1.0, stands=2.0)
    later = msgspec.structs.replace(first, usual=9.0, stands=9.0)
    followed = follow(follow(Followed(), [first], Now(SECOND, SECOND)), [later], Now(2 * SECOND, 2 * SECOND))
    (problem,) = standing(followed).values()

    assert (problem.usual, problem.stands) == (1.0, 2.0)
