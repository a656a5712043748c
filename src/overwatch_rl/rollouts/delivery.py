"""Whether the bytes of a reply arrived at the other machine.

What was written is in the kernel first; it has arrived once the other kernel has acknowledged it. A
connection whose other end is gone without a word is given up by the kernel after `SILENT_S`. Where the kernel
does not report it, what was written counts as arrived. Under TLS the event loop may still hold what is
encrypted: it hands that to a kernel that has nothing left before the next look, so nothing left counts when
seen twice.
Must not know what was sent.
"""

import asyncio
import socket
from typing import Final

from overwatch.platform import give_up_after, is_cut, unacknowledged
from overwatch_rl.web.site import Connection

SILENT_S: Final = 30.0
"""After so long without an acknowledgement a connection is given up."""
_FIRST_LOOK_S: Final = 0.001
_LAST_LOOK_S: Final = 0.5


class Delivery:
    """One reply on its way; begin before it is written, so that a connection that ends meanwhile is seen."""

    def __init__(self, connection: Connection) -> None:
        """Raise `OSError` where the connection has ended."""
        if connection.transport.is_closing():
            raise ConnectionResetError("the trainer left before its batch was sent")
        self._connection = connection
        # Writing is over only once the kernel has everything; with 0, asyncio pauses for nothing under TLS.
        # Writing is over only once the kernel has everything; with 0, asyncio pauses for nothing under TLS.
        connection.transport.set_write_buffer_limits(high=1, low=0)
        # A socket of our own can be asked after the connection was closed.
        self._line: socket.socket = connection.transport.get_extra_info("socket").dup()
        self._looks = 1 if connection.transport.get_extra_info("ssl_object") is None else 2
        """So many times in a row nothing must be left."""
        give_up_after(self._line, SILENT_S)

    async def arrived(self) -> bool:
        """Whether all that was written was acknowledged; ends the watch."""
        with self._line:
            wait, left = _FIRST_LOOK_S, self._looks
            await self._connection.flow.drain()
            while not self._connection.is_cut:
                if not unacknowledged(self._line):
                    left -= 1
                    if not left:
                        return True
                elif is_cut(self._line):
                    return False
                else:
                    left = self._looks
                await asyncio.sleep(wait)
                wait = min(_LAST_LOOK_S, wait * 2)
            return False
