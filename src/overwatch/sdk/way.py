"""The way that a trainer's telemetry goes, remembered beside what it leaves when it is killed.

Owns which words of the environment make the way: endpoints, headers, certificates, proxies, and where a
collector of this machine is announced. Rules: secrets are among them, so they are kept only in files that
their owner alone can read. Must not know how the way is found from them.
"""

import os
import tempfile
from collections.abc import Mapping
from typing import Final

_PREFIX: Final = "OTEL_EXPORTER_OTLP_"
_NAMES: Final = frozenset({"OTEL_METRICS_EXPORTER", "OTEL_TRACES_EXPORTER", "XDG_RUNTIME_DIR"})
_PROXIES: Final = frozenset({"http_proxy", "https_proxy", "all_proxy", "no_proxy"})
"""In lower or upper case."""


def way(env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What the environment says of the way, as another process can use it in its place."""
    words = {
        name: word
        for name, word in env.items()
        if name.startswith(_PREFIX) or name in _NAMES or name.lower() in _PROXIES
    }
    return {**words, "TMPDIR": tempfile.gettempdir()}
