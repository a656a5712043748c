"""Names of numbers as trainers write them: which row they fill, and the custom number that each other one is.

Rules: a name is looked up once; what is odd about it is logged once. Must not know values.
"""

import difflib
from collections.abc import Callable, Iterable
from typing import Final

from overwatch.catalog import (
    BY_NAME,
    CUSTOM_PREFIX,
    Kind,
    Metric,
    Scope,
    find,
    head_of,
    of_scope,
    spellings,
    typed,
)
from overwatch.catalog.tallies import SERVICES
from overwatch.sdk.values import RefusedError, text

MAX_CUSTOM: Final = 256
MAX_NAME: Final = 128
_TYPED: Final = [word for row in of_scope(Scope.POLICY) if (word := typed(row)) is not None]
"""What is proposed instead of a name that no row has: it can be written as the name of an argument."""


class Names:
    """The full names of one run's numbers."""

    def __init__(
        self, preset: str, warn: Callable[[str, str], None], refuse: Callable[[str, RefusedError], None]
    ) -> None:
        """`warn` logs a line once about a thing; `refuse` counts a value that is left out."""
        self._preset, self._warn, self._refuse = preset, warn, refuse
        self._policy = {row.short: row.name for row in of_scope(Scope.POLICY)}
        self._custom: set[str] = set()

    def full(self, name: str, scope: Scope) -> str:
        """The full name of a number of some scope; raises `RefusedError` as `custom` does."""
        row = find(name, scope)
        return self.custom(name) if row is None else row.name

    def policy(self, name: str) -> str:
        """The full name of a number of the policy, by any spelling that the run's preset knows."""
        row = find(name, Scope.POLICY, self._preset)
        full = self._policy[name] = self.custom(name) if row is None else row.name
        if row is not None and name not in spellings(row):
            self._warn(f"loose {name}", f"{name!r} is taken as {row.short!r}: sent as {full}")
        return full

    def policies(self, names: Iterable[str]) -> dict[str, str]:
        """The full name of each; of several spellings of one row the others than the surest are custom."""
        found: dict[str, str] = {}
        taken: dict[str, str] = {}
        for name in names:
            try:
                full = self._policy.get(name) or self.policy(name)
                other = taken.setdefault(full, name)
                if other != name:
                    if full not in BY_NAME:
                        raise RefusedError(f"{other!r} is the same custom number")  # noqa: TRY301
                    taken[full] = _surer(BY_NAME[full], other, name)
                    apart = name if taken[full] == other else other
                    found[apart] = self.custom(apart)
                    self._warn(f"twice {apart}", f"{apart!r} is sent as {found[apart]}: {full} has a value")
                found[taken[full]] = full
            except RefusedError as error:
                self._refuse(name, error)
        return found

    def gauge(self, name: str, own: Scope) -> tuple[str, Scope]:
        """The full name of a gauge and its scope: the host's, or `own` of the service that this is."""
        row = find(name, Scope.HOST) or find(name, own)
        is_taken = row is not None and (row.scope is Scope.HOST or row.scope in SERVICES)
        if row is None or not is_taken or row.kind is not Kind.GAUGE:
            return self.custom(name), own
        return row.name, row.scope

    def custom(self, name: str) -> str:
        """The full name of a number that no row knows; raises `RefusedError` when there are too many."""
        full = custom_name(name)
        if full in self._custom:
            return full
        if len(self._custom) >= MAX_CUSTOM:
            raise RefusedError(f"a run takes {MAX_CUSTOM} custom names; {name[:MAX_NAME]!r} is one more")
        self._custom.add(full)
        close = difflib.get_close_matches(name.rpartition("/")[2], _TYPED, n=1, cutoff=0.8)
        if close and not name.startswith(CUSTOM_PREFIX) and head_of(name) is None:
            hint = f"no metric is called {name[:MAX_NAME]!r}; did you mean {close[0]!r}? Sent as {full}"
            self._warn(f"close name {name}", hint)
        return full


def custom_name(name: str) -> str:
    """The full name of a number that no row knows."""
    return name if name.startswith(CUSTOM_PREFIX) else f"{CUSTOM_PREFIX}{text(name, MAX_NAME)}"


def _surer(row: Metric, *names: str) -> str:
    """Of two spellings of a row the one that leaves less doubt."""
    known = spellings(row)
    return min(names, key=lambda name: known.index(name) if name in known else len(known))
