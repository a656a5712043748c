"""The process that publishes weights: `python -m overwatch_rl.weights.writer`; it alone signs.

Rules: the artifact lies in the store before the version key names it; what fails is tried again, until a
newer version waits or its time is over. What a learner that is gone has handed over is still published. Must
not import torch.
"""

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec
from safetensors import TensorSpec, serialize

from overwatch.objects.digests import sha256_of
from overwatch.objects.retrying import Patience, Tries
from overwatch.objects.store import is_remote, open_store
from overwatch.platform import keep_large_blocks
from overwatch_rl.artifacts.digests import xxh3_of
from overwatch_rl.artifacts.signing import Signer, Verifier
from overwatch_rl.artifacts.versions import Version, parse
from overwatch_rl.handover.receiver import Receiver, SharedBlock, run
from overwatch_rl.weights.channels import REQUEST_S, Place, StaleError, open_key
from overwatch_rl.weights.manifest import FOLDER, TensorEntry, WeightsManifest, artifact_of

Status: TypeAlias = Literal["ok", "error", "superseded", "busy", "throttled"]
_FIRST_WAIT_S: Final = 0.1
_LONGEST_WAIT_S: Final = 5.0


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one version."""

    version: Version
    status: Status
    size_bytes: int = 0
    duration_s: float = 0.0
    """Seconds from the hand-over until actors can find it."""
    error: str | None = None


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where versions go."""

    run_id: str
    artifacts: str
    key_url: str
    """Of the version key."""
    signing_key: str
    """Path of the file."""
    config_hash: str
    keep: int
    patience_s: float


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """What goes with the tensors of one version."""

    target: Target
    """In memory and not in the arguments: an address may hold a password."""
    version: Version
    made_at_ns: int
    since_ns: int
    """The same moment by the monotonic clock."""


class Writing:
    """Publishes into one target."""

    def __init__(self, target: Target) -> None:
        """Raises `OSError` or `ValueError` when it cannot be opened."""
        place = Place(url=target.key_url, run_id=target.run_id, artifacts=target.artifacts)
        self._target = target
        self._signer = Signer(Path(target.signing_key))
        self._verifier = Verifier(self._signer.public)
        self._key = open_key(place)
        self._store = open_store(target.artifacts, Patience(deadline_s=0.001, request_s=REQUEST_S))
        self._held: set[Version] = set()
        """In the store."""
        self._is_listed = False

    def publish(self, block: SharedBlock, note: Note, wait: Callable[[float], bool]) -> Published:
        """Publish one version; `wait` returns after so long, or true as soon as a newer one waits."""
        manifest, artifact = self._made(block, note)
        is_stored, why = False, ""
        patience = Patience(deadline_s=self._target.patience_s, first_s=_FIRST_WAIT_S, most_s=_LONGEST_WAIT_S)
        newer = False

        def pause(seconds: float) -> None:
            """Wait, and note whether a newer version waits too."""
            nonlocal newer
            newer = wait(seconds)

        for _ in Tries(patience, sleep=pause):
            if newer:
                return Published(version=note.version, status="superseded", error=why)
            try:
                if not is_stored:
                    self._held.add(note.version)
                    key, is_read_back = artifact_of(note.version), is_remote(self._target.artifacts)
                    self._store.put(key, artifact, verify=is_read_back)
                    is_stored = True
                self._key.move(manifest, self._verifier)
            except StaleError as error:
                return Published(version=note.version, status="error", error=str(error))
            except OSError as error:
                why = str(error)
                continue
            self._prune(note.version)
            taken_s = (time.monotonic_ns() - note.since_ns) / 1e9
            return Published(
                version=note.version,
                status="ok",
                size_bytes=len(artifact),
                duration_s=taken_s,
            )
        return Published(version=note.version, status="error", error=why)

    def _prune(self, newest: Version) -> None:
        """Leave the newest artifacts only; what cannot be removed now is removed after the next version."""
        with suppress(OSError):
            if not self._is_listed:
                names = [entry.key.removeprefix(f"{FOLDER}/") for entry in self._store.list(FOLDER)]
                found = [parse(name.partition(".")[0]) for name in names]
                self._held |= {version for version in found if version is not None and version < newest}
                self._is_listed = True
            for version in sorted(self._held)[: -self._target.keep]:
                self._store.delete(artifact_of(version))
                self._held.remove(version)

    def _made(self, block: SharedBlock, note: Note) -> tuple[WeightsManifest, bytes]:
        specs = {
            name: TensorSpec(
                dtype=piece.dtype,
                shape=list(piece.shape),
                data_ptr=block.address(piece),
                data_len=piece.size,
            )
            for name, piece in block.pieces.items()
        }
        artifact = serialize(specs)
        with memoryview(block.memory) as memory:
            tensors = {
                name: TensorEntry(
                    str(specs[name].dtype),
                    piece.shape,
                    xxh3_of(memory[piece.offset : piece.offset + piece.size]),
                )
                for name, piece in block.pieces.items()
            }
        manifest = WeightsManifest(
            run_id=self._target.run_id,
            version=note.version,
            bytes=len(artifact),
            sha256=sha256_of(artifact),
            tensors=tensors,
            config_hash=self._target.config_hash,
            made_at_ns=note.made_at_ns,
        )
        return self._signer.sign(manifest), artifact


def serve(receiver: Receiver, _: Sequence[str]) -> None:
    """Publish each."""
    keep_large_blocks()
    writing: Writing | None = None
    for block in receiver.blocks():
        note = msgspec.json.decode(block.note, type=Note)
        try:
            writing = writing or Writing(note.target)
            done = writing.publish(block, note, receiver.is_called)
        except (OSError, ValueError) as error:
            done = Published(version=note.version, status="error", error=str(error))
        receiver.answer(block, done)


if __name__ == "__main__":
    run(sys.argv[1:], serve)
