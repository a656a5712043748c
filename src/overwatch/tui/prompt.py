"""A line of text that the user types: the filter of the board, or the search of the feed. Pure.

A filter is checked while it is typed; what cannot be read yet changes nothing but the message.
"""

from dataclasses import dataclass, replace

from overwatch.projection.filtering import FilterError, parse
from overwatch.tui.text import clean

MOST: int = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What was typed so far."""

    kind: str
    """`filter` or `search`."""
    text: str = ""
    at: int = 0
    """Characters before the caret."""
    before: str = ""
    """What was in force when the prompt opened."""
    slots: bool = True
    """Whether the run has slots to filter by."""

    @property
    def error(self) -> str | None:
        """Why a filter cannot be read, with what was probably meant."""
        if self.kind != "filter":
            return None
        try:
            parse(self.text, slots=self.slots)
        except FilterError as error:
            return str(error)
        return None

    def insert(self, typed: str) -> "Prompt":
        """With this text at the caret; controls are left out."""
        kept = "".join(character for character in typed if character.isprintable())
        kept = clean(kept)[: max(0, MOST - len(self.text))]
        return replace(self, text=self.text[: self.at] + kept + self.text[self.at :], at=self.at + len(kept))

    def press(self, key: str) -> "Prompt":
        """After an editing key; other keys change nothing."""
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
