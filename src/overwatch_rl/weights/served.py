"""Weights over HTTP, for actors without a store: `GET /weights/current`, and the artifacts of manifests.

Rules: a process of its own serves, so that polls cost the learner nothing; it ends with the learner, however
that ends. A request is judged before anything is read; polls at the same time are one read of the source, and
an artifact is read once for all actors. Must not know who publishes, nor import torch.
"""

import asyncio
import multiprocessing
import os
import signal
import socket
import threading
import time
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Final

from aiohttp import ETag, hdrs, web

from overwatch_rl.artifacts.versions import Version, parse
from overwatch_rl.web.authorisation import Authorisation
from overwatch_rl.web.process import address
from overwatch_rl.web.site import tls_context
from overwatch_rl.weights.channels import Place, StoreChannel, open_channel
from overwatch_rl.weights.manifest import FOLDER, RejectedError, check_artifact, decoded

_AGAIN_S: Final = 0.5
"""After a process that ended, until the next."""


class Reads:
    """Reads of one source by many callers at once."""

    def __init__(self, source: StoreChannel) -> None:
        self._source = source
        self._manifest: tuple[float, bytes | None] = (float("-inf"), None)
        """When reading it began, and what it is."""
        self._artifact: tuple[Version, bytes] | None = None
        self._one_read = asyncio.Lock()

    async def newest(self) -> bytes | None:
        """Read after it was asked for; those who waited for one read share the next."""
        requested = time.monotonic()
        async with self._one_read:
            if self._manifest[0] <= requested:
                self._manifest = (time.monotonic(), await asyncio.to_thread(self._source.newest))
            return self._manifest[1]

    async def artifact(self, version: Version) -> bytes:
        """Kept until another is asked for, where it is what the newest manifest describes."""
        async with self._one_read:
            if self._artifact is not None and self._artifact[0] == version:
                return self._artifact[1]
            data = await asyncio.to_thread(self._source.artifact, version)
            if await asyncio.to_thread(_is_of, self._manifest[1], version, data):
                self._artifact = (version, data)
            return data


class Served:
    """The newest manifest and artifact of one source."""

    def __init__(self, reads: Reads, authorisation: Authorisation) -> None:
        self._reads = reads
        self._authorisation = authorisation

    async def current(self, request: web.Request) -> web.Response:
        """The newest manifest, as the writer signed it."""
        if (problem := self._denied(request)) is not None:
            return problem
        try:
            if (text := await self._reads.newest()) is None:
                return _problem(404, "no weights are published yet; ask again", {hdrs.RETRY_AFTER: "1"})
            version = decoded(text).version
        except (OSError, RejectedError) as error:
            return _problem(503, str(error), {hdrs.RETRY_AFTER: "1"})
        response = web.Response(body=text, content_type="application/json")
        return _tagged(request, response, version, "no-cache")

    async def artifact(self, request: web.Request) -> web.Response:
        """The bytes of one version."""
        if (problem := self._denied(request)) is not None:
            return problem
        version = parse(request.match_info["version"])
        if version is None:
            return _problem(404, f"{request.match_info['version'][:40]!r} is no version; e.g. 001-00000010")
        try:
            data = await self._reads.artifact(version)
        except FileNotFoundError:
            return _problem(404, f"the weights of {version} are not kept any more; ask for /{FOLDER}/current")
        except OSError as error:
            return _problem(503, str(error), {hdrs.RETRY_AFTER: "1"})
        response = web.Response(body=data, content_type="application/octet-stream")
        return _tagged(request, response, version, "max-age=31536000, immutable")

    def _denied(self, request: web.Request) -> web.Response | None:
        denied = self._authorisation.denied(request.headers)
        return None if denied is None else _problem(denied.status, denied.message)


def weights_routes(source: StoreChannel, authorisation: Authorisation) -> list[web.RouteDef]:
    """Routes for the application of a learner; manifests have their version as entity tag."""
    served = Served(Reads(source), authorisation)
    return [
        web.get(f"/{FOLDER}/current", served.current),
        web.get(f"/{FOLDER}/{{version}}.safetensors", served.artifact),
    ]


@dataclass(frozen=True, slots=True)
class Serving:
    """Where a learner's weights are served."""

    listen: str
    """`HOST:PORT`."""
    token: str | None
    cert: Path | None = None
    key: Path | None = None
    """PEM files, both or neither."""

    def __post_init__(self) -> None:
        """Raise `ValueError` where others could reach it without a token, or the files are no pair."""
        Authorisation(address(self.listen)[0], self.token, "--listen-token")
        tls_context(self.cert, self.key)

    async def serve(self, place: Place) -> None:
        """Until it is cancelled, by a process that is started again where it ends.

        Raises `OSError` where the address cannot be used.
        """
        where = address(self.listen)
        family = socket.AF_INET6 if ":" in where[0] else socket.AF_INET
        with socket.create_server(where, family=family) as bound:
            while True:
                process = multiprocessing.get_context("spawn").Process(
                    target=_serve, args=(self, place, bound), daemon=True
                )
                process.start()
                try:
                    await asyncio.to_thread(wait, [process.sentinel])
                finally:
                    process.kill()
                    process.join()
                await asyncio.sleep(_AGAIN_S)


def _serve(serving: Serving, place: Place, bound: socket.socket) -> None:
    """Serve at a socket until the learner is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True, name="parent").start()

    async def serve() -> None:
        with closing(open_channel(place)) as source:
            app = web.Application()
            app.add_routes(weights_routes(source, Authorisation(address(serving.listen)[0], serving.token)))
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            await web.SockSite(runner, bound, ssl_context=tls_context(serving.cert, serving.key)).start()
            await asyncio.Event().wait()

    asyncio.run(serve())


def _end_with_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
    os._exit(0)


def _is_of(text: bytes | None, version: Version, artifact: bytes) -> bool:
    """Whether a manifest describes an artifact: neither may have been damaged when it was read."""
    try:
        manifest = decoded(text or b"")
        check_artifact(manifest, artifact)
    except RejectedError:
        return False
    return manifest.version == version


def _tagged(request: web.Request, response: web.Response, version: Version, caching: str) -> web.Response:
    """The response, or that its caller has it already."""
    known = request.if_none_match or ()
    if any(tag.value in (str(version), "*") for tag in known):
        response = web.Response(status=304)
    response.etag = ETag(str(version))
    response.headers[hdrs.CACHE_CONTROL] = caching
    return response


def _problem(status: int, error: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response({"error": error}, status=status, headers=headers)
