"""The gRPC channel: `weights.v1`, called by an actor, or by the writer of a learner.

The server holds artifacts and the version key: a replay server (`rpc_service`).

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
from overwatch_rl.web.reconnecting import RECONNECTING
from overwatch_rl.weights.channels import REQUEST_S, ChannelError, Place, StaleError
from overwatch_rl.weights.encodings import NOTHING, Payload
from overwatch_rl.weights.manifest import WHOLE, RejectedError, WeightsManifest, artifact_of, encoded

SERVICE: Final = "weights.v1.Weights"
MOST_BYTES: Final = 1 << 30
"""Of one message: an artifact."""
OPTIONS: Final[list[tuple[str, Any]]] = [
    ("grpc.max_receive_message_length", MOST_BYTES),
    ("grpc.max_send_message_length", MOST_BYTES),
    ("grpc.http2.max_frame_size", (1 << 24) - 1),
]
_CHANNEL: Final = [
    *OPTIONS,
    *RECONNECTING,
]


def blob_of(manifest: WeightsManifest, payload: Payload = NOTHING, public: str = "") -> pb.WeightsBlob:
    """A manifest as a message."""
    return pb.WeightsBlob(
        run_id=manifest.run_id,
        step=manifest.version.number,
        checksum=manifest.sha256,
        artifact_uri=artifact_of(manifest.version),
        inline_payload=payload.artifact,
        delta=payload.delta,
        published_at_ns=manifest.made_at_ns,
        lineage=manifest.version.lineage,
        manifest=encoded(manifest),
        public_key=public,
    )


class Remote:
    """A server of weights."""

    def __init__(self, place: Place) -> None:
        parts = urlsplit(place.url)
        self._url = place.url
        self._run = place.run_id
        if parts.scheme == "grpcs":
            roots = None if place.ca is None else place.ca.read_bytes()
            self._line = grpc.secure_channel(parts.netloc, grpc.ssl_channel_credentials(roots), _CHANNEL)
        else:
            self._line = grpc.insecure_channel(parts.netloc, _CHANNEL)
        self._metadata = [] if place.token is None else [("authorization", f"Bearer {place.token}")]
        self._known = ""
        """The version that was read last."""

    def newest(self) -> bytes | None:
        """Of the newest blob."""
        try:
            blob = self._call("GetCurrent", pb.GetCurrentRequest(run_id=self._run), pb.WeightsBlob)
        except FileNotFoundError:
            return None
        self._known = str(Version(blob.lineage, blob.step))
        return bytes(blob.manifest)

    def artifact(self, version: Version, encoding: str = WHOLE) -> bytes:
        """In one message."""
        request = pb.GetArtifactRequest(version=str(version), run_id=self._run, encoding=encoding)
        return bytes(self._call("GetArtifact", request, pb.GetArtifactResponse).artifact)

    def wait(self, seconds: float) -> None:
        """Until the server sends a version that is newer than the last one that was read."""
        until = time.monotonic() + seconds
        call = self._line.unary_stream(
            f"/{SERVICE}/StreamWeights",
            pb.StreamWeightsRequest.SerializeToString,
            pb.WeightsBlob.FromString,
        )
        request = pb.StreamWeightsRequest(after=self._known, run_id=self._run)
        stream = call(request, timeout=seconds, metadata=self._metadata)
        with suppress(grpc.RpcError, StopIteration):
            next(stream)
            stream.cancel()
            return
        time.sleep(max(0.0, until - time.monotonic()))

    def close(self) -> None:
        """End the connection."""
        self._line.close()

    def move(self, manifest: WeightsManifest, verifier: Verifier, payload: Payload = NOTHING) -> None:
        """Have the server keep the artifact and name the version; it gets the delta where that is enough."""
        public = verifier.publics[0]
        if payload.delta:
            with suppress(FileNotFoundError, RejectedError):
                self._publish(blob_of(manifest, Payload(b"", payload.delta), public))
                return
        self._publish(blob_of(manifest, payload, public))

    def _publish(self, blob: pb.WeightsBlob) -> None:
        self._call("PublishWeights", blob, pb.PublishWeightsResponse)

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
            if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
                words += "; a replay server takes larger messages with --max-message-mib"
            if code is grpc.StatusCode.UNIMPLEMENTED:
                words += "; name a replay server of this version"
            raise ChannelError(f"{self._url} does not answer as it should: {code.name}: {words}") from error
