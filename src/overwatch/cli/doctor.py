"""What `overwatch doctor` finds of configuration, versions, the terminal and the collector; and its report.

Rules: every area has a deadline of its own; a check that fails in an unforeseen way is a verdict too. A
collector is checked with an empty request, which OTLP requires to succeed, over the protocol and with the
token and TLS of a trainer's sender: nothing is left in any run.
"""

import difflib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Final

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

import overwatch
from overwatch import config as configuration
from overwatch import discovery
from overwatch.cli.configuration import of_this_machine
from overwatch.cli.doctor_machine import (
    State,
    Verdict,
    clocks,
    disks,
    failure,
    gpus,
    ok,
    ports,
    warning,
)
from overwatch.cli.doctor_pod import limits, lookups, pod, synced
from overwatch.collector.receivers.otlp import OtlpConfig
from overwatch.collector.settings import CollectorConfig, unusable
from overwatch.delivery import OtlpTransport, destination
from overwatch.delivery.answer import Answer, Outgoing
from overwatch.delivery.answer import Verdict as Taken
from overwatch.extras import EXTRAS, TUI
from overwatch.journal import Signal
from overwatch.sdk.exporter.spool import spool_root

_MARKS: Final = {State.OK: "ok", State.WARNING: "WARN", State.FAILURE: "FAIL"}
_RANKS: Final = tuple(State)
VARIABLES: Final = frozenset(
    {
        "OVERWATCH_ATTEMPT", "OVERWATCH_BENCH_PYTHON", "OVERWATCH_DATA_DIR",
        "OVERWATCH_ENDPOINT", "OVERWATCH_EXPORTER", "OVERWATCH_GROUP", "OVERWATCH_INGEST_TOKEN",
        "OVERWATCH_PRESET", "OVERWATCH_READY_FILE", "OVERWATCH_REPLAY_CACHE", "OVERWATCH_REQUIRE_REAL",
        "OVERWATCH_RING_DIR",
        "OVERWATCH_INGEST_TOKEN_FILE", "OVERWATCH_RUN_ID", "OVERWATCH_SPOOL_DIR",
        "OVERWATCH_TOKEN", "OVERWATCH_TUI_CONFIG",
    }
)  # fmt: skip
"""Names that Overwatch reads; others with its prefix may be named by a configuration's `${env:...}`."""

UNREAD: Final = frozenset({"OTEL_CONFIG_FILE", "OTEL_EXPERIMENTAL_CONFIG_FILE"})
"""Files of OpenTelemetry's SDKs; one with an endpoint in it looks as if trainers would send there."""
DISTRIBUTION: Final = "esper-overwatch"
SHOWN: Final = (
    "protobuf", "grpcio", "opentelemetry-sdk", "opentelemetry-proto", "numpy", "msgspec", "textual",
)  # fmt: skip
_TOGETHER: Final = (
    "opentelemetry-sdk", "opentelemetry-api", "opentelemetry-proto",
    "opentelemetry-exporter-otlp-proto-grpc", "opentelemetry-exporter-otlp-proto-http",
)  # fmt: skip
_NEED: Final = re.compile(r"([A-Za-z0-9._-]+)>=([0-9.]+)")

LEAST_SIZE: Final = (80, 24)
REQUEST_S: Final = 10.0
_FIXES: Final = {
    "401": "set OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20TOKEN; the ingest token is the collector's",
    "403": "this token may not send; use the ingest token",
    "404": "this is no OTLP address; use the port of OTLP/HTTP, 4318 by default",
    "unauthenticated": "set OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20TOKEN",
    "permission_denied": "this token may not send; use the ingest token",
    "unimplemented": "this is no OTLP address; use the port of OTLP/gRPC, 4317 by default",
}

Check = Callable[[], Iterator[Verdict]]
Found = Callable[[str], str | None]
Report = list[tuple[str, Verdict]]
"""Areas and verdicts, in order."""


def examined(path: Path | None, sets: tuple[str, ...], endpoint: str | None, areas: Sequence[str]) -> Report:
    """The verdicts on these areas, on all where none is named."""
    return [
        (area, verdict)
        for area, check in _checks(path, sets, endpoint).items()
        if not areas or area in areas
        for verdict in _safely(area, check)
    ]


def status(report: Report) -> int:
    """0 where all is well, 1 with warnings, 2 with failures."""
    return max((_RANKS.index(one.state) for _, one in report), default=0)


def _checks(path: Path | None, sets: tuple[str, ...], endpoint: str | None) -> dict[str, Check]:
    config: CollectorConfig | str
    try:
        config, fixed = configuration.load_named(path, sets)
    except ValueError as error:
        config, fixed = str(error), frozenset()
    held = configuration.load(None, ()) if isinstance(config, str) else config
    texts = [configuration.shipped(), *sets, *([] if path is None else [_read(path)])]
    return {
        "config": partial(files, path, config, os.environ, texts),
        "ports": partial(ports, held, fixed),
        "disk": partial(_written, held, is_named=path is not None or bool(sets)),
        "limits": lambda: limits(held.one(OtlpConfig).limits),
        "pod": pod,
        "names": lambda: lookups(endpoint),
        "gpu": gpus,
        "clock": clocks,
        "versions": versions,
        "terminal": screens,
        "collector": partial(reach, endpoint),
    }


