"""A line of text that the user types: the filter of the board, the search of the feed, a command. Pure.

It is checked while it is typed; what cannot be read yet changes nothing but the message. Tab takes what the
word under the caret may become.
"""

from dataclasses import dataclass, field, replace
from typing import Final

from overwatch.projection.filtering import FilterError, parse
from overwatch.tui import commands
from overwatch.tui.completion import Candidate, Vocabulary, of_filter, word_at
from overwatch.tui.text import clean

MOST: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What was typed so far."""

    kind: str
    """`filter`, `search` or `command`."""
    text: str = ""
    at: int = 0
    """Characters before the caret."""
    before: str = ""
    """What was in force when the prompt opened."""
    vocabulary: Vocabulary = field(default_factory=Vocabulary)
    """What can be named."""
    chosen: int | None = None
    """Which candidate the user went to."""

    @property
    def error(self) -> str | None:
        """Why it cannot be read, with what was probably meant."""
        if self.kind == "command":
            return commands.check(self.text, self.vocabulary)
        if self.kind != "filter":
            return None
        try:
            parse(self.text, slots=self.vocabulary.slots)
        except FilterError as error:
            return str(error)
        return None

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """What the word before the caret may become."""
        typed = self.text[: self.at]
        match self.kind:
            case "command":
                return commands.complete(typed, self.vocabulary)
            case "filter":
                return of_filter(typed, self.vocabulary)
            case _:
                return ()

    @property
    def taken(self) -> "Prompt":
        """With the chosen candidate, or the first, in place of the word before the caret."""
        found = self.candidates
        if not found:
            return self
        word = found[min(self.chosen or 0, len(found) - 1)].word
        typed = self.text[: self.at]
        start = self.at - len(word_at(typed))
        return replace(
            self, text=typed[:start] + word + self.text[self.at :], at=start + len(word), chosen=None
        )

    def insert(self, typed: str) -> "Prompt":
        """With this text at the caret; controls are left out."""
        kept = "".join(character for character in typed if character.isprintable())
        kept = clean(kept)[: max(0, MOST - len(self.text))]
        text = self.text[: self.at] + kept + self.text[self.at :]
        return replace(self, text=text, at=self.at + len(kept), chosen=None)

    def press(self, key: str) -> "Prompt":
        """After an editing key; other keys change nothing."""
        match key:
            case "tab":
                return self.taken
            case "down" | "ctrl+n":
                return self._go(1)
            case "up" | "ctrl+p" | "shift+tab":
                return self._go(-1)
            case _:
                return replace(self._edited(key), chosen=None)

    def _go(self, by: int) -> "Prompt":
        """The next candidate, or the one before; round at the ends."""
        count = len(self.candidates)
        if not count:
            return self
        first = 0 if by > 0 else count - 1
        return replace(self, chosen=first if self.chosen is None else (self.chosen + by) % count)

    def _edited(self, key: str) -> "Prompt":
        text, at = self.text, self.at
        match key:
            case "backspace" | "ctrl+h":
                return replace(self, text=text[: max(0, at - 1)] + text[at:], at=max(0, at - 1))
            case "delete":
                return replace(self, text=text[:at] + text[at + 1 :])
            case "ctrl+u":
                return replace(self, text=text[at:], at=0)
            case "ctrl+w":
                start = len(text[:at].rstrip().rpartition(" ")[0])
                start += start > 0
                return replace(self, text=text[:start] + text[at:], at=start)
            case "left":
                return replace(self, at=max(0, at - 1))
            case "right":
                return replace(self, at=min(len(text), at + 1))
            case "home" | "ctrl+a":
                return replace(self, at=0)
            case "end" | "ctrl+e":
                return replace(self, at=len(text))
            case _:
                return self
