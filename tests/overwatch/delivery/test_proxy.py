"""The way through a proxy, where the environment names one."""

import contextlib
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from overwatch.delivery import OtlpTransport, destination
from overwatch.delivery.answer import Answer, Verdict
from overwatch.delivery.destination import Proxy, proxy
from overwatch.journal import Signal
from tests.overwatch.delivery.evil import OK, SOON_S, Call, evil, serving
from tests.overwatch.delivery.test_tls import pki, pytestmark, serverside, trusting
from tests.overwatch.delivery.waiting import request

__all__ = ["pki", "pytestmark"]


def query(endpoint: str, env: Mapping[str, str], *, within_s: float = 20.0) -> Answer:
    """One request."""
    made = OtlpTransport({Signal.LOGS: destination(Signal.LOGS, endpoint, env)})
    try:
        return made.send(request(1), time.monotonic() + within_s)
    finally:
        made.close()


def test_the_environment_names_a_proxy_and_who_is_spared() -> None:
    """As curl reads it; this machine needs none, and a password does not show."""
    env = {
        "http_proxy": "http://me:SE%20CRET@gate:3128",
        "HTTPS_PROXY": "gate2",
        "NO_PROXY": "in.example,.near",
    }
    found = proxy("http", "far.example", 4318, env)
    assert found == Proxy(host="gate", port=3128, authorization="Basic bWU6U0UgQ1JFVA==")
    assert "bWU6" not in repr(found)
    assert proxy("https", "far.example", 443, env) == Proxy(host="gate2", port=80)
    for host in ("in.example", "a.near", "127.0.0.1", "127.9.9.9", "::1", "localhost"):
        assert proxy("http", host, 4318, env) is None, host
    assert proxy("http", "far.example", 4318, {}) is None
    assert proxy("http", "far.example", 4318, {"no_proxy": "*", "all_proxy": "gate"}) is None
    assert proxy("http", "far.example", 4318, {"all_proxy": "gate"}) == Proxy(host="gate", port=80)


def test_a_proxy_that_cannot_be_spoken_to_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """And passed by; its URL, which may hold a password, is not shown."""
    for url in ("socks5://me:SECRET@gate:1", "http://gate:port", "https://gate"):
        assert proxy("http", "far.example", 4318, {"http_proxy": url}) is None
    assert len(caplog.messages) == 3
    assert "SECRET" not in caplog.text


def test_plain_requests_are_handed_to_the_proxy() -> None:
    """It gets the whole URL, and its own password."""
    with evil(serving(OK)) as gate:
        env = {"http_proxy": f"http://me:pass@127.0.0.1:{gate.port}"}
        assert query("http://collector.example:4318", env).verdict is Verdict.TAKEN
        requested = gate.requested[0]
        assert requested.path == "http://collector.example:4318/v1/logs"
        assert requested.headers["host"] == "collector.example:4318"
        assert requested.headers["proxy-authorization"] == "Basic bWU6cGFzcw=="


def test_tls_goes_through_a_tunnel_and_the_proxy_sees_no_token(pki: Path) -> None:
    """The certificate is the collector's; headers are for it alone."""
    with evil(serving(OK), tls=serverside(pki, "away")) as server:

        def tunnel(call: Call) -> None:
            call.receive()
            call.emit(b"HTTP/1.1 200 Connection established\r\nVia: gate\r\n\r\n")
            with socket.create_connection(("127.0.0.1", server.port)) as onward:
                back = threading.Thread(target=lambda: _pump(onward, call))
                back.start()
                while data := call.raw():
                    onward.sendall(data)
                onward.shutdown(socket.SHUT_WR)
                back.join()

        with evil(tunnel) as gate:
            env = trusting(pki) | {"https_proxy": f"127.0.0.1:{gate.port}"}
            env["OTEL_EXPORTER_OTLP_HEADERS"] = "authorization=SECRET"
            assert query("https://away.example:4318", env).verdict is Verdict.TAKEN
            assert gate.requested[0].head.startswith(b"CONNECT away.example:4318 HTTP/1.1\r\n")
            assert b"SECRET" not in gate.requested[0].head
        assert server.requested[0].headers["authorization"] == "SECRET"
        assert server.requested[0].path == "/v1/logs"


def _pump(source: socket.socket, call: Call) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            call.emit(data)


@pytest.mark.parametrize(
    "stated",
    [b"HTTP/1.1 407 No\r\n\r\n", b"", b"X" * 100_000, b"HTTP/1.1\r\n\r\n"],
    ids=["407", "hangs", "long", "odd"],
)
def test_a_proxy_without_a_tunnel_is_tried_again(pki: Path, stated: bytes) -> None:
    """Refused, silent or mad: no request was made."""

    def script(call: Call) -> None:
        call.receive()
        call.emit(stated)

    with evil(script) as gate:
        env = trusting(pki) | {"https_proxy": f"127.0.0.1:{gate.port}"}
        answer = query("https://away.example:4318", env)
    assert (answer.verdict, answer.code) == (Verdict.AGAIN, "connection")


def test_the_deadline_holds_in_the_proxy(pki: Path) -> None:
    """A tunnel that never opens."""

    def script(call: Call) -> None:
        call.receive()
        call.hold()

    with evil(script) as gate:
        env = trusting(pki) | {"https_proxy": f"127.0.0.1:{gate.port}"}
        begun = time.monotonic()
        answer = query("https://away.example:4318", env, within_s=0.4)
        assert time.monotonic() - begun < SOON_S
    assert answer.code == "timeout"
