"""Names of numbers as trainers write them: which row they fill, and the custom number that each other one is.

Rules: a name is looked up once, and again where names that come later choose the preset; what is odd about it
is logged once. A library's own names count where the library is known. A word of the catalogue below a prefix
is that word's row only while no other prefix has it: of `red/kl` and `blue/kl` neither is the run's KL. Must
not know values.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from overwatch.catalog import (
    BY_NAME,
    CUSTOM_PREFIX,
    Kind,
    Library,
    Metric,
    Scope,
    area_of,
    chosen_by,
    find,
    head_of,
    known_in,
    meaning,
    of_scope,
    spellings,
    typed,
)
from overwatch.catalog.presets import DEFAULT, WORDS
from overwatch.catalog.tallies import SERVICES
from overwatch.events import Column
from overwatch.sdk.values import RefusedError, text

MAX_CUSTOM: Final = 256
MAX_NAME: Final = 128
_TYPED: Final = [word for row in of_scope(Scope.POLICY) if (word := typed(row)) is not None]
"""What is proposed instead of a name that no row has: it can be written as the name of an argument."""


class Dialect(NamedTuple):
    """Whose words a run's names are."""

    preset: str | None = DEFAULT
    """`None` where neither the run nor its algorithm chose one: its names may."""
    library: Library | None = None


DIALECT: Final = Dialect()
"""Of who names neither."""


