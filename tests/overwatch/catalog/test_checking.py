"""The catalogue is in order."""

from overwatch.catalog import KL, ROWS, Metric, Scope, prometheus_name
from overwatch.catalog.metric import Kind, above, below
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


def _wrong(*added: Metric) -> list[str]:
    """What these rows break in the catalogue as it is."""
    return problems([*ROWS, *added], surroundings())


def test_the_catalogue_is_in_order() -> None:
    """No row, alias, arrow or record breaks a rule."""
    assert catalog_problems() == []


def test_a_plain_row_is_one_place_to_edit() -> None:
    """A row with nothing but what it must state breaks no rule."""
    assert _wrong(PLAIN) == []


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
