"""How this process is about to end, as far as it can know by itself.

Three ways are seen: `sys.exit`, an exception that nothing caught, and the cells of a notebook. A program that
raises `SystemExit` by its own hand is seen by the exporter alone, which reads the exit status.

Rules: only a `sys.exit` of the main thread ends a process, and only one that nothing caught; of an exception
its text is kept and nothing else. Must not know runs.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final, NoReturn

from overwatch.sdk.ending import COMPLETED, Ending, of_error, signal_of

_AFTER_CHILDREN: Final = -100
"""Priority among the finalizers of multiprocessing: a worker's own children are gone by then."""
_AFTER_CELL: Final = "post_run_cell"


class _Exit(SystemExit):
    """What `sys.exit` raises in the main thread: it sees that the interpreter ends with it."""

    overwatch_signal: str | None = None
    """The signal whose handler called `sys.exit`."""

    @property
    def code(self) -> Any:
        """The status. Only the interpreter, when it ends, reads it without a Python caller."""
        try:
            sys._getframe(1)  # noqa: SLF001 documented, and raises this at the bottom
        except ValueError:
            _ways_out.append(of_error(self))
        return _code.__get__(self)

    @code.setter
    def code(self, value: object) -> None:
        _code.__set__(self, value)

    def __reduce__(self) -> tuple[type[SystemExit], tuple[object, ...]]:
        return SystemExit, self.args


_Exit.__name__ = _Exit.__qualname__ = "SystemExit"
_code: Final[Any] = SystemExit.__dict__["code"]
_ways_out: Final[list[Ending]] = []
"""How the interpreter ends, once it does."""
_stale: Final[list[int]] = []
"""The exception that nothing caught before a run began, e.g. in the notebook that forked this process."""
_workers: Final[set[int]] = set()
"""Processes of multiprocessing that close their runs with its finalizers."""


def watch(close: Callable[[], None]) -> None:
    """See from now on how the process ends; `close` is called where a worker ends without `atexit`."""
    _stale[:] = [id(getattr(sys, "last_value", None))]
    if not getattr(sys.exit, "is_watched", False):
        sys.exit = _watched(sys.exit)
    process, util = sys.modules.get("multiprocessing.process"), sys.modules.get("multiprocessing.util")
    if process is None or util is None or process.parent_process() is None or os.getpid() in _workers:
        return
    _workers.add(os.getpid())
    util.Finalize(None, close, exitpriority=_AFTER_CHILDREN)


def is_daemon() -> bool:
    """Whether this process is a daemonic worker of multiprocessing, which its parent ends with SIGTERM."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None and process.current_process().daemon


def _watched(leave: Callable[..., NoReturn]) -> Callable[..., NoReturn]:
    """`sys.exit` as it is, but for what it raises in the main thread."""

    def exit(status: object = None, /) -> NoReturn:  # noqa: A001 its name in `sys`
        try:
            leave(status)
        except SystemExit as error:
            if type(error) is not SystemExit or threading.current_thread() is not threading.main_thread():
                raise
            seen = _Exit(*error.args)
        seen.overwatch_signal = signal_of(_callers())
        raise seen

    exit.__doc__ = leave.__doc__
    exit.is_watched = True  # type: ignore[attr-defined]
    return exit


def _callers() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 documented
    while frame is not None:
        yield frame
        frame = frame.f_back


def way_out() -> Ending:
    """How the interpreter ends, which calls this at its exit; `completed` where nothing else is known."""
    if _ways_out:
        return _ways_out[-1]
    error = getattr(sys, "last_value", None)
    return COMPLETED if id(error) in _stale else of_error(error)


class Cells:
    """How a run ends in a notebook, by its cells; outside of a notebook it knows nothing.

    The last cell that used the run decides. A later cell that failed decides instead, as long as no cell went
    well after it: an exception in a notebook ends its cell and not the process.
    """

    def __init__(self, used: Callable[[], int]) -> None:
        """`used` counts the uses so far."""
        self._used = used
        self._before: int | None = None
        self._of_user = self._of_last = COMPLETED
        shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
        self._events = getattr(shell, "events", None)
        if self._events is not None:
            self._events.register(_AFTER_CELL, self._ended)

    @property
    def ending(self) -> Ending | None:
        """How it ends if the notebook ends now; `None` while no cell has ended."""
        if self._before is None:
            return None
        return self._of_user if self._of_last == COMPLETED else self._of_last

    def close(self) -> None:
        """Watch no more cells."""
        if self._events is not None:
            self._events.unregister(_AFTER_CELL, self._ended)
            self._events = None

    def _ended(self, result: Any) -> None:
        """IPython's callback: a cell has run."""
        self._of_last = of_error(result.error_before_exec or result.error_in_exec)
        if (used := self._used()) != self._before:
            self._before, self._of_user = used, self._of_last
