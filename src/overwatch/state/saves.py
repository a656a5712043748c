"""Checkpoints that could not be saved, by the lines of the log: no trainer sends an event for that."""

import re
from typing import Final

from overwatch.events import LogLine
from overwatch.state.feed import begin
from overwatch.state.run import FailedSaves, RunState

ONE_SAVE_NS: Final = 1_000_000_000
"""Lines about a save that failed are of one save for so long."""
_SAVING: Final = re.compile(r"checkpoint|\bckpt|\bsav(e|es|ed|ing)\b|state.dict", re.IGNORECASE)
_LOADING: Final = re.compile(r"\b(load|restor|resum|read(?!-only))(e|ed|ing)?\b", re.IGNORECASE)
_FAILED: Final = re.compile(
    r"fail|error|exception|could ?n.t|could not|cannot|can.t|unable|no space|denied|quota|read-only|refused",
    re.IGNORECASE,
)


def is_failed_save(message: str) -> bool:
    """Whether a line of a log reports that a checkpoint could not be saved, not that one cannot be read."""
    return _LOADING.search(message) is None and all(words.search(message) for words in (_SAVING, _FAILED))


def note_failed_save(state: RunState, event: LogLine) -> None:
    """Note a save that failed; the lines of one moment, of a rank each or with a traceback, are of one."""
    if not is_failed_save(f"{event.subsystem} {event.message}"):
        return
    known = state.failed_saves
    is_new = event.at - known.at >= ONE_SAVE_NS
    state.failed_saves = FailedSaves(
        count=known.count + is_new, first_at=known.first_at or event.at, at=max(event.at, known.at),
        message=begin(event.message),
    )  # fmt: skip
