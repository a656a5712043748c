"""Tokens and certificates of a collector in a process of its own are replaced while others send to it."""

import http.client
import signal
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import grpc
import pytest

from overwatch.collector.signals import WIRES
from overwatch.discovery import Endpoints
from overwatch.events import LogLine, Severity
from overwatch.journal import Signal
from tests.fakes import START_NS
from tests.overwatch.collector.pki import OPENSSL, authority, signed
from tests.overwatch.collector.running import eventually, reported
from tests.overwatch.collector.test_service import ready, spawn
from tests.overwatch.collector.test_tls_listeners import client, name_of, serve, tls

pytestmark = pytest.mark.skipif(OPENSSL is None, reason="no openssl to make certificates with")

OLD, NEW = "old-3f9a", "new-77b1"
MORE = 15
"""Acknowledgements that each sender gets before the next step."""
ON_ONE = 10
"""Requests of a connection over HTTP; the next one shakes hands anew."""


class Sender(threading.Thread):
    """Sends numbered lines, each until it is acknowledged, with the token of the moment."""

    def __init__(self, name: str, send: Callable[[bytes, str], bool]) -> None:
        super().__init__(name=name, daemon=True)
        self._send = send
        self._over = threading.Event()
        self.token = OLD
        self.denied = 0
        self.errors: list[str] = []
        self.acked: list[str] = []

    def run(self) -> None:
        """Until it is stopped."""
        while not self._over.is_set():
            number = len(self.acked) + 1
            text = f"{self.name} line {number}."
            line = LogLine(at=START_NS + number, severity=Severity.WARNING, message=text)
            try:
                if self._send(reported(self.name, [line], number), self.token):
                    self.acked.append(text)
                else:
                    self.denied += 1
            except (OSError, http.client.HTTPException, grpc.RpcError) as error:
                self.errors.append(repr(error))

    def stop(self) -> None:
        """End after the request in flight."""
        self._over.set()
        self.join()


class OverHttp:
    """Requests over TLS, some on each connection; `False` for a token that is not accepted."""

    def __init__(self, at: Endpoints, folder: Path) -> None:
        self._at, self._trust = urlsplit(str(at.otlp_http)), client(folder)
        self._connection = self._fresh()
        self._sent = 0

    def __call__(self, body: bytes, token: str) -> bool:
        """Send once."""
        if self._sent % ON_ONE == 0:
            self._connection.close()
            self._connection = self._fresh()
        self._sent += 1
        headers = {"Content-Type": "application/x-protobuf", "Authorization": f"Bearer {token}"}
        self._connection.request("POST", "/v1/logs", body, headers)
        answer = self._connection.getresponse()
        answer.read()
        assert answer.status in (200, 401)
        return answer.status == 200

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def shown(self) -> str:
        """The name in the certificate that a new connection is shown."""
        fresh = self._fresh()
        fresh.connect()
        try:
            assert isinstance(fresh.sock, ssl.SSLSocket)
            return name_of(fresh.sock)
        finally:
            fresh.close()

    def _fresh(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("127.0.0.1", self._at.port, context=self._trust, timeout=20)


class OverGrpc:
    """Calls over TLS on one connection; `False` for a token that is not accepted."""

    def __init__(self, at: Endpoints, folder: Path) -> None:
        credentials = grpc.ssl_channel_credentials((folder / "ca.pem").read_bytes())
        where = urlsplit(str(at.otlp_grpc)).netloc
        channel = grpc.secure_channel(where, credentials, [("grpc.use_local_subchannel_pool", 1)])
        self.close = channel.close
        self._export = channel.unary_unary(f"/{WIRES[Signal.LOGS].service}/Export")

    def __call__(self, body: bytes, token: str) -> bool:
        """Send once."""
        try:
            self._export(body, metadata=[("authorization", f"Bearer {token}")], timeout=20)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNAUTHENTICATED:
                return False
            raise
        return True


@contextmanager
def sending(at: Endpoints, folder: Path) -> Iterator[list[Sender]]:
    """Two senders of each transport."""
    calls = [made(at, folder) for made in (OverHttp, OverGrpc, OverHttp, OverGrpc)]
    senders = [Sender(f"sender-{number}", call) for number, call in enumerate(calls)]
    for sender in senders:
        sender.start()
    try:
        yield senders
    finally:
        for sender in senders:
            sender.stop()
        for call in calls:
            call.close()


def go_on(senders: list[Sender]) -> None:
    """Wait until each sender has some more acknowledged, none of them refused meanwhile."""
    before = [(len(sender.acked), sender.denied) for sender in senders]
    for sender, (acked, _) in zip(senders, before, strict=True):
        eventually(lambda sender=sender, acked=acked: len(sender.acked) >= acked + MORE)
    assert [sender.denied for sender in senders] == [denied for _, denied in before]


def test_tokens_and_certificates_are_replaced_under_load_without_a_loss(tmp_path: Path) -> None:
    """Two tokens hold while senders change over, the old one stops, and every acknowledged line is kept."""
    folder, tokens = tmp_path / "pki", tmp_path / "tokens"
    folder.mkdir()
    authority(folder, "ca")
    for name in ("one", "two"):
        signed(folder, name)
    serve(folder, "one")

    def write(*lines: str) -> None:
        scratch = tmp_path / "tokens.next"
        scratch.write_text("\n".join(lines))
        scratch.replace(tokens)

    write(OLD)
    often = "service.security.reload_interval_s=0.2"
    file = f"service.security.tokens.ingest.filename={tokens}"
    process = spawn(tmp_path, *tls(folder, every_s=0.1), often, file)
    try:
        at = ready(tmp_path, process)
        by_http, by_grpc = OverHttp(at, folder), OverGrpc(at, folder)
        with sending(at, folder) as senders:
            go_on(senders)
            assert not by_http(b"", NEW)
            write(OLD, NEW)
            eventually(lambda: by_http(b"", NEW))
            for sender in senders[:2]:
                sender.token = NEW
            go_on(senders)
            serve(folder, "two")
            eventually(lambda: by_http.shown() == "two")
            go_on(senders)
            for sender in senders:
                sender.token = NEW
            go_on(senders)
            write(NEW)
            eventually(lambda: not by_http(b"", OLD))
            assert not by_grpc(b"", OLD)
            go_on(senders)
        assert [sender.errors for sender in senders] == [[]] * len(senders)
        by_http.close()
        by_grpc.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
    kept = "".join(path.read_text() for path in (tmp_path / "otlp").rglob("*.jsonl"))
    assert [text for sender in senders for text in sender.acked if text not in kept] == []
