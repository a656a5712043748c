"""What every method of a run rests on: the guard around it, names, columns, sending, and the end.

Owns the counts of what could not be sent, values that a device still computes, and what happens at exit and
in a forked child. Must not know which facts there are.
"""

import atexit
import difflib
import functools
import logging
import os
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, Self, TypeVar, cast

import msgspec

from overwatch.catalog import BY_NAME, CUSTOM_PREFIX, Metric, Scope, find, head_of, of_scope, spellings, typed
from overwatch.catalog.presets import DEFAULT
from overwatch.events import Column, Measured, RunFinished
from overwatch.sdk import exits
from overwatch.sdk.device import DeviceValues
from overwatch.sdk.ending import COMPLETED, Ending, of_error
from overwatch.sdk.frames import Frame
from overwatch.sdk.link import Link, Outcome
from overwatch.sdk.packing import Tensor, is_tensor
from overwatch.sdk.rings.updates import Latest
from overwatch.sdk.tallies import Tallies
from overwatch.sdk.terminal import Terminal
from overwatch.sdk.values import (
    Numbers,
    Numeric,
    RefusedError,
    common_rows,
    maybe_text,
    number,
    numbers,
    text,
)

if TYPE_CHECKING:
    import numpy as np

log: Final = logging.getLogger("overwatch.sdk")

MAX_CUSTOM: Final = 256
MAX_NAME: Final = 128
MAX_SAID: Final = 64
EXIT_S: Final = 2.0
FORKED: Final = "forked"
"""Reason for dropping what a forked child emits on its parent's run."""

P = ParamSpec("P")
C = TypeVar("C", bound="Channel")
T = TypeVar("T")
V = TypeVar("V")


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What became of everything a run was told; `accepted` is delivered plus kept plus dropped."""

    delivered: bool
    """Every accepted record was taken by the collector."""
    accepted: int
    """Records handed in."""
    dropped: dict[str, int]
    """Records that are gone, by reason."""
    kept: int = 0
    """Records on disk: the next start delivers them, or `overwatch sync`."""
    refused: int = 0
    """Single values that could not be taken, e.g. text for a number."""


class Values:
    """Columns of one length; those on a device are kept apart."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.columns: dict[str, Column] = {}
        self.late: dict[str, Tensor] = {}

    def add(self, name: str, values: Numbers) -> None:
        """Take one column, or one number for all rows; raises `RefusedError`."""
        if is_tensor(values):
            self.late[name] = values
        else:
            self.columns[name] = numbers(values, self.rows)


def guarded(method: Callable[Concatenate[C, P], None]) -> Callable[Concatenate[C, P], None]:
    """The border between training and telemetry: an error is counted, said once, and goes no further."""

    @functools.wraps(method)
    def call(self: C, /, *args: P.args, **kwargs: P.kwargs) -> None:
        if self._link is None:
            self._miss()
            return
        try:
            self._device.look()
            method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 the border: counted, and training goes on
            self._invalid(method.__name__, error)

    return call


