"""The part of a trainer's environment that decides where its telemetry goes, kept beside what it leaves.

Owns which variables those are: endpoints, headers, certificates, proxies, and where a collector of this
machine is announced. Rules: secrets are among them, so they lie only in files that their owner alone can
read. Must not know how a destination is found from them.
"""

import os
import tempfile
from collections.abc import Mapping
from typing import Final

_PREFIX: Final = "OTEL_EXPORTER_OTLP_"
_NAMES: Final = frozenset({"OTEL_METRICS_EXPORTER", "OTEL_TRACES_EXPORTER", "XDG_RUNTIME_DIR"})
_PROXIES: Final = frozenset({"http_proxy", "https_proxy", "all_proxy", "no_proxy"})
"""In lower or upper case."""


def otlp_env(env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that decide the destination, for another process to use in the place of its own."""
    kept = {
        name: value
        for name, value in env.items()
        if name.startswith(_PREFIX) or name in _NAMES or name.lower() in _PROXIES
    }
    return {**kept, "TMPDIR": tempfile.gettempdir()}
