"""Google Cloud Storage: its conditions are generations, not e-tags.

There is no server of it to install, so the one here speaks the part of its XML interface that is used, with
what is documented of `x-goog-if-generation-match` and `x-goog-generation`.
"""

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import pytest

from overwatch.objects.backends import Tag
from overwatch.objects.retrying import Patience
from overwatch.objects.store import ConflictError, Store, open_store
from overwatch_rl.checkpoints.reading import find_checkpoint
from overwatch_rl.checkpoints.store import claim
from tests.overwatch_rl.checkpoints.made import state, upload

PATIENCE = Patience(deadline_s=5.0, request_s=2.0, first_s=0.01, most_s=0.05)
WHEN = "2026-01-01T00:00:00.000Z"


class Objects(BaseHTTPRequestHandler):
    """One bucket in memory."""

    protocol_version = "HTTP/1.1"
    held: dict[str, tuple[bytes, int]]
    lock: threading.Lock
    conditions: list[str]

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix("/bucket").lstrip("/")

    def _answer(self, status: int, body: bytes = b"", generation: int | None = None) -> None:
        self.send_response(status)
        if generation is not None:
            self.send_header("x-goog-generation", str(generation))
            self.send_header("ETag", f'"{hashlib.md5(body).hexdigest()}"')  # noqa: S324 as theirs
            self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        is_head = self.command == "HEAD"
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if not is_head:
            self.wfile.write(body)

    def do_PUT(self) -> None:
        """Write, on the condition that is named."""
        body, key = self.rfile.read(int(self.headers["Content-Length"])), self._key()
        wanted = self.headers.get("x-goog-if-generation-match")
        with self.lock:
            _, now = self.held.get(key, (b"", 0))
            if wanted is not None:
                self.conditions.append(wanted)
                if int(wanted) != now:
                    self._answer(412)
                    return
            generation = 1 + max((one for _, one in self.held.values()), default=1000)
            self.held[key] = (body, generation)
        self.send_response(200)
        self.send_header("x-goog-generation", str(generation))
        self.send_header("ETag", f'"{hashlib.md5(body).hexdigest()}"')  # noqa: S324 as theirs
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        """Read or list."""
        key = self._key()
        if not key:
            prefix = parse_qs(urlsplit(self.path).query).get("prefix", [""])[0]
            rows = "".join(
                f"<Contents><Key>{escape(name)}</Key><Size>{len(body)}</Size><ETag>x</ETag>"
                f"<LastModified>{WHEN}</LastModified></Contents>"
                for name, (body, _) in sorted(self.held.items())
                if name.startswith(prefix)
            )
            self._answer(200, f"<ListBucketResult>{rows}</ListBucketResult>".encode())
        elif key in self.held:
            self._answer(200, *self.held[key])
        else:
            self._answer(404)

    def do_DELETE(self) -> None:
        """Remove."""
        self._answer(404 if self.held.pop(self._key(), None) is None else 204)


@pytest.fixture
def objects() -> Iterator[type[Objects]]:
    """A server of an empty bucket."""
    kind = type("Bucket", (Objects,), {"held": {}, "lock": threading.Lock(), "conditions": [], "port": 0})
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        kind.port = server.server_port  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield kind
        server.shutdown()
        thread.join()


@pytest.fixture
def store(objects: type[Objects], monkeypatch: pytest.MonkeyPatch) -> Store:
    """A part of it, by the usual environment variable."""
    account = {
        "gcs_base_url": f"http://127.0.0.1:{objects.port}", "disable_oauth": True,  # type: ignore[attr-defined]
        "client_email": "", "private_key": "", "private_key_id": "",
    }  # fmt: skip
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", json.dumps(account))
    return open_store("gs://bucket/run?allow_http=true", PATIENCE)


def test_files_are_written_read_listed_and_removed(store: Store) -> None:
    """As in any store."""
    store.put("a/b", b"one", verify=True)
    held = store.get("a/b")
    assert held is not None
    assert held.data == b"one"
    assert [(one.key, one.size) for one in store.list("a")] == [("a/b", 3)]
    store.delete("a/b", "a/b")
    assert store.get("a/b") is None


def test_conditions_are_generations(store: Store, objects: type[Objects]) -> None:
    """`0` where there is to be none, else that of the value that was read; equal bytes do not count."""
    store.check()
    first = store.replace("latest", b"1", None)
    second = store.replace("latest", b"2", first)
    store.put("latest", b"2")
    with pytest.raises(ConflictError, match="was replaced by another writer"):
        store.replace("latest", b"3", second)
    held = store.get("latest")
    assert held is not None
    assert held.tag.e_tag == second.e_tag
    assert isinstance(held.tag, Tag)
    assert held.tag != second
    assert objects.conditions[-3:] == ["0", first.version, second.version]


def test_checkpoints_are_kept_there(store: Store) -> None:
    """Written, found, and fenced."""
    assert claim(store) == 1
    for updates in (1, 2, 3):
        upload(store, state(updates), keep=2)
    found = find_checkpoint("gs://bucket/run?allow_http=true", patience=PATIENCE)

    assert (found.where, found.state.updates) == ("gs://bucket/run/001-00000003", 3)
    assert claim(store) == 2
