"""Rules judged at one tick: whose values meet every term, and for how long.

Rules: a value that is absent, not finite or old meets no term; updates between two ticks are judged one by
one, as far as they are remembered; envs are judged as whole columns. Pure: memory comes in and goes out.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from overwatch.catalog import BY_NAME, Scope
from overwatch.diagnose.fleet import Fleet
from overwatch.diagnose.lanes import FRESH_S
from overwatch.diagnose.problem import SECOND_NS, UPDATES, Patience, Problem
from overwatch.diagnose.rules.rule import Rule
from overwatch.diagnose.rules.where import COMPARE, UPDATED, Term
from overwatch.state.machines import Gauge
from overwatch.state.policy import HISTORY
from overwatch.state.run import RunState

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
        said = f"{first.short} {column[row]:.4g} {first.sign} {first.number:g}"
        yield _problem(rule, state, str(int(fleet.ids[row])), said)


def _column(fleet: Fleet, term: Term) -> np.ndarray:
    """One measure of all envs, shape (n,); NaN where it was never told."""
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


def _problem(rule: Rule, state: RunState, subject: str | None, said: str, envs: int = 0) -> Problem:
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
        message=f"{rule.name}: {said}",
        hint=rule.hint,
        symptoms=envs,
        patience=hold,
    )
