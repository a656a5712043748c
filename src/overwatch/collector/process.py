"""The collector as a process: its signals, its log, its exit status.

Rules: SIGTERM and SIGINT drain, a second one ends at once; SIGHUP takes new tokens and certificates up; where
a component ended that only a restart brings back, so does the process, for its supervisor to start it
again. What the process writes is its user's alone; the interpreter is set for answers that do not wait. Must
not know components.
"""

import gc
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Final

from overwatch import __version__
from overwatch.collector import logs
from overwatch.collector.service import Service, StartError
from overwatch.collector.setting_types import texts_in
from overwatch.collector.settings import CollectorConfig
from overwatch.os_signals import received
from overwatch.platform import return_memory_soon

_ENDING: Final = (signal.SIGTERM, signal.SIGINT)
_LOOK_S: Final = 1.0
"""Time between two looks at who must go on, in seconds."""
_ENDED: Final = 3
"""Exit status where a part ended that only a restart brings back."""
_SWITCH_S: Final = 0.0001
"""Longest time that a thread which computes keeps others waiting, in seconds: an answer takes some turns."""
_YOUNG: Final = (50_000, 20, 50)
"""Thresholds of the garbage collector: a request makes thousands of objects, none of them in a cycle."""
_OTHERS: Final = 0o077
"""Permission bits of everybody but this user."""

_log = logging.getLogger("overwatch.collector")


def run(config: CollectorConfig, fixed: frozenset[str] = frozenset()) -> int:
    """Run a collector until SIGTERM or SIGINT; a port of a `fixed` endpoint that is busy is an error.

    Returns 0 after a clean stop, 130 where that was SIGINT's, 1 when a part did not stop cleanly, 2 when the
    collector cannot start, 3 when a part ended by an error of ours. A second signal ends the process at once.
    """
    return_memory_soon()
    service = Service(config, fixed=fixed)
    tokens, written = service.context.guard.tokens, texts_in(config)
    with (
        logs.on_stderr(config.service.telemetry.logs, lambda: written | tokens.texts),
        _private_files(),
        _signals() as requested,
        _prompt_threads(),
    ):
        return _serve(service, requested)


def _serve(service: Service, requested: SimpleQueue[int]) -> int:
    try:
        service.start()
        service.announce()
        # What is here stays: it is not looked at again for garbage.
        gc.freeze()
        _log.info("overwatch %s accepts; stop with SIGTERM or ctrl-c", __version__)
        status = _wait(service, requested)
        _log.info("stopping: refusing new data, writing what was accepted")
    except StartError as error:
        _log.error("cannot start: %s", error)
        return 2
    finally:
        service.stop()
    if status == _ENDED:
        return status
    if service.failed_stops:
        return 1
    _log.info("stopped; everything that was accepted is written")
    return status


def _wait(service: Service, requested: SimpleQueue[int]) -> int:
    """Until it is to stop; the exit status where all stops cleanly."""
    while True:
        try:
            number = requested.get(timeout=_LOOK_S)
            if number != signal.SIGHUP:
                return 128 + number if number == signal.SIGINT else 0
            service.reload()
        except Empty:
            ended = service.context.health.ended
            if ended:
                _log.error("%s ended; the collector has to be started again", ", ".join(ended))
                return _ENDED


@contextmanager
def _signals() -> Iterator[SimpleQueue[int]]:
    """The signals that come, in order."""
    requested: SimpleQueue[int] = SimpleQueue()
    ending = False

    def report(number: int) -> None:
        nonlocal ending
        if number in _ENDING:
            if ending:
                os._exit(128 + number)
            ending = True
        requested.put(number)

    with received((*_ENDING, signal.SIGHUP), report):
        yield requested


@contextmanager
def _prompt_threads() -> Iterator[None]:
    """Threads take turns often, and garbage is looked for seldom; as before after this context."""
    switch, young = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(_SWITCH_S)
    gc.set_threshold(*_YOUNG)
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*young)
        sys.setswitchinterval(switch)


@contextmanager
def _private_files() -> Iterator[None]:
    """Files and folders made in this context are this user's alone."""
    before = os.umask(_OTHERS)
    try:
        yield
    finally:
        os.umask(before)