class Names:
    """The full names of one run's numbers."""

    def __init__(
        self,
        dialect: Dialect,
        warn: Callable[[str, str], None],
        refuse: Callable[[str, RefusedError], None],
    ) -> None:
        """`warn` logs a line once about a thing; `refuse` counts a value that is left out."""
        (self._preset, self._library), self._warn, self._refuse = dialect, warn, refuse
        self._policy: dict[str, str] = {}
        if self._library in (None, Library.PLAIN):
            self._policy = {row.short: row.name for row in of_scope(Scope.POLICY)}
        self._scales: dict[str, float] = {}
        """What a number of a name is multiplied by, where its unit is not its row's."""
        self._custom: set[str] = set()
        self._areas: dict[str, dict[str, str]] = {}
        """By row a name for each of the first two areas that it came in; the empty area is the run."""
        self._ended: list[str] = []
        """Rows that have no values any more, since a second area came."""

    def full(self, name: str, scope: Scope) -> str:
        """The full name of a number of some scope; raises `RefusedError` as `custom` does."""
        row = find(name, scope)
        return self.custom(name) if row is None else row.name

    def policy(self, name: str) -> str:
        """The full name of a number of the policy, by any spelling that the run's preset and library know."""
        meant = meaning(name, Scope.POLICY, preset=self._preset, library=self._library)
        if meant is None:
            self._policy[name] = full = self.custom(name)
            return full
        row, scale = meant
        if self._area(name) and len(self._areas.get(row.name, ())) > 1:
            self._policy[name] = full = self.custom(name, is_hinted=False)
            return full
        self._policy[name] = row.name
        if scale != 1.0:
            self._scales[name] = scale
        elif name not in spellings(row, self._library):
            self._warn(f"loose {name}", f"{name!r} is taken as {row.short!r}: sent as {row.name}")
        return row.name

    def as_given(self, name: str) -> str:
        """The same of a number that is sent as it is given; raises `RefusedError` for any other."""
        self.see((name,))
        full = "" if self._area(name) else self.policy(name)
        if not full or name in self._scales or (self._preset is None and chosen_by((full,))):
            raise RefusedError(f"{name!r} is not sent as it is given")
        return full

    def scaling(self, found: Mapping[str, str]) -> Callable[[dict[str, float]], dict[str, float]]:
        """What makes numbers by full name those of their rows' units, for names found by `policies`."""
        scales = {full: self._scales[name] for name, full in found.items() if name in self._scales}
        scales = {full: scale for full, scale in scales.items() if full in BY_NAME}
        if not scales:
            return lambda numbers: numbers
        return lambda numbers: {full: value * scales.get(full, 1.0) for full, value in numbers.items()}

    def policies(self, names: Iterable[str]) -> dict[str, str]:
        """The full name of each; of several spellings of one row the others than the surest are custom."""
        names = self._chosen(tuple(names))
        self.see(names)
        found: dict[str, str] = {}
        taken: dict[str, str] = {}
        for name in names:
            try:
                full = self._policy.get(name) or self.policy(name)
                other = taken.setdefault(full, name)
                if other != name:
                    if full not in BY_NAME:
                        raise RefusedError(f"{other!r} is the same custom number")  # noqa: TRY301
                    taken[full] = self._surer(BY_NAME[full], other, name)
                    apart = name if taken[full] == other else other
                    found[apart] = self.custom(apart)
                    self._warn(f"twice {apart}", f"{apart!r} is sent as {found[apart]}: {full} has a value")
                found[taken[full]] = full
            except RefusedError as error:
                self._refuse(name, error)
        return found

    def see(self, names: Iterable[str]) -> None:
        """Learn which rows several areas have, before any of these names is looked up."""
        for name in names:
            row, area = _place(name, self._preset, self._library)
            areas = self._areas.setdefault(row, {}) if row is not None else {}
            if row is None or area in areas or len(areas) > 1:
                continue
            areas[area] = name
            if len(areas) > 1:
                self._part(row, areas)

    def _part(self, row: str, areas: Mapping[str, str]) -> None:
        """Two areas have a row: names below either are custom from now on."""
        before = [name for name, full in self._policy.items() if full == row and self._area(name)]
        for name in before:
            del self._policy[name]
        if before and "" not in areas:
            self._ended.append(row)
        names = " and ".join(repr(name) for area, name in areas.items() if area)
        self._warn(f"areas {row}", f"{names}: sent as custom numbers, not judged; a run has one {row}")

    def take_ended(self) -> dict[str, Column]:
        """Rows that have ended since the last time, as columns that end their series."""
        ended, self._ended = self._ended, []
        return {row: Column(dtype="<f8", data=b"") for row in ended}

    def _area(self, name: str) -> str:
        return _place(name, self._preset, self._library)[1]

    def _chosen(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The same names, once those that choose a preset have; others may then mean something else."""
        if self._preset is None:
            meant = (meaning(name, Scope.POLICY, library=self._library) for name in names)
            self._preset = chosen_by(one[0].name for one in meant if one is not None)
            for word in WORDS.get(self._preset or "", ()):
                self._policy.pop(word, None)
        return names

    def _surer(self, row: Metric, *names: str) -> str:
        """Of two spellings of a row the one that leaves less doubt."""
        known = spellings(row, self._library)
        return min(names, key=lambda name: known.index(name) if name in known else len(known))

    def gauge(self, name: str, own: Scope) -> tuple[str, Scope]:
        """The full name of a gauge and its scope: the host's, or `own` of the service that this is."""
        row = find(name, Scope.HOST) or find(name, own)
        is_taken = row is not None and (row.scope is Scope.HOST or row.scope in SERVICES)
        if row is None or not is_taken or row.kind is not Kind.GAUGE:
            return self.custom(name), own
        return row.name, row.scope

    def custom(self, name: str, *, is_hinted: bool = True) -> str:
        """The full name of a number that no row knows; raises `RefusedError` when there are too many.

        `is_hinted`: whether a name that may be misspelt is logged.
        """
        full = custom_name(name)
        if full in self._custom:
            return full
        if len(self._custom) >= MAX_CUSTOM:
            raise RefusedError(f"a run takes {MAX_CUSTOM} custom names; {name[:MAX_NAME]!r} is one more")
        self._custom.add(full)
        if not is_hinted or self._library not in (None, Library.PLAIN) or name.startswith(CUSTOM_PREFIX):
            return full
        if self._library is None and (libraries := known_in(name)):
            stated = ", ".join(repr(library.value) for library in libraries)
            hint = (
                f"{name!r} means a metric in {stated} alone; with start(library=…) it is that. Sent as {full}"
            )
            self._warn(f"library {name}", hint)
            return full
        close = difflib.get_close_matches(name.rpartition("/")[2], _TYPED, n=1, cutoff=0.8)
        if close and close[0] != name and head_of(name) is None:
            hint = f"no metric is called {name[:MAX_NAME]!r}; did you mean {close[0]!r}? Sent as {full}"
            self._warn(f"close name {name}", hint)
        return full


def custom_name(name: str) -> str:
    """The full name of a number that no row knows."""
    return name if name.startswith(CUSTOM_PREFIX) else f"{CUSTOM_PREFIX}{text(name, MAX_NAME)}"


@lru_cache(8192)
def _place(name: str, preset: str | None, library: Library | None) -> tuple[str | None, str]:
    """The row that a name of the policy means, and below which prefix; empty for a spelling of the row."""
    meant = meaning(name, Scope.POLICY, preset=preset, library=library)
    if meant is None:
        return None, ""
    row, scale = meant
    is_spelling = scale != 1.0 or name in spellings(row, library)
    return row.name, "" if is_spelling else area_of(name)
