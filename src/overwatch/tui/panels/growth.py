"""What the drawer shows of an env that grows a network: what its seeds add, how they lived, what was chosen.

Pure functions from the detail of an env to labelled rows of text. A part that the run does not report is not
there. Must not know the box around it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from overwatch.catalog import parse_stage
from overwatch.catalog.chips import LABEL
from overwatch.catalog.durations import duration
from overwatch.snapshot import Detail, Stay
from overwatch.tui.grammar import number, operation, stage_role
from overwatch.tui.text import Role, Span, cells, clean, cut, left

Row = list[Span]

_OF_SLOTS: Final = (
    ("contribution", "adds"),
    ("shapley", "share"),
    ("interaction", "with others"),
    ("boost", "boost"),
)
"""Numbers of a slot in their order, with the word that stands before each."""
_HOST: Final[Sequence[tuple[str, Callable[[float], str]]]] = (
    ("host_loss", lambda value: f"loss {number(value, '.3f', 6)}"),
    ("metric_best", lambda value: f"best {number(value, '.2f', 6)}"),
    ("stalled_steps", lambda value: f"{_steps(value)} ago"),
    ("growth_ratio", lambda value: f"size ×{number(value, '.2f', 6)}"),
    ("fossil_parameters", lambda value: f"fossils {value:,.0f} parameters"),
    ("metric_without", lambda value: f"without seeds {number(value, '.2f', 6)}"),
    ("synergy", lambda value: f"synergy {number(value, '+.3f', 6)}"),
    ("seed_share", lambda value: f"gradient to new seeds {value:.0%}"),
    ("attribution_age", lambda value: f"worked out {_steps(value)} ago"),
    ("rollbacks", lambda value: f"set back {value:,.0f} ×"),
)
"""Numbers of the env in their order, each with how it is shown."""
_LEAST_STRIP: Final = 12


def _steps(count: float) -> str:
    return f"{count:,.0f} step{'' if count == 1 else 's'}"


def host(detail: Detail) -> list[str]:
    """The numbers of the network that the env grows, one phrase each."""
    found = [words(detail.numbers[name]) for name, words in _HOST if name in detail.numbers]
    return found + [f"{clean(name)} {number(value, '.3g', 8)}" for name, value in _unnamed(detail.numbers)]


def _unnamed(numbers: Mapping[str, float]) -> list[tuple[str, float]]:
    known = {name for name, _ in _HOST}
    return [(name, value) for name, value in numbers.items() if name not in known]


def adds(detail: Detail) -> list[Row]:
    """What the seed of each slot adds, a row each."""
    return [[Span(f"{left(cut(clean(slot), LABEL), LABEL)} "), Span(of_slot(numbers))]
            for slot, numbers in detail.slots.items()]  # fmt: skip


def of_slot(numbers: Mapping[str, float]) -> str:
    """`adds +0.021 · share +0.018`."""
    known = [(word, numbers[name]) for name, word in _OF_SLOTS if name in numbers]
    return " · ".join(f"{word} {number(value, '+.3f', 6)}" for word, value in known)


def choice(detail: Detail) -> list[Row]:
    """The newest operation with how sure the policy was, and what was likeliest beside it."""
    if not detail.choice:
        return []
    taken, *others = detail.choice
    row = [Span(f"{operation(taken.op)} {taken.probability:.0%}")]
    if others:
        beside = "  ".join(f"{operation(one.op)} {one.probability:.0%}" for one in others)
        row.append(Span(f"  else {beside}", Role.MUTED))
    return [row]


def lives(detail: Detail, room: int, now: float) -> list[Row]:
    """A strip a slot: the glyph of the stage that it was in, over the time from its first move until now."""
    every = [stay.time for stays in detail.lives.values() for stay in stays]
    if not every:
        return []
    began, names = min(every), list(detail.lives)
    name = min(LABEL, max(cells(clean(slot)) for slot in names))
    width = max(_LEAST_STRIP, room - name - 1)
    window = f"{duration(max(now - began, 0.0))} until now"
    rows = [[Span(f"{left(cut(clean(slot), name), name)} "), *_strip(detail.lives[slot], began, now, width)]
            for slot in names]  # fmt: skip
    return [*rows, [Span(f"{' ' * name} {window}", Role.MUTED)]]


def _strip(stays: Sequence[Stay], began: float, now: float, width: int) -> Row:
    """`width` cells, each with the stage at its end; blank before the first."""
    step, spans, place = max(now - began, 1e-9) / width, list[Span](), -1
    for cell in range(width):
        end = began + (cell + 1) * step
        while place + 1 < len(stays) and stays[place + 1].time <= end:
            place += 1
        if place < 0:
            spans.append(Span(" "))
        else:
            stage = parse_stage(stays[place].stage)
            spans.append(Span(stage.glyph, stage_role(stage)))
    return spans
