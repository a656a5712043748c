"""Weights of tests: every number of a version is the version's own, so that a torn one is seen."""

import time
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors.torch import save
from torch import Tensor

from overwatch.objects.digests import sha256_of
from overwatch.objects.store import open_store
from overwatch_rl.artifacts.signing import Signer, Verifier, make_key
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.weights.channels import Place, open_channel, open_key
from overwatch_rl.weights.checking import digest_of, shapes_of
from overwatch_rl.weights.manifest import Accepted, TensorEntry, WeightsManifest, artifact_of
from overwatch_rl.weights.publisher import Published, Publisher, Publishing
from overwatch_rl.weights.subscriber import Acting, Subscriber

RUN = "run-1"
LONG_S = 120.0


def tensors(version: Version) -> dict[str, Tensor]:
    """What a version holds."""
    number = float(version.number)
    return {
        "policy.w": torch.full((300, 3), number),
        "policy.scale": torch.tensor(number, dtype=torch.float64),
        "value.half": torch.full((5,), float(version.lineage)).bfloat16(),
        "none": torch.zeros(0, 4),
    }


def is_whole(acting: Acting) -> bool:
    """Whether every tensor is that of the version."""
    wanted = tensors(acting.version)
    return acting.tensors.keys() == wanted.keys() and all(
        torch.equal(acting.tensors[name], value) for name, value in wanted.items()
    )


def manifest(version: Version, artifact: bytes, held: dict[str, Tensor], **changes: Any) -> WeightsManifest:
    """Of an artifact, unsigned."""
    made = WeightsManifest(
        run_id=RUN,
        version=version,
        bytes=len(artifact),
        sha256=sha256_of(artifact),
        tensors={
            name: TensorEntry(shape.dtype, shape.shape, digest_of(held[name]))
            for name, shape in shapes_of(held).items()
        },
        config_hash="",
        made_at_ns=time.time_ns(),
    )
    return msgspec.structs.replace(made, **changes)


class Run:
    """The folder of a run, which is its store too where none is named; publishes without a process."""

    def __init__(
        self,
        folder: Path,
        *,
        key_url: str | None = None,
        artifacts: str | None = None,
    ) -> None:
        self.folder = folder
        store = artifacts or str(folder)
        self.place = Place(url=key_url or store, run_id=RUN, artifacts=store)
        self.signer: Signer = make_key(folder / "signing.key")
        self.verifier = Verifier(self.signer.public)
        self.store = open_store(store)
        self.key = open_key(self.place)

    def put(self, version: Version, **changes: Any) -> WeightsManifest:
        """An artifact and its manifest, which differs from it by `changes`."""
        held = tensors(version)
        artifact = save(held)
        signed = self.signer.sign(manifest(version, artifact, held, **changes))
        self.store.put(artifact_of(version), artifact)
        self.key.move(signed, self.verifier)
        return signed

    def name(self, text: bytes) -> None:
        """Have the version key hold anything."""
        path = self.folder / "weights" / "current.json"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text)

    def accepted(self) -> Accepted:
        """What an actor of this run takes."""
        return Accepted(run_id=RUN, verifier=self.verifier, shapes=shapes_of(tensors(Version(1, 0))))

    def subscriber(self, place: Place | None = None) -> Subscriber:
        """An actor's."""
        return Subscriber(open_channel(place or self.place), self.accepted())

    def publishing(self, **changes: Any) -> Publishing:
        """A learner's."""
        return Publishing(**({"run_id": RUN, "folder": self.folder} | changes))


def waited(publisher: Publisher) -> Published:
    """What became of the one version that is under way."""
    until = time.monotonic() + LONG_S
    while not (done := publisher.finished(1.0)):
        assert time.monotonic() < until
    (one,) = done
    return one
