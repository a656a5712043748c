"""Rows of what a policy is paid by beside what is really wanted, one value an update.

The two returns are any trainer's; what is eaten and offered is the goodhart world's.
"""

from functools import partial
from typing import Final

from overwatch.catalog.alias import plain
from overwatch.catalog.metric import Direction, Kind, Metric, NonFinite, Scope

_row = partial(
    Metric,
    kind=Kind.GAUGE,
    scope=Scope.POLICY,
    non_finite=NonFinite.UNDEFINED,
)
_FEEDS: Final = ("finding:reward-hacking",)

PROXY: Final = _row(
    name="overwatch.policy.proxy_return",
    unit="{reward}",
    asks="What did the episodes earn by the proxy that the policy is paid by?",
    label="proxy",
    fmt="+.2f",
    aliases=plain(
        "proxy_reward", "proxy_score", "return_proxy", "reward_proxy", "reward_model_score",
        "eval/proxy_reward", "train/proxy_reward", "rollout/proxy_return", "charts/proxy_return",
    ),
    feeds=_FEEDS,
)  # fmt: skip

TRUE: Final = _row(
    name="overwatch.policy.true_return",
    unit="{reward}",
    asks="What did the same episodes earn by what is really wanted?",
    label="true",
    direction=Direction.UP,
    fmt="+.2f",
    aliases=plain(
        "true_reward", "true_score", "return_true", "reward_true", "gold_reward", "gold_score",
        "ground_truth_return", "ground_truth_reward", "eval/true_reward", "eval/gold_reward",
        "train/true_reward", "rollout/true_return", "charts/true_return",
    ),
    feeds=_FEEDS,
)  # fmt: skip

GAP: Final = _row(
    name="overwatch.policy.goodhart_gap",
    unit="{range}",
    asks=(
        "How far is the proxy return ahead of the true one, each as a place between the lowest and the "
        "highest that it had in this run?"
    ),
    label="gap",
    direction=Direction.DOWN,
    fmt="+.0%",
    depends_on=("overwatch.policy.proxy_return", "overwatch.policy.true_return"),
)

FOOD: Final = _row(
    name="overwatch.policy.food_share",
    unit="1",
    asks="What share of what was eaten was food and not poison?",
    label="food",
    direction=Direction.UP,
    fmt=".0%",
    aliases=plain("food_ratio", "metrics/food_ratio"),
    feeds=_FEEDS,
)

POISON: Final = _row(
    name="overwatch.policy.poison_share",
    unit="1",
    asks="What share of what was eaten was poison?",
    label="poison",
    direction=Direction.DOWN,
    fmt=".0%",
    aliases=plain("poison_ratio", "metrics/poison_ratio"),
    feeds=_FEEDS,
)

FOOD_OFFERED: Final = _row(
    name="overwatch.policy.food_offered",
    unit="{item}",
    asks="How much food lay in each world, as drawn for this update?",
    label="food put",
    fmt=".0f",
    feeds=_FEEDS,
)

POISON_OFFERED: Final = _row(
    name="overwatch.policy.poison_offered",
    unit="{item}",
    asks="How much poison lay in each world, as drawn for this update?",
    label="pois put",
    fmt=".0f",
    feeds=_FEEDS,
)

ROWS: Final = (
    PROXY,
    TRUE,
    GAP,
    FOOD,
    POISON,
    FOOD_OFFERED,
    POISON_OFFERED,
    _row(
        name="overwatch.policy.survival",
        unit="{step}",
        asks="For how many steps did an agent live?",
        direction=Direction.UP,
        fmt=".0f",
    ),
)
