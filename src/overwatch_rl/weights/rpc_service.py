"""The server's side of `weights.v1`: a handler for a `grpc.aio` server, over the place of one run's weights.

Rules: a call is judged before anything is read; what is published here is verified as an actor verifies it.
Must not know tensors, nor import torch.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.message import Message
from grpc import aio

from overwatch_rl.artifacts.store import open_store
from overwatch_rl.artifacts.versions import Version, parse
from overwatch_rl.protos.weights.v1 import weights_pb2 as pb
from overwatch_rl.web.authorisation import Authorisation
from overwatch_rl.weights.channels import Place, StaleError, open_channel, open_key
from overwatch_rl.weights.manifest import Accepted, RejectedError, artifact_of, check, check_artifact, decoded
from overwatch_rl.weights.rpc import SERVICE, blob_of
from overwatch_rl.weights.served import Reads

LOOK_S: Final = 0.05
"""Time between two looks of a stream."""
_FIRST: Final = Version(0, -1)
T = TypeVar("T")


class WeightsService:
    """The calls."""

    def __init__(self, place: Place, accepted: Accepted, authorisation: Authorisation) -> None:
        """`place` is a store or Redis. Raises `ValueError` of one that is neither."""
        self._reads = Reads(open_channel(place))
        self._key = open_key(place)
        self._store = open_store(place.artifacts or place.url)
        self._accepted = accepted
        self._authorisation = authorisation

    def handler(self) -> grpc.GenericRpcHandler:
        """For `add_generic_rpc_handlers`."""
        calls: dict[str, tuple[Any, type[Message]]] = {
            "GetCurrent": (self._current, pb.GetCurrentRequest),
            "GetArtifact": (self._artifact, pb.GetArtifactRequest),
            "PublishWeights": (self._publish, pb.WeightsBlob),
        }
        methods = {
            name: grpc.unary_unary_rpc_method_handler(
                partial(self._guarded, call), kind.FromString, lambda message: message.SerializeToString()
            )
            for name, (call, kind) in calls.items()
        }
        methods["StreamWeights"] = grpc.unary_stream_rpc_method_handler(
            self._stream, pb.StreamWeightsRequest.FromString, pb.WeightsBlob.SerializeToString
        )
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def _current(self, request: pb.GetCurrentRequest) -> pb.WeightsBlob:
        text = await self._reads.newest()
        if text is None:
            raise FileNotFoundError("no weights are published yet; ask again")
        return await self._blob(text, with_payload=request.with_payload)

    async def _artifact(self, request: pb.GetArtifactRequest) -> pb.GetArtifactResponse:
        version = parse(request.version)
        if version is None:
            raise RejectedError(f"{request.version[:40]!r} is no version; e.g. 001-00000010")
        return pb.GetArtifactResponse(artifact=await self._reads.artifact(version))

    async def _publish(self, blob: pb.WeightsBlob) -> pb.PublishWeightsResponse:
        manifest = decoded(blob.manifest)
        check(manifest, self._accepted)
        if blob.inline_payload:
            check_artifact(manifest, blob.inline_payload)
            await asyncio.to_thread(self._store.put, artifact_of(manifest.version), blob.inline_payload)
        await asyncio.to_thread(self._key.move, manifest, self._accepted.verifier)
        return pb.PublishWeightsResponse(version=str(manifest.version))

    async def _stream(
        self, request: pb.StreamWeightsRequest, context: "aio.ServicerContext"
    ) -> AsyncIterator[pb.WeightsBlob]:
        sent = parse(request.after) or _FIRST

        async def newer(_: pb.StreamWeightsRequest) -> pb.WeightsBlob:
            while True:
                text = await self._reads.newest(LOOK_S)
                if text is not None and decoded(text).version > sent:
                    return await self._blob(text, with_payload=request.with_payload)
                await asyncio.sleep(LOOK_S)

        while True:
            blob = await self._guarded(newer, request, context)
            sent = Version(blob.lineage, blob.step)
            yield blob

    async def _blob(self, text: bytes, *, with_payload: bool) -> pb.WeightsBlob:
        manifest = decoded(text)
        return blob_of(manifest, await self._reads.artifact(manifest.version) if with_payload else b"")

    async def _guarded(
        self, call: Callable[[Any], Awaitable[T]], request: Any, context: "aio.ServicerContext"
    ) -> T:
        """The border: a fault becomes a status."""
        given = dict(context.invocation_metadata() or ())
        # No page of a browser can make these calls, so the host does not matter.
        headers = {"Host": "localhost", "Authorization": str(given.get("authorization", ""))}
        if (denied := self._authorisation.denied(headers)) is not None:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, denied.message)
        try:
            return await call(request)
        except (OSError, RejectedError, StaleError) as error:
            await context.abort(_status(error), str(error))
            raise AssertionError("abort raises") from error


def _status(error: Exception) -> grpc.StatusCode:
    if isinstance(error, FileNotFoundError):
        return grpc.StatusCode.NOT_FOUND
    if isinstance(error, RejectedError):
        return grpc.StatusCode.INVALID_ARGUMENT
    if isinstance(error, StaleError):
        return grpc.StatusCode.FAILED_PRECONDITION
    return grpc.StatusCode.UNAVAILABLE
