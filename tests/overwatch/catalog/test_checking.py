"""The catalogue is in order, and every rule that states it can fail."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from overwatch.catalog import KL, NO_LIMITS, ROWS, Metric, Scope, prometheus_name
from overwatch.catalog.alias import Alias, Library, draft
from overwatch.catalog.metric import Kind, Limit, Limits, Side, above, below
from overwatch.catalog.policy import CLIP_FRACTION
from tests.overwatch.catalog.checking import problems
from tests.overwatch.catalog.surroundings import catalog_problems, surroundings

PLAIN = Metric(
    name="overwatch.policy.thing",
    short="thing",
    kind=Kind.GAUGE,
    unit="{thing}",
    scope=Scope.POLICY,
    asks="How many?",
    label="thing",
)


def _sb3(name: str, **given: Any) -> Alias:
    return Alias(name=name, library=Library.SB3, **given)


def _wrong(*added: Metric) -> list[str]:
    """What these rows break in the catalogue as it is."""
    return problems([*ROWS, *added], surroundings())


def test_the_catalogue_is_in_order() -> None:
    """No row, alias, arrow or record breaks a rule."""
    assert catalog_problems() == []


def test_a_plain_row_is_one_place_to_edit() -> None:
    """A row with nothing but what it must state breaks no rule."""
    assert _wrong(PLAIN) == []


@pytest.mark.parametrize(
    ("changes", "stated"),
    [
        ({"name": "overwatch.policy.Thing"}, "dotted"),
        ({"name": "overwatch.ratio.thing"}, "'ratio'"),
        ({"name": "overwatch.policy.thing_count"}, "'count'"),
        ({"name": "overwatch.policy.thing.total"}, "'total'"),
        ({"asks": "How many"}, "question"),
        ({"label": "far too long"}, "cells"),
        ({"unit": "{thing"}, "UCUM"),
        ({"unit": "1", "fmt": "+.2f"}, "sign"),
        ({"unit": "1", "limits": above(2.0)}, "outside"),
        ({"presets": {"grpoo": NO_LIMITS}}, "'grpoo'"),
        ({"presets": {"ppo": NO_LIMITS}}, "'ppo'"),
        ({"scope": Scope.ENV, "limits": above(1.0)}, "nothing judges"),
        ({"limits": above(2.0, 1.0)}, "before warning"),
        ({"limits": below(1.0, 2.0)}, "before warning"),
        (
            {
                "limits": Limits(
                    warning=Limit(side=Side.ABOVE, value=2.0, relative=True),
                    critical=Limit(side=Side.ABOVE, value=3.0),
                )
            },
            "relative",
        ),
        ({"hold": (6, 5)}, "hold"),
        ({"mean_of": 0}, "mean"),
        ({"name": KL.name}, "2 rows have the name"),
        ({"short": KL.short}, "short name"),
        ({"name": "overwatch.policy.kl.divergence"}, "Prometheus name"),
        ({"aliases": (_sb3("train/approx_kl"),)}, "means"),
        ({"aliases": (_sb3("train/loss", scale=-1.0),)}, "overwatch.policy.total_loss"),
        ({"chooses": "grop"}, "it chooses 'grop'"),
        ({"aliases": (draft("rl.train.loss", rl_loss_type="policy"),)}, "means"),
        ({"aliases": (_sb3(KL.name),)}, "name of a row"),
        ({"aliases": (_sb3("kl_divergence"),)}, "short name of another row"),
        ({"tele": ("TELE-999",)}, "no record"),
        ({"tele": ("TELE-001",)}, "and in records.py"),
        ({"depends_on": ("overwatch.policy.nothing",)}, "nothing is called so"),
        ({"depends_on": ("event:nothing",)}, "nothing is called so"),
        ({"feeds": ("field:run.nothing",)}, "nothing is called so"),
        ({"feeds": ("finding:nothing",)}, "nothing is called so"),
        ({"feeds": (KL.name,), "depends_on": (KL.name,)}, "circle"),
    ],
)
def test_a_broken_row_is_named(changes: Mapping[str, Any], stated: str) -> None:
    """Each rule finds the one row that breaks it, and states which rule it is."""
    found = _wrong(replace(PLAIN, **changes))

    assert any(stated in problem for problem in found), found


def test_a_name_that_two_libraries_mean_otherwise_is_theirs_alone() -> None:
    """Where it is bare it is no word of everybody."""
    for name in ("train/approx_kl", "kl_divergence"):
        assert _wrong(replace(PLAIN, aliases=(_sb3(name, is_bare=True),))) == []


def test_kl_has_the_same_limits_in_every_preset() -> None:
    """What the record of KL fixes, no preset changes."""
    assert KL.presets == {}


def test_the_original_limits_are_a_preset() -> None:
    """`esper` keeps the absolute limits, and where a limit itself is already bad."""
    assert CLIP_FRACTION.limits_for("esper") == above(0.25, 0.30, at=True)
    by_short = {row.short: row for row in ROWS if row.scope is Scope.POLICY}
    assert by_short["entropy"].limits_for("esper") == below(0.3, 0.1, at=True)
    assert by_short["grad_norm"].limits_for("esper") == above(5.0, 10.0)
    assert by_short["explained_variance"].limits_for("esper") == below(0.3, 0.0)
    assert prometheus_name(by_short["kl_divergence"]) == "overwatch_policy_kl_divergence"
