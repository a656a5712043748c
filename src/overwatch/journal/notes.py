"""A few bytes that one part of a program leaves for its next life, in a folder that it owns.

Rules: a note is replaced as a whole and survives a power loss, so that a reader finds the last one or the one
before it. Must not know what notes mean.
"""

import os

from overwatch.journal.folder import Folder


class Note:
    """One named note. Not safe for use from several threads at once."""

    def __init__(self, folder: Folder, name: str) -> None:
        self._folder = folder
        # Names of several parts of one kind, as `webhook/chat`, are no paths.
        self._name = f"{name.replace('/', '%2F')}.note"

    def read(self) -> bytes | None:
        """What was written last, `None` where nothing was. Raises `OSError`."""
        try:
            fd = self._folder.open(self._name)
        except FileNotFoundError:
            return None
        with os.fdopen(fd, "rb") as file:
            return file.read()

    def write(self, data: bytes) -> None:
        """Put this in the place of what was. Raises `OSError`, and then what was is still there."""
        self._folder.replace(self._name, data)
        self._folder.files.sync()
