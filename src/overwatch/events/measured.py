"""Numbers: one event for ever, whatever they are of.

Owns which scopes need keys, and what several measurements were before they became one.
"""

from typing import Final

import msgspec

from overwatch.catalog import Scope
from overwatch.events.column import Column
from overwatch.events.fact import Fact


class Conflated(msgspec.Struct, frozen=True, kw_only=True):
    """What several measurements were before they became one, so that no breach is lost between them."""

    n: int
    """Measurements; the values told are those of the last."""
    first: int | None = None
    """Number of the first, as `Measured.index` is of the last."""
    updates: int | None = None
    """Policy updates that this record adds; absent in older recordings, where they are `n`. Updates with
    several sets of names are one record for each set: the first counts them all, the others none."""
    low: dict[str, Column] = {}
    """Smallest finite values, of the rows that have limits."""
    high: dict[str, Column] = {}
    warnings: dict[str, int] = {}
    """Values beyond the warning limit, not the critical one, by name; relative limits are not counted."""
    criticals: dict[str, int] = {}


class Measured(Fact, frozen=True, kw_only=True, tag="measured"):
    """Numbers of one scope at one moment.

    `keys` name the subjects (`env_id`, `slot`, `gpu_id`), one entry a row; empty where the scope has one
    subject. `values` maps catalogue names (or custom ones) to columns of the same length.
    """

    scope: Scope
    values: dict[str, Column]
    keys: dict[str, Column] = msgspec.field(default_factory=dict)
    index: int | None = None
    """Number of the update (scope policy) or of the env step (scopes env and slot)."""
    conflated: Conflated | None = None
    """Present when this stands for several measurements."""

    def updates(self, before: int | None) -> int:
        """How many updates this adds to a run whose newest update has the number `before`.

        Measurements of one number that follow one another are one update.
        """
        many = self.conflated or Conflated(n=1, first=self.index, updates=1)
        if many.updates is None:
            return 0 if self.index is not None and self.index == before else max(many.n, 1)
        again = many.first is not None and many.first == before
        return max(many.updates - again, 0)

    def __post_init__(self) -> None:
        if len({*map(len, self.keys.values()), *map(len, self.values.values())}) > 1:
            lengths = {name: len(column) for name, column in (*self.keys.items(), *self.values.items())}
            said = ", ".join(f"{name}={length}" for name, length in lengths.items())
            raise ValueError(f"columns of one measurement differ in length: {said}")
        if not self.keys and self.scope in _KEYED:
            raise ValueError(f"a measurement of scope {self.scope.value} needs keys: {_KEYED[self.scope]}")


_KEYED: Final = {Scope.ENV: "env_id", Scope.SLOT: "env_id and slot", Scope.GPU: "gpu_id"}
