"""The server's side of `weights.v1`: handlers for a `grpc.aio` server, which hold the weights of runs.

Rules: a call is judged before anything is read; what is published is verified as an actor verifies it, by the
key of the run's first version. So who may call cannot change what another learner published; actors verify by
the run's record all the same. Must not know tensors, nor import torch.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.message import Message
from grpc import aio

from overwatch.objects.retrying import Patience
from overwatch.objects.store import below, open_store
from overwatch_rl.artifacts.signing import Verifier
from overwatch_rl.artifacts.versions import Version, parse
from overwatch_rl.protos.weights.v1 import weights_pb2 as pb
from overwatch_rl.web.authorisation import Authorisation
from overwatch_rl.weights.channels import Place, StaleError, is_to_move, open_channel, open_key
from overwatch_rl.weights.encodings import ENCODINGS, Base, Payload, artifact_from, base_of
from overwatch_rl.weights.keeping import Keeping
from overwatch_rl.weights.manifest import (
    FOLDER,
    WHOLE,
    Accepted,
    RejectedError,
    WeightsManifest,
    artifact_of,
    check,
    check_artifact,
    decoded,
)
from overwatch_rl.weights.rpc import SERVICE, blob_of
from overwatch_rl.weights.served import Reads

PUBLIC: Final = f"{FOLDER}/public.key"
"""The key that signs a run's versions, as its first publisher named it."""
KEEP: Final = 4
"""Newest artifacts of a run that stay."""
LOOK_S: Final = 0.25
"""Between two looks of a stream; what is published here ends it sooner."""
_RUN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_MOST_RUNS: Final = 64
"""That are remembered at a time; the others are on disk."""
_FIRST: Final = Version(0, -1)
T = TypeVar("T")


class _Held:
    """The weights of one run."""

    def __init__(self, root: str | Path, run_id: str) -> None:
        place = Place(url=str(below(root, run_id)), run_id=run_id)
        self.reads = Reads(open_channel(place))
        self.news = asyncio.Event()
        """Set, and replaced, by each version that is published."""
        self.one_writer = asyncio.Lock()
        self._run_id = run_id
        self._store = open_store(place.url, Patience(deadline_s=5.0))
        self._key = open_key(place)
        self._kept = Keeping(self._store, KEEP)

    def publish(self, blob: pb.WeightsBlob) -> Version:
        """Verify, keep, name. Raises `RejectedError`, `StaleError`, `OSError`."""
        manifest = decoded(blob.manifest)
        known = self._store.get(PUBLIC)
        try:
            verifier = Verifier(blob.public_key if known is None else known.data.decode())
        except ValueError as error:
            raise RejectedError(str(error)) from error
        check(manifest, Accepted(run_id=self._run_id, verifier=verifier))
        is_newer = is_to_move(self._key.newest(), manifest, verifier)
        payload = Payload(blob.inline_payload or self._made(manifest, blob.delta), blob.delta)
        check_artifact(manifest, payload.artifact)
        if known is None:
            self._store.replace(PUBLIC, blob.public_key.encode(), None)
        if is_newer:
            self._kept.put(manifest.version, payload)
            self._key.move(manifest, verifier)
            self._kept.prune(manifest.version)
        return manifest.version

    def _made(self, manifest: WeightsManifest, delta: bytes) -> bytes:
        """The artifact, not verified; `FileNotFoundError` where the version before is not here."""
        if not delta:
            return b""
        before = base_of(delta)
        held = self._store.get(artifact_of(before))
        if held is None:
            raise FileNotFoundError(f"{before} is not here; send the whole artifact")
        return artifact_from(Base(before, held.data), manifest.version, manifest.bytes, lambda _: delta)


class WeightsService:
    """The calls."""

    def __init__(self, root: str | Path, authorisation: Authorisation) -> None:
        """Each run has a folder of its name in `root`, which is a folder or the URL of a store."""
        self._root = root
        self._authorisation = authorisation
        self._runs: dict[str, _Held] = {}

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

    def _held(self, run_id: str) -> _Held:
        held = self._runs.get(run_id)
        if held is None:
            if _RUN.fullmatch(run_id) is None:
                raise RejectedError(
                    f"run_id {run_id[:40]!r} is no name; use up to 128 letters, digits, dots, - and _"
                )
            if len(self._runs) >= _MOST_RUNS:
                del self._runs[next(iter(self._runs))]
            held = self._runs[run_id] = _Held(self._root, run_id)
        return held

    async def _current(self, request: pb.GetCurrentRequest) -> pb.WeightsBlob:
        held = self._held(request.run_id)
        text = await held.reads.newest()
        if text is None:
            raise FileNotFoundError(f"no weights of {request.run_id} are published yet; ask again")
        return await _blob(held, text, with_payload=request.with_payload)

    async def _artifact(self, request: pb.GetArtifactRequest) -> pb.GetArtifactResponse:
        version, encoding = parse(request.version), request.encoding or WHOLE
        if version is None:
            raise RejectedError(f"{request.version[:40]!r} is no version; e.g. 001-00000010")
        if encoding not in ENCODINGS:
            raise RejectedError(f"encoding {encoding[:40]!r} is none of {', '.join(ENCODINGS)}")
        artifact = await self._held(request.run_id).reads.artifact(version, encoding)
        return pb.GetArtifactResponse(artifact=artifact)

    async def _publish(self, blob: pb.WeightsBlob) -> pb.PublishWeightsResponse:
        held = self._held(blob.run_id)
        async with held.one_writer:
            version = await asyncio.to_thread(held.publish, blob)
        news, held.news = held.news, asyncio.Event()
        news.set()
        return pb.PublishWeightsResponse(version=str(version))

    async def _stream(
        self, request: pb.StreamWeightsRequest, context: "aio.ServicerContext"
    ) -> AsyncIterator[pb.WeightsBlob]:
        sent = parse(request.after) or _FIRST

        async def newer(_: pb.StreamWeightsRequest) -> pb.WeightsBlob:
            held = self._held(request.run_id)
            while True:
                news = held.news
                text = await held.reads.newest()
                if text is not None and decoded(text).version > sent:
                    return await _blob(held, text, with_payload=request.with_payload)
                with suppress(TimeoutError):
                    await asyncio.wait_for(news.wait(), LOOK_S)

        while True:
            blob = await self._guarded(newer, request, context)
            sent = Version(blob.lineage, blob.step)
            yield blob

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


async def _blob(held: _Held, text: bytes, *, with_payload: bool) -> pb.WeightsBlob:
    manifest = decoded(text)
    artifact = await held.reads.artifact(manifest.version) if with_payload else b""
    return blob_of(manifest, Payload(artifact))


def _status(error: Exception) -> grpc.StatusCode:
    if isinstance(error, FileNotFoundError):
        return grpc.StatusCode.NOT_FOUND
    if isinstance(error, RejectedError):
        return grpc.StatusCode.INVALID_ARGUMENT
    if isinstance(error, StaleError):
        return grpc.StatusCode.FAILED_PRECONDITION
    return grpc.StatusCode.UNAVAILABLE
