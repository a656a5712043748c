"""The process whose files are followed: whether it lives, and how it ended.

Rules: its exit status is its parent's to read; where the system shows it to no other, it has ended and no
more is known. Must not know what the process wrote.
"""

import os

import psutil

from overwatch import platform
from overwatch.sdk.ending import ENDING, Ending, of_wait, signal_name
from overwatch.sdk.exporter.parent import Parent


class Process:
    """One that runs. Raises `ValueError` where there is none of this id."""

    def __init__(self, pid: int) -> None:
        try:
            self._process = psutil.Process(pid)
        except psutil.NoSuchProcess:
            raise ValueError(f"{pid} is no process; its id is what `pgrep -f train.py` prints") from None
        self._pid = pid
        self._parent = Parent(pid, platform.handle_of(pid))

    def lives(self) -> bool:
        """Whether it goes on."""
        try:
            return self._process.is_running() and self._process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False

    def ending(self) -> Ending:
        """How it ended, once it has."""
        status = self._parent.status
        if status is None:
            return Ending("ended", f"process {self._pid} ended; its exit status is not known here")
        code = os.waitstatus_to_exitcode(status)
        if -code in ENDING:
            return Ending("interrupted", f"process {self._pid} ended by {signal_name(-code)}")
        return of_wait(status)
