"""What every method of a run rests on: the border around it, columns, and sending.

Owns the counts of what could not be sent, and values that a device still computes. Must not know which facts
there are.
"""

import functools
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, Protocol, TypeVar, cast

from overwatch.catalog import Scope
from overwatch.events import Column, Conflated, Measured
from overwatch.sdk.device import DeviceValues
from overwatch.sdk.frames import Frame
from overwatch.sdk.link import Link
from overwatch.sdk.names import DIALECT, MAX_NAME, Dialect, Names
from overwatch.sdk.packing import Shape, Tensor, is_tensor
from overwatch.sdk.tallies import Tallies
from overwatch.sdk.values import Numbers, Numeric, RefusedError, number, numbers

if TYPE_CHECKING:
    import numpy as np

log: Final = logging.getLogger("overwatch.sdk")

MAX_WARNINGS: Final = 64


class _Sender(Protocol):
    """What has methods that are `guarded`."""

    _channel: "Channel"


P = ParamSpec("P")
S = TypeVar("S", bound=_Sender)
T = TypeVar("T")
V = TypeVar("V")


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


def guarded(method: Callable[Concatenate[S, P], None]) -> Callable[Concatenate[S, P], None]:
    """A method whose errors are counted and go no further: see `Channel.attempt`."""

    @functools.wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> None:
        self._channel.attempt(method.__name__, method, self, *args, **kwargs)

    return call


class Channel:
    """A run's way out. One without a link takes everything and sends nothing."""

    def __init__(self, run_id: str, link: Link | None, dialect: Dialect = DIALECT) -> None:
        self.run_id = run_id
        self.link = link
        """`None` once the run is over, too."""
        self.device = DeviceValues(self.drop, self.refuse)
        self.tallies = Tallies("" if link is None else link.role, self.send, self.warn)
        self.names = Names(dialect, self.warn, self.refuse)
        self.refused = 0
        """Single values that were left out."""
        self.missed = 0
        """Calls in a forked child, which cannot send."""
        self._owner = os.getpid()
        self._is_forked = False
        self._warned: set[str] = set()

    def attempt(self, name: str, call: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """The border between training and telemetry: an error is counted, logged once, and no more."""
        if self.link is None:
            self.miss()
            return
        try:
            self.device.look()
            call(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 the border: counted, and training goes on
            self.invalid(name, error)

    def send(self, frame: Frame) -> None:
        """Hand over one record."""
        if self.link is not None:
            self.link.send(frame)

    def drop(self, reason: str) -> None:
        """Count a record that could not be made."""
        if self.link is not None:
            self.link.count_drop(reason)

    def invalid(self, method: str, error: Exception) -> None:
        """Count a call that could not be taken."""
        self.drop("invalid")
        self.warn(f"call {method}", f"run.{method}: {type(error).__name__}: {error}; left out, counted")

    def refuse(self, name: str, error: RefusedError) -> None:
        """Count a single value that could not be taken."""
        self.refused += 1
        self.warn(f"value {name}", f"{str(name)[:MAX_NAME]}: {error}; left out, counted in the report")

    def warn(self, about: str, message: str) -> None:
        """Log once about a thing, and at most about so many things."""
        if about not in self._warned and len(self._warned) < MAX_WARNINGS:
            self._warned.add(about)
            log.warning("%s", message)

    def miss(self) -> None:
        """Count a call that a forked child cannot send."""
        if self._is_forked:
            self.missed += 1
            self.warn(
                "fork",
                f"run {self.run_id} is of process {self._owner}, which started it. What a forked child emits "
                "on it is not sent, only counted in the child's report: start a run in the child",
            )

    def abandon(self) -> None:
        """In a forked child: this run belongs to the parent."""
        link, self.link, self._is_forked = self.link, None, True
        self.tallies = Tallies("", self.send, self.warn)
        self.device.abandon()
        if link is not None:
            link.abandon(self.miss)

    def accept(self, name: str, take: Callable[P, V], *args: P.args, **kwargs: P.kwargs) -> V | None:
        """What a value comes to; absent where it cannot be taken, which is counted."""
        try:
            return take(*args, **kwargs)
        except RefusedError as error:
            self.refuse(name, error)
            return None

    def maybe(self, name: str, take: Callable[[T], V], value: T | None) -> V | None:
        """The same of an optional value."""
        return None if value is None else self.accept(name, take, value)

    def policies(self, names: Iterable[str], at: int) -> dict[str, str]:
        """The full names of numbers of the policy; rows that end by what these names show are ended."""
        found = self.names.policies(names)
        if ended := self.names.take_ended():
            self.send(Measured(at=at, scope=Scope.POLICY, values=ended, conflated=Conflated(n=1, updates=0)))
        return found

    def columns(self, scope: Scope, columns: Mapping[str, Numbers], rows: int) -> Values:
        """Columns under their full names; one that cannot be taken is left out and counted."""
        taken = Values(rows)
        for name, values in columns.items():
            full = self.accept(name, self.names.full, name, scope)
            if full is not None:
                self.accept(name, taken.add, full, values)
        return taken

    def measured(self, scope: Scope, keys: dict[str, Column], values: Values, index: int | None) -> None:
        """Send columns; those on a device are waited for elsewhere, and sent with the moment of now."""
        at = time.time_ns()

        def then(columns: dict[str, Column]) -> None:
            self.send(Measured(at=at, scope=scope, keys=keys, values=columns, index=index))

        self.when_there(values, then)

    def when_there(self, values: Values, then: Callable[[dict[str, Column]], None]) -> None:
        """Call `then` with all columns once those on a device are there, in the order of the calls."""
        rows = values.rows
        if not values.late and not self.device.waiting:
            then(values.columns)
            return

        def arrived(arrays: "dict[str, np.ndarray]") -> None:
            late = {}
            for name, array in arrays.items():
                if len(array) not in (1, rows):
                    self.refuse(name, RefusedError(f"{len(array)} values for {rows} rows"))
                    continue
                late[name] = Column.of(array if len(array) == rows else array.repeat(rows))
            then({**values.columns, **late})

        self.device.offer_arrays(values.late, Shape.COLUMNS, arrived)

    def numbers_when_there(
        self, values: Mapping[str, Numeric | Tensor], then: Callable[[dict[str, float]], None]
    ) -> None:
        """Call `then` with plain numbers, at once or when a device has computed them."""
        if not self.device.waiting and not any(map(is_tensor, values.values())):
            then({name: number(value) for name, value in values.items()})
            return
        plain = {name: value if is_tensor(value) else number(value) for name, value in values.items()}
        self.device.offer(cast("Mapping[str, Tensor | float]", plain), then)
