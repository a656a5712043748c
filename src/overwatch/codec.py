"""Snapshots to JSON and back: one schema, one version rule.

Rules: output is the same bytes for the same snapshot; a reader takes any minor version of its major
version and ignores fields it does not know. Must not know where the bytes go.
"""

from typing import Any

import msgspec

from overwatch.snapshot import SCHEMA_VERSION, Snapshot


class SchemaVersionError(ValueError):
    """The snapshot was written under a major version that this build cannot read."""


_encoder = msgspec.json.Encoder(order="deterministic")
_decoder = msgspec.json.Decoder(Snapshot)


def encode(snapshot: Snapshot) -> bytes:
    """One snapshot as one line of JSON, without the newline."""
    return _encoder.encode(snapshot)


def decode(line: bytes) -> Snapshot:
    """Read one snapshot; raises `SchemaVersionError` or `msgspec.DecodeError` naming what is wrong."""
    snapshot = _decoder.decode(line)
    major = snapshot.schema_version.partition(".")[0]
    if major != SCHEMA_VERSION.partition(".")[0]:
        raise SchemaVersionError(
            f"snapshot has schema version {snapshot.schema_version}, this build reads {SCHEMA_VERSION}; "
            "use the Overwatch version that wrote it, or record again"
        )
    return snapshot


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a snapshot line."""
    schema = msgspec.json.schema(Snapshot)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Overwatch snapshot {SCHEMA_VERSION}",
        **schema,
    }
