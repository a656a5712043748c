"""Turns of envs that step together, as they come: copied, and taken as blocks of many.

Pure. Must not know what becomes of them, nor which library the envs come from.
"""

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

Mask: TypeAlias = npt.NDArray[np.bool_]
Floats: TypeAlias = npt.NDArray[np.float64]
Stated: TypeAlias = tuple[Any, Any, Any]

MOST_TURNS: Final = 256
MOST_CELLS: Final = 8_192
"""Turns × envs of a block."""


@dataclass(frozen=True, slots=True)
class Block:
    """Arrays of shape (turns, envs); valid until the next turn is added."""

    paid: Floats
    over: Mask
    """Which turns ended an episode."""
    counted: Mask | None
    """Which turns were steps; `None` where all were."""
    stated: Floats | None
    """Returns and lengths that the library states, of shape (2, turns, envs)."""

    def until(self, turn: int) -> "Block":
        """The turns before this one."""
        return self.part(slice(turn))

    def part(self, turns: slice) -> "Block":
        """Some of these turns."""
        counted = None if self.counted is None else self.counted[turns]
        return Block(
            self.paid[turns],
            self.over[turns],
            counted,
            None if self.stated is None else self.stated[:, turns],
        )


class Turns:
    """Gathers turns; with `resets_next` the one after an env's end resets it and is no step."""

    def __init__(self, num_envs: int, *, resets_next: bool = False) -> None:
        shape = max(1, min(MOST_TURNS, MOST_CELLS // num_envs)), num_envs
        self._paid, self._stated = np.zeros(shape), np.zeros((2, *shape))
        self._over, self._counted = np.zeros(shape, np.bool_), np.ones(shape, np.bool_)
        self._rows = list(zip(self._paid, self._over, strict=True))  # indexing anew costs as much as a copy
        self._resets = np.zeros(num_envs, np.bool_) if resets_next else None
        """Which envs the next turn resets."""
        self._is_whole, self._is_stated, self._filled = True, False, 0

    def add(self, rewards: Any, ends: Any, rows: Any, stated: Stated | None) -> bool:
        """Take a turn of all envs, or of those of `rows`; whether there is room for no other."""
        at = self._filled
        paid, over = self._rows[at]
        if rows is None:
            paid[...] = rewards
            if ends is not None:
                over[...] = ends
        else:
            self._is_whole, self._counted[at], paid[...] = False, False, 0.0
            self._counted[at, rows], paid[rows], over[rows] = True, rewards, ends
        if stated is not None:
            over |= stated[0]
            self._stated[0, at], self._stated[1, at], self._is_stated = stated[1], stated[2], True
        self._filled = at + 1
        return self._filled == len(self._rows)

    def take(self) -> Block | None:
        """What was added since the last time."""
        if not self._filled:
            return None
        turns, self._filled = slice(self._filled), 0
        over = self._over[turns].copy()
        counted = None if self._is_whole else self._counted[turns].copy()
        if self._resets is not None:
            resets = np.concatenate((self._resets[None], over[:-1]))
            counted, self._resets = ~resets if np.count_nonzero(resets) else None, over[-1]
        stated = self._stated[:, turns].copy() if self._is_stated else None
        self._over[turns], self._counted[turns], self._stated[:, turns] = False, True, 0.0
        self._is_whole, self._is_stated = True, False
        return Block(self._paid[turns], over, counted, stated)

    def have_ended(self, rows: Any) -> bool:
        """Whether these envs have nothing behind them but an end, at the newest turn."""
        newest = self._filled - 1
        return newest >= 0 and self._resets is None and bool(self._over[newest, rows].all())

    def begin(self, rows: Any) -> None:
        """Envs were reset: their next turn is a step."""
        if self._resets is not None:
            self._resets[rows] = False


def column(values: Any) -> npt.NDArray[Any]:
    """One number an env, of an array or of a tensor on any device."""
    host = values.numpy(force=True) if hasattr(values, "detach") else np.asarray(values)
    return host if host.ndim == 1 else host.reshape(-1)
