"""What a learner serves of its weights: `GET /weights/current`, and the artifacts that manifests name.

Rules: a request is judged before anything is read; polls at the same time are one read of the source, and an
artifact is read once for all actors. Must not know who publishes.
"""

import asyncio
import time

import msgspec
from aiohttp import ETag, hdrs, web

from overwatch_rl.artifacts.versions import Version, parse
from overwatch_rl.web.authorisation import Authorisation
from overwatch_rl.weights.channels import Channel
from overwatch_rl.weights.manifest import FOLDER, RejectedError, check_artifact, decoded


class Reads:
    """Reads of one source by many callers at once."""

    def __init__(self, source: Channel) -> None:
        self._source = source
        self._manifest: tuple[float, bytes | None] = (float("-inf"), None)
        """When reading it began, and what it is."""
        self._artifact: tuple[Version, bytes] | None = None
        self._one_read = asyncio.Lock()

    async def newest(self, most_age_s: float = 0.0) -> bytes | None:
        """Read at most so long before it was asked for; those who waited for one read share the next."""
        requested = time.monotonic()
        async with self._one_read:
            if self._manifest[0] <= requested - most_age_s:
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
            text = await self._reads.newest()
            version = None if text is None else decoded(text).version
        except (OSError, RejectedError) as error:
            return _problem(503, str(error), {hdrs.RETRY_AFTER: "1"})
        if version is None:
            return _problem(404, "no weights are published yet; ask again", {hdrs.RETRY_AFTER: "1"})
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


def weights_routes(source: Channel, authorisation: Authorisation) -> list[web.RouteDef]:
    """Routes for the application of a learner; manifests have their version as entity tag."""
    served = Served(Reads(source), authorisation)
    return [
        web.get(f"/{FOLDER}/current", served.current),
        web.get(f"/{FOLDER}/{{version}}.safetensors", served.artifact),
    ]


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
    body = msgspec.json.encode({"error": error})
    return web.Response(body=body, status=status, content_type="application/json", headers=headers)
