"""Every rank is judged: one far from the others, one with NaN, whichever leads."""

import math

import pytest

from overwatch.catalog import Scope
from overwatch.diagnose import Assessment, assess
from overwatch.events import NonFiniteSeen, Origin, Record
from overwatch.state import RunState, apply, new_run
from overwatch.state import dump as dump_state
from overwatch.state import load as load_state
from tests import fakes
from tests.fakes import SECOND, START_NS

USUAL = {"kl_divergence": 0.007, "entropy": 0.6, "value_loss": 1.0, "grad_norm": 1.0, "clip_fraction": 0.1}
USUAL |= {"explained_variance": 0.7, "return": 150.0}
SCATTER = {"entropy": 0.04, "explained_variance": 0.1, "return": 0.1}
"""Of one rank around the others, as a share; three tenths where it is not here."""


class Ranks:
    """A run of several ranks, judged after every update."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.seq = 0
        first = Record(origin=self.origin(0), event=fakes.started(START_NS), seq=1)
        self.state: RunState = new_run(first)
        self.assessment = Assessment()
        self.found: dict[str, int] = {}

    def origin(self, rank: int) -> Origin:
        """Who a rank is."""
        return Origin(run_id="r", rank=rank, epoch=f"e{rank}", ours=True)

    def update(self, number: int, odd: dict[int, dict[str, float]]) -> "Ranks":
        """One update of all; these ranks have other values."""
        for rank in range(self.size):
            values = self.values(rank, number) | odd.get(rank, {})
            self.seq += 1
            event = fakes.policy(START_NS + number * SECOND, index=number, **values)
            apply(self.state, Record(origin=self.origin(rank), event=event, seq=self.seq), event.at)
        judged = assess(self.state, self.assessment, START_NS + number * SECOND)
        self.assessment = judged.assessment
        for key in self.now:
            self.found.setdefault(key, number)
        return self

    @staticmethod
    def values(rank: int, number: int) -> dict[str, float]:
        """What a healthy rank sends: luck of its own."""
        luck = ((7 * rank + 3 * number) % 11 - 5) / 5 + rank / 1000
        return {name: value * (1 + SCATTER.get(name, 0.3) * luck) for name, value in USUAL.items()}

    @property
    def now(self) -> dict[str, str]:
        """Messages of open findings, by id."""
        items = self.assessment.findings.items()
        return {key: item.problem.message for key, item in items if item.cleared_at is None}


@pytest.mark.parametrize("size", [2, 4, 16])
@pytest.mark.parametrize(
    "odd",
    [
        {"value_loss": 60.0},
        {"entropy": 0.05},
        {"kl_divergence": 0.3},
        {"grad_norm": 40.0},
        {"value_loss": 1e-4},
        {"grad_norm": 0.02},
        {"explained_variance": 0.9999},
    ],
    ids=lambda odd: next(iter(odd)),
)
def test_a_rank_that_diverges_is_named(size: int, odd: dict[str, float]) -> None:
    """Three updates in a row, in whichever row; the leading rank itself is healthy."""
    run = Ranks(size)
    for number in range(1, 31):
        run.update(number, {size - 1: odd} if number > 25 else {})

    assert list(run.now) == [f"rank-diverged:run:rank {size - 1}"]
    assert run.found == {f"rank-diverged:run:rank {size - 1}": 28}


@pytest.mark.parametrize("size", [3, 8])
@pytest.mark.parametrize("row", ["return", "value_loss", "kl_divergence"])
def test_a_rank_whose_numbers_stand_still_is_named(size: int, row: str) -> None:
    """To the bit, while the others' move: it repeats its data."""
    run = Ranks(size)
    for number in range(1, 31):
        run.update(number, {1: {row: USUAL[row] * 1.01}} if number > 15 else {})

    assert list(run.found) == ["rank-diverged:run:rank 1"]
    assert run.found["rank-diverged:run:rank 1"] <= 25


