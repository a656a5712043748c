"""The learner's side: hands each version to a process that publishes it, and reports what became of it.

Rules: the training thread copies once and does not wait; one version is being published, one may wait, others
meanwhile are skipped and reported. A failure costs that version only: actors keep the last one that was
published. A version is greater than every one before. A run has one publisher: the process holds its lock
too, so a resumed learner waits until that of a killed one is done. Must not know what the tensors mean.
"""

import os
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from torch import Tensor

from overwatch_rl.artifacts.signing import KEY_FILE, make_key
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.handover.locks import held_lock
from overwatch_rl.handover.sender import Sender
from overwatch_rl.weights.channels import Place, open_key
from overwatch_rl.weights.checking import ROUNDED, rounded
from overwatch_rl.weights.manifest import RejectedError, decoded
from overwatch_rl.weights.writer import Note, Published, Target

LOCK: Final = ".weights.lock"
LAST_S: Final = 120.0
"""How long the last version of a run may take."""
_WRITER: Final = "overwatch_rl.weights.writer"
_SLOTS: Final = 2
"""One that is being published, one that waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Publishing:
    """Where and how the weights of a run are published."""

    run_id: str
    folder: Path
    """The run's folder on this machine, for its key and its lock."""
    artifacts: str | None = None
    """Address of the store: a folder, `s3://…`, `gs://…`; `None` for the run's folder."""
    key_url: str | None = None
    """Address of the Redis that holds the version key; `None` for the store."""
    config_hash: str = ""
    dtype: str = "float32"
    """Of matrices, as a row of `ROUNDED`."""
    every_s: float = 0.0
    """At least so long between two versions; the first, and the last at the end, are always published."""
    keep: int = 4
    """Newest artifacts that stay."""
    patience_s: float = 30.0
    """So long a version is tried again before it is given up."""

    def __post_init__(self) -> None:
        if self.dtype not in ROUNDED:
            raise ValueError(f"dtype is {self.dtype!r}; use one of {', '.join(ROUNDED)}")
        if self.keep < 1:
            raise ValueError(f"keep is {self.keep}; use 1 or more artifacts of weights")
        if not self.every_s >= 0:
            raise ValueError(f"every_s is {self.every_s}; use 0 or more seconds between versions")

    @property
    def place(self) -> Place:
        """Where actors on this machine find them."""
        artifacts = self.artifacts or str(self.folder)
        url = self.key_url or artifacts
        return Place(url=url, run_id=self.run_id, artifacts=artifacts)


class Publisher:
    """The weights of one run."""

    def __init__(
        self, config: Publishing, *, busy_s: float = 30.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Raises `ValueError` when folder or key cannot be used, `OSError` when the version key cannot."""
        self._config = config
        self._clock = clock
        self._lock = held_lock(config.folder / LOCK, busy_s, "publishes the weights of this run")
        try:
            self.public: str = make_key(config.folder / KEY_FILE).public
            """The public key, for the record of the run."""
            self.known: Version | None = self._newest()
            """What the version key named when this began; the first version has to be greater."""
        except BaseException:
            os.close(self._lock)
            raise
        self._last = self.known
        self._due_at = float("-inf")
        self._sender: Sender | None = None
        self._under_way: list[Version] = []
        self._done: list[Published] = []

    def publish(self, version: Version, tensors: Mapping[str, Tensor]) -> None:
        """Have a version published. Raises `ValueError` when it is not greater than the one before."""
        if self._last is not None and version <= self._last:
            raise ValueError(f"version {version} is not greater than {self._last}; use a number above it")
        self._last = version
        now = self._clock()
        if now < self._due_at:
            self._done.append(Published(version=version, status="throttled"))
        elif self._offer(version, tensors):
            self._due_at = now + self._config.every_s

    def finished(self, timeout: float = 0.0) -> list[Published]:
        """What became of versions since the last call; waits that long for one that is under way."""
        self._collect(0.0 if self._done else timeout)
        done, self._done = self._done, []
        return done

    def close(
        self, version: Version | None = None, tensors: Mapping[str, Tensor] | None = None
    ) -> list[Published]:
        """Publish the last one, wait for what is under way, end the process; what became of them."""
        try:
            if version is not None:
                self._settle()
                self._due_at = float("-inf")
                self.publish(version, tensors or {})
            self._settle()
            return self.finished()
        finally:
            if self._sender is not None:
                self._sender.close(1.0)
            os.close(self._lock)

    def _newest(self) -> Version | None:
        with closing(open_key(self._config.place)) as key:
            text = key.newest()
        if text is None:
            return None
        try:
            found = decoded(text)
        except RejectedError as error:
            raise ValueError(f"the version key of {self._config.run_id} is not readable: {error}") from error
        return found.version if found.run_id == self._config.run_id else None

    def _settle(self) -> None:
        until = self._clock() + LAST_S
        while self._under_way and (left := until - self._clock()) > 0:
            self._collect(left)

    def _offer(self, version: Version, tensors: Mapping[str, Tensor]) -> bool:
        """Whether the process took it."""
        self._collect(0.0)
        note = Note(
            target=self._target(), version=version, made_at_ns=time.time_ns(), since_ns=time.monotonic_ns()
        )
        try:
            if self._sender is None:
                self._sender = Sender(_WRITER, [], slots=_SLOTS, kept=[self._lock])
            is_taken = self._sender.offer(note, rounded(tensors, self._config.dtype))
        except OSError as error:
            why = f"no memory or process to publish from: {error}"
            self._done.append(Published(version=version, status="error", error=why))
            return False
        if is_taken:
            self._under_way.append(version)
        else:
            self._done.append(Published(version=version, status="busy"))
        return is_taken

    def _collect(self, timeout: float) -> None:
        if self._sender is None:
            return
        found = [msgspec.json.decode(one, type=Published) for one in self._sender.answers(timeout)]
        self._done += found
        answered = {one.version for one in found}
        self._under_way = [one for one in self._under_way if one not in answered]
        if self._sender.is_gone:
            why = f"its process {self._sender.pid} ended; the next version starts another"
            lost = [Published(version=one, status="error", error=why) for one in self._under_way]
            self._done, self._under_way = self._done + lost, []
            self._sender.close(0.0)
            self._sender = None

    def _target(self) -> Target:
        place = self._config.place
        return Target(
            run_id=self._config.run_id,
            artifacts=place.artifacts or place.url,
            key_url=place.url,
            signing_key=str(self._config.folder / KEY_FILE),
            config_hash=self._config.config_hash,
            keep=self._config.keep,
            patience_s=self._config.patience_s,
        )
