"""The filter grammar, of the flight board and of others with keys of their own: text in, terms out.

`status=degraded gpu=0 !blueprint=noop score>3 cull`: terms are joined by "and", a comma within a term is
"or", `!` turns a term around, a word without a key is searched for; errors come with a suggestion. Pure; must
not know what is filtered.
"""

import difflib
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from overwatch.catalog import Stage
from overwatch.catalog.stages import ALIASES

STATUSES: Final = ("ok", "stalled", "degraded", "diverging", "crashed", "unknown")
NUMBERS: Final = ("score", "return", "metric", "fps")
"""Keys that are compared; the others are matched."""
PLAIN_KEYS: Final = ("env", "gpu", "node", "rank", "status")
LANE_KEYS: Final = ("gpu", "node", "rank")
"""Keys about the lane that an env runs on."""
SLOT_KEYS: Final = ("blueprint", "stage", "slot")
"""Keys of a run that has slots."""
MAX_LENGTH: Final = 500

COMPARE: Final = MappingProxyType[str, Callable[[float, float], bool]](
    {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
)
_TERM: Final = re.compile(r'(?:[^\s"]|"[^"]*"?)+')
_KEYED: Final = re.compile(r"([A-Za-z_]+)(>=|<=|=|>|<)(.*)", re.DOTALL)
_RANGE: Final = re.compile(r"(\d{1,10})(?:-(\d{1,10}))?")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grammar:
    """The keys of one kind of filter."""

    matched: tuple[str, ...]
    """Keys that are matched, `key=word`."""
    compared: tuple[str, ...] = ()
    """Keys that are compared with a number, `key>3`."""
    ranked: tuple[str, ...] = ()
    """Keys whose words have an order: matched or compared, `severity>=warning`."""
    words: Mapping[str, tuple[str, ...]]
    """All words of the keys that have no others, lowest first where they are ranked."""
    examples: Mapping[str, str]
    """A value of each key."""

    @property
    def keys(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.matched, *self.ranked, *self.compared)


class FilterError(ValueError):
    """A filter that cannot be read: which term, and what was probably meant."""

    def __init__(self, term: str, reason: str, suggestion: str | None = None) -> None:
        meant = f"; did you mean {suggestion}?" if suggestion else ""
        super().__init__(reason + meant)
        self.term = term
        self.suggestion = suggestion


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One condition."""

    key: str | None
    """A key of the grammar; absent for a word that is searched for."""
    sign: str
    """`=`, or one of `COMPARE`."""
    values: tuple[str, ...]
    """Lower case; one of them has to match. Statuses and stages are whole words here."""
    negated: bool = False

    @property
    def number(self) -> float:
        """What a compared key is compared with."""
        return float(self.values[0])

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """First and last env id of each value of `env=`."""
        found = (_RANGE.fullmatch(value) for value in self.values)
        return tuple((int(one[1]), int(one[2] or one[1])) for one in found if one)


_EXAMPLES: Final = {
    "env": "17", "gpu": "0", "node": "h200-04", "rank": "3", "status": "degraded", "blueprint": "attention",
    "stage": "pruned", "slot": "r0c0", "score": "3", "return": "0.5", "metric": "0.9", "fps": "100",
}  # fmt: skip
_WORDS: Final = {"status": STATUSES, "stage": tuple(stage.value for stage in Stage) + tuple(ALIASES)}
PLAIN: Final = Grammar(matched=PLAIN_KEYS, compared=NUMBERS, words=_WORDS, examples=_EXAMPLES)
"""Of a board without slots."""
SLOTTED: Final = Grammar(matched=PLAIN_KEYS + SLOT_KEYS, compared=NUMBERS, words=_WORDS, examples=_EXAMPLES)
"""Of a board with slots."""


def parse(text: str, *, slots: bool = True) -> tuple[Term, ...]:
    """The terms of a board's filter, in order. Without `slots`, keys of slots are unknown.

    Raises `FilterError` for an unknown key, a missing or impossible value.
    """
    return parse_by(text, SLOTTED if slots else PLAIN)


@lru_cache(maxsize=256)
def parse_by(text: str, grammar: Grammar) -> tuple[Term, ...]:
    """The terms of a filter with the keys of a grammar; raises `FilterError` as `parse` does."""
    if len(text) > MAX_LENGTH:
        raise FilterError(text[:20], f"a filter has at most {MAX_LENGTH} characters, this one {len(text)}")
    return tuple(_term(word, grammar) for word in _TERM.findall(text))


def _term(word: str, grammar: Grammar) -> Term:
    negated = word.startswith("!")
    body = word[1:] if negated else word
    if not body:
        raise FilterError(
            word, f"! needs a term after it, e.g. !{_example(grammar, grammar.matched[-1], '=')}"
        )
    keyed = None if body.startswith('"') else _KEYED.fullmatch(body)
    if keyed is None:
        return Term(key=None, sign="=", values=(body.replace('"', "").lower(),), negated=negated)
    key, sign, rest = keyed[1].lower(), keyed[2], keyed[3].replace('"', "")
    _check_key(word, key, sign, grammar)
    values = tuple(value.strip().lower() for value in rest.split(",") if value.strip())
    if not values:
        raise FilterError(word, f"{key}{sign} needs a value, e.g. {_example(grammar, key, sign)}")
    return Term(key=key, sign=sign, values=_values(word, key, sign, values, grammar), negated=negated)


def _check_key(word: str, key: str, sign: str, grammar: Grammar) -> None:
    if key not in grammar.keys:
        near = difflib.get_close_matches(key, grammar.keys, 1, 0.5)
        hint = f"{near[0]}{'>' if near[0] in grammar.compared else '='}" if near else None
        known = "" if near else f"; keys are {', '.join(grammar.keys)}"
        raise FilterError(word, f"unknown key {key}{known}", hint)
    if key in grammar.compared and sign == "=":
        raise FilterError(word, f"{key} is compared", f"{key}>")
    if key in grammar.matched and sign != "=":
        raise FilterError(word, f"{key} is not a number", f"{key}=")


def _values(word: str, key: str, sign: str, values: tuple[str, ...], grammar: Grammar) -> tuple[str, ...]:
    if key in grammar.compared:
        if len(values) > 1 or not _is_number(values[0]):
            raise FilterError(word, f"{key} needs one number, e.g. {_example(grammar, key, '>')}")
        return values
    if key == "env":
        wrong = [value for value in values if not _RANGE.fullmatch(value)]
        if wrong:
            raise FilterError(word, f"env={wrong[0]} is no env id; write env=17, env=3,9 or env=0-31")
        return values
    if key not in grammar.words:
        return values
    wholes = tuple(whole for value in values for whole in _whole(word, key, value, grammar.words[key]))
    if sign != "=" and len(wholes) > 1:
        raise FilterError(word, f"{key}{sign} needs one word; one of {', '.join(wholes)}")
    if key == "stage":
        return tuple(ALIASES[whole].value if whole in ALIASES else whole for whole in wholes)
    return wholes


def _whole(word: str, key: str, value: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """The words that begin with what was typed so far."""
    if value in known:
        return (value,)
    begun = tuple(whole for whole in known if whole.startswith(value))
    if not begun:
        near = difflib.get_close_matches(value, known, 1, 0.5)
        one_of = "" if near else f"; one of {', '.join(known)}"
        raise FilterError(word, f"no {key} {value}{one_of}", f"{key}={near[0]}" if near else None)
    return begun


def _is_number(value: str) -> bool:
    try:
        return not math.isnan(float(value))
    except ValueError:
        return False


def _example(grammar: Grammar, key: str, sign: str) -> str:
    return f"{key}{sign}{grammar.examples[key]}"
