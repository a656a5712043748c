"""How runs are judged: the configuration, and what is made of it once; rules that a user writes.

An unknown name is an error with the nearest known one; the same configuration judges the same way, live and
in a replay. Must not know where a configuration comes from, or YAML.

Rules are about catalogue names: `policy.kl_divergence > 0.05 and policy.entropy < 0.2`, `30s`, `3 updates`. A
metric is named in full or as `scope.name`; terms are joined by `and` (for "or" there are two rules). Every
error names the part, what was expected, and the nearest known name.

Judged at one tick: whose values meet every term, and for how long. A value that is absent, not finite or old
meets no term; updates between two ticks are judged one by one, as far as they are remembered; envs are judged
as whole columns. Pure: memory comes in and goes out.
"""

import difflib
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import msgspec
import numpy as np

from overwatch.catalog import BY_NAME, CUSTOM_PREFIX, ROWS, Kind, Metric, Scope, find
from overwatch.catalog.tallies import SERVICES, is_tally
from overwatch.diagnose.anomaly import Anomalies, Plugin, load_plugins, plugin_names
from overwatch.diagnose.factor import AnomalyLimits
from overwatch.diagnose.fleet import Fleet
from overwatch.diagnose.lanes import FRESH_S
from overwatch.diagnose.problem import SECOND_NS, UPDATES, Patience, Problem
from overwatch.state.env_tables import MEASURES
from overwatch.state.machines import Gauge
from overwatch.state.policy import HISTORY
from overwatch.state.run import RunState

COMPARE: Final = MappingProxyType[str, Callable[[float, float], bool]](
    {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
)
UPDATED: Final = (Scope.POLICY, *SERVICES)
"""Scopes whose values come with an update."""
COUNTED: Final = ("updates", "episodes", "steps", "non_finite", "crashes", "rollbacks")
"""Counters of the whole run that a rule may look at, as `run.crashes`."""
MAX_TERMS: Final = 8
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


SEVERITIES: Final = ("critical", "warning", "info")
_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,39}")
_HINT: Final = 300


class RuleConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of `diagnosis.rules`. Raises `ValueError` for one that cannot be read."""

    name: str
    """What its findings are called: `rule-<name>`; lower case, digits and dashes."""
    where: str
    """When it is true, e.g. `policy.kl_divergence > 0.05 and policy.entropy < 0.2`."""
    hold: str | None = msgspec.field(default=None, name="for")
    """How long it must be: `30s`, `5 min`, `3 updates`; else 3 updates, or 2s where it is about machines."""
    severity: str = "warning"
    """`critical`, `warning` or `info`."""
    hint: str
    """What to do then: the runbook of its findings."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"rule name {self.name!r} has to be like slow-learner: a to z, 0 to 9 and -")
        if self.severity not in SEVERITIES:
            raise ValueError(
                f"rule {self.name}: severity {self.severity!r} is not one of {', '.join(SEVERITIES)}"
            )
        if not 0 < len(self.hint.strip()) <= _HINT:
            raise ValueError(f"rule {self.name}: hint has to state what to do, in 1 to {_HINT} characters")
        self.rule()

    def rule(self) -> "Rule":
        """The rule, ready to be judged; raises `ValueError`."""
        try:
            terms = terms_of(self.where)
            by_updates = all(term.scope in UPDATED for term in terms)
            hold = hold_of(self.hold or ("3 updates" if by_updates else "2s"), terms)
        except RuleError as error:
            raise ValueError(f"rule {self.name}: {error}") from None
        return Rule(
            name=self.name, terms=terms, hold=hold, severity=self.severity, hint=self.hint.strip()
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule that can be judged."""

    name: str
    terms: tuple[Term, ...]
    """All of them must hold."""
    hold: Hold
    severity: str
    hint: str

    @property
    def code(self) -> str:
        """The code of its findings."""
        return f"rule-{self.name}"

    @property
    def subject(self) -> Scope:
        """Of what there is a finding each: envs, lanes, or the run."""
        return next((term.scope for term in self.terms if term.scope in (Scope.ENV, Scope.GPU)), Scope.RUN)


MAX_NAMED: Final = 20
"""Envs named one by one; more of them become one finding about the fleet."""
_CLEAR_NS: Final = 3 * SECOND_NS
_COOLDOWN_NS: Final = 30 * SECOND_NS


class Streak(msgspec.Struct, frozen=True, kw_only=True):
    """How many updates in a row a rule has been true."""

    updates: int = 0
    """Updates judged so far."""
    length: int = 0


def judge_rules(
    rules: Sequence[Rule], fleet: Fleet, before: Mapping[str, Streak], tick: int
) -> tuple[list[Problem], dict[str, Streak]]:
    """What the rules find at `tick`, and their memory after it."""
    found: list[Problem] = []
    streaks: dict[str, Streak] = {}
    for rule in rules:
        if rule.hold.updates:
            streak = streaks[rule.name] = _streak(rule, fleet.state, before.get(rule.name, Streak()))
            if streak.length >= rule.hold.updates:
                found.append(_problem(rule, fleet.state, None, _values(rule, fleet.state, None, tick)))
        else:
            found += _timed(rule, fleet, tick)
    return found, streaks


def _streak(rule: Rule, state: RunState, before: Streak) -> Streak:
    fresh = min(state.updates - before.updates, HISTORY)
    length = before.length if fresh >= 0 else 0
    for back in range(fresh - 1, -1, -1):
        holds = all(term.holds(_back(state, term, back)) for term in rule.terms)
        length = length + 1 if holds else 0
    return Streak(updates=state.updates, length=length)


def _back(state: RunState, term: Term, back: int) -> float | None:
    """A value of the policy so many updates ago."""
    series = state.series(term.name)
    items = [] if series is None else series.history.items
    return items[-1 - back] if back < len(items) else None


def _timed(rule: Rule, fleet: Fleet, tick: int) -> Iterator[Problem]:
    state = fleet.state
    match rule.subject:
        case Scope.ENV:
            yield from _of_envs(rule, fleet, tick)
        case Scope.GPU:
            for lane in state.lanes:
                if _holds(rule.terms, state, lane, tick):
                    yield _problem(rule, state, lane, _values(rule, state, lane, tick))
        case _:
            if _holds(rule.terms, state, None, tick):
                yield _problem(rule, state, None, _values(rule, state, None, tick))


def _holds(terms: Sequence[Term], state: RunState, lane: str | None, tick: int) -> bool:
    return all(term.holds(_value(state, term, lane, tick)) for term in terms)


def _value(state: RunState, term: Term, lane: str | None, tick: int) -> float | None:
    """The newest value of a term's metric, of a lane where it is about lanes."""
    if term.scope in UPDATED:
        series = state.series(term.name)
        return None if series is None else series.value
    if term.scope is Scope.RUN:
        return float(getattr(state, term.short))
    readings = state.host if term.scope is Scope.HOST else state.lanes.get(lane or "", {})
    return _fresh(readings.get(term.short), tick)


def _fresh(gauge: Gauge | None, tick: int) -> float | None:
    return gauge.value if gauge is not None and tick - gauge.stamp <= FRESH_S * SECOND_NS else None


def _of_envs(rule: Rule, fleet: Fleet, tick: int) -> Iterator[Problem]:
    state, n = fleet.state, fleet.n
    rest = [term for term in rule.terms if term.scope is not Scope.ENV]
    if not n or not _holds(rest, state, None, tick):
        return
    hit = state.envs.crashed_at[:n] == 0
    for term in rule.terms:
        if term.scope is Scope.ENV:
            values = _column(fleet, term)
            with np.errstate(invalid="ignore"):
                hit &= np.isfinite(values) & np.asarray(COMPARE[term.sign](values, term.number))  # type: ignore[arg-type]  # operators take arrays
    rows = np.flatnonzero(hit)
    if rows.size > MAX_NAMED:
        yield _problem(rule, state, None, f"{rows.size} of {n} envs", int(rows.size))
        return
    first = next(term for term in rule.terms if term.scope is Scope.ENV)
    column = _column(fleet, first)
    for row in rows.tolist():
        stated = f"{first.short} {column[row]:.4g} {first.sign} {first.number:g}"
        yield _problem(rule, state, str(int(fleet.ids[row])), stated)


def _column(fleet: Fleet, term: Term) -> np.ndarray:
    """One measure of all envs, shape (n,); NaN where it was never reported."""
    envs, n = fleet.state.envs, fleet.n
    if term.short == "return":
        return envs.mean_return()
    return np.where(envs.times[term.short][:n] > 0, envs.values[term.short][:n], np.nan)


def _values(rule: Rule, state: RunState, lane: str | None, tick: int) -> str:
    """What is true, with the values: `KL 0.0712 > 0.05, entropy 0.11 < 0.2`."""
    return ", ".join(
        f"{_label(term)} {_value(state, term, lane, tick) or 0.0:.4g} {term.sign} {term.number:g}"
        for term in rule.terms
    )


def _label(term: Term) -> str:
    row = BY_NAME.get(term.name)
    return term.short if row is None else row.label


def _problem(rule: Rule, state: RunState, subject: str | None, stated: str, envs: int = 0) -> Problem:
    scope = rule.subject if subject is not None else Scope.RUN
    hold = UPDATES if rule.hold.updates else Patience(
        hold=rule.hold.ns, clear=_CLEAR_NS, cooldown=_COOLDOWN_NS
    )  # fmt: skip
    return Problem(
        code=rule.code,
        severity=rule.severity,
        scope=scope.value,
        subject=subject,
        at=state.last_at,
        message=f"{rule.name}: {stated}",
        hint=rule.hint,
        symptoms=envs,
        patience=hold,
    )


class DiagnosisConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`diagnosis`. Raises `ValueError` for weights below 0 and rules of one name."""

    anomaly: AnomalyLimits = AnomalyLimits()
    """When an env stands out, and how much each factor weighs."""
    plugins: dict[str, float] = {}
    """Weights of installed factors of others, by name; 0 turns one off, 1 where it is not named."""
    rules: tuple[RuleConfig, ...] = ()
    """Rules of your own over catalogue names."""

    def __post_init__(self) -> None:
        for name, weight in self.plugins.items():
            if not weight >= 0:
                raise ValueError(f"weight of plugin {name} is {weight}; it must be 0 (off) or above")
        known = [rule.name for rule in self.rules]
        twice = next((name for name in known if known.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"two rules are named {twice!r}; a rule's name is that of its findings")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """A configuration, ready to judge with."""

    limits: AnomalyLimits = field(default_factory=AnomalyLimits)
    plugins: tuple[Plugin, ...] = ()
    broken: dict[str, str] = field(default_factory=dict)
    """Plugins that cannot be loaded, with the reason."""
    rules: tuple[Rule, ...] = ()


def judging(config: DiagnosisConfig) -> Judging:
    """What a configuration means on this machine."""
    found, broken = load_plugins(config.plugins)
    return Judging(
        limits=config.anomaly,
        plugins=found,
        broken=broken,
        rules=tuple(rule.rule() for rule in config.rules),
    )


def failed_factors(state: RunState, how: Judging, anomalies: Anomalies) -> Iterator[Problem]:
    """Which factors of others failed."""
    failed = {**how.broken, **anomalies.off}
    if failed:
        stated = ", ".join(f"{name} ({reason})" for name, reason in sorted(failed.items()))
        yield Problem(
            code="factor-off",
            at=state.first_at,
            message=f"{len(failed)} installed {'factor' if len(failed) == 1 else 'factors'} failed: {stated}",
            hint="envs are judged without it in this run; report it to its author, or set its weight to 0",
            factors=tuple(sorted(failed)),
        )


def unknown(config: DiagnosisConfig) -> Iterator[tuple[str, str]]:
    """What a configuration names and this machine does not have, as (path, what is wrong and what to do)."""
    installed = plugin_names()
    for name in config.plugins:
        if name not in installed:
            near = difflib.get_close_matches(name, installed, 1)
            there = f"installed are {', '.join(installed)}" if installed else "none is installed"
            hint = f"did you mean {near[0]!r}?" if near else there
            yield f"diagnosis.plugins.{name}", f"no installed plugin gives this factor; {hint}"