def test_ranks_of_which_two_see_the_same_data_are_named() -> None:
    """Of eight; where each has a twin they are parts of one model, and nothing is wrong."""
    same, pairs = Ranks(8), Ranks(8)
    for number in range(1, 20):
        same.update(number, {5: same.values(2, number)})
        pairs.update(number, {rank: pairs.values(rank // 2, number) for rank in range(8)})

    assert list(same.now) == ["rank-diverged:run:rank 5"]
    assert pairs.found == {}


def test_ranks_that_report_what_they_reduced_are_well() -> None:
    """The same numbers of all, or a return that no rank can exceed."""
    run, solved = Ranks(4), Ranks(4)
    for number in range(1, 60):
        run.update(number, {rank: run.values(0, number) for rank in range(4)})
        at_best = {rank: {"return": 500.0} for rank in range(4) if (rank + number) % 5 or rank == 2}
        solved.update(number, at_best)

    assert (run.found, solved.found) == ({}, {})


def test_a_rank_that_sends_no_numbers_where_the_others_do_is_named() -> None:
    """It started, and lives."""
    run = Ranks(4)
    for rank in range(1, 5):
        run.seq += 1
        event = fakes.started(START_NS)
        apply(run.state, Record(origin=run.origin(rank), event=event, seq=run.seq), event.at)
    for number in range(1, 20):
        run.update(number, {})

    assert "rank-diverged:run:rank 4" in run.now


def test_the_leading_rank_may_be_the_odd_one() -> None:
    """Of four ranks the three others agree."""
    run = Ranks(4)
    for number in range(1, 31):
        run.update(number, {0: {"grad_norm": 40.0}} if number > 25 else {})

    assert "rank-diverged:run:rank 0" in run.now


def test_ranks_scatter() -> None:
    """Each sees its own envs: nothing in two hundred updates, with one wild update of one rank."""
    run = Ranks(8)
    for number in range(1, 201):
        run.update(number, {3: {"value_loss": 50.0}} if number == 120 else {})

    assert run.found == {}


def test_a_rank_that_recovers_is_let_go_of() -> None:
    """Its numbers are as the others' again."""
    run = Ranks(4)
    for number in range(1, 31):
        run.update(number, {2: {"entropy": 0.05}} if number > 25 else {})
    assert run.now
    run.update(31, {})

    assert run.now == {}


@pytest.mark.parametrize(("value", "word"), [(math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf")])
def test_a_rank_whose_numbers_are_none_is_named(value: float, word: str) -> None:
    """Not the leading one, and no fact came of it: critical at once, gone when it is a number again."""
    run = Ranks(4)
    run.update(1, {}).update(2, {3: {"policy_loss": value}})
    assert run.now == {"non-finite:policy:": f"non-finite: {word} in pol loss of rank 3"}
    run.state = load_state(dump_state(run.state))
    run.update(3, {3: {"policy_loss": value}})
    assert len(run.now) == 1
    run.update(4, {3: {"policy_loss": 0.1}})

    assert run.now == {}


def test_a_mean_over_no_episodes_is_no_fault_of_a_rank() -> None:
    """What may be undefined is not critical in any rank."""
    run = Ranks(2).update(1, {1: {"return": math.nan, "explained_variance": math.nan}})

    assert run.now == {}


def test_a_fact_names_its_rank() -> None:
    """The rank that sent it is part of its message."""
    run = Ranks(4).update(1, {})
    fact = NonFiniteSeen(at=START_NS + 2 * SECOND, scope=Scope.POLICY, metric="loss", kind="nan")
    run.seq += 1
    origin = Origin(run_id="r", rank=2, epoch="e2", ours=True)
    apply(run.state, Record(origin=origin, event=fact, seq=run.seq), fact.at)
    run.update(3, {})

    assert run.now == {"non-finite:policy:": "1 non-finite value, last nan in loss of rank 2"}
