"""The table of components: receivers, exporters and extensions, one row each.

Rules: a new component is one file, with its settings and its class, and one row here. Names that a pipeline
may list, addresses, `overwatch config components`, the JSON Schema and what a start makes all follow from the
row. A section may state of itself: `listeners`, its addresses by paths below it; `path`, the file or folder
that it alone writes to; `missing`, the key without which it cannot work and what to do. Must not know files,
nor the order in which a collector starts.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import msgspec

from overwatch.collector.exporters.aggregator import AggregatorConfig
from overwatch.collector.exporters.command import CommandConfig
from overwatch.collector.exporters.otlp_file import OtlpFileConfig
from overwatch.collector.exporters.prometheus import PrometheusConfig
from overwatch.collector.exporters.snapshots import SnapshotsConfig
from overwatch.collector.exporters.webhook import WebhookConfig
from overwatch.collector.extensions.file_storage import FileStorageConfig
from overwatch.collector.extensions.health_check import HealthCheckConfig
from overwatch.collector.extensions.view import ViewConfig
from overwatch.collector.receivers.otlp import OtlpConfig

_HERE: Final = "overwatch.collector"
_PATTERN: Final = "[A-Za-z0-9_-]{1,64}"
_NAME: Final = re.compile(rf"{_PATTERN}\Z")


class Kind(Enum):
    """What a component does."""

    RECEIVER = "receivers"
    AGGREGATOR = "aggregator"
    """An exporter of batches, and the receiver of the pipeline of snapshots."""
    BATCH_EXPORTER = "exporters of batches"
    SNAPSHOT_EXPORTER = "exporters of snapshots"
    EXTENSION = "extensions"

    @property
    def root(self) -> str:
        """The key of the file under which the sections of its components stand."""
        return self.value if self in (Kind.RECEIVER, Kind.EXTENSION) else "exporters"


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One type of component."""

    name: str
    """Its type, as the file names it; a receiver and an exporter may have the same."""
    kind: Kind
    config: type[msgspec.Struct]
    """Its section; no two rows have the same."""
    about: str
    """One sentence, for the author of a configuration."""
    factory: str | None
    """`module:name`, called with a section, the context and a whole name; `None`: the service makes it."""
    is_several: bool = True
    """Whether there may be more of it, each by a name of its own: `type/name`, as in otelcol."""
    is_early: bool = False
    """Of an extension: whether it starts before anything else; others start once there can be frames."""


COMPONENTS: Final[tuple[Component, ...]] = (
    Component(
        name="otlp",
        kind=Kind.RECEIVER,
        config=OtlpConfig,
        about="OTLP over gRPC and HTTP.",
        factory=f"{_HERE}.receivers.otlp:OtlpReceiver",
        is_several=False,
    ),
    Component(
        name="aggregator",
        kind=Kind.AGGREGATOR,
        config=AggregatorConfig,
        about="Turns batches into snapshots; the receiver of the pipeline `snapshots`.",
        factory=None,
        is_several=False,
    ),
    Component(
        name="prometheus",
        kind=Kind.SNAPSHOT_EXPORTER,
        config=PrometheusConfig,
        about="Runs as Prometheus metrics.",
        factory=f"{_HERE}.exporters.prometheus:PrometheusExporter",
    ),
    Component(
        name="otlp_file",
        kind=Kind.BATCH_EXPORTER,
        config=OtlpFileConfig,
        about="Batches as OTLP JSON files with an index, which replay reads.",
        factory=f"{_HERE}.exporters.otlp_file:OtlpFileExporter",
    ),
    Component(
        name="webhook",
        kind=Kind.SNAPSHOT_EXPORTER,
        config=WebhookConfig,
        about="Findings as messages to a server of yours; needs a `url`.",
        factory=f"{_HERE}.exporters.notifier:Notifier",
    ),
    Component(
        name="command",
        kind=Kind.SNAPSHOT_EXPORTER,
        config=CommandConfig,
        about="Findings as JSON to a program of yours; needs `argv`.",
        factory=f"{_HERE}.exporters.notifier:Notifier",
    ),
    Component(
        name="snapshots",
        kind=Kind.SNAPSHOT_EXPORTER,
        config=SnapshotsConfig,
        about="Snapshots as a file.",
        factory=f"{_HERE}.exporters.snapshots:SnapshotsExporter",
    ),
    Component(
        name="health_check",
        kind=Kind.EXTENSION,
        config=HealthCheckConfig,
        about="Health over HTTP.",
        factory=f"{_HERE}.extensions.health_check:HealthCheck",
        is_several=False,
        is_early=True,
    ),
    Component(
        name="view",
        kind=Kind.EXTENSION,
        config=ViewConfig,
        about="Snapshots over HTTP and WebSocket.",
        factory=f"{_HERE}.extensions.view:ViewExtension",
        is_several=False,
    ),
    Component(
        name="file_storage",
        kind=Kind.EXTENSION,
        config=FileStorageConfig,
        about="The data folder.",
        factory=f"{_HERE}.extensions.file_storage:FileStorage",
        is_several=False,
        is_early=True,
    ),
)
"""In the order in which they are listed; of exporters of batches, also that in which they start."""


ROOTS: Final = tuple(dict.fromkeys(one.kind.root for one in COMPONENTS))
"""The keys of the file that hold sections of components."""


def type_of(name: str) -> str:
    """The type of a component, by its whole name.

    >>> type_of("webhook/chat"), type_of("webhook")
    ('webhook', 'webhook')
    """
    return name.partition("/")[0]


def table(root: str) -> dict[str, Component]:
    """The components whose sections stand under a key of the file, by type."""
    return {one.name: one for one in COMPONENTS if one.kind.root == root}


def of_kinds(*kinds: Kind) -> tuple[Component, ...]:
    """The components of some kinds, in the order of the table."""
    return tuple(one for one in COMPONENTS if one.kind in kinds)


def component_of(root: str, name: str) -> Component:
    """The row of a whole name; raises `ValueError` where there can be no such."""
    kind, slash, own = name.partition("/")
    several = {one: row for one, row in table(root).items() if row.is_several or not slash}
    if kind not in several:
        raise ValueError(
            f"there are no several {root} of type {kind!r}; there may be of {', '.join(several) or 'none'}"
        )
    if slash and _NAME.match(own) is None:
        raise ValueError(f"{own!r} is no name; write {kind}/NAME with up to 64 of letters, digits, _ and -")
    return several[kind]


def row_of(config: type[msgspec.Struct]) -> Component:
    """The row with this section."""
    return next(one for one in COMPONENTS if one.config is config)


def sections(root: str) -> type[msgspec.Struct]:
    """What stands under a key of the file, by type; a section that needs nothing can be left out."""
    fields: list[tuple[str, type] | tuple[str, type, Any]] = []
    for name, row in table(root).items():
        try:
            fields.append((name, row.config, row.config()))
        except TypeError:  # a value without a default
            fields.append((name, row.config))
    return msgspec.defstruct(
        root.capitalize(),
        fields,
        namespace={"__doc__": f"`{root}`."},
        module=__name__,
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
    )


def patterns(root: str, refs: Mapping[str, object]) -> dict[str, object]:
    """What JSON Schema needs of further names; `refs` is what it has of a section, by the section's type."""
    several = [one for one in table(root).values() if one.is_several]
    return {f"^{one.name}/{_PATTERN}$": refs[one.config.__name__] for one in several}
