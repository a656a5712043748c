"""Exporters of one kind by several names, `type/name` as in otelcol: `otlp/second`, `webhook/chat`.

Owns what such a name may be, and where their sections are kept. Each has a cursor, a queue, counters and a
condition of its own; nothing is taken over from the one without a name. Must not know what exporters do.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from overwatch.collector.exporters.command import CommandConfig
from overwatch.collector.exporters.email import EmailConfig
from overwatch.collector.exporters.forward_config import OtlpExporterConfig, OtlpHttpExporterConfig
from overwatch.collector.exporters.otlp_file.config import OtlpFileConfig
from overwatch.collector.exporters.prometheus import PrometheusConfig
from overwatch.collector.exporters.snapshots import SnapshotsConfig
from overwatch.collector.exporters.webhook import WebhookConfig

KEY: Final = "type/name"
"""What stands for all of them where the keys of `exporters` are listed."""

_PATTERN: Final = "[A-Za-z0-9_-]{1,64}"
_NAME: Final = re.compile(rf"{_PATTERN}\Z")


class Further(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sections by their whole names, by type."""

    otlp: dict[str, OtlpExporterConfig] = {}
    """One more `otlp`."""
    otlphttp: dict[str, OtlpHttpExporterConfig] = {}
    """One more `otlphttp`."""
    otlp_file: dict[str, OtlpFileConfig] = {}
    """One more `otlp_file`, to a folder of its own."""
    webhook: dict[str, WebhookConfig] = {}
    """One more `webhook`."""
    email: dict[str, EmailConfig] = {}
    """One more `email`."""
    command: dict[str, CommandConfig] = {}
    """One more `command`."""
    snapshots: dict[str, SnapshotsConfig] = {}
    """One more `snapshots`, to a file of its own."""
    prometheus: dict[str, PrometheusConfig] = {}
    """One more `prometheus`, at an address of its own."""


TYPES: Final[Mapping[str, type[msgspec.Struct]]] = {
    "otlp": OtlpExporterConfig,
    "otlphttp": OtlpHttpExporterConfig,
    "otlp_file": OtlpFileConfig,
    "webhook": WebhookConfig,
    "email": EmailConfig,
    "command": CommandConfig,
    "snapshots": SnapshotsConfig,
    "prometheus": PrometheusConfig,
}
"""What there may be several of."""

NEWER: Final[Mapping[str, str]] = {"otlp_grpc": "otlp", "otlp_http": "otlphttp"}
"""The names that otelcol gave some types in 0.144, which are read too, and our own ones."""


def patterns(refs: Mapping[str, object]) -> dict[str, object]:
    """What JSON Schema says of their keys; `refs` is what it says of a section, by the section's type."""
    named = {f"^{kind}/{_PATTERN}$": refs[section.__name__] for kind, section in TYPES.items()}
    newer = {f"^{kind}(/{_PATTERN})?$": refs[TYPES[own].__name__] for kind, own in NEWER.items()}
    return named | newer


def type_of(name: str) -> str:
    """The type of a component, by its whole name.

    >>> type_of("otlp/second"), type_of("otlp")
    ('otlp', 'otlp')
    """
    return name.partition("/")[0]


def section_of(name: str) -> type[msgspec.Struct]:
    """What can be set of `type/name`; raises `ValueError` where there is none such."""
    kind, _, own = name.partition("/")
    if kind not in TYPES:
        raise ValueError(
            f"there are no several exporters of type {kind!r}; there may be of {', '.join(TYPES)}"
        )
    if _NAME.match(own) is None:
        raise ValueError(f"{own!r} is no name; write {kind}/NAME with up to 64 of letters, digits, _ and -")
    return TYPES[kind]