def _written(config: CollectorConfig, *, is_named: bool) -> Iterator[Verdict]:
    """Places that are written to: of the running collector, where no configuration was named."""
    usual, (found, running) = config.data_folder.absolute(), of_this_machine()
    if running is not None and running.data is not None and found.data_folder != usual:
        where = f"the running collector (pid {running.pid}) writes to {found.data_folder}"
        if is_named:
            yield warning(
                f"{where}, this configuration to {usual}", "look at that one: leave --config and --set out"
            )
        else:
            yield ok(f"{where}: that is looked at, not {usual}")
            config = found
    yield from chain(disks(config, spool_root()), synced(config.data_folder))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _safely(area: str, check: Check) -> Iterator[Verdict]:
    """A check's verdicts; one that breaks is itself a failure, and the others go on."""
    try:
        yield from check()
    except Exception as error:  # noqa: BLE001 a border: whatever a machine does, the report is finished
        fix = f"run the others with --only; report this with `--only {area} --format json`"
        yield failure(f"the check itself failed: {type(error).__name__}: {error}", fix)


def as_json(report: Report) -> str:
    """The report for other programs."""
    counts = {state.value: sum(one.state is state for _, one in report) for state in State}
    listed = [
        {"area": area, "state": one.state.value, "found": one.found, "fix": one.fix} for area, one in report
    ]
    return json.dumps({"verdicts": listed, "counts": counts}, indent=2)


def as_text(report: Report) -> Iterable[str]:
    """The lines of the report, what is wrong first."""
    for area, one in sorted(report, key=lambda row: -_RANKS.index(row[1].state)):
        yield f"{_MARKS[one.state]:4}  {area:9}  {one.found}"
        if one.fix:
            yield f"{'':4}  {'':9}  → {one.fix}"
    bad = [sum(one.state is state for _, one in report) for state in (State.FAILURE, State.WARNING)]
    yield f"{len(report)} looked at: {bad[0]} failures, {bad[1]} warnings"


def files(
    path: Path | None, config: CollectorConfig | str, env: Mapping[str, str], texts: Sequence[str]
) -> Iterator[Verdict]:
    """What is wrong with what was found; `config` is the error where it could not be read."""
    shown = str(path) if path is not None else "the shipped configuration"
    if isinstance(config, str):
        for line in config.splitlines():
            yield failure(f"{shown}: {line}", "mend it; `overwatch config validate` reports when it is right")
    else:
        wrong = list(unusable(config))
        for line in wrong:
            yield failure(f"{shown}: {line}", "mend the file that it names")
        if not wrong:
            yield ok(f"{shown} is valid")
    yield from _settings()
    named = "\n".join(texts)
    for name in sorted(env):
        if name.startswith("OVERWATCH_") and name not in VARIABLES and name not in named:
            near = difflib.get_close_matches(name, VARIABLES, n=1)
            fix = f"did you mean {near[0]}?" if near else "unset it, or name it in the configuration"
            yield warning(f"nothing reads the variable {name}", fix)
    for name in sorted(UNREAD & {name for name, value in env.items() if value}):
        yield warning(
            f"{name} is set, and Overwatch reads no such file: {env[name]}",
            "set OTEL_EXPORTER_OTLP_* for trainers; the collector's file is --config",
        )


def _settings() -> Iterator[Verdict]:
    """The terminal's settings, where there is a terminal and a file."""
    try:
        from overwatch.tui import settings
    except ImportError:
        return
    place = settings.place()
    if not place.exists():
        return
    try:
        settings.read(place)
    except (settings.SettingsError, OSError) as error:
        yield failure(f"{place}: {error}", "mend or remove it; `overwatch config schema tui` shows what fits")
    else:
        yield ok(f"{place} is valid")


_BAD: Final = (
    ("numpy", "2.0", "torch", "2.3", "this PyTorch was built against NumPy 1 and cannot share arrays"),
    ("protobuf", "8.0", "opentelemetry-proto", None, "OpenTelemetry's messages need protobuf below 8"),
    ("protobuf", "6.0", "grpcio-status", "1.70", "this grpcio-status needs protobuf 5"),
)
"""Pairs that do not work together: a package from a version on, another before one that works again."""


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
    yield ok(f"Overwatch {overwatch.__version__}, Python {python}, {shown}")
    yield from _extras()
    yield from _needed(found)
    yield from _equal(found)
    for first, least, second, works, why in _BAD:
        one, other = found(first), found(second)
        if (
            one
            and other
            and _number(one) >= _number(least)
            and not (works and _number(other) >= _number(works))
        ):
            fix = f"pip install '{first}<{least}'" + (f" or '{second}>={works}'" if works else "")
            yield failure(f"{first} {one} with {second} {other}: {why}", fix)
    yield from _backend()