class Channel:
    """A run's way out. A channel without a link takes everything and sends nothing."""

    def __init__(
        self,
        run_id: str,
        link: Link | None,
        n_envs: int | None = None,
        preset: str = DEFAULT,
        terminal: Terminal | None = None,
    ) -> None:
        self._preset = preset
        self._terminal = terminal
        """Where lines for a person go; `None` for a run that prints nothing."""
        self.run_id = run_id
        """The run's id, shared by all of its processes."""
        self._link = link
        self._device = DeviceValues(self._drop, self._refuse)
        self._tallies = Tallies("" if link is None else link.role, self._send, self._say)
        self._n_envs = n_envs
        self._latest = Latest()
        self._names = {row.short: row.name for row in of_scope(Scope.POLICY)}
        self._custom: set[str] = set()
        self._env_ids = Column(dtype="<i4", data=b"")
        self._refused = 0
        self._said: set[str] = set()
        self._report: Report | None = None
        self._closing = threading.Lock()
        self._owner = os.getpid()
        self._missed = 0
        """Calls in a forked child, which cannot send."""
        self._presumed = COMPLETED
        self._handled = id(sys.exc_info()[1])
        """Id of the exception that was being handled when the run began: it is not how the run ends."""
        if link is not None:
            exits.watch(_close_worker)
            self._cells = exits.Cells(link.uses)
            _OPEN.add(self)

    @property
    def last_update(self) -> int | None:
        """Number of the newest update."""
        return self._latest.update

    @property
    def exporter_pid(self) -> int | None:
        """Id of the process that sends, while one lives."""
        return None if self._link is None else self._link.exporter_pid

    def _send(self, frame: Frame) -> None:
        link = self._link
        if link is not None:
            link.send(frame)

    def _drop(self, reason: str) -> None:
        """Count a record that could not be made."""
        link = self._link
        if link is not None:
            link.count_drop(reason)

    def _miss(self) -> None:
        """Count a call that a forked child cannot send."""
        if self._is_forked:
            self._missed += 1
            self._say(
                "fork",
                f"run {self.run_id} is of process {self._owner}, which started it. What a forked child emits "
                "on it is not sent, only counted in the child's report: start a run in the child",
            )

    @property
    def _is_forked(self) -> bool:
        return self._link is None and self._report is None and self._owner != os.getpid()

    def _measured(self, scope: Scope, keys: dict[str, Column], values: Values, index: int | None) -> None:
        """Tell columns; those on a device are waited for elsewhere, and told with the moment of now."""
        at = time.time_ns()

        def tell(columns: dict[str, Column]) -> None:
            self._send(Measured(at=at, scope=scope, keys=keys, values=columns, index=index))

        self._when_there(values, tell)

    def _when_there(self, values: Values, tell: Callable[[dict[str, Column]], None]) -> None:
        """Call `tell` with all columns once those on a device are there, in the order of the calls."""
        rows = values.rows
        if not values.late and not self._device.waiting:
            tell(values.columns)
            return

        def arrived(arrays: "dict[str, np.ndarray]") -> None:
            late = {}
            for name, array in arrays.items():
                if len(array) not in (1, rows):
                    self._refuse(name, RefusedError(f"{len(array)} values for {rows} rows"))
                    continue
                late[name] = Column.of(array if len(array) == rows else array.repeat(rows))
            tell({**values.columns, **late})

        self._device.offer_columns(values.late, arrived)

    def _numbers_when_there(
        self, values: Mapping[str, Numeric | Tensor], tell: Callable[[dict[str, float]], None]
    ) -> None:
        """Call `tell` with plain numbers, at once or when a device has computed them."""
        if not self._device.waiting and not any(map(is_tensor, values.values())):
            tell({name: number(value) for name, value in values.items()})
            return
        plain = {name: value if is_tensor(value) else number(value) for name, value in values.items()}
        self._device.offer(cast("Mapping[str, Tensor | float]", plain), tell)

    def _maybe(self, name: str, take: Callable[[T], V], value: T | None) -> V | None:
        """What an optional value comes to; absent where it cannot be taken, which is counted."""
        if value is None:
            return None
        try:
            return take(value)
        except RefusedError as error:
            self._refuse(name, error)
            return None

    def _rows(self, env_id: Numbers | None, columns: Mapping[str, Numbers]) -> int:
        if env_id is not None:
            return common_rows(env_id)
        rows = common_rows(*columns.values())
        return self._n_envs if rows == 1 and self._n_envs is not None else rows

    def _first_envs(self, rows: int) -> Column:
        """Ids 0, 1, 2, ... of so many envs; made once."""
        if len(self._env_ids) != rows:
            self._env_ids = Column(dtype="<i4", data=struct.pack(f"<{rows}i", *range(rows)))
        return self._env_ids

    def _columns(self, scope: Scope, columns: Mapping[str, Numbers], rows: int) -> Values:
        """Columns under their full names; one that cannot be taken is left out and counted."""
        taken = Values(rows=rows)
        for name, values in columns.items():
            try:
                taken.add(self._full_name(name, scope), values)
            except RefusedError as error:
                self._refuse(name, error)
        return taken

    def _full_name(self, name: str, scope: Scope) -> str:
        row = find(name, scope)
        return self._custom_name(name) if row is None else row.name

    def _policy_name(self, name: str) -> str:
        row = find(name, Scope.POLICY, self._preset)
        full = self._names[name] = self._custom_name(name) if row is None else row.name
        if row is not None and name not in spellings(row):
            self._say(f"loose {name}", f"{name!r} is taken as {row.short!r}: sent as {full}")
        return full

    def _policy_names(self, names: Iterable[str]) -> dict[str, str]:
        """The full name of each; of several spellings of one row the others than the surest are custom."""
        found: dict[str, str] = {}
        taken: dict[str, str] = {}
        for name in names:
            try:
                full = self._names.get(name) or self._policy_name(name)
                other = taken.setdefault(full, name)
                if other != name:
                    if full not in BY_NAME:
                        raise RefusedError(f"{other!r} is the same custom number")  # noqa: TRY301
                    taken[full] = _surer(BY_NAME[full], other, name)
                    apart = name if taken[full] == other else other
                    found[apart] = self._custom_name(apart)
                    self._say(f"twice {apart}", f"{apart!r} is sent as {found[apart]}: {full} has a value")
                found[taken[full]] = full
            except RefusedError as error:
                self._refuse(name, error)
        return found

    def _custom_name(self, name: str) -> str:
        """The full name of a number that no row knows; raises `RefusedError` when there are too many."""
        full = name if name.startswith(CUSTOM_PREFIX) else f"{CUSTOM_PREFIX}{text(name, MAX_NAME)}"
        if full in self._custom:
            return full
        if len(self._custom) >= MAX_CUSTOM:
            raise RefusedError(f"a run takes {MAX_CUSTOM} custom names; {name[:MAX_NAME]!r} is one more")
        self._custom.add(full)
        close = difflib.get_close_matches(name.rpartition("/")[2], _TYPED, n=1, cutoff=0.8)
        if close and not name.startswith(CUSTOM_PREFIX) and head_of(name) is None:
            hint = f"no metric is called {name[:MAX_NAME]!r}; did you mean {close[0]!r}? Sent as {full}"
            self._say(f"close name {name}", hint)
        return full

    def _refuse(self, name: str, error: RefusedError) -> None:
        self._refused += 1
        self._say(f"value {name}", f"{str(name)[:MAX_NAME]}: {error}; left out, counted in the report")

    def _invalid(self, method: str, error: Exception) -> None:
        self._drop("invalid")
        self._say(f"call {method}", f"run.{method}: {type(error).__name__}: {error}; left out, counted")

    def _say(self, about: str, message: str) -> None:
        """Log once about a thing, and at most about so many things."""
        if about not in self._said and len(self._said) < MAX_SAID:
            self._said.add(about)
            log.warning("%s", message)

    def close(
        self, timeout: float = EXIT_S, *, outcome: str | None = None, reason: str | None = None
    ) -> Report:
        """End the run: deliver what there is within `timeout` seconds, and report what became of it.

        `outcome` is `completed`, `failed` or `interrupted`. Without one the exception that is being handled
        decides, as it does where it leaves a `with run:`. A second call returns the first report.
        """
        ending = self._ending() if outcome is None else Ending(outcome)
        return self._close(timeout, ending if reason is None else Ending(ending.outcome, reason))

    def note_error(self, error: BaseException | None) -> None:
        """Note the exception that left a part of the loop: it ends the run unless a later call has `None`."""
        self._presumed = of_error(error)

    def _ending(self) -> Ending:
        """How the run ends here: by the exception that is being handled, else by the noted one."""
        error = sys.exc_info()[1]
        return self._presumed if error is None or id(error) == self._handled else of_error(error)

    def _close(self, timeout: float, ending: Ending, *, at_exit: bool = False) -> Report:
        if not self._closing.acquire(timeout=max(timeout, 0.0)):
            return Report(delivered=False, accepted=0, dropped={}, refused=self._refused)
        try:
            if self._report is None:
                self._report = self._end(timeout, ending, at_exit=at_exit)
            return self._report
        finally:
            self._closing.release()

    def _end(self, timeout: float, ending: Ending, *, at_exit: bool) -> Report:
        if self._link is None:
            return self._unsent()
        deadline = time.monotonic() + max(timeout, 0.0)
        self._drain_device(max(timeout, 0.0) / 4)
        self._tell_tallies()
        self._finished(ending)
        link, self._link = self._link, None
        _OPEN.discard(self)
        self._cells.close()
        self._shut()
        try:
            ended = link.close(max(deadline - time.monotonic(), 0.0), at_exit=at_exit)
        except Exception as error:  # noqa: BLE001 the border: an exit is never spoilt by telemetry
            self._say("close", f"closing: {type(error).__name__}: {error}")
            ended = Outcome(accepted=0, delivered=0, kept=0, dropped={"unconfirmed": 1})
        report = Report(
            delivered=not ended.dropped and not ended.kept,
            accepted=ended.accepted,
            dropped=ended.dropped,
            kept=ended.kept,
            refused=self._refused,
        )
        if self._terminal is not None:
            self._terminal.ended(ending, report, deadline - time.monotonic())
        return report

    def _unsent(self) -> Report:
        """The report of a run that has no way out: all that was emitted is missing."""
        dropped = {FORKED: self._missed} if self._missed else {}
        return Report(delivered=False, accepted=self._missed, dropped=dropped, refused=self._refused)

    def flush(self, timeout: float = EXIT_S) -> bool:
        """Wait until everything told so far has reached the collector, at most `timeout` seconds.

        True only when it did, and nothing of it was dropped meanwhile.
        """
        link = self._link
        if link is None:
            return False
        deadline = time.monotonic() + max(timeout, 0.0)
        try:
            self._device.settle(max(timeout, 0.0))
            self._tallies.send()
            return not self._device.waiting and link.flush(max(deadline - time.monotonic(), 0.0))
        except Exception as error:  # noqa: BLE001 the border between training and telemetry
            self._invalid("flush", error)
            return False

    @guarded
    def _drain_device(self, timeout: float) -> None:
        self._device.drain(timeout)

    @guarded
    def _tell_tallies(self) -> None:
        self._tallies.close()

    def _shut(self) -> None:
        """Nothing is told any more."""

    @guarded
    def _finished(self, ending: Ending) -> None:
        outcome, reason = text(ending.outcome), maybe_text(ending.reason)
        self._send(RunFinished(at=time.time_ns(), outcome=outcome, reason=reason))

    def _abandon(self) -> None:
        """In a forked child: this run belongs to the parent."""
        self._terminal = None
        link, self._link = self._link, None
        self._tallies = Tallies("", self._send, self._say)
        self._device.abandon()
        self._shut()
        if link is not None:
            self._cells.close()
            link.abandon(self._miss)

    def _leave(self, way_out: Ending) -> None:
        """The process ends with this outcome."""
        presumed = way_out if self._presumed == COMPLETED else self._presumed
        self._close(EXIT_S, self._cells.ending or presumed, at_exit=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(EXIT_S, of_error(error))


_TYPED: Final = [word for row in of_scope(Scope.POLICY) if (word := typed(row)) is not None]
"""What is proposed instead of a name that no row has: it can be written as the name of an argument."""
_OPEN: Final[set[Channel]] = set()
"""Runs that are not closed; kept alive so that the exit closes them."""


def _close_all(way_out: Ending) -> None:
    for run in list(_OPEN):
        run._leave(way_out)  # noqa: SLF001 the module's own class


def _surer(row: Metric, *names: str) -> str:
    """Of two spellings of a row the one that leaves less doubt."""
    known = spellings(row)
    return min(names, key=lambda name: known.index(name) if name in known else len(known))


@atexit.register
def _close_at_exit() -> None:
    _close_all(exits.way_out())


def _close_worker() -> None:
    """A worker of multiprocessing ends, still handling the exception that it ends with."""
    _close_all(of_error(sys.exc_info()[1]))


def _abandon_all() -> None:
    for run in list(_OPEN):
        run._abandon()  # noqa: SLF001 the module's own class
    _OPEN.clear()


os.register_at_fork(after_in_child=_abandon_all)
