"""The ways from a learner's weights to an actor: one row a channel.

A channel answers with the newest manifest, and with the bytes of an artifact; it judges neither. Raises
`ChannelError` when it cannot be reached. Must not know tensors, nor import torch.
"""

from dataclasses import dataclass
from typing import Protocol


class ChannelError(OSError):
    """A channel that does not answer, or not as it should."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a run's weights are found."""

    url: str
    """A folder, `file://`, `s3://`, `gs://`: the store; `redis://`; `http://`, `https://`: a learner."""
    run_id: str
    artifacts: str | None = None
    """Address of the store, where `url` is that of Redis."""
    token: str | None = None
    """Of the learner's HTTP server."""


class Channel(Protocol):
    """Reads what was published."""

    def newest(self) -> bytes | None:
        """The newest manifest as it was written; `None` before the first."""
        ...

    def artifact(self, key: str) -> bytes:
        """The bytes of an artifact. Raises `FileNotFoundError` when it is gone: a newer one is there."""
        ...

    def wait(self, seconds: float) -> None:
        """Return after so long, or sooner when something may have been published."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...


def open_channel(place: Place) -> Channel:
    """The channel of an address. Raises `ValueError` of one that is none."""
    raise NotImplementedError
