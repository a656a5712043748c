"""The actor's side: takes newer weights that are what they should be, and keeps what it has otherwise.

Rules: only a greater version is taken, whole, after every check; an error of the channel, of a manifest or
of an artifact leaves the actor with the version it has, is kept as `fault`, and slows polling down. Must not
know how a channel works, nor what the tensors mean.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from overwatch_rl.artifacts.versions import Version
from overwatch_rl.weights.channels import StoreChannel
from overwatch_rl.weights.checking import digest_of, shapes_of
from overwatch_rl.weights.manifest import (
    Accepted,
    RejectedError,
    WeightsManifest,
    check,
    check_artifact,
    compare,
    decoded,
)

POLL_INTERVAL_S: Final = 0.25
"""Time between two looks of one that waits: a channel ends that sooner."""
_FIRST_PAUSE_S: Final = 0.1


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

    def __init__(
        self,
        channel: StoreChannel,
        accepted: Accepted,
        *,
        longest_pause_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """After a fault nothing is asked for a while, which grows up to `longest_pause_s`."""
        self.fault: str | None = None
        """Why the newest try failed; `None` after one that did not."""
        self.rejected = 0
        """Manifests and artifacts that were not used."""
        self.acting: WeightsManifest | None = None
        """What was taken last."""
        self.newest: Version | None = None
        """What the version key named last, whether it could be taken or not."""
        self._channel = channel
        self._accepted = accepted
        self._clock = clock
        self._seen: bytes | None = None
        """The manifest that was judged last."""
        self._longest_pause_s = longest_pause_s
        self._pause_s = 0.0
        self._not_before = float("-inf")

    def poll(self) -> Acting | None:
        """Newer weights than the last ones, or `None`; does not raise for what a channel does."""
        if self._clock() < self._not_before:
            return None
        try:
            found = self._newer()
        except FileNotFoundError as error:  # A newer version is there, or will be.
            self.fault = str(error)
            return None
        except OSError as error:
            self._slow_down(str(error))
            return None
        except RejectedError as error:
            self.rejected += 1
            self._slow_down(f"a version was not used: {error}")
            return None
        self.fault, self._pause_s, self._not_before = None, 0.0, float("-inf")
        if found is not None:
            self.acting = found.manifest
        return found

    def first(self, timeout_s: float) -> Acting:
        """Wait for the first weights. Raises `TimeoutError` with the newest fault."""
        until = self._clock() + timeout_s
        while (found := self.poll()) is None:
            if self._clock() >= until:
                why = self.fault or "nothing is published yet"
                raise TimeoutError(f"no weights of {self._accepted.run_id} in {timeout_s:g} s: {why}")
            self.wait(min(POLL_INTERVAL_S, timeout_s))
        return found

    def wait(self, seconds: float) -> None:
        """Return after so long, or sooner when something may have been published."""
        held_back = self._not_before - self._clock()
        if held_back > 0:
            time.sleep(min(seconds, held_back))
        else:
            self._channel.wait(seconds)

    def age_s(self) -> float | None:
        """Seconds since the learner handed over the weights that were taken last, by the two clocks."""
        if self.acting is None:
            return None
        return max(0.0, (time.time_ns() - self.acting.made_at_ns) / 1e9)

    def close(self) -> None:
        """Let go of the channel."""
        self._channel.close()

    def _newer(self) -> Acting | None:
        text = self._channel.newest()
        if text is None or text == self._seen:
            return None
        manifest = decoded(text)
        if manifest.run_id == self._accepted.run_id:
            self.newest = manifest.version
        if self.acting is not None and manifest.version <= self.acting.version:
            raise RejectedError(
                f"{manifest.version} is not newer than {self.acting.version}, which is in use"
            )
        check(manifest, self._accepted)
        artifact = self._channel.artifact(manifest.version)
        check_artifact(manifest, artifact)
        try:
            tensors = load(artifact)
        except SafetensorError as error:
            raise RejectedError(f"its artifact is no safetensors file: {error}") from error
        compare(manifest.tensors, shapes_of(tensors))
        for name, entry in manifest.tensors.items():
            if digest_of(tensors[name]) != entry.xxh3:
                raise RejectedError(f"tensor {name!r} has another XXH3 than the manifest states")
        self._seen = text
        return Acting(manifest=manifest, tensors=tensors)

    def _slow_down(self, fault: str) -> None:
        self.fault = fault
        self._pause_s = min(max(2 * self._pause_s, _FIRST_PAUSE_S), self._longest_pause_s)
        spread = random.uniform(0.5, 1.0)  # noqa: S311 spreads actors, guards nothing
        self._not_before = self._clock() + spread * self._pause_s
