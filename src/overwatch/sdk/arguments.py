"""The arguments of `start`: each is accepted alone, or left out with a warning that names value and fix.

Rules: nothing raises, whatever a value's own code does; no value is waited for without end. Must not know
what becomes of an argument.
"""

import itertools
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar
from urllib.parse import urlsplit

from overwatch.events import MetricInfo
from overwatch.sdk.identity import CREDENTIALS, REDACTED
from overwatch.sdk.values import MAX_REASON, RefusedError, text, whole

log: Final = logging.getLogger("overwatch.sdk")

MAX_NAMES: Final = 65_536
"""Most devices or slots that are read of one argument."""
_Found = TypeVar("_Found")


def accepted(
    name: str, value: object, convert: Callable[..., _Found], *, is_shown: bool = True
) -> _Found | None:
    """The argument as it is sent; `None` where it is not given, and with a warning where it cannot be used.

    A value that may hold secrets is not shown.
    """
    if value is None:
        return None
    try:
        return convert(value)
    except Exception as error:  # noqa: BLE001 a value's own code may raise anything
        log.warning(
            "start(): %s=%s is left out: %s",
            name,
            _shown(value) if is_shown else _hidden(value),
            text(error, MAX_REASON),
        )
        return None


def count(value: object) -> int:
    """A whole number from 0."""
    try:
        found = whole(value)
    except RefusedError as error:
        raise RefusedError(f"{error}; write a whole number, e.g. 64") from None
    if found < 0:
        raise RefusedError("it is below 0; write a whole number, e.g. 64")
    return found


def url(value: object) -> str:
    """An address to send to."""
    if isinstance(value, str) and is_url(value):
        return text(value)
    raise RefusedError("it is no URL; write e.g. http://127.0.0.1:4318")


def is_url(endpoint: str) -> bool:
    """Whether OTLP can be sent there."""
    try:
        parts = urlsplit(endpoint)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def names(value: object) -> tuple[str, ...]:
    """Some names in their order."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise RefusedError(f"{type(value).__name__} is no list of names; write e.g. ['cuda:0']")
    return tuple(text(one) for one in itertools.islice(value, MAX_NAMES))


def mapping(value: object) -> Mapping[object, object]:
    """Values by their names."""
    if not isinstance(value, Mapping):
        raise RefusedError(f"{type(value).__name__} is no mapping; write e.g. {{'ddp': 8}}")
    return dict(itertools.islice(value.items(), MAX_NAMES))


def codes(value: object) -> dict[str, str]:
    """Words by their names."""
    return {text(key): text(code) for key, code in mapping(value).items()}


def text_if_set(value: object) -> str | None:
    """A word; absent where the value is false or empty."""
    return text(value) if value else None


def metric(value: object) -> MetricInfo:
    """A metric whose parts can be sent."""
    if not isinstance(value, MetricInfo):
        raise RefusedError(f"{type(value).__name__} is no metric; pass overwatch.events.MetricInfo")
    return MetricInfo(
        name=text(value.name), unit=text(value.unit), higher_is_better=bool(value.higher_is_better)
    )


def _shown(value: object) -> str:
    """A value for a line of the log, without running its own code."""
    if type(value) in (str, int, float, bool):
        return CREDENTIALS.sub(REDACTED, text(repr(value), MAX_REASON))
    return _hidden(value)


def _hidden(value: object) -> str:
    return f"<{type(value).__name__}>"
