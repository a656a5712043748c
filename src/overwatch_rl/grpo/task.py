"""The toy task in words: put digits into order, so that `4131=` is answered `1134.`, which can be verified.

Owns the letters and their codes, which prompts are held out, and the reward. A prompt is held out with every
other order of its digits, so that a right answer to it was never seen. Must not know models or training.
"""

import random
import zlib
from dataclasses import dataclass
from typing import Final

PAD: Final = 0
"""Fills places without a letter; no letter has this code."""
LETTERS: Final = "0123456789=."
END: Final = "."
"""The last letter of an answer."""
END_CODE: Final = LETTERS.index(END) + 1
VOCABULARY: Final = len(LETTERS) + 1
_DIGITS: Final = "0123456789"
_HELD_OUT_OF: Final = 5
"""One set of digits in so many is held out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskConfig:
    """How long prompts are."""

    least: int = 4
    """Digits of the shortest prompt."""
    most: int = 6
    """Digits of the longest."""

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most:
            raise ValueError(f"least is {self.least} and most {self.most}; use 1 <= least <= most")

    @property
    def answer_tokens(self) -> int:
        """The most that an answer may have, its end included."""
        return self.most + 2

    @property
    def positions(self) -> int:
        """Letters of the longest prompt and answer together."""
        return self.most + 1 + self.answer_tokens


def encode(text: str) -> list[int]:
    """The code of each letter. Raises `ValueError` for a letter that is none of the task's."""
    return [LETTERS.index(letter) + 1 for letter in text]


def decode(codes: list[int]) -> str:
    """The letters; `_` where a place is empty."""
    return "".join("_" if code == PAD else LETTERS[code - 1] for code in codes)


def is_held_out(prompt: str) -> bool:
    """Whether no training may see this prompt."""
    return zlib.crc32("".join(sorted(prompt)).encode()) % _HELD_OUT_OF == 0


def draw(count: int, config: TaskConfig, source: random.Random, *, held_out: bool = False) -> list[str]:
    """So many prompts for training, or so many that are held out."""
    found: list[str] = []
    while len(found) < count:
        length = source.randint(config.least, config.most)
        prompt = "".join(source.choices(_DIGITS, k=length)) + "="
        if is_held_out(prompt) == held_out:
            found.append(prompt)
    return found


def right_answer(prompt: str) -> str:
    """The only answer that earns something."""
    return "".join(sorted(prompt.rstrip("="))) + END


def reward(prompt: str, answer: str) -> float:
    """1 for the right answer, else 0."""
    return float(answer == right_answer(prompt))
