"""The row about programs that are compiled while they train, and the log that states why."""

from typing import Final

from overwatch.catalog.metric import Direction, Kind, Metric, NonFinite, Scope

COMPILE: Final = "compile"
"""Of the lines that state what was compiled again: fields `function`, `reason`, `count`."""
RECOMPILES: Final = Metric(
    name="overwatch.policy.recompiles",
    kind=Kind.GAUGE,
    unit="{compilation}",
    scope=Scope.POLICY,
    asks="How often was something compiled again since the warm-up?",
    label="recompil",
    non_finite=NonFinite.UNDEFINED,
    direction=Direction.DOWN,
    fmt=".0f",
    fix="keep shapes and flags the same in each update",
    feeds=("finding:recompiles",),
)
ROWS: Final = (RECOMPILES,)
