"""Many runs in one exporter process: each arrives with its rings, its line and its account.

Rules: each run has threads, queue and destination of its own, so that a collector that is slow delays one
run only; a run that ends, or cannot be read, is forgotten and the others go on; the process ends with its
last run once none can come, and else a while after. With no room for another run no more are taken: the
trainer starts another process. Must not know what an exporter does.
"""

import contextlib
import logging
import os
import resource
import select
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

log: Final = logging.getLogger("overwatch.exporter")

LINGER_S: Final = 2.0
"""How long the process waits for the next run, whose start is then at once."""
_LOOK_S: Final = 0.2
_LONGEST: Final = 1 << 16
_MOST: Final = 3
_FILES: Final = 32
"""What one run may have open."""
Serve = Callable[[Path, int, int, list[int]], object]
"""Serves one run until it is over: its rings, its line, its account, perhaps a handle on its trainer."""


def serve_all(door: socket.socket, serve: Serve, linger_s: float = LINGER_S) -> None:
    """Serve every run that comes, until none has come or lived for `linger_s` or none can come."""
    living: list[threading.Thread] = []
    with door:
        room, poll = _room(), select.poll()
        poll.register(door, select.POLLIN)
        while len(living) < room:
            if poll.poll((_LOOK_S if living else linger_s) * 1000):
                data, handles, *_ = socket.recv_fds(door, _LONGEST, _MOST)
                one = _begin(serve, Path(os.fsdecode(data)), handles)
                if one is None:
                    break
                living.append(one)
            elif not living:
                break
            living = [one for one in living if one.is_alive()]
    for one in living:
        one.join()


def _room() -> int:
    """How many runs this process can serve at once, by the files that it may open."""
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        soft = most
    return sys.maxsize if soft == resource.RLIM_INFINITY else max(soft // _FILES, 1)


def _begin(serve: Serve, rings: Path, handles: list[int]) -> threading.Thread | None:
    """The thread of one run; `None` where none came, or there is no room for it, which its trainer sees."""
    one = threading.Thread(target=_serve, args=(serve, rings, handles), name="overwatch-run")
    try:
        if len(handles) > 1:
            one.start()
            return one
    except RuntimeError as error:
        log.warning("no thread for one more run: %s", error)
    _close(handles)
    return None


def _close(handles: list[int]) -> None:
    for handle in handles:
        os.close(handle)


def _serve(serve: Serve, rings: Path, handles: list[int]) -> None:
    try:
        line, account, *rest = handles
        serve(rings, line, account, rest)
    except Exception:
        log.exception("the exporter of one run ended: %s", rings)
    finally:
        _close(handles)
