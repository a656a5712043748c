"""What a cell may hold, which moves there are, and how a mode shows and pays them.

Owns the codes, the moves in the seed's order and the table of modes. Must not know fields or agents.
"""

from dataclasses import dataclass
from typing import Final

from overwatch_rl.types import Factored, discrete

CELLS: Final = ("empty", "wall", "food", "poison", "prey", "predator")
"""A cell's code is its place here, and its channel where a mode shows the truth; fields hold empty cells,
food and poison only."""
EMPTY: Final = CELLS.index("empty")
FOOD: Final = CELLS.index("food")
POISON: Final = CELLS.index("poison")
_GLYPHS: Final = "·#oxp!"
"""A character for each."""

MOVES: Final[dict[str, tuple[int, int]]] = {
    "up-left": (-1, -1),
    "left": (-1, 0),
    "down-left": (-1, 1),
    "up": (0, -1),
    "down": (0, 1),
    "up-right": (1, -1),
    "right": (1, 0),
    "down-right": (1, 1),
}
"""Name to (dx, dy), in the order of the actions: x grows with columns to the right, y with rows downwards."""
ACTION: Final[Factored] = discrete(tuple(MOVES), name="move")

DEATHS: Final = ("alive", "starved", "poisoned")
"""The column `died` counts into these."""
STARVED: Final = DEATHS.index("starved")
POISONED: Final = DEATHS.index("poisoned")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """What a policy sees and what it is paid by."""

    sees_truth: bool
    """Whether it sees what a cell holds; else how interesting that is."""
    paid_truth: bool
    """Whether it is paid the change of energy; else how interesting what it ate was."""


MODES: Final[dict[str, Mode]] = {
    "ground_truth": Mode(sees_truth=True, paid_truth=True),
    "proxy": Mode(sees_truth=False, paid_truth=False),
    "proxy_jammed": Mode(sees_truth=False, paid_truth=True),
}
"""By name."""


def channels(mode: Mode, interest: tuple[float, float], count: int) -> tuple[tuple[float, ...], ...]:
    """The channels of each code: six as in `CELLS`, or the two of food and poison alone.

    `interest`: how interesting food and poison are. Where a mode does not see the truth, that is in every
    channel from the third, of six, and in both of two.
    """
    rows = []
    for code in range(len(CELLS)):
        if mode.sees_truth:
            row = [float(channel == code) for channel in range(len(CELLS))]
        else:
            level = {FOOD: interest[0], POISON: interest[1]}.get(code, 0.0)
            row = [float(channel == code) for channel in range(FOOD)] + [level] * (len(CELLS) - FOOD)
        rows.append(tuple(row if count == len(CELLS) else row[FOOD : POISON + 1]))
    return tuple(rows)


def glyphs(mode: Mode) -> str:
    """A character for each code; food and poison have the same where a mode does not see the truth."""
    return _GLYPHS if mode.sees_truth else _GLYPHS.replace(_GLYPHS[POISON], _GLYPHS[FOOD])
