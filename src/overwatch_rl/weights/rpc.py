"""The gRPC channel: `weights.v1`, called by an actor, or by the writer of a learner.

Rules: a status becomes what every channel raises; nothing is tried again here. Must not know how the other
end keeps weights, nor import torch.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final
from urllib.parse import urlsplit

import grpc
from google.protobuf.message import Message

from overwatch_rl.artifacts.signing import Verifier
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.protos.weights.v1 import weights_pb2 as pb
from overwatch_rl.weights.channels import REQUEST_S, ChannelError, Place, StaleError
from overwatch_rl.weights.manifest import RejectedError, WeightsManifest, artifact_of, encoded

SERVICE: Final = "weights.v1.Weights"
MOST_BYTES: Final = 1 << 30
"""Of one message: an artifact."""
OPTIONS: Final[list[tuple[str, Any]]] = [
    ("grpc.max_receive_message_length", MOST_BYTES),
    ("grpc.max_send_message_length", MOST_BYTES),
]
_CHANNEL: Final = [
    *OPTIONS,
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.use_local_subchannel_pool", 1),
]


def blob_of(manifest: WeightsManifest, payload: bytes = b"") -> pb.WeightsBlob:
    """A manifest as a message."""
    return pb.WeightsBlob(
        run_id=manifest.run_id,
        step=manifest.version.number,
        checksum=manifest.sha256,
        artifact_uri=artifact_of(manifest.version),
        inline_payload=payload,
        published_at_ns=manifest.made_at_ns,
        lineage=manifest.version.lineage,
        manifest=encoded(manifest),
    )


class Remote:
    """A server of weights."""

    def __init__(self, place: Place) -> None:
        parts = urlsplit(place.url)
        self._url = place.url
        if parts.scheme == "grpcs":
            self._line = grpc.secure_channel(parts.netloc, grpc.ssl_channel_credentials(), _CHANNEL)
        else:
            self._line = grpc.insecure_channel(parts.netloc, _CHANNEL)
        self._metadata = [] if place.token is None else [("authorization", f"Bearer {place.token}")]
        self._known = ""
        """The version that was read last."""

    def newest(self) -> bytes | None:
        """Of the newest blob."""
        try:
            blob = self._call("GetCurrent", pb.GetCurrentRequest(), pb.WeightsBlob)
        except FileNotFoundError:
            return None
        self._known = str(Version(blob.lineage, blob.step))
        return bytes(blob.manifest)

    def artifact(self, version: Version) -> bytes:
        """In one message."""
        request = pb.GetArtifactRequest(version=str(version))
        return bytes(self._call("GetArtifact", request, pb.GetArtifactResponse).artifact)

    def wait(self, seconds: float) -> None:
        """Until the server sends a version that is newer than the last one that was read."""
        until = time.monotonic() + seconds
        call = self._line.unary_stream(
            f"/{SERVICE}/StreamWeights",
            pb.StreamWeightsRequest.SerializeToString,
            pb.WeightsBlob.FromString,
        )
        stream = call(pb.StreamWeightsRequest(after=self._known), timeout=seconds, metadata=self._metadata)
        with suppress(grpc.RpcError, StopIteration):
            next(stream)
            stream.cancel()
            return
        time.sleep(max(0.0, until - time.monotonic()))

    def close(self) -> None:
        """End the connection."""
        self._line.close()

    def move(self, manifest: WeightsManifest, verifier: Verifier) -> None:  # noqa: ARG002 the server judges
        """Have the server name it; its artifact lies in the store."""
        self._call("PublishWeights", blob_of(manifest), pb.PublishWeightsResponse)

    def _call(self, method: str, request: Message, kind: type[Message]) -> Any:
        call = self._line.unary_unary(
            f"/{SERVICE}/{method}", type(request).SerializeToString, kind.FromString
        )
        with self._errors():
            return call(request, timeout=REQUEST_S, metadata=self._metadata)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except grpc.RpcError as error:
            code, words = error.code(), error.details()
            if code is grpc.StatusCode.NOT_FOUND:
                raise FileNotFoundError(words) from error
            if code is grpc.StatusCode.FAILED_PRECONDITION:
                raise StaleError(words) from error
            if code is grpc.StatusCode.INVALID_ARGUMENT:
                raise RejectedError(words) from error
            raise ChannelError(f"{self._url} does not answer as it should: {code.name}: {words}") from error
