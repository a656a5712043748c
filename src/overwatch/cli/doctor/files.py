"""Configuration: the collector's file, the terminal's settings, and variables that are misspelt."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from overwatch.cli.doctor.verdict import Verdict, failure, ok, warning
from overwatch.collector.settings import CollectorConfig, unusable

AREA: Final = "config"
VARIABLES: Final = frozenset(
    {
        "OVERWATCH_ATTEMPT", "OVERWATCH_BENCH_PYTHON", "OVERWATCH_DATA_DIR", "OVERWATCH_DCGM_URL",
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


def files(
    path: Path | None, config: CollectorConfig | str, env: Mapping[str, str], texts: Sequence[str]
) -> Iterator[Verdict]:
    """What is wrong with what was found; `config` is the error where it could not be read."""
    shown = str(path) if path is not None else "the shipped configuration"
    if isinstance(config, str):
        for line in config.splitlines():
            yield failure(
                AREA, f"{shown}: {line}", "mend it; `overwatch config validate` says when it is right"
            )
    else:
        wrong = list(unusable(config))
        for line in wrong:
            yield failure(AREA, f"{shown}: {line}", "mend the file that it names")
        if not wrong:
            yield ok(AREA, f"{shown} is valid")
    yield from _settings()
    named = "\n".join(texts)
    for name in sorted(env):
        if name.startswith("OVERWATCH_") and name not in VARIABLES and name not in named:
            near = difflib.get_close_matches(name, VARIABLES, n=1)
            fix = f"did you mean {near[0]}?" if near else "unset it, or name it in the configuration"
            yield warning(AREA, f"nothing reads the variable {name}", fix)
    for name in sorted(UNREAD & {name for name, value in env.items() if value}):
        yield warning(
            AREA,
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
        yield failure(
            AREA, f"{place}: {error}", "mend or remove it; `overwatch config schema tui` says what fits"
        )
    else:
        yield ok(AREA, f"{place} is valid")
