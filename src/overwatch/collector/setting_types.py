"""What texts of a configuration stand for: secrets, and durations as the OpenTelemetry Collector writes them.

Rules: what shows, prints or logs a secret shows a placeholder; only `reveal` gives the text. A secret also
never appears in what msgspec encodes, because encoders are given `str`, and `str` of a secret is the
placeholder. Must not know what a secret opens, nor what takes so long.
"""

import math
import re
from typing import Final, TypeAlias

import msgspec

SHOWN: Final = "[REDACTED]"
"""What stands for a secret, as in otelcol."""

_BEARER: Final = re.compile(r"(?i)\b(bearer|basic)(\s+|%20)[A-Za-z0-9._~+/=%-]+")
_USERINFO: Final = re.compile(r"(?<=://)[^/\s@:]+:[^/\s@]+(?=@)")

Duration: TypeAlias = str | int
"""A number and a unit, any number of times; `0` needs no unit."""

_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")


class Secret:
    """A text that does not show."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself."""
        return self._text

    def __repr__(self) -> str:
        return SHOWN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __reduce__(self) -> tuple[type["Secret"], tuple[str]]:
        # A copy of a configuration by pickling would carry the text out of this type's care.
        raise TypeError("a secret is not pickled")


def texts_in(value: object) -> frozenset[str]:
    """The texts of all secrets in a configuration."""
    if isinstance(value, Secret):
        return frozenset({value.reveal()})
    if isinstance(value, msgspec.Struct):
        below: tuple[object, ...] = msgspec.structs.astuple(value)
    elif isinstance(value, dict):
        below = tuple(value.values())
    elif isinstance(value, tuple | list):
        below = tuple(value)
    else:
        below = ()
    return frozenset[str]().union(*(texts_in(one) for one in below))


def redact(text: str, known: frozenset[str] = frozenset()) -> str:
    """The text without the known secrets, credentials of an `Authorization` header, and of URLs.

    >>> redact("Bearer abc at http://me:pw@host/ key=s3cr3t", frozenset({"s3cr3t"}))
    'Bearer [REDACTED] at http://[REDACTED]@host/ key=[REDACTED]'
    """
    # The longest first, so that no end of one is left; quoted as well, as they stand in JSON.
    for secret in sorted(known, key=len, reverse=True):
        text = text.replace(secret, SHOWN).replace(msgspec.json.encode(secret).decode()[1:-1], SHOWN)
    return _USERINFO.sub(SHOWN, _BEARER.sub(rf"\1\2{SHOWN}", text))


def seconds(name: str, text: Duration) -> float:
    """A duration in seconds; raises `ValueError` that names `name`.

    >>> seconds("timeout", "1m30s"), seconds("timeout", "300ms"), seconds("timeout", 0)
    (90.0, 0.3, 0.0)
    """
    stated = str(text).strip()
    if stated == "0":
        return 0.0
    parts = _PART.findall(stated)
    if not parts or "".join(number + unit for number, unit in parts) != stated:
        raise ValueError(
            f"{name} {stated!r} is no duration; write a number and a unit, e.g. 300ms, 5s or 1m30s"
        )
    return math.fsum(float(number) * _UNITS[unit] for number, unit in parts)


def bounded(
    section: msgspec.Struct, *names: str, least: float | None = None, most: float | None = None
) -> None:
    """Raise `ValueError` for a value that is set and out of bounds; without `least` it is positive."""
    for name in names:
        value = getattr(section, name)
        if value is None:
            continue
        is_low = not value > 0 if least is None else not value >= least
        if most is None and is_low:
            raise ValueError(f"{name} {value} is {'not positive' if least is None else f'less than {least}'}")
        if most is not None and (is_low or value > most):
            within = f"more than 0 and at most {most}" if least is None else f"in {least}..{most}"
            raise ValueError(f"{name} {value} is not {within}")
