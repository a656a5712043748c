"""What a learner answers about its weights over HTTP."""

import asyncio
import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import urlsplit

import psutil
import pytest

from overwatch_rl.artifacts.versions import Version
from overwatch_rl.weights.channels import ChannelError, open_channel
from overwatch_rl.weights.manifest import artifact_of
from overwatch_rl.weights.served import Reads
from tests.overwatch_rl.weights.made import Run
from tests.overwatch_rl.weights.serving import Server
from tests.ports import free_port

TOKEN = "a-token-of-24-characters"  # noqa: S105 of a test


class Source:
    """A store of which reads are counted, and may be held back or fail."""

    def __init__(self, run: Run) -> None:
        self._channel = open_channel(run.place)
        self.reads = 0
        self.may_read = threading.Event()
        self.may_read.set()
        self.fault: str | None = None

    def newest(self) -> bytes | None:
        """Of the store."""
        self.reads += 1
        self.may_read.wait(20)
        if self.fault is not None:
            raise ChannelError(self.fault)
        return self._channel.newest()

    def artifact(self, version: Version) -> bytes:
        """Of the store."""
        self.reads += 1
        return self._channel.artifact(version)

    def wait(self, seconds: float) -> None:
        """Never called."""

    def close(self) -> None:
        """Never called."""


@pytest.fixture
def source(run: Run) -> Source:
    """Of the run."""
    return Source(run)


@pytest.fixture
def server(source: Source) -> Iterator[Server]:
    """With a token."""
    with Server(source, free_port(), TOKEN) as server:
        yield server


def get(
    server: Server, path: str, headers: Mapping[str, str] | None = None
) -> tuple[int, Mapping[str, str], bytes]:
    """Status, headers, body; with the token unless `headers` has its own."""
    line = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=20)
    line.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"} | dict(headers or {}))
    reply = line.getresponse()
    body = reply.read()
    line.close()
    return reply.status, reply.headers, body


def test_the_newest_manifest_has_its_version_as_tag(run: Run, server: Server) -> None:
    """Who has it gets no body, who has an older one gets the newest."""
    run.put(Version(1, 0))
    status, headers, body = get(server, "/weights/current")
    assert (status, headers["ETag"], body) == (200, '"001-00000000"', run.key.newest())
    assert headers["Content-Type"] == "application/json"
    known = {"If-None-Match": headers["ETag"]}

    status, headers, body = get(server, "/weights/current", known)
    assert (status, headers["ETag"], body) == (304, '"001-00000000"', b"")
    run.put(Version(1, 1))
    status, headers, body = get(server, "/weights/current", known)
    assert (status, headers["ETag"], body) == (200, '"001-00000001"', run.key.newest())


def test_an_artifact_is_read_once_for_all_actors(run: Run, server: Server, source: Source) -> None:
    """Byte for byte; it never changes, so it may be kept."""
    run.put(Version(1, 0))
    wanted = run.store.get(artifact_of(Version(1, 0)))
    assert wanted is not None
    assert get(server, "/weights/current")[0] == 200
    for _ in range(3):
        status, headers, body = get(server, "/weights/001-00000000.safetensors")
        assert (status, body) == (200, wanted.data)
        assert "immutable" in headers["Cache-Control"]

    assert source.reads == 2


def test_an_artifact_that_was_damaged_when_it_was_read_is_not_kept(run: Run, server: Server) -> None:
    """The next actor gets it as it is."""
    run.put(Version(1, 0))
    path = run.folder / artifact_of(Version(1, 0))
    whole = path.read_bytes()
    assert get(server, "/weights/current")[0] == 200
    path.write_bytes(whole[:-1] + b"\xff")
    assert get(server, "/weights/001-00000000.safetensors")[2] != whole
    path.write_bytes(whole)

    assert get(server, "/weights/001-00000000.safetensors")[2] == whole


def test_what_is_not_there_is_named(run: Run, server: Server) -> None:
    """Nothing published, a version that is gone, what is no version."""
    assert get(server, "/weights/current")[0] == 404
    status, _, body = get(server, "/weights/001-00000007.safetensors")
    assert status == 404
    assert "001-00000007 are not kept any more" in json.loads(body)["error"]
    for name in ("latest", "%2e%2e", "..%2f..%2fsigning.key", "001-00000007.safetensors%00"):
        assert get(server, f"/weights/{name}.safetensors")[0] == 404
    run.put(Version(1, 0))
    assert get(server, "/weights/current")[0] == 200


def test_a_source_that_fails_is_a_503(server: Server, source: Source) -> None:
    """With its words; nothing that is old goes out."""
    source.fault = "Redis does not answer as it should: refused"
    status, headers, body = get(server, "/weights/current")

    assert (status, headers["Retry-After"]) == (503, "1")
    assert json.loads(body) == {"error": source.fault}


def test_a_version_key_that_is_damaged_is_a_503(run: Run, server: Server) -> None:
    """It is no manifest, so nothing is known of it."""
    run.name(b"damaged")

    assert get(server, "/weights/current")[0] == 503


@pytest.mark.parametrize("path", ["/weights/current", "/weights/001-00000000.safetensors"])
def test_without_the_token_nothing_is_read(server: Server, source: Source, path: str) -> None:
    """Whatever is asked for."""
    assert get(server, path, {"Authorization": "Bearer another"})[0] == 401
    assert get(server, path, {"Origin": "http://elsewhere"})[0] == 403
    assert source.reads == 0


def test_polls_at_the_same_time_share_a_read(run: Run, source: Source) -> None:
    """Those who came while one was read share the next, which is newer than their question."""
    run.put(Version(1, 0))

    async def poll() -> list[bytes | None]:
        reads = Reads(source)
        source.may_read.clear()
        polls = [asyncio.ensure_future(reads.newest())]
        while not source.reads:  # noqa: ASYNC110 it is read in a thread
            await asyncio.sleep(0)
        run.put(Version(1, 1))
        polls += [asyncio.ensure_future(reads.newest()) for _ in range(11)]
        await asyncio.sleep(0)
        source.may_read.set()
        return await asyncio.gather(*polls)

    assert asyncio.run(poll())[1:] == [run.key.newest()] * 11
    assert source.reads == 2


def test_another_process_serves_than_the_one_that_publishes(run: Run) -> None:
    """One that is killed is started again at the same address; none outlives who started it."""
    run.put(Version(1, 0))
    port = free_port()
    words = [sys.executable, "-c", SERVE, str(run.folder), str(port)]
    with subprocess.Popen(words) as parent:
        seen = set[int]()
        for _ in range(2):
            wait_for(lambda: current(port) == 200)
            (server,) = (
                one for one in psutil.Process(parent.pid).children() if "spawn_main" in words_of(one)
            )
            seen.add(server.pid)
            server.kill()
        wait_for(lambda: current(port) == 200)
        parent.kill()
    wait_for(lambda: current(port) is None)
    assert len(seen) == 2


SERVE = """
import asyncio, sys
from overwatch_rl.weights.channels import Place
from overwatch_rl.weights.served import Serving
if __name__ == "__main__":
    asyncio.run(Serving(f"127.0.0.1:{sys.argv[2]}", None).serve(Place(url=sys.argv[1], run_id="run-1")))
"""


def words_of(process: psutil.Process) -> str:
    """Its command."""
    return " ".join(process.cmdline())


def current(port: int) -> int | None:
    """The status of one poll; `None` where nobody listens."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", "/weights/current")
        return connection.getresponse().status
    except (ConnectionError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def wait_for(is_so: Callable[[], object]) -> None:
    """Ask again until it is so."""
    ends = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < ends
        time.sleep(0.05)
