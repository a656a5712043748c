"""Several rows of the policy that are beyond their limits together, told as the one thing that they mean.

Owns the table of compounds. Rules: the first compound that holds takes its rows, so that a row is told once;
one that stands goes on while any of its rows does. Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from overwatch.catalog import BY_NAME, KL, Scope
from overwatch.catalog.policy import (
    CLIP_FRACTION,
    ENTROPY,
    EXPLAINED_VARIANCE,
    GRAD_NORM,
    UPDATE_TIME,
    VALUE_LOSS,
)
from overwatch.diagnose import policy_spikes
from overwatch.diagnose.problem import UPDATES, Problem

COLLAPSE: Final = "policy-collapse"
COLLAPSED_ROWS: Final = 2
STEPS: Final = (KL.short, CLIP_FRACTION.short)
"""Rows that say how far an update moves the policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compound:
    """What rows mean together."""

    code: str
    needs: tuple[frozenset[str], ...]
    """Of each group one row must be beyond its limit, or one code be told."""
    takes: frozenset[str]
    """Rows and codes that are its parts."""
    says: str
    hint: str


_SPIKE: Final = policy_spikes.CODE
_WEIGHTS: Final = frozenset(
    {"ratio_max", "ratio_min", "kl_max", "kl_joint", "clip_fraction_up", "clip_fraction_down"}
)

COMPOUNDS: Final = (
    Compound(
        code="steps-too-large",
        needs=(frozenset({KL.short}), frozenset({CLIP_FRACTION.short}) | _WEIGHTS),
        takes=frozenset({KL.short, CLIP_FRACTION.short, _SPIKE}) | _WEIGHTS,
        says="updates are too large",
        hint="lower the learning rate or the number of epochs, or set target_kl",
    ),
    Compound(
        code="update-shock",
        needs=(frozenset({_SPIKE}), frozenset({GRAD_NORM.short, VALUE_LOSS.short, KL.short})),
        takes=frozenset({_SPIKE, GRAD_NORM.short, VALUE_LOSS.short, KL.short}),
        says="one update shook the policy",
        hint="look at its batch for outliers; set target_kl; wait for the critic to follow",
    ),
    Compound(
        code="critic-failing",
        needs=(frozenset({EXPLAINED_VARIANCE.short}), frozenset({VALUE_LOSS.short})),
        takes=frozenset({EXPLAINED_VARIANCE.short, VALUE_LOSS.short}),
        says="the critic fails",
        hint="check the scale of rewards; more epochs or a larger share of the loss for the critic",
    ),
)  # fmt: skip
"""Checked in this order."""


def joined(problems: list[Problem], standing: Mapping[str, Problem]) -> list[Problem]:
    """The same problems, with those that are one thing told as one."""
    left, found = list(problems), list[Problem]()
    for compound in COMPOUNDS:
        parts = [problem for problem in left if _names(problem) & compound.takes]
        if parts and (f"{compound.code}:policy:" in standing or _holds(compound, parts)):
            found.append(_told(compound, parts))
            left = [problem for problem in left if problem not in parts]
    return [*found, *left]


def collapse_of(
    problems: list[Problem],
    fallen: list[Problem],
    *,
    falling: bool,
    stands: bool = False,
    succeeds: bool = False,
    signs: tuple[str, ...] = (),
) -> Problem | None:
    """The collapse that these rows and the fall of returns make up; `None` where they are none.

    It begins where returns fell and a row beyond its limit, or another of the `signs`, shows why; where
    several rows are critical, or one is and entropy is beyond its limit; and where steps are too large while
    entropy is `falling` fast, unless the policy `succeeds`. A collapse that `stands` goes on while returns
    are down, a row is critical, or several rows are beyond their limits: one better update is no recovery.
    """
    critical = [problem for problem in problems if problem.severity == "critical"]
    dying = [p for p in problems if p.subject == ENTROPY.short and p not in critical]
    lost = critical and len(critical) + len(dying) >= COLLAPSED_ROWS
    large = {problem.subject for problem in problems} >= set(STEPS)
    fell = fallen and (signs or signs_of(problems))
    goes_on = stands and (fallen or critical or len(problems) >= COLLAPSED_ROWS)
    if fell or lost or (large and falling and not succeeds) or goes_on:
        return _collapse(problems, fallen, signs)
    return None


def signs_of(problems: list[Problem]) -> list[Problem]:
    """Rows that may show why returns fell: all but those about time."""
    return [problem for problem in problems if problem.subject != UPDATE_TIME.short]


def _names(problem: Problem) -> set[str | None]:
    return {problem.code} if problem.code == _SPIKE else {problem.subject}


def _holds(compound: Compound, parts: list[Problem]) -> bool:
    names = [_names(part) for part in parts]
    return all(any(of_part & group for of_part in names) for group in compound.needs)


def _told(compound: Compound, parts: list[Problem]) -> Problem:
    critical = any(part.severity == "critical" for part in parts)
    limits = "its limit" if len(parts) == 1 else "their limits"
    return Problem(
        code=compound.code,
        severity="critical" if critical else "warning",
        scope="policy",
        subject=None,
        at=min(part.at for part in parts),
        message=f"{compound.says}: {_labels(parts)} beyond {limits}",
        hint=compound.hint,
        factors=tuple(part.message for part in parts),
        symptoms=len(parts),
        patience=UPDATES,
        absorbs=tuple(part.code for part in parts),
    )


def _collapse(rows: list[Problem], fallen: list[Problem], signs: tuple[str, ...]) -> Problem:
    parts = [*rows, *fallen]
    limits = "its limit" if len(rows) == 1 else "their limits"
    words = [f"{_labels(rows)} beyond {limits}"] if rows else list(signs)
    usual, stands = marks_of(fallen)
    return Problem(
        code=COLLAPSE,
        severity="critical",
        scope="policy",
        subject=None,
        at=min(problem.at for problem in parts),
        message="policy collapse: " + "; ".join([*words, *(["returns fall"] if fallen else [])]),
        hint="stop; go back to the last good checkpoint with a lower learning rate",
        factors=(*(problem.message for problem in parts), *signs),
        symptoms=len(parts),
        patience=UPDATES,
        absorbs=(*(problem.code for problem in parts), *(compound.code for compound in COMPOUNDS)),
        usual=usual,
        stands=stands,
    )


def marks_of(fallen: list[Problem]) -> tuple[float | None, float | None]:
    """What was usual of returns that fell, and the level at which they are no longer down."""
    return next(((fall.usual, fall.stands) for fall in fallen), (None, None))


def _labels(parts: Iterable[Problem]) -> str:
    labels = list(dict.fromkeys(filter(None, (_label(part.subject) for part in parts))))
    return ", ".join(labels[:-1]) + f" and {labels[-1]}" if len(labels) > 1 else "".join(labels)


def _label(short: str | None) -> str | None:
    return next(
        (row.label for row in BY_NAME.values() if row.short == short and row.scope is Scope.POLICY), None
    )
