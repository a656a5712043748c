"""Gross breaches are found at once; short and slow runs are judged before their twentieth update."""

import pytest

from tests import fakes
from tests.fakes import SECOND, START_NS
from tests.overwatch.diagnose.watched import Rows, Watched, wobble

CODE = "policy-kl-divergence"


def _from(update: int, **rows: float) -> Rows:
    return lambda n: rows if n >= update else {}


def test_gross_breaches_in_the_warm_up_are_found_within_three_updates() -> None:
    """KL 5, clip 0.9 and gradients of 400 at update 5."""
    run = Watched().updates(range(1, 9), _from(5, kl_divergence=5.0, clip_fraction=0.9, grad_norm=400.0))

    assert run.severities() == {"policy-collapse": "critical"}
    assert run.opened["policy-collapse"] <= 7


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ({"kl_divergence": 1.5}, {"policy-kl-divergence": "critical"}),
        ({"clip_fraction": 0.9}, {"policy-clip-fraction": "critical"}),
        ({"entropy": 0.004}, {"policy-entropy": "critical"}),
    ],
    ids=["KL", "clip", "entropy"],
)
def test_one_gross_row_is_enough(rows: dict[str, float], found: dict[str, str]) -> None:
    """More than a nat, more than 0.8, less than 1 %: each for itself, in a run of seven updates."""
    run = Watched().updates(
        range(1, 8), lambda n: {"policy_loss": 0.1, **(rows if n > 4 else {})}, alone=True
    )

    assert run.severities() == found


def test_several_critical_rows_in_the_warm_up_are_found_together() -> None:
    """None of them is gross; three updates in a row both are critical."""
    run = Watched().updates(range(1, 9), _from(5, kl_divergence=0.06, clip_fraction=0.6))

    assert run.opened.get("steps-too-large", run.opened.get("policy-collapse")) == 7


@pytest.mark.parametrize(
    "rows",
    [
        _from(5, kl_divergence=0.06),
        lambda n: {"kl_divergence": 3.0} if n == 5 else {},
        lambda n: {"grad_norm": 0.5 * 1.6 ** min(n, 12)},
        lambda n: {"entropy": -0.08 * n},
    ],
    ids=["one critical row", "a single update", "gradients that grow", "no share at all"],
)
def test_what_is_not_gross_waits_for_the_warm_up(rows: Rows) -> None:
    """A young run may do so."""
    assert Watched().updates(range(1, 20), rows).opened == {}


def test_a_large_breach_ends_the_hold_early() -> None:
    """Several times the critical limit in two updates; a small one needs three."""
    large = Watched().updates(range(1, 50), _from(41, kl_divergence=0.2, **{"return": 75.0}))
    small = Watched().updates(range(1, 50), _from(41, kl_divergence=0.05, **{"return": 75.0}))

    assert large.opened["policy-kl-divergence"] == 42
    assert small.opened["policy-kl-divergence"] == 43


def test_a_gross_breach_while_the_return_rises_is_a_warning() -> None:
    """The policy jumps about and learns all the same."""
    rows: Rows = lambda n: {"kl_divergence": 1.5 if n > 10 else 0.007, "return": 20.0 * n}  # noqa: E731 as a table

    assert Watched().updates(range(1, 16), rows).severities() == {"policy-kl-divergence": "warning"}


@pytest.mark.parametrize(
    ("fields", "lasting_s", "found"),
    [({"updates": 19}, 1, {CODE}), ({}, 180, {CODE}), ({"updates": 400}, 1, set())],
    ids=["nineteen are planned", "three minutes each", "neither"],
)
def test_few_updates_are_judged_where_they_are_much_of_the_run(
    fields: dict[str, object], lasting_s: int, found: set[str]
) -> None:
    """KL twice its critical limit from update 6 on, in a run of nineteen updates."""
    rows: Rows = lambda n: {"kl_divergence": 0.06 if n > 5 else 0.007, "return": 100.0 - n}  # noqa: E731 as a table
    run = Watched(**fields).updates(range(1, 20), rows, lasting_s=lasting_s)

    assert {CODE} & set(run.opened) == found


def test_updates_of_many_steps_are_judged_early() -> None:
    """Nineteen updates of 16,384 steps each, and no plan: the steps are what counts."""
    run = Watched()
    for n in range(1, 20):
        run.emit(fakes.envs(START_NS + n * SECOND - 1, range(16), index=n * 1024, reward=[0.0] * 16))
        run.updates(
            [n], lambda n: {"kl_divergence": 0.06 if n > 9 else 0.007 * wobble(n), "return": 90.0 - n}
        )

    assert run.state.steps >= 290_000
    assert run.opened["policy-kl-divergence"] <= 13
