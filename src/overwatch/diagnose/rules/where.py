"""The grammar of a rule: `policy.kl_divergence > 0.05 and policy.entropy < 0.2`, `30s`, `3 updates`.

A metric is named in full or as `scope.name`; terms are joined by `and` (for "or" there are two rules). Every
error names the part, what was expected, and the nearest known name. Pure; must not know values or YAML.
"""

import difflib
import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from overwatch.catalog import CUSTOM_PREFIX, ROWS, Kind, Metric, Scope, find
from overwatch.catalog.tallies import SERVICES, is_tally
from overwatch.state.env_tables import MEASURES

COMPARE: Final = MappingProxyType[str, Callable[[float, float], bool]](
    {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
)
UPDATED: Final = (Scope.POLICY, *SERVICES)
"""Scopes whose values come with an update."""
COUNTED: Final = ("updates", "episodes", "steps", "non_finite", "crashes")
"""Counters of the whole run that a rule may look at, as `run.crashes`."""
MAX_TERMS: Final = 8
SECOND_NS: Final = 1_000_000_000
_TERM: Final = re.compile(r"\s*([A-Za-z_][\w.]*)\s*(>=|<=|>|<|==|=|!=)\s*(\S+)\s*")
_LENGTH: Final = re.compile(r"\s*(\d{1,6}(?:\.\d{1,3})?)\s*(updates?|s|seconds?|min|minutes?|h|hours?)\s*")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}


class RuleError(ValueError):
    """A rule that cannot be read; the message names the part and the fix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One comparison of one metric."""

    name: str
    """Full name of the row, or of a value that no row knows."""
    scope: Scope
    short: str
    sign: str
    number: float

    def holds(self, value: float | None) -> bool:
        """Whether a value meets the term; what is absent or not finite meets none."""
        return value is not None and math.isfinite(value) and COMPARE[self.sign](value, self.number)

    def __str__(self) -> str:
        return f"{self.scope.value}.{self.short} {self.sign} {self.number:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """How long a rule must be true."""

    updates: int = 0
    """Updates in a row; 0 where it is a time."""
    ns: int = 0


def terms_of(where: str) -> tuple[Term, ...]:
    """The terms of a rule; raises `RuleError`."""
    parts = re.split(r"\s+and\s+", where.strip())
    if len(parts) > MAX_TERMS:
        raise RuleError(f"where has {len(parts)} terms; a rule has at most {MAX_TERMS}")
    terms = tuple(_term(part) for part in parts)
    subjects = {term.scope for term in terms} & {Scope.ENV, Scope.GPU}
    if len(subjects) > 1:
        raise RuleError("where names values of envs and of lanes; write one rule for each")
    return terms


def hold_of(text: str, terms: tuple[Term, ...]) -> Hold:
    """The length of time, or number of updates, in `for`; raises `RuleError`."""
    found = _LENGTH.fullmatch(text)
    if found is None:
        raise RuleError(f"for is {text!r}; write e.g. 30s, 5 min or 3 updates")
    number, unit = float(found[1]), found[2]
    if not unit.startswith("update"):
        return Hold(ns=int(number * _SECONDS[unit[0]] * SECOND_NS))
    other = next((term for term in terms if term.scope not in UPDATED), None)
    if other is not None:
        raise RuleError(f"for counts updates, but {other.name} does not come with updates; write e.g. 30s")
    if number < 1 or number != int(number):
        raise RuleError(f"for is {text!r}; updates are counted from 1")
    return Hold(updates=int(number))


def _term(text: str) -> Term:
    found = _TERM.fullmatch(text)
    if found is None:
        raise RuleError(f"where has {text!r}; a term is like policy.entropy < 0.2: metric, sign, number")
    name, sign, number = found[1], found[2], found[3]
    if sign not in COMPARE:
        raise RuleError(f"where has {text.strip()!r}; a number is compared with one of {', '.join(COMPARE)}")
    scope, short, full = _metric(name)
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise RuleError(f"where compares {name} with {number!r}; write a finite number")
    return Term(name=full, scope=scope, short=short, sign=sign, number=value)


def _metric(name: str) -> tuple[Scope, str, str]:
    if name.startswith(CUSTOM_PREFIX):
        return Scope.POLICY, name.removeprefix(CUSTOM_PREFIX), name
    row = _row(name)
    if row is None:
        known = [*_short_names(), *(known.name for known in ROWS)]
        near = difflib.get_close_matches(name, known, 1, 0.5)
        meant = f"did you mean {near[0]}?" if near else "`overwatch catalog list` shows all"
        raise RuleError(f"where names {name}, which no row of the catalogue has; {meant}")
    if not _is_kept(row):
        there = ", ".join(_short_names(row.scope)) or "no other"
        raise RuleError(f"where names {name}, which rules cannot see; of scope {row.scope.value}: {there}")
    return Scope.RUN if _is_counted(row) else row.scope, row.short, row.name


def _row(name: str) -> Metric | None:
    head, dot, short = name.partition(".")
    scope = next((scope for scope in Scope if scope.value == head), None)
    if scope is Scope.RUN:
        return next((row for row in ROWS if row.short == short and _is_counted(row)), None)
    row = find(short, scope) if dot and scope is not None else None
    return row or find(name)


def _short_names(scope: Scope | None = None) -> list[str]:
    return [
        f"{Scope.RUN.value if _is_counted(row) else row.scope.value}.{row.short}"
        for row in ROWS
        if _is_kept(row) and (scope is None or row.scope is scope)
    ]


def _is_counted(row: Metric) -> bool:
    """Whether the row is a count over the whole run."""
    return row.kind is Kind.COUNTER and not is_tally(row) and row.short in COUNTED


def _is_kept(row: Metric) -> bool:
    """Whether the state holds a number of the row that a rule can look at."""
    if _is_counted(row):
        return True
    match row.scope:
        case Scope.ENV:
            return row.short in MEASURES
        case Scope.RUN | Scope.SLOT | Scope.TOWER:
            return False
        case Scope.LEARNER | Scope.ACTOR | Scope.REPLAY | Scope.ORCHESTRATOR | Scope.ROLLOUTS:
            return not is_tally(row)
        case _:
            return True
