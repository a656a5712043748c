"""How a run ended: one rule for exceptions, for exit statuses and for signals.

Rules: an exit status other than 0 is never `completed`; an end that is asked for (Ctrl-C, a handled signal)
is `interrupted`. Pure. Must not know what asks, nor where the answer goes.
"""

import os
import signal
from collections.abc import Iterable, Iterator
from types import FrameType, TracebackType
from typing import Final, NamedTuple


class Ending(NamedTuple):
    """Outcome and reason of a run."""

    outcome: str
    """`completed`, `failed`, `interrupted` or `lost`; `ended` where no more is known."""
    reason: str | None = None


COMPLETED: Final = Ending("completed")
_STOPS: Final = frozenset({"KeyboardInterrupt", "GeneratorExit", "CancelledError"})
"""Exceptions that stop a program from outside, by the name of their class."""
_EARLY: Final = frozenset({"TrialPruned"})
"""Exceptions with which a library ends a training that went well."""
ENDING: Final = frozenset(
    {
        signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
        signal.SIGXCPU,
    }
)  # fmt: skip
"""Signals that ask a program to end; Slurm announces a limit with the last three."""
_CRASHES: Final = frozenset(
    {
        signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP,
        signal.SIGSYS,
    }
)  # fmt: skip
"""Signals that a process gets for what it did itself."""
_SHELL: Final = 128
"""A shell, and by its custom a handler, exits with this plus the signal."""
_STATUSES: Final = 256
_VARARGS: Final = 0x04


def of_error(error: BaseException | None) -> Ending:
    """How a run ended that an exception passed, or none."""
    if error is None:
        return COMPLETED
    handled = getattr(error, "overwatch_signal", None) or signal_of(_frames(error.__traceback__))
    if handled is not None:
        return Ending("interrupted", handled)
    if isinstance(error, SystemExit):
        return of_exit(error.code)
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & _STOPS:
        return Ending("interrupted", _text_of(error))
    return Ending("completed" if names & _EARLY else "failed", _text_of(error))


def of_exit(code: object) -> Ending:
    """How a run ended whose program exited with what `sys.exit` takes."""
    if code is None:
        return COMPLETED
    if isinstance(code, int):
        return of_status(code % _STATUSES)
    try:
        return Ending("failed", str(code))
    except Exception:  # noqa: BLE001 the code is any object, whose own code may raise anything
        return of_status(1)


def of_status(status: int) -> Ending:
    """How a run ended whose process exited by itself with a status."""
    if status == 0:
        return COMPLETED
    requested = status - _SHELL
    if requested in ENDING:
        return Ending("interrupted", f"exit status {status} ({signal.Signals(requested).name})")
    return Ending("failed", f"exit status {status}")


def of_wait(status: int | None, memory: str | None = None, *, is_daemon: bool = False) -> Ending:
    """How a run ended whose process went without an end record; `status` is what `waitpid` gives.

    `memory` names the control group whose memory was used up. A worker that `is_daemon` is ended by its
    parent with SIGTERM; whether its tasks were done by then is known to neither.
    """
    if status is None:
        return Ending("lost", "trainer gone without an end")
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return of_status(code)
    if is_daemon and -code == signal.SIGTERM:
        return Ending("interrupted", f"worker ended by {signal_name(-code)}, as a pool ends its workers")
    reason = f"trainer killed by {signal_name(-code)}"
    if memory is not None and -code == signal.SIGKILL:
        reason = f"{reason}: out of memory (control group {memory})"
    return Ending("lost", reason)


def corrected(presumed: str, status: int | None) -> Ending | None:
    """What the exit status of a process makes of the outcome presumed before it; `None` leaves it.

    Its program had ended by then: a signal from outside, as a pool ends its workers, changes nothing.
    """
    if presumed != COMPLETED.outcome or not status:
        return None
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return of_status(code)
    return Ending("failed", f"killed by {signal_name(-code)} while it exited") if -code in _CRASHES else None


def signal_name(number: int) -> str:
    """A signal as a person looks for it: `signal 9 (SIGKILL)`."""
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def signal_of(frames: Iterable[FrameType]) -> str | None:
    """The signal whose Python handler is among some frames.

    A handler is called with its signal and with the frame that it interrupted, which is the one it runs on.
    """
    for frame in frames:
        caller = frame.f_back
        if caller is None:
            continue
        arguments = _arguments(frame)
        if any(one is caller for one in arguments):
            for one in arguments:
                if isinstance(one, int) and one in ENDING:
                    return signal.Signals(one).name
    return None


def _arguments(frame: FrameType) -> list[object]:
    code, values = frame.f_code, frame.f_locals
    given = [values.get(name) for name in code.co_varnames[: code.co_argcount]]
    if code.co_flags & _VARARGS:
        given += values.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount], ())
    return given


def _frames(trace: TracebackType | None) -> Iterator[FrameType]:
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


def _text_of(error: BaseException) -> str:
    """Type and message; an exception whose own `__str__` raises has only its type."""
    name = type(error).__name__
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 the exception's own code may raise anything
        message = ""
    return f"{name}: {message}" if message else name
