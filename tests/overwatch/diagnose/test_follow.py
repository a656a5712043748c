"""Findings over time: hold before they open, patience before they clear, linger, cooldown."""

import msgspec
import pytest

from overwatch.diagnose.problem import LINGER_NS, UPDATES, Followed, Now, Patience, Problem, follow, standing
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
        ([(2.1, True), (9.0, False), (9.0, True)], []),
        ([(2.1, True), (9.0, False), (30.0, True)], ["open"]),
    ],
)
def test_a_judgement_needs_patience(spans: list[tuple[float, bool]], states: list[str]) -> None:
    """Hold two seconds, clear after three, linger five, and stay shut for the cooldown."""
    assert _states(_after(*spans)) == states


def test_what_is_worse_opens_within_the_cooldown() -> None:
    """A warning that cleared and comes back critical is reported."""
    assert _states(_after((2.1, True), (9.0, False), (3.0, True), last="critical")) == ["open"]


def test_what_is_critical_is_never_kept_back() -> None:
    """A critical finding that cleared and comes back within the cooldown is reported again at once."""
    patience, followed = Patience(cooldown=30 * SECOND), Followed()
    for tick, wrong in enumerate((True, False, True), 1):
        found = [_problem("critical", patience)] if wrong else []
        followed = follow(followed, found, Now(tick * SECOND, tick * SECOND))

    assert _states(followed) == ["open"]


@pytest.mark.parametrize(("update_s", "rounds"), [(60, 20), (0.1, 300)], ids=["long updates", "short ones"])
def test_the_cooldown_of_the_policy_counts_updates_and_seconds(update_s: float, rounds: int) -> None:
    """A row that comes and goes is reported again after 20 updates, not within 30 s of many short ones."""
    wrong, followed, opened = [_problem(patience=UPDATES)], Followed(), []
    for update in range(rounds + 3):
        tick = int(update * update_s * SECOND)
        problems = wrong if update == 0 or update > 1 else []
        followed = follow(followed, problems, Now(tick, tick, update))
        opened += [update] if _states(followed) == ["open"] else []

    assert opened == [0, rounds + 1, rounds + 2]


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
