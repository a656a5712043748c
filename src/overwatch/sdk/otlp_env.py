"""The part of a trainer's environment that decides where its telemetry goes, kept beside what it leaves.

Owns which variables those are: endpoints, headers, certificates, proxies, and where a collector of this
machine is announced. Rules: secrets are among them, so they lie only in files that their owner alone can
read. Must not know how a destination is found from them.
"""

import contextlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_PREFIX: Final = "OTEL_EXPORTER_OTLP_"
_TOKEN_FILE: Final = "OVERWATCH_INGEST_TOKEN_FILE"  # noqa: S105 a name, not a token
_NAMES: Final = frozenset({"OTEL_METRICS_EXPORTER", "OTEL_TRACES_EXPORTER", "XDG_RUNTIME_DIR", _TOKEN_FILE})
_PROXIES: Final = frozenset({"http_proxy", "https_proxy", "all_proxy", "no_proxy"})
"""In lower or upper case."""
_FILES: Final = ("_CERTIFICATE", "_CLIENT_KEY", _TOKEN_FILE)
"""How the names end whose values are paths."""


def otlp_env(env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that decide the destination, for another process to use in the place of its own.

    A value that is no text is left out: it can be sent to no other process.
    """
    kept = {
        name: absolute(value) if name.endswith(_FILES) else value
        for name, value in env.items()
        if (name.startswith(_PREFIX) or name in _NAMES or name.lower() in _PROXIES) and is_text(value)
    }
    return {**kept, "TMPDIR": tempfile.gettempdir()}


def absolute(path: str) -> str:
    """A path as another process finds it; as it is where there is no working folder any more."""
    with contextlib.suppress(OSError):
        return str(Path(path).absolute()) if path else path
    return path


def is_text(value: str) -> bool:
    """Whether a value of the environment was valid UTF-8."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
