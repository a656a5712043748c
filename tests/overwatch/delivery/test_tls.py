"""TLS over both protocols, with certificates made for the test."""

import shutil
import ssl
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from overwatch.delivery import OtlpTransport, destination
from overwatch.delivery.answer import Answer, Verdict
from overwatch.journal import Signal
from tests.overwatch.delivery.evil import OK, SOON_S, Call, evil, serving
from tests.overwatch.delivery.test_grpc import _Any
from tests.overwatch.delivery.test_http import slow_head
from tests.overwatch.delivery.waiting import request

OPENSSL = shutil.which("openssl")
pytestmark = pytest.mark.skipif(OPENSSL is None, reason="no openssl to make certificates with")
LONG_S = 20.0


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, and what it signed: `here` for 127.0.0.1, `away` for another host, `us` for a client."""
    folder = tmp_path_factory.mktemp("pki")
    _authority(folder, "ca")
    _authority(folder, "stranger")
    _signed(folder, "here", "subjectAltName=IP:127.0.0.1")
    _signed(folder, "away", "subjectAltName=DNS:away.example")
    _signed(folder, "us", "extendedKeyUsage=clientAuth")
    return folder


def _authority(folder: Path, name: str) -> None:
    _openssl(
        folder,
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}", "-days", "2"),
        *("-addext", "keyUsage=critical,keyCertSign"),
    )


def _signed(folder: Path, name: str, extension: str) -> None:
    (folder / f"{name}.ext").write_text(extension)
    _openssl(
        folder,
        *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}"),
    )
    _openssl(
        folder,
        *("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"),
        *("-out", f"{name}.pem", "-days", "2", "-extfile", f"{name}.ext"),
    )


def _openssl(folder: Path, *arguments: str) -> None:
    assert OPENSSL is not None
    subprocess.run([OPENSSL, *arguments], cwd=folder, check=True, capture_output=True)


def serverside(pki: Path, name: str, *, asks_client: bool = False) -> ssl.SSLContext:
    """A server that shows a certificate, and may want one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki / f"{name}.pem", pki / f"{name}.key")
    if asks_client:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(pki / "ca.pem")
    return context


def trusting(pki: Path, name: str = "ca", *, shows: str | None = None) -> dict[str, str]:
    """The environment that trusts an authority."""
    shown = {} if shows is None else {"CLIENT_KEY": f"{shows}.key", "CLIENT_CERTIFICATE": f"{shows}.pem"}
    files = {"CERTIFICATE": f"{name}.pem", **shown}
    return {f"OTEL_EXPORTER_OTLP_{what}": str(pki / file) for what, file in files.items()}


def query(endpoint: str, env: dict[str, str], *, body: bytes = b"1", within_s: float = LONG_S) -> Answer:
    """One request."""
    made = OtlpTransport({Signal.LOGS: destination(Signal.LOGS, endpoint, env)})
    try:
        return made.send(request(1, body), time.monotonic() + within_s)
    finally:
        made.close()


def test_a_trusted_collector_gets_requests_over_one_kept_connection(pki: Path) -> None:
    """Large ones too."""
    with evil(serving(OK), tls=serverside(pki, "here")) as server:
        endpoint, env = f"https://127.0.0.1:{server.port}", trusting(pki)
        made = OtlpTransport({Signal.LOGS: destination(Signal.LOGS, endpoint, env)})
        for order in range(1, 4):
            sent = request(order, bytes([order]) * (4 << 20))
            assert made.send(sent, time.monotonic() + LONG_S).verdict is Verdict.TAKEN
            assert server.requested[-1].body == sent.body
        made.close()
        assert server.connections == 1


@pytest.mark.parametrize(("shows", "trusts"), [("here", "stranger"), ("away", "ca"), ("here", "none")])
def test_a_collector_that_is_not_trusted_gets_nothing(pki: Path, shows: str, trusts: str) -> None:
    """A strange authority, another host's certificate, a list that cannot be read: retried, and reported."""
    with evil(serving(OK), tls=serverside(pki, shows)) as server:
        answer = query(f"https://127.0.0.1:{server.port}", trusting(pki, trusts))
        assert answer.verdict is Verdict.AGAIN
        assert not server.requested
    assert answer.code == ("connection" if trusts == "none" else "tls")


def test_a_collector_may_want_our_certificate(pki: Path) -> None:
    """With it requests land; without they do not."""
    with evil(serving(OK), tls=serverside(pki, "here", asks_client=True)) as server:
        endpoint = f"https://127.0.0.1:{server.port}"
        assert query(endpoint, trusting(pki, shows="us")).verdict is Verdict.TAKEN
        assert query(endpoint, trusting(pki)).verdict is Verdict.AGAIN


def test_the_deadline_holds_in_the_handshake_and_after(pki: Path) -> None:
    """A peer that never shakes hands; one that never reads; one that answers at a crawl."""

    def mute(call: Call) -> None:
        call.hold()

    context = serverside(pki, "here")
    for script, tls in ((mute, None), (mute, context), (slow_head, context)):
        with evil(script, tls=tls) as server:
            begun = time.monotonic()
            endpoint = f"https://127.0.0.1:{server.port}"
            answer = query(endpoint, trusting(pki), body=bytes(32 << 20), within_s=0.5)
            assert answer.code == "timeout"
            assert time.monotonic() - begun < SOON_S


def test_a_refusal_before_the_body_is_sent_is_received(pki: Path) -> None:
    """Inside TLS as outside it."""

    def script(call: Call) -> None:
        call.emit(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        call.hold()

    with evil(script, tls=serverside(pki, "here")) as server:
        answer = query(f"https://127.0.0.1:{server.port}", trusting(pki), body=bytes(64 << 20))
    assert (answer.verdict, answer.code) == (Verdict.REFUSED, "413")


@pytest.mark.parametrize(
    ("trusts", "shows", "verdict"),
    [("ca", "us", "taken"), ("ca", None, "again"), ("stranger", "us", "again"), ("none", "us", "again")],
)
def test_grpc_has_the_same_certificates(pki: Path, trusts: str, shows: str | None, verdict: str) -> None:
    """Trust, and our own certificate where the collector wants it."""
    pair = ((pki / "here.key").read_bytes(), (pki / "here.pem").read_bytes())
    credentials = grpc.ssl_server_credentials(
        [pair], root_certificates=(pki / "ca.pem").read_bytes(), require_client_auth=True
    )
    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool, (_Any(lambda *_: b""),))
        port = server.add_secure_port("127.0.0.1:0", credentials)
        server.start()
        env = trusting(pki, trusts, shows=shows) | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
        answer = query(f"https://127.0.0.1:{port}", env, within_s=30.0)
        server.stop(None).wait()
    assert answer.verdict is Verdict(verdict)
