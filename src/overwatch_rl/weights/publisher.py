"""The learner's side: hands each version to a process that publishes it, and reports what became of it.

Rules: the training thread copies once and does not wait; one version is being published, one may wait, others
meanwhile are skipped and reported. A failure costs that version only: actors keep the last one that was
published. A version is greater than every one before. Must not know what the tensors mean.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from torch import Tensor

from overwatch_rl.artifacts.versions import Version

Status: TypeAlias = Literal["ok", "error", "superseded", "busy", "throttled"]


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one version."""

    version: Version
    status: Status
    size_bytes: int = 0
    duration_s: float = 0.0
    """Seconds from the hand-over until actors can find it."""
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Publishing:
    """Where and how the weights of a run are published."""

    run_id: str
    folder: Path
    """The run's folder on this machine, for its key and its lock."""
    artifacts: str | None = None
    """Address of the store: a folder, `s3://…`, `gs://…`; `None` for the run's folder."""
    redis: str | None = None
    """Address of a Redis that holds the version key besides."""
    config_hash: str = ""
    every_s: float = 0.0
    """At least so long between two versions; the first, and the last at the end, are always published."""
    keep: int = 4
    """Newest artifacts that stay."""
    patience_s: float = 30.0
    """So long a version is tried again before it is given up."""


class Publisher:
    """The weights of one run."""

    public: str
    """The public key, for the record of the run."""
    known: Version | None
    """What the version key held when this began; the next version has to be greater."""

    def __init__(self, config: Publishing) -> None:
        """Raises `ValueError` when the folder, the key or the version key cannot be used."""
        raise NotImplementedError

    def publish(self, version: Version, tensors: Mapping[str, Tensor]) -> None:
        """Have a version published. Raises `ValueError` when it is not greater than the one before."""
        raise NotImplementedError

    def finished(self, timeout: float = 0.0) -> list[Published]:
        """What became of versions since the last call; waits that long for one that is under way."""
        raise NotImplementedError

    def close(
        self, version: Version | None = None, tensors: Mapping[str, Tensor] | None = None
    ) -> list[Published]:
        """Publish the last one, wait for what is under way, end the process."""
        raise NotImplementedError
