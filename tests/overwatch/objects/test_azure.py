"""Azure Blob Storage, against Azurite, Microsoft's emulator: `npm install -g azurite` puts it on the PATH."""

import base64
import hashlib
import hmac
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from overwatch.objects.retrying import Patience
from overwatch.objects.store import ConflictError, Store, open_store
from tests.ports import free_port

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Both are Azurite's own, the same everywhere and printed in its manual."""
START_S = 60.0
SOON = Patience(deadline_s=10.0, request_s=5.0)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with the container `runs`, `http://127.0.0.1:PORT`."""
    program = shutil.which("azurite-blob")
    if program is None:
        pytest.skip("azurite-blob is not installed; npm install -g azurite")
    port = free_port()
    words = [program, "--silent", "--disableTelemetry", "--skipApiVersionCheck", "--blobPort", str(port)]
    folder = tmp_path_factory.mktemp("azurite")
    process = subprocess.Popen([*words, "--location", str(folder)], stdout=subprocess.DEVNULL)
    try:
        until = time.monotonic() + START_S
        while not listens(port):
            assert process.poll() is None, "the server ended"
            assert time.monotonic() < until, "the server does not listen"
            time.sleep(0.05)
        make_container(f"http://127.0.0.1:{port}", "runs")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an operator would set them."""
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)


@pytest.fixture
def store(address: str) -> Store:
    """An empty one."""
    return open_store(az_url(address, uuid4().hex), SOON)


def listens(port: int) -> bool:
    """Whether a server accepts connections."""
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
    except OSError:
        return False
    return True


def make_container(address: str, name: str) -> None:
    """Create a container, with a request that is signed by the key of the account."""
    moment, version = f"{datetime.now(UTC):%a, %d %b %Y %H:%M:%S GMT}", "2021-08-06"
    headers = f"x-ms-date:{moment}\nx-ms-version:{version}\n"
    signed = "PUT" + "\n" * 12 + headers + f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
    digest = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
    url = f"{address}/{ACCOUNT}/{name}?restype=container"
    request = urllib.request.Request(url, method="PUT")  # noqa: S310 http
    request.add_header("x-ms-date", moment)
    request.add_header("x-ms-version", version)
    request.add_header("Authorization", f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}")
    request.add_header("Content-Length", "0")
    urllib.request.urlopen(request, timeout=START_S).close()  # noqa: S310 http


def az_url(address: str, prefix: str) -> str:
    """The URL of a store there."""
    return f"az://runs/{prefix}?endpoint={address}/{ACCOUNT}"


@pytest.mark.parametrize("size", [0, 1, 12 << 20])
def test_what_was_written_is_read(store: Store, size: int) -> None:
    """Also empty, also in parts; listed by key and by the first part of it, then removed."""
    data = bytes(range(256)) * (size // 256) or b"x" * size
    store.put("a/b", data, verify=True)
    held = store.get("a/b", hashlib.sha256(data).hexdigest())
    assert held is not None
    assert held.data == data
    assert [(one.key, one.size) for one in store.list("a")] == [("a/b", size)]
    store.delete("a/b", "a/b")
    assert store.get("a/b") is None
    assert store.list() == []


def test_one_of_two_writers_succeeds(store: Store) -> None:
    """Conditions of a write are heeded, so the store is not refused."""
    store.check()
    first = store.replace("pointer", b"one", None)
    second = store.replace("pointer", b"two", first)
    for expected in (None, first):
        with pytest.raises(ConflictError):
            store.replace("pointer", b"three", expected)
    assert store.replace("pointer", b"four", second) != second


def test_an_account_that_is_missing_is_named_with_where_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before any request; no server is needed."""
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME")
    with pytest.raises(ValueError, match="Account must be specified; look at the address and the provider's"):
        open_store("az://runs/x")
