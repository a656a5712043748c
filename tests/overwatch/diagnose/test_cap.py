"""A run has a cap on its findings: the worst stay, the rest is counted, and nothing is lost by it."""

from overwatch.diagnose.problem import MAX_OPEN, OVERFLOW, STEADY, Followed, Now, Patience, Problem, follow
from tests.fakes import SECOND, START_NS


def _problem(number: int, severity: str = "warning", patience: Patience = STEADY) -> Problem:
    return Problem(
        code="env-stalled", severity=severity, scope="env", subject=str(number), at=START_NS + number,
        message="silent", hint="look", patience=patience,
    )  # fmt: skip


def _follow(rounds: list[list[Problem]]) -> Followed:
    followed = Followed()
    for second, problems in enumerate(rounds):
        tick = START_NS + second * SECOND
        followed = follow(followed, problems, Now(tick, tick))
    return followed


def test_the_worst_stay_and_the_rest_is_counted() -> None:
    """As many as there is room for, criticals first, and one that states how many more there are."""
    many = [_problem(number) for number in range(MAX_OPEN + 50)]
    late = [_problem(1000 + number, "critical") for number in range(5)]
    open_now = _follow([many, many, many, [*many, *late], [*many, *late], [*many, *late]]).open
    stated = open_now[f"{OVERFLOW}:run:"].problem

    assert len(open_now) == MAX_OPEN
    assert {f"env-stalled:env:{1000 + number}" for number in range(5)} <= set(open_now)
    assert stated.message == "56 more findings are not shown: 56 warning"
    assert (stated.severity, stated.symptoms) == ("warning", 56)


def test_up_to_the_cap_nothing_is_left_out() -> None:
    """Exactly as many as there is room for are all shown."""
    many = [_problem(number, patience=Patience()) for number in range(MAX_OPEN)]

    assert set(_follow([many]).open) == {problem.id for problem in many}


def test_what_was_left_out_comes_as_soon_as_there_is_room() -> None:
    """It has waited long enough, and keeps the moment at which it began."""
    many = [_problem(number) for number in range(MAX_OPEN + 50)]
    rounds = [many] * 4 + [many[MAX_OPEN:]] * 12
    open_now = _follow(rounds).open
    shown = {key: item for key, item in open_now.items() if item.cleared_at is None}

    assert set(shown) == {problem.id for problem in many[MAX_OPEN:]}
    assert [item.since for item in shown.values()] == [problem.at for problem in many[MAX_OPEN:]]


def test_the_count_is_stable_while_nothing_changes() -> None:
    """What is left out is counted at every tick, not only at some."""
    many = [_problem(number) for number in range(MAX_OPEN + 50)]
    reported = {_follow([many] * rounds).open[f"{OVERFLOW}:run:"].problem.message for rounds in range(3, 9)}

    assert reported == {"51 more findings are not shown: 51 warning"}
