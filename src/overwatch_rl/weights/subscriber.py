"""The actor's side: takes newer weights that are what they should be, and keeps what it has otherwise.

Rules: only a greater version is taken, whole, after every check; an error of the channel, of a manifest or of
an artifact leaves the actor with the version it has, is kept as `fault`, and slows polling down. Must not know
how a channel works, nor what the tensors mean.
"""

from dataclasses import dataclass

from torch import Tensor

from overwatch_rl.artifacts.versions import Version
from overwatch_rl.weights.channels import Channel
from overwatch_rl.weights.manifest import Accepted, WeightsManifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Acting:
    """One version, verified, on the CPU."""

    manifest: WeightsManifest
    tensors: dict[str, Tensor]

    @property
    def version(self) -> Version:
        """Which."""
        return self.manifest.version


class Subscriber:
    """Newer weights from one channel."""

    fault: str | None
    """Why the newest try failed; `None` after one that did not."""
    rejected: int
    """Manifests and artifacts that were not used."""
    acting: WeightsManifest | None
    """What was taken last."""

    def __init__(self, channel: Channel, accepted: Accepted) -> None:
        raise NotImplementedError

    def poll(self) -> Acting | None:
        """Newer weights than the last ones, or `None`; never raises for what the channel does."""
        raise NotImplementedError

    def first(self, timeout_s: float) -> Acting:
        """Wait for the first weights. Raises `TimeoutError` with the newest fault."""
        raise NotImplementedError

    def age_s(self) -> float | None:
        """Seconds since the learner handed over the weights that were taken last, by the two clocks."""
        raise NotImplementedError
