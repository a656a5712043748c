"""Reward hacking: the two returns of a run part, or do not; which is which must hold for any seed."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

import pytest

from overwatch.catalog import Scope, find
from overwatch.diagnose import Assessment, assess
from overwatch.diagnose.assess import dump, load
from overwatch.diagnose.hacking import CODE, HOLD, LEARNING, LEAST, Hacking, hacking
from overwatch.diagnose.problem import Problem
from overwatch.events import CurriculumChanged
from overwatch.state import apply
from overwatch.state import dump as dump_state
from overwatch.state import load as load_state
from overwatch.state.policy import WINDOW
from tests import fakes
from tests.fakes import SECOND, START_NS
from tests.overwatch.diagnose import paid
from tests.overwatch.diagnose.paid import Made, Row
from tests.overwatch.diagnose.watched import Watched

UPDATES: Final = 180
SEEDS: Final = (0, 1)


def watched(rows: Sequence[Row], run: Watched | None = None) -> Watched:
    """The run, judged after each update; nothing but these rows is sent."""
    run = run or Watched()
    return run.updates(range(1, len(rows) + 1), lambda n: rows[n - 1], alone=True)


def opened(rows: Sequence[Row]) -> tuple[int | None, str | None]:
    """The update at which it opened, and the way that stands at the end: the rule alone, update by update."""
    state, memory, first = fakes.folded([fakes.started(START_NS)]), Hacking(), None
    for n, row in enumerate(rows, start=1):
        state.pairs.take(fakes.policy(START_NS, n, **row).values)
        memory = hacking(state, memory)
        first = n if first is None and memory.stands is not None else first
    return first, memory.stands


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", paid.PARTS)
def test_returns_that_part_are_found(name: str, seed: int) -> None:
    """And stay found to the end of the run."""
    first, way = opened(paid.PARTS[name](UPDATES, seed))

    assert first is not None
    assert way is not None


def test_it_is_one_warning_about_the_true_return() -> None:
    """Nothing else is found in a run that reports no more than this."""
    run = watched(paid.PARTS["eats all"](WINDOW + LEARNING + 20, 5))

    assert run.severities() == {CODE: "warning"}
    assert _problem(run).subject == "true_return"
    assert any("of what is offered" in factor for factor in _problem(run).factors)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", paid.HEALTHY)
def test_returns_that_do_not_part_are_not(name: str, seed: int) -> None:
    """Noise, other speeds, other scales, swapped series, a plateau: never, at any update."""
    assert opened(paid.HEALTHY[name](UPDATES, seed)) == (None, None)


@pytest.mark.long
@pytest.mark.parametrize(("table", "least", "most"), [(paid.PARTS, 0.95, 1.0), (paid.HEALTHY, 0.0, 0.04)])
def test_the_shares_of_runs_that_are_found(table: Mapping[str, Made], least: float, most: float) -> None:
    """A hundred seeds each: nearly all that part (one that is flat may gain by chance), few others."""
    for name, made in table.items():
        found = sum(opened(made(400, seed))[0] is not None for seed in range(100)) / 100
        assert least <= found <= most, (name, found)


def test_it_can_fire_as_soon_as_the_page_promises() -> None:
    """The least pairs and the hold where the first update begins a fall; the whole window where both rise."""
    falls, _ = opened(paid.PARTS["proxy up, true down"](UPDATES, 0))
    both, _ = opened(paid.PARTS["eats all"](UPDATES, 0))

    assert falls == LEAST + HOLD
    assert both == WINDOW + LEARNING


@pytest.mark.parametrize("absent", ["true_return", "proxy_return"])
def test_without_both_returns_there_is_no_verdict(absent: str) -> None:
    """However clear the shares are."""
    assert opened(paid.without(paid.PROXY_MODE, absent)(UPDATES, 0)) == (None, None)


def test_neither_mode_nor_task_nor_other_rewards_matter() -> None:
    """The same rows under other names of everything else give the same problem, to the letter."""
    rows = paid.PARTS["proxy up, true down"](UPDATES, 3)[: LEAST + HOLD + 5]
    plain, other = watched(rows), Watched({"mode": "x"}, task="z", algo="masked", reward_mode="w")
    watched([{**row, "return": 1.0} for row in rows], other)

    assert _problem(plain) == _problem(other)


def _problem(run: Watched) -> Problem:
    return run.now[CODE].problem


def _gaps(rows: list[Row], seed: int) -> list[Row]:
    """Every third update has no true return, every fifth one that is no number."""
    return [
        {k: math.nan if k == "true_return" and n % 5 == seed else v for k, v in row.items()}
        if n % 3 != seed
        else {k: v for k, v in row.items() if k != "true_return"}
        for n, row in enumerate(rows)
    ]


@pytest.mark.parametrize("seed", [0, 1])
def test_missing_and_broken_values_are_no_pairs(seed: int) -> None:
    """What is left is judged as if nothing had been missing."""
    _, parted = opened(_gaps(paid.PARTS["proxy up, true down"](UPDATES, seed), seed))
    together = opened(_gaps(paid.HEALTHY["together"](UPDATES, seed), seed))

    assert parted == "falls"
    assert together == (None, None)


@pytest.mark.parametrize("absent", ["food_share", "food_offered", "poison_offered"])
def test_a_few_updates_without_shares_or_offers_change_no_verdict(absent: str) -> None:
    """An update in which nothing was eaten has no share."""

    def holed(made: Made) -> list[Row]:
        rows = made(UPDATES, 4)
        return [{k: v for k, v in row.items() if k != absent or n % 7} for n, row in enumerate(rows)]

    assert opened(holed(paid.PROXY_MODE))[1] == "shares"
    assert opened(holed(paid.TRUTH)) == (None, None)


def test_it_is_over_when_the_policy_is_after_food() -> None:
    """A reward that was mended in the run: the share beats the draw, and the finding goes."""
    aims = paid.eating(paid.learned(4, 40), lambda done: 0.0 if done < 0.5 else 0.9)
    first, way = opened(aims(300, 0))

    assert first is not None
    assert way is None


def test_it_is_over_when_the_true_return_regained_half() -> None:
    """And stands as long as it did not, though nothing falls any more."""

    def row(n: int) -> Row:
        fell = min(n, 80) if n < 200 else max(0, 80 - 2 * (n - 200))
        jitter = paid.noise(300, 5)[n]
        return {"proxy_return": 5.0 + min(n, 80) + jitter, "true_return": 100.0 - fell + jitter}

    assert opened([row(n) for n in range(199)])[1] == "falls"
    assert opened([row(n) for n in range(290)])[1] is None


def test_another_task_begins_anew() -> None:
    """What was earned by the task before means nothing for this one; a redraw of food is no task."""
    rows = paid.PARTS["proxy up, true down"](UPDATES, 1)
    run = watched(rows[: LEAST + HOLD - 1])
    run.emit(CurriculumChanged(at=START_NS + 40 * SECOND, name="level", before="1", after="2"))
    assert run.state.pairs.total == 0
    run.updates(range(41, 41 + LEAST), lambda n: rows[n], alone=True)

    assert CODE not in run.opened


def test_a_replay_from_a_checkpoint_judges_the_same() -> None:
    """State and assessment hold all that it is judged by."""
    rows = paid.PARTS["proxy up, true down"](UPDATES, 2)[: LEAST + HOLD + 2]
    whole, half = watched(rows), watched(rows[:LEAST])
    half.state, half.assessment = load_state(dump_state(half.state)), load(dump(half.assessment))
    half.updates(range(LEAST + 1, len(rows) + 1), lambda n: rows[n - 1], alone=True)

    assert dump(half.assessment) == dump(whole.assessment)


def test_every_row_that_it_reads_has_a_name_of_its_own() -> None:
    """Also under the names that people give them."""
    for words in (("reward_model_score", "gold_reward"), ("proxy_reward", "true_reward")):
        found = [find(word, Scope.POLICY) for word in words]
        assert [row and row.short for row in found] == ["proxy_return", "true_return"]


def test_huge_values_break_nothing() -> None:
    """Telemetry may hold any number."""
    rows = [{"proxy_return": 1e308 * (-1) ** n, "true_return": 1e307 * n % 1.7e308} for n in range(80)]
    rows += [{"proxy_return": 1e98 * n, "true_return": -1e98 * n} for n in range(80)]
    state, assessment = fakes.folded([fakes.started(START_NS)]), Assessment()
    for n, row in enumerate(rows, start=1):
        (record,) = fakes.records([fakes.policy(START_NS + n * SECOND, n, **row)], first_seq=2 * n)
        apply(state, record, START_NS + n * SECOND)
        assessment = assess(state, assessment, START_NS + n * SECOND).assessment

    assert state.pairs.total == 80
    assert assessment.policy.hacking.stands == "falls"
