"""A TCP server that follows a script: one function speaks for it on every connection.

It notes what it was asked, so a test can wait for that instead of sleeping. All of it stays on loopback.
"""

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

DEADLINE_S: Final = 20.0
SOON_S: Final = 8.0
"""Far more than a busy machine adds to a moment, far less than what a script here drags on for."""
OK: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class Requested:
    """One request as it came."""

    def __init__(self, head: bytes, body: bytes) -> None:
        self.head = head
        self.body = body

    @property
    def headers(self) -> dict[str, str]:
        """Names in lower case."""
        lines = self.head.decode("latin-1").split("\r\n")[1:]
        return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}

    @property
    def path(self) -> str:
        """Of the request line."""
        return self.head.split(b" ", 2)[1].decode()


class Call:
    """One connection, as the script sees it."""

    def __init__(self, connection: socket.socket, evil: "Evil") -> None:
        self._connection = connection
        self._evil = evil
        self._rest = b""

    @property
    def is_over(self) -> bool:
        """Whether the server ends."""
        return self._evil.is_over

    def receive(self) -> Requested | None:
        """The next request, whole; `None` when the client hangs up."""
        while b"\r\n\r\n" not in self._rest:
            if not self._more():
                return None
        head, _, self._rest = self._rest.partition(b"\r\n\r\n")
        requested = Requested(head, b"")
        length = int(requested.headers.get("content-length", "0"))
        while len(self._rest) < length:
            if not self._more():
                return None
        requested.body, self._rest = self._rest[:length], self._rest[length:]
        self._evil.received(requested)
        return requested

    def read_slowly(self, bytes_per_s: int) -> None:
        """Read at a rate until the client hangs up."""
        while self.pause(0.1) and self._connection.recv(max(bytes_per_s // 10, 1)):
            pass

    def raw(self) -> bytes:
        """What comes next, whatever it is; empty when the client hangs up."""
        data, self._rest = self._rest, b""
        try:
            return data or self._connection.recv(1 << 16)
        except OSError:
            return b""

    def emit(self, data: bytes) -> bool:
        """Send; whether the client still listens."""
        try:
            self._connection.sendall(data)
        except OSError:
            return False
        return True

    def dribble(self, data: bytes, each_s: float) -> None:
        """Send a byte at a time until the client hangs up."""
        for position in range(len(data)):
            if not self.emit(data[position : position + 1]) or not self.pause(each_s):
                return

    def pour(self, piece: bytes, total: int) -> None:
        """Send a piece again and again, until `total` bytes or the client hangs up."""
        for _ in range(total // len(piece)):
            if not self.emit(piece):
                return
            self._evil.poured += len(piece)

    def pause(self, seconds: float) -> bool:
        """Wait; whether the server goes on."""
        return not self._evil.wait_over(seconds)

    def hold(self) -> None:
        """Send nothing until the server ends."""
        self._evil.wait_over(None)

    def _more(self) -> bool:
        try:
            data = self._connection.recv(1 << 16)
        except OSError:
            return False
        self._rest += data
        return bool(data)


class Evil:
    """What came, and how often."""

    def __init__(self) -> None:
        self.requested: list[Requested] = []
        self.connections = 0
        self.poured = 0
        self.port = 0
        self.stamps: list[float] = []
        """When each whole request had come, monotonic seconds."""
        self._over = threading.Event()
        self._changed = threading.Condition()

    @property
    def endpoint(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def is_over(self) -> bool:
        """Whether the server ends."""
        return self._over.is_set()

    def wait_over(self, seconds: float | None) -> bool:
        """Wait for the server's end; whether it came."""
        return self._over.wait(seconds)

    def received(self, requested: Requested) -> None:
        """Note a request."""
        with self._changed:
            self.requested.append(requested)
            self.stamps.append(time.monotonic())
            self._changed.notify_all()

    def called(self) -> None:
        """Note a connection."""
        with self._changed:
            self.connections += 1
            self._changed.notify_all()

    def wait(self, condition: Callable[["Evil"], object]) -> None:
        """Wait until the condition holds, or fail at the deadline."""
        with self._changed:
            held = self._changed.wait_for(lambda: condition(self), DEADLINE_S)
        assert held, (
            f"not within {DEADLINE_S} s: {self.connections} connections, {len(self.requested)} requests"
        )

    def end(self) -> None:
        """Notify every script that it is over."""
        self._over.set()


@contextlib.contextmanager
def evil(
    script: Callable[[Call], None], *, tls: ssl.SSLContext | None = None, port: int = 0
) -> Iterator[Evil]:
    """A server on loopback; `script` runs on a thread of its own for each connection."""
    server = Evil()
    with socket.create_server(("127.0.0.1", port), backlog=64) as listener, contextlib.ExitStack() as calls:
        server.port = listener.getsockname()[1]
        listener.settimeout(0.05)
        threads: list[threading.Thread] = []

        def speak(connection: socket.socket) -> None:
            with contextlib.suppress(OSError), connection:
                wrapped = connection if tls is None else tls.wrap_socket(connection, server_side=True)
                with wrapped:
                    script(Call(wrapped, server))

        def accept() -> None:
            while not server.is_over:
                with contextlib.suppress(TimeoutError):
                    connection, _ = listener.accept()
                    connection.settimeout(None)
                    server.called()
                    calls.callback(_hang_up, connection)
                    threads.append(threading.Thread(target=speak, args=(connection,)))
                    threads[-1].start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield server
        finally:
            server.end()
            accepting.join()
            calls.close()
            for thread in threads:
                thread.join()


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
        connection.close()


def serving(*replies: bytes) -> Callable[[Call], None]:
    """A script that answers in turn, over all connections, and with the last reply from then on."""
    left = list(replies)
    lock = threading.Lock()

    def script(call: Call) -> None:
        while call.receive() is not None:
            with lock:
                reply = left.pop(0) if len(left) > 1 else left[0]
            if not call.emit(reply):
                return

    return script


def reply(status: str, *headers: str, body: bytes = b"") -> bytes:
    """A reply with a length."""
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body
