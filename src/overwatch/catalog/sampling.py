"""Rows about an algorithm that remembers steps and samples them again and again, as DQN does.

What a replay server holds is in `replay`; these are of the policy that learns from it, wherever it lies.
"""

from functools import partial
from typing import Final

from overwatch.catalog.alias import plain
from overwatch.catalog.metric import Direction, Kind, Metric, NonFinite, Scope

_row = partial(Metric, kind=Kind.GAUGE, scope=Scope.POLICY, non_finite=NonFinite.UNDEFINED)

EPSILON: Final = _row(
    name="overwatch.policy.epsilon",
    unit="1",
    asks="What share of the actions is random, so that others than the best are tried?",
    fmt=".1%",
    aliases=plain("exploration_rate", "exploration"),
)
MEMORY_FILL: Final = _row(
    name="overwatch.policy.memory_fill",
    unit="1",
    asks="How full is the memory that steps are sampled from?",
    label="mem fill",
    fmt=".0%",
)
MEMORY_AGE: Final = _row(
    name="overwatch.policy.memory_age",
    unit="{update}",
    asks="How many updates ago did the policy act from which the newest sample comes, on average?",
    label="mem age",
    direction=Direction.DOWN,
    fmt=".1f",
)
ROWS: Final = (EPSILON, MEMORY_FILL, MEMORY_AGE)