def _extras() -> Iterator[Verdict]:
    """What can be installed beside, with what each brings: nothing is wrong without."""
    missing = [extra for extra in EXTRAS.values() if extra.missing]
    if missing:
        named = ", ".join(f"{extra.name} ({extra.brings})" for extra in missing)
        yield ok(f'not installed: {named}; pip install "{DISTRIBUTION}[NAME]"')


def _needed(found: Found) -> Iterator[Verdict]:
    try:
        needs = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        yield warning(f"{DISTRIBUTION} is not installed, only importable", f"pip install {DISTRIBUTION}")
        return
    for need in needs:
        match = _NEED.match(need)
        if match is None or "extra ==" in need or "sys_platform" in need:
            continue
        name, least = match.groups()
        version = found(name)
        if version is None:
            yield failure(f"{name} is missing", f"pip install '{name}>={least}'")
        elif _number(version) < _number(least):
            yield failure(f"{name} {version} is older than {least}", f"pip install -U '{name}>={least}'")


def _equal(found: Found) -> Iterator[Verdict]:
    """Parts of OpenTelemetry that are released together."""
    held = {name: version for name in _TOGETHER if (version := found(name))}
    if len(set(held.values())) > 1:
        stated = ", ".join(f"{name} {version}" for name, version in held.items())
        newest = max(held.values(), key=_number)
        wanted = " ".join(f"{name}=={newest}" for name in held)
        yield failure(f"parts of OpenTelemetry are of different releases: {stated}", f"pip install {wanted}")


def _backend() -> Iterator[Verdict]:
    from google.protobuf.internal import api_implementation

    kind = api_implementation.Type()
    if kind == "python":
        yield warning(
            "protobuf runs in pure Python, some fifty times slower",
            "unset PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION, or install a protobuf wheel of this platform",
        )


def _number(version: str) -> tuple[int, ...]:
    """A version's numbers; what follows them does not matter here."""
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])


def screens(
    env: Mapping[str, str] = os.environ,
    *,
    size: tuple[int, int] | None = None,
    is_terminal: bool | None = None,
    encoding: str | None = None,
) -> Iterator[Verdict]:
    """What `overwatch tui` would find here."""
    if TUI.missing:
        yield warning("Textual is not installed, so there is no screen", TUI.install)
        return
    if not (sys.stdout.isatty() if is_terminal is None else is_terminal):
        yield ok("this is no terminal; `overwatch tui --once` prints a frame")
        return
    from overwatch.tui.theme import theme_of

    columns, rows = size or tuple(shutil.get_terminal_size())
    name = env.get("TERM", "")
    if name in ("", "dumb"):
        yield warning(f"TERM is {name!r}", "set TERM, e.g. xterm-256color")
    if (columns, rows) < LEAST_SIZE or rows < LEAST_SIZE[1]:
        yield warning(f"{columns}x{rows} is small", "make it 80x24 or larger; less is shown cut")
    coding = (encoding or sys.stdout.encoding or "").lower().replace("-", "")
    if coding not in ("utf8", "utf16", "utf32"):
        yield warning(
            f"text is {coding or 'of no known encoding'}, so glyphs are ASCII",
            "export LC_ALL=C.UTF-8, and let the terminal show UTF-8",
        )
    theme = theme_of(env)
    about = {"mono": "no colours (NO_COLOR)", "ansi": "16 colours"}.get(theme, "256 colours or more")
    yield ok(f"{columns}x{rows}, {name or 'no TERM'}, {about}")


def reach(endpoint: str | None) -> Iterator[Verdict]:
    """A real request to `endpoint`, or to the collector that is announced on this machine."""
    running = discovery.read()
    if endpoint is None and (running is None or running.otlp_http is None):
        yield ok("none runs on this machine; `overwatch collect` starts one, --endpoint asks another")
        return
    try:
        to = destination(Signal.LOGS, endpoint)
    except ValueError as error:
        yield failure(f"{endpoint!r}: {error}", "write http://HOST:4318, https://... or http://HOST:4317")
        return
    listener = OtlpTransport({Signal.LOGS: to})
    begin = time.monotonic()
    try:
        outgoing = Outgoing(signal=Signal.LOGS, body=ExportLogsServiceRequest().SerializeToString())
        answer = listener.send(outgoing, begin + REQUEST_S)
    finally:
        listener.close()
    took_ms = (time.monotonic() - begin) * 1000
    yield _verdict(f"{to.shown} over {to.protocol}", answer, took_ms)
    if endpoint is None and running is not None and running.page is not None:
        yield ok(f"its page is at {running.page}")


def _verdict(where: str, answer: Answer, took_ms: float) -> Verdict:
    match answer.verdict:
        case Taken.TAKEN:
            return ok(f"{where} took an OTLP request in {took_ms:.0f} ms")
        case Taken.AGAIN:
            fix = "start it with `overwatch collect`, or correct host, port and firewall"
            fix = "it is up and busy; try again" if answer.code in ("429", "503") else fix
            return failure(f"{where} is away: {answer.detail or answer.code}", fix)
        case Taken.REFUSED:
            fix = _FIXES.get(answer.code, "correct the address, the token or the certificates")
            return failure(f"{where} refuses: {answer.detail or answer.code}", fix)
