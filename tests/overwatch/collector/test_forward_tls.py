"""Forwarding through TLS, with a client's certificate and a token, to another collector."""

import ssl
from pathlib import Path

import pytest

from tests.overwatch.collector import pki
from tests.overwatch.collector.forwarding import counted, eventually, forwarding, give, line, trouble
from tests.overwatch.collector.running import running
from tests.overwatch.delivery.evil import OK, evil, serving

pytestmark = pytest.mark.skipif(pki.OPENSSL is None, reason="no openssl to make certificates with")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two authorities; a server and a client of the first, a client of the second."""
    folder = tmp_path_factory.mktemp("pki")
    for name in ("ca", "stranger"):
        pki.authority(folder, name)
    pki.signed(folder, "here")
    pki.signed(folder, "us", extension="extendedKeyUsage=clientAuth")
    pki.signed(folder, "them", by="stranger", extension="extendedKeyUsage=clientAuth")
    return folder


def end(made: Path) -> tuple[str, ...]:
    """Settings of a collector that asks for a certificate and a token."""
    tls = f"{{cert_file: {made}/here.pem, key_file: {made}/here.key, client_ca_file: {made}/ca.pem}}"
    return f"service.security.tls={tls}", "service.security.tokens.ingest.token=canary-31"


def way(made: Path, name: str, client: str, trusts: str = "ca") -> tuple[str, ...]:
    """Settings of the one that sends."""
    tls = f"{{ca_file: {made}/{trusts}.pem, cert_file: {made}/{client}.pem, key_file: {made}/{client}.key}}"
    return f"exporters.{name}.tls={tls}", f"exporters.{name}.headers={{authorization: Bearer canary-31}}"


@pytest.mark.parametrize("name", ["otlp", "otlphttp"])
def test_a_secured_collector_is_reached(made: Path, tmp_path: Path, name: str) -> None:
    """Both sides show a certificate, and the token is right."""
    with running(tmp_path / "end", *end(made)) as there:
        to = there.endpoints.otlp_grpc if name == "otlp" else there.endpoints.otlp_http
        with forwarding(tmp_path / "mid", to, *way(made, name, "us"), name=name) as mid:
            give(mid, line("run", 1))
            eventually(lambda: counted(mid, "sent", name=name) == 1)


@pytest.mark.parametrize("name", ["otlp", "otlphttp"])
@pytest.mark.parametrize(("client", "trusts"), [("them", "ca"), ("us", "stranger")])
def test_a_stranger_gets_nothing(made: Path, tmp_path: Path, name: str, client: str, trusts: str) -> None:
    """A wrong certificate on either side: the records wait, and health states why."""
    with running(tmp_path / "end", *end(made)) as there:
        to = there.endpoints.otlp_grpc if name == "otlp" else there.endpoints.otlp_http
        settings = way(made, name, client, trusts=trusts)
        with forwarding(tmp_path / "mid", to, *settings, name=name) as mid:
            give(mid, line("run", 1))
            stated = eventually(lambda: trouble(mid, name))
            assert counted(mid, "sent", name=name) == counted(mid, "send_failed", name=name) == 0
            assert "canary" not in stated


def test_an_old_version_of_tls_is_refused_where_asked_for(made: Path, tmp_path: Path) -> None:
    """`min_version: "1.3"` against a server that speaks 1.2 at most."""
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    old.load_cert_chain(made / "here.pem", made / "here.key")
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with evil(serving(OK), tls=old) as server:
        url = server.endpoint.replace("http:", "https:")
        trust = f"exporters.otlphttp.tls.ca_file={made}/ca.pem"
        with forwarding(tmp_path / "a", url, trust, "exporters.otlphttp.tls.min_version='1.3'") as mid:
            give(mid, line("run", 1))
            assert "TLS" in eventually(lambda: trouble(mid))
        with forwarding(tmp_path / "b", url, trust) as mid:
            give(mid, line("run", 1))
            eventually(lambda: counted(mid, "sent") == 1)
