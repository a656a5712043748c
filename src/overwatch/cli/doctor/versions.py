"""Versions: what is installed, what this build needs, and pairs that are known not to work together."""

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from typing import Final

import overwatch
from overwatch.cli.doctor.verdict import Verdict, failure, ok, warning
from overwatch.extras import EXTRAS

AREA: Final = "versions"
DISTRIBUTION: Final = "esper-overwatch"
SHOWN: Final = (
    "protobuf",
    "grpcio",
    "opentelemetry-sdk",
    "opentelemetry-proto",
    "numpy",
    "msgspec",
    "textual",
)
_TOGETHER: Final = (
    "opentelemetry-sdk", "opentelemetry-api", "opentelemetry-proto",
    "opentelemetry-exporter-otlp-proto-grpc", "opentelemetry-exporter-otlp-proto-http",
)  # fmt: skip
_NEED: Final = re.compile(r"([A-Za-z0-9._-]+)>=([0-9.]+)")

Found = Callable[[str], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _BadPair:
    """Two packages that do not work together."""

    one: str
    from_one: str
    """Least version of `one` that breaks."""
    other: str
    below_other: str
    """First version of `other` that works again."""
    why: str


_BAD: Final = (
    _BadPair(one="numpy", from_one="2.0", other="torch", below_other="2.3",
             why="this PyTorch was built against NumPy 1 and cannot share arrays"),
    _BadPair(one="protobuf", from_one="8.0", other="opentelemetry-proto", below_other="99",
             why="OpenTelemetry's messages need protobuf below 8"),
    _BadPair(one="protobuf", from_one="6.0", other="grpcio-status", below_other="1.70",
             why="this grpcio-status needs protobuf 5"),
)  # fmt: skip


def installed(name: str) -> str | None:
    """The version of a distribution."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def versions(found: Found = installed) -> Iterator[Verdict]:
    """What is there, then what is wrong with it."""
    python = ".".join(map(str, sys.version_info[:3]))
    shown = ", ".join(f"{name} {version}" for name in SHOWN if (version := found(name)))
    yield ok(AREA, f"Overwatch {overwatch.__version__}, Python {python}, {shown}")
    yield from _extras()
    yield from _needed(found)
    yield from _equal(found)
    for pair in _BAD:
        one, other = found(pair.one), found(pair.other)
        if (
            one
            and other
            and _number(one) >= _number(pair.from_one)
            and _number(other) < _number(pair.below_other)
        ):
            fix = f"pip install '{pair.one}<{pair.from_one}'"
            fix += f" or '{pair.other}>={pair.below_other}'" if pair.below_other != "99" else ""
            yield failure(AREA, f"{pair.one} {one} with {pair.other} {other}: {pair.why}", fix)
    yield from _backend()


def _extras() -> Iterator[Verdict]:
    """What can be installed beside, with what each brings: nothing is wrong without."""
    missing = [extra for extra in EXTRAS.values() if extra.missing]
    if missing:
        named = ", ".join(f"{extra.name} ({extra.brings})" for extra in missing)
        yield ok(AREA, f'not installed: {named}; pip install "{DISTRIBUTION}[NAME]"')


def _needed(found: Found) -> Iterator[Verdict]:
    try:
        needs = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        yield warning(
            AREA, f"{DISTRIBUTION} is not installed, only importable", f"pip install {DISTRIBUTION}"
        )
        return
    for need in needs:
        match = _NEED.match(need)
        if match is None or "extra ==" in need or "sys_platform" in need:
            continue
        name, least = match.groups()
        version = found(name)
        if version is None:
            yield failure(AREA, f"{name} is missing", f"pip install '{name}>={least}'")
        elif _number(version) < _number(least):
            yield failure(
                AREA, f"{name} {version} is older than {least}", f"pip install -U '{name}>={least}'"
            )


def _equal(found: Found) -> Iterator[Verdict]:
    """Parts of OpenTelemetry that are released together."""
    held = {name: version for name in _TOGETHER if (version := found(name))}
    if len(set(held.values())) > 1:
        said = ", ".join(f"{name} {version}" for name, version in held.items())
        newest = max(held.values(), key=_number)
        wanted = " ".join(f"{name}=={newest}" for name in held)
        yield failure(
            AREA, f"parts of OpenTelemetry are of different releases: {said}", f"pip install {wanted}"
        )


def _backend() -> Iterator[Verdict]:
    from google.protobuf.internal import api_implementation

    kind = api_implementation.Type()
    if kind == "python":
        yield warning(
            AREA,
            "protobuf runs in pure Python, some fifty times slower",
            "unset PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION, or install a protobuf wheel of this platform",
        )


def _number(version: str) -> tuple[int, ...]:
    """A version's numbers; what follows them does not matter here."""
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])
