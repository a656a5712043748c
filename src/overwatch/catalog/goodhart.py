"""Rows of the goodhart world, one value an update: what a policy eats, what it is paid for, what counts."""

from functools import partial
from typing import Final

from overwatch.catalog.metric import Direction, Kind, Metric, NonFinite, Scope

_row = partial(
    Metric,
    kind=Kind.GAUGE,
    scope=Scope.POLICY,
    non_finite=NonFinite.UNDEFINED,
    comes_with="goodhart world",
)

ROWS: Final = (
    _row(
        name="overwatch.policy.proxy_return",
        short="proxy_return",
        unit="{reward}",
        asks="What did the episodes earn by the proxy that the policy is paid by?",
        label="proxy",
        fmt="+.2f",
    ),
    _row(
        name="overwatch.policy.true_return",
        short="true_return",
        unit="{reward}",
        asks="What did the same episodes earn by what is really wanted?",
        label="true",
        direction=Direction.UP,
        fmt="+.2f",
    ),
    _row(
        name="overwatch.policy.goodhart_gap",
        short="goodhart_gap",
        unit="{reward}",
        asks="How far is what the policy is paid ahead of what is really wanted?",
        label="gap",
        direction=Direction.DOWN,
        fmt="+.2f",
        depends_on=("overwatch.policy.proxy_return", "overwatch.policy.true_return"),
    ),
    _row(
        name="overwatch.policy.food_share",
        short="food_share",
        unit="1",
        asks="What share of what was eaten was food and not poison?",
        label="food",
        direction=Direction.UP,
        fmt=".0%",
    ),
    _row(
        name="overwatch.policy.survival",
        short="survival",
        unit="{step}",
        asks="For how many steps did an agent live?",
        label="survival",
        direction=Direction.UP,
        fmt=".0f",
    ),
)
