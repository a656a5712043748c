"""The terminal's driver where the terminal is gone."""

import contextlib
import os
import pty
import threading
from typing import IO, cast

from textual.drivers._writer_thread import MAX_QUEUED_WRITES, WriterThread

from overwatch.tui.terminal import Output


def test_a_terminal_that_is_gone_stops_nothing_that_writes_to_it() -> None:
    """However many frames come: each is dropped, and none waits for room."""
    master, slave = pty.openpty()
    with contextlib.suppress(OSError), os.fdopen(slave, "w") as stream:  # closing it writes what is left
        writer = WriterThread(cast("IO[str]", Output(stream)))
        writer.start()
        writer.write("seen")
        assert os.read(master, 4) == b"seen"
        os.close(master)

        def flood() -> None:
            for _ in range(4 * MAX_QUEUED_WRITES):
                writer.write("frame")
            writer.stop()

        flooding = threading.Thread(target=flood, daemon=True)
        flooding.start()
        flooding.join(60)
    assert not flooding.is_alive()
    assert not writer.is_alive()
