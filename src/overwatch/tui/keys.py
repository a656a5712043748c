"""Every key, once: bindings, the key line and the help page are made from this table.

A key that is not here does nothing; a row here without an action of the app fails a test.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One thing a key does."""

    keys: str
    """Textual key names, comma-separated."""
    action: str
    """The app's action."""
    shown: str
    """How help writes the keys."""
    does: str
    hint: str | None = None
    """What the key line says; nothing where it has no room for this key."""


KEYS: Final = (
    Key(
        keys="j,down",
        action="move(1)",
        shown="j ↓",
        does="cursor to the next environment",
        hint="j/k move",
    ),
    Key(keys="k,up", action="move(-1)", shown="k ↑", does="cursor to the environment before"),
    Key(
        keys="g,home",
        action="home",
        shown="g Home",
        does="let go of the cursor: it lies on the worst environment again",
        hint="g home",
    ),
    Key(
        keys="question_mark,f1",
        action="help",
        shown="? F1",
        does="this page; again or Esc closes it",
        hint="? help",
    ),
    Key(keys="escape", action="close_help", shown="Esc", does="back to the overview"),
    Key(keys="q,ctrl+c", action="leave", shown="q", does="quit; the run is not touched", hint="q quit"),
)
