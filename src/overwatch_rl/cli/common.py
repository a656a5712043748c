"""What the commands of `overwatch-rl` share: signals, exit codes, errors of use, files of options.

Rules: a first SIGINT or SIGTERM ends a command after its current step; a second one is the interpreter's own.
Must not import torch: signals are taken before it is loaded.
"""

import contextlib
import math
import signal
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final, Protocol, TypeVar

import click

from overwatch.extras import RL, TENSORBOARD
from overwatch_rl.alive import Alive

C = TypeVar("C", bound=Callable[..., Any])

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Place(click.Path):
    """Where checkpoints are: a folder that is there, as a `Path`, or the URL of an object store, as it is."""

    name = "place"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Leave URLs alone."""
        if isinstance(value, str) and "://" in value:
            return value
        return super().convert(value, param, ctx)


class Number(click.FloatRange):
    """A finite number, where it has bounds within them: a comparison with NaN refuses nothing."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """As text or a number; `inf` is beyond every bound."""
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            within = f" in the range {self._describe_range()}" if {self.min, self.max} != {None} else ""
            self.fail(f"{value} is no finite number; use one{within}.", param, ctx)
        return found


PLACE: Final = Place(path_type=Path, exists=True, file_okay=False)


class Stop:
    """Whether and why to end: asked by a signal, or out of time.

    A training asks after each step, or while it waits: who asks goes on, and is `alive`.
    """

    def __init__(self, seconds: float | None, *, is_begun: bool = True, alive: Alive | None = None) -> None:
        """Time runs from now, or from `begin` where it is not begun."""
        self._seconds = seconds
        self._alive = alive
        self._deadline: float | None = None
        self._requested = False
        if is_begun:
            self.begin()

    def begin(self) -> None:
        """Time runs from now."""
        self._deadline = None if self._seconds is None else time.monotonic() + self._seconds

    def query(self) -> None:
        """End after the current step."""
        self._requested = True

    def outcome(self) -> str | None:
        """The outcome to end with now, or `None` to go on."""
        if self._alive is not None:
            self._alive.touch()
        if self._requested:
            return "interrupted"
        late = self._deadline is not None and time.monotonic() >= self._deadline
        return "completed" if late else None


class Requested(Protocol):
    """What a signal ends."""

    def query(self) -> None:
        """End soon."""
        ...


@contextlib.contextmanager
def signals(stop: Requested) -> Iterator[None]:
    """Turn the first signal into a stop and give the handlers back for the second.

    Raises `SystemExit` with 128 and the signal, once what was stopped has ended in order: a launcher takes a
    job that ends with 0 for done, and does not begin it anew.
    """
    before = {number: signal.getsignal(number) for number in SIGNALS}
    taken: list[int] = []

    def give_back() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 the signature of a handler
        taken.append(number)
        stop.query()
        give_back()

    for number in SIGNALS:
        signal.signal(number, handle)
    try:
        yield
    finally:
        give_back()
    if taken:
        raise SystemExit(128 + taken[0])


def alive_option(command: C) -> C:
    """The flag of a command that trains or acts, for a probe that looks whether it still does."""
    return click.option(
        "--alive",
        type=click.Path(path_type=Path, file_okay=False),
        help="Folder of a file for each process, touched while it goes on, for a probe; none without.",
    )(command)


def stopping(seconds: float | None, alive: Path | None) -> Stop:
    """Of a command that has both flags."""
    with usage_errors():
        return Stop(seconds, alive=None if alive is None else Alive(alive))


def _configured(context: click.Context, parameter: click.Parameter, file: Path | None) -> Path | None:
    """Take the values of a TOML file as defaults: what the environment or a flag gives comes before them."""
    if file is None:
        return None
    try:
        given = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise click.BadParameter(f"{file} cannot be read: {error}", context, parameter) from error
    own = given.pop("world-settings", {})
    if not isinstance(own, dict):
        raise click.BadParameter(f"world-settings is {own!r}; write it as a table", context, parameter)
    if own:
        given["set"] = [f"{name}={value}" for name, value in own.items()]
    names = {
        option.removeprefix("--"): one.name
        for one in context.command.params
        for option in one.opts
        if option != "--config"
    }
    unknown = sorted(set(given) - set(names))
    if unknown:
        table = ", and the table world-settings" if "set" in names else ""
        raise click.BadParameter(
            f"{file} has {unknown[0]!r}; its names are those of the flags: {', '.join(sorted(names))}{table}",
            context,
            parameter,
        )
    context.default_map = {names[name]: value for name, value in given.items()}
    return file


def config_option(prefix: str) -> Callable[[C], C]:
    """The flag of a command that names a TOML file of its options; `prefix` is that of its environment."""
    return click.option(
        "--config",
        is_eager=True,
        expose_value=False,
        callback=_configured,
        type=click.Path(path_type=Path, dir_okay=False, exists=True),
        help=f"TOML file of these options; {prefix}_<OPTION> and flags come before it.",
    )


@contextlib.contextmanager
def usage_errors() -> Iterator[None]:
    """A `ValueError` of a config becomes a usage error; for a missing torch it names what to install."""
    try:
        yield
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    except ModuleNotFoundError as error:
        for extra in (RL, TENSORBOARD):
            if error.name in extra.modules:
                raise click.ClickException(extra.need) from error
        raise
