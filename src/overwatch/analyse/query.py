"""Which rows of a story a filter means: the board's grammar, with the keys of rows. Pure."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from overwatch.analyse.found import SEVERITIES
from overwatch.analyse.rows import KINDS, Row
from overwatch.projection.filtering import COMPARE, STATUSES, Grammar, Term, parse_by

GRAMMAR: Final = Grammar(
    matched=("what", "kind", "env", "gpu", "slot", "seed", "status"),
    compared=("at", "lasted", "update", "score"),
    ranked=("severity",),
    words={
        "what": KINDS,
        "severity": SEVERITIES,
        "status": (*STATUSES, "open", "cleared", "acknowledged"),
    },
    examples={
        "what": "finding", "kind": "crash", "env": "3", "gpu": "0", "slot": "r0c0", "seed": "3-r0c0-1",
        "status": "crashed", "at": "30", "lasted": "10", "update": "100", "score": "3", "severity": "warning",
    },
)  # fmt: skip
"""The keys of `overwatch query`."""


def matching(found: Iterable[Row], filter_text: str) -> Iterator[Row]:
    """Rows that meet every term; raises `FilterError` where a term cannot be read."""
    terms = parse_by(filter_text, GRAMMAR)
    return (row for row in found if all(_meets(row, term) != term.negated for term in terms))


def _meets(row: Row, term: Term) -> bool:
    """A row that has no answer to a term does not meet it."""
    match term.key:
        case None:
            return term.values[0] in _text(row)
        case "env":
            return row.env is not None and any(low <= row.env <= high for low, high in term.ranges)
        case "severity" if term.sign != "=":
            compare: Callable[[float, float], bool] = COMPARE[term.sign]
            return compare(SEVERITIES.index(row.severity), SEVERITIES.index(term.values[0]))
        case "at" | "lasted" | "update" | "score":
            value = getattr(row, term.key)
            return value is not None and COMPARE[term.sign](value, term.number)
        case "gpu":
            return row.gpu is not None and _is_lane(row.gpu.lower(), term.values)
        case "kind":
            return any(value in row.kind.lower() for value in term.values)
        case _:
            told = getattr(row, term.key)
            return told is not None and told.lower() in term.values


def _is_lane(lane: str, values: tuple[str, ...]) -> bool:
    """By its name or by the number at its end."""
    number = lane[len(lane.rstrip("0123456789")) :]
    return lane in values or (bool(number) and number in values)


def _text(row: Row) -> str:
    words = (row.kind, row.text, row.hint, row.gpu, row.slot, row.seed, *row.fields.values())
    return " ".join(word for word in words if word).lower()
