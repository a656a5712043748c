"""TLS at every door: who is trusted, what is refused, and certificates that change under open connections."""

import http.client
import os
import shutil
import signal
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import grpc
import pytest

from overwatch.collector import Service, StartError
from overwatch.collector.signals import WIRES
from overwatch.collector.tls import first_end
from overwatch.config import ConfigError
from overwatch.journal import Signal
from tests.overwatch.collector.pki import OPENSSL, authority, signed
from tests.overwatch.collector.running import config, eventually, reported, run_started, running
from tests.overwatch.collector.test_service import ready, spawn

pytestmark = pytest.mark.skipif(OPENSSL is None, reason="no openssl to make certificates with")

DOORS = ("otlp_http", "metrics", "telemetry", "view")
PATHS = {"otlp_http": "/v1/logs", "metrics": "/metrics", "telemetry": "/metrics", "view": "/api/v1/runs"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two authorities; `one` and `two` are servers of `ca`, `us` its client, `them` a client of `other`."""
    folder = tmp_path_factory.mktemp("pki")
    for name in ("ca", "other"):
        authority(folder, name)
    for name in ("one", "two"):
        signed(folder, name)
    signed(folder, "away", extension="subjectAltName=DNS:away.example")
    signed(folder, "us", extension="extendedKeyUsage=clientAuth")
    signed(folder, "them", by="other", extension="extendedKeyUsage=clientAuth")
    return folder


@pytest.fixture
def pki(made: Path, tmp_path: Path) -> Path:
    """The certificates in a folder that a test may change; the server's are those of `one`."""
    folder = tmp_path / "pki"
    shutil.copytree(made, folder)
    serve(folder, "one")
    return folder


def serve(folder: Path, name: str) -> None:
    """Put a certificate and its key where the collector looks, each in one step."""
    for kind in ("pem", "key"):
        scratch = folder / f".server.{kind}"
        shutil.copy(folder / f"{name}.{kind}", scratch)
        scratch.replace(folder / f"server.{kind}")


def tls(folder: Path, *, clients: str | None = None, every_s: float = 0) -> tuple[str, ...]:
    """The `--set` of TLS at all listeners."""
    at = "service.security.tls"
    own = (f"{at}.cert_file={folder}/server.pem", f"{at}.key_file={folder}/server.key")
    requested = () if clients is None else (f"{at}.client_ca_file={folder}/{clients}.pem",)
    return (*own, *requested, f"{at}.reload_interval_s={every_s}")


def client(folder: Path, shows: str | None = None, trusts: str = "ca") -> ssl.SSLContext:
    """A client's side."""
    context = ssl.create_default_context(cafile=str(folder / f"{trusts}.pem"))
    if shows is not None:
        context.load_cert_chain(folder / f"{shows}.pem", folder / f"{shows}.key")
    return context


def url(service: Service, listener: str) -> str:
    """The URL of a door."""
    found = service.context.urls.get(listener)
    assert found is not None
    return found


def status(service: Service, listener: str, context: ssl.SSLContext) -> int:
    """The answer's status at a door over TLS."""
    place = urlsplit(url(service, listener))
    connection = http.client.HTTPSConnection("127.0.0.1", place.port, context=context, timeout=10)
    try:
        connection.request("GET", PATHS[listener])
        return connection.getresponse().status
    finally:
        connection.close()


def page(service: Service, context: ssl.SSLContext) -> str:
    """The collector's own metrics."""
    place = urlsplit(url(service, "telemetry"))
    connection = http.client.HTTPSConnection("127.0.0.1", place.port, context=context, timeout=10)
    try:
        connection.request("GET", PATHS["telemetry"])
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def shown(service: Service, listener: str, context: ssl.SSLContext) -> str:
    """The common name of the certificate that a door shows."""
    with secured(service, listener, context) as connection:
        return name_of(connection)


def secured(service: Service, listener: str, context: ssl.SSLContext) -> ssl.SSLSocket:
    """A connection to a door after the handshake."""
    plain = socket.create_connection(("127.0.0.1", urlsplit(url(service, listener)).port or 0), timeout=10)
    return context.wrap_socket(plain, server_hostname="127.0.0.1")


def name_of(connection: ssl.SSLSocket) -> str:
    """The common name that the other end showed."""
    subject = (connection.getpeercert() or {})["subject"]
    return str(dict(pair for part in subject for pair in part)["commonName"])  # type: ignore[misc,has-type]


def export(service: Service, folder: Path, shows: str | None = None, trusts: str = "ca") -> grpc.StatusCode:
    """The code of one request over gRPC and TLS."""
    credentials = grpc.ssl_channel_credentials(
        (folder / f"{trusts}.pem").read_bytes(),
        None if shows is None else (folder / f"{shows}.key").read_bytes(),
        None if shows is None else (folder / f"{shows}.pem").read_bytes(),
    )
    # A channel of its own: gRPC shares connections between channels of the same words.
    options = [("grpc.use_local_subchannel_pool", 1)]
    where = urlsplit(url(service, "otlp_grpc")).netloc
    with grpc.secure_channel(where, credentials, options) as channel:
        try:
            channel.unary_unary(f"/{WIRES[Signal.LOGS].service}/Export")(b"", timeout=30)
        except grpc.RpcError as error:
            code: grpc.StatusCode = error.code()
            return code
    return grpc.StatusCode.OK


@pytest.fixture
def serving(pki: Path, tmp_path: Path) -> Iterator[Service]:
    """A collector with TLS at all doors."""
    with running(tmp_path, *tls(pki)) as service:
        yield service


def test_all_doors_but_health_speak_tls(serving: Service, pki: Path) -> None:
    """The announced URLs state it, and those who trust the authority come in."""
    schemes = {name: urlsplit(one).scheme for name, one in serving.context.urls.items()}

    assert schemes == {
        "otlp_http": "https",
        "otlp_grpc": "https",
        "metrics": "https",
        "telemetry": "https",
        "view": "wss",
        "health_check": "http",
    }
    assert {listener: status(serving, listener, client(pki)) for listener in DOORS} == {
        "otlp_http": 405,
        "metrics": 200,
        "telemetry": 200,
        "view": 200,
    }
    assert export(serving, pki) is grpc.StatusCode.OK


def test_health_has_tls_of_its_own(pki: Path, tmp_path: Path) -> None:
    """Probes get TLS only where their own section states it."""
    at = "extensions.health_check.tls"
    with running(tmp_path, f"{at}.cert_file={pki}/server.pem", f"{at}.key_file={pki}/server.key") as service:
        schemes = {name: urlsplit(one).scheme for name, one in service.context.urls.items()}

    assert schemes["health_check"] == "https"
    assert schemes["metrics"] == "http"


@pytest.mark.parametrize("listener", DOORS)
def test_plain_text_and_strangers_get_nothing(serving: Service, pki: Path, listener: str) -> None:
    """No plain HTTP at a TLS port, no TLS below 1.2, and a client that trusts somebody else hangs up."""
    port = urlsplit(url(serving, listener)).port or 0
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        try:
            answer = connection.recv(4096)
        except ConnectionError:
            answer = b""
    assert not answer.startswith(b"HTTP/")

    with pytest.raises(ssl.SSLError):
        status(serving, listener, client(pki, trusts="other"))
    old = client(pki)
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        old.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        status(serving, listener, old)
    assert status(serving, listener, client(pki)) in (200, 405)


def test_grpc_refuses_strangers(serving: Service, pki: Path) -> None:
    """A client that trusts somebody else finds nobody."""
    assert export(serving, pki, trusts="other") is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(("shows", "welcome"), [("us", True), (None, False), ("them", False)])
def test_clients_show_a_certificate_where_one_is_asked_for(
    pki: Path, tmp_path: Path, shows: str | None, *, welcome: bool
) -> None:
    """With an authority of clients, those without its certificate do not even ask."""
    with running(tmp_path, *tls(pki, clients="ca")) as service:
        for listener in DOORS:
            if welcome:
                assert status(service, listener, client(pki, shows)) in (200, 405)
            else:
                with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
                    status(service, listener, client(pki, shows))
        assert (export(service, pki, shows) is grpc.StatusCode.OK) is welcome


@pytest.mark.parametrize("by", ["change", "reload"])
def test_new_certificates_reach_new_connections_only(pki: Path, tmp_path: Path, by: str) -> None:
    """After a change, or a reload, new connections see the new certificate; an open one goes on."""
    with running(tmp_path, *tls(pki, every_s=0 if by == "change" else 3600)) as service:
        context = client(pki)
        with secured(service, "view", context) as open_before:
            assert name_of(open_before) == "one"
            serve(pki, "two")
            if by == "reload":
                assert shown(service, "view", context) == "one"
                service.context.guard.reload()
            names = {listener: shown(service, listener, context) for listener in (*DOORS, "otlp_grpc")}
            open_before.sendall(b"GET /api/v1/runs HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = open_before.recv(4096)

    assert set(names.values()) == {"two"}
    assert answer.startswith(b"HTTP/1.1 200 ")


def test_another_authority_of_clients_takes_effect_at_once(pki: Path, tmp_path: Path) -> None:
    """Clients of the old authority are out, those of the new one in, at both transports."""
    shutil.copy(pki / "ca.pem", pki / "clients.pem")
    with running(tmp_path, *tls(pki, clients="clients")) as service:
        assert status(service, "view", client(pki, "us")) == 200
        shutil.copy(pki / "other.pem", pki / "clients.pem")

        assert status(service, "view", client(pki, "them")) == 200
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
            status(service, "view", client(pki, "us"))
        assert export(service, pki, "them") is grpc.StatusCode.OK
        assert export(service, pki, "us") is not grpc.StatusCode.OK


def test_certificates_that_cannot_be_used_leave_the_old_ones(pki: Path, tmp_path: Path) -> None:
    """A key that does not belong, a broken file and no file are reported by health until they are right."""
    with running(tmp_path, *tls(pki)) as service:
        context, health = client(pki), service.context.health
        shutil.copy(pki / "two.key", pki / "server.key")
        assert shown(service, "view", context) == "one"
        assert "certificates of before are kept" in health.degraded["tls"]
        (pki / "server.pem").write_text("nonsense")
        assert shown(service, "view", context) == "one"
        (pki / "server.pem").unlink()
        assert shown(service, "view", context) == "one"
        assert export(service, pki) is grpc.StatusCode.OK
        assert "tls" in health.degraded

        serve(pki, "one")
        assert shown(service, "view", context) == "one"
        assert "tls" not in health.degraded


def test_the_end_of_certificates_is_on_the_page(pki: Path, tmp_path: Path) -> None:
    """Of each file that is shown to clients."""
    with running(tmp_path, *tls(pki)) as service:
        guard, file = service.context.guard, pki / "server.pem"
        assert guard.certificate_ends == {str(file): first_end(file.read_text())}
        (line,) = [
            line
            for line in page(service, client(pki)).splitlines()
            if line.startswith("overwatch_certificate_end_timestamp_seconds{")
        ]
        assert f'file="{file}"' in line
        assert float(line.split()[-1]) == first_end(file.read_text())


def test_good_certificates_do_not_hide_bad_ones(pki: Path, tmp_path: Path) -> None:
    """Of two sections one is broken: health states it whichever is read last."""
    for name in ("server.pem", "server.key"):
        shutil.copy(pki / name, pki / f"view.{name}")
    own = f"extensions.view.tls={{cert_file: {pki}/view.server.pem, key_file: {pki}/view.server.key}}"
    with running(tmp_path, *tls(pki, every_s=3600), own) as service:
        health, files = service.context.health, [pki / "server.pem", pki / "view.server.pem"]
        good = files[0].read_text()
        for file in files:
            file.write_text("nonsense")
            service.reload()
            assert str(file) in health.degraded["tls"]
            file.write_text(good)
        service.reload()
        assert "tls" not in health.degraded


@pytest.mark.parametrize("broken", ["absent", "nonsense", "another's key"])
def test_files_that_cannot_be_used_stop_the_start(pki: Path, tmp_path: Path, broken: str) -> None:
    """No door opens in plain text instead; the message names a file."""
    if broken == "absent":
        (pki / "server.key").unlink()
    elif broken == "nonsense":
        (pki / "server.pem").write_text("nonsense")
    else:
        shutil.copy(pki / "two.key", pki / "server.key")

    with pytest.raises(StartError, match=r"server\.(pem|key)"):
        Service(config(tmp_path, *tls(pki))).start()


def test_sighup_reloads_certificates_and_tokens(pki: Path, tmp_path: Path) -> None:
    """One signal takes both up, without a restart and without losing what was sent before."""
    tokens = tmp_path / "tokens"
    tokens.write_text("first")
    item = f"service.security.tokens.ingest.filename={tokens}"
    process = spawn(tmp_path, *tls(pki, every_s=3600), item, "service.security.reload_interval_s=3600")
    try:
        endpoints = ready(tmp_path, process)
        port = urlsplit(str(endpoints.otlp_http)).port

        def send(token: str) -> tuple[int, str]:
            connection = http.client.HTTPSConnection("127.0.0.1", port, context=client(pki), timeout=10)
            try:
                headers = {"Content-Type": "application/x-protobuf", "Authorization": f"Bearer {token}"}
                connection.request("POST", "/v1/logs", reported("run-a", [run_started()]), headers)
                assert isinstance(connection.sock, ssl.SSLSocket)
                name = name_of(connection.sock)
                return connection.getresponse().status, name
            finally:
                connection.close()

        assert send("first") == (200, "one")
        tokens.write_text("second")
        serve(pki, "two")
        assert send("first") == (200, "one")
        os.kill(process.pid, signal.SIGHUP)
        eventually(lambda: send("second") == (200, "two"))
        assert send("first") == (401, "two")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("listener", DOORS)
def test_every_door_has_the_least_version_that_is_set(pki: Path, tmp_path: Path, listener: str) -> None:
    """With 1.3 as the least, a client that knows 1.2 only gets no further than the handshake."""
    own = f"{{cert_file: {pki}/server.pem, key_file: {pki}/server.key}}"
    sets = (*tls(pki), "service.security.tls.min_version='1.3'", f"receivers.otlp.protocols.grpc.tls={own}")
    with running(tmp_path / "data", *sets) as service:
        old, new = client(pki), client(pki)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        for context in (old, new):
            context.set_alpn_protocols(["http/1.1"])
        with pytest.raises(ssl.SSLError):
            shown(service, listener, old)
        with secured(service, listener, new) as connection:
            agreed = connection.version(), connection.selected_alpn_protocol()

    assert agreed == ("TLSv1.3", "http/1.1")


def test_a_least_version_that_grpc_cannot_hold_is_refused(pki: Path, tmp_path: Path) -> None:
    """It is not taken for granted in silence: the listener is named, and what to do."""
    with pytest.raises(ConfigError, match=r"protocols\.grpc\.endpoint: its server cannot refuse TLS 1\.2"):
        config(tmp_path, *tls(pki), "service.security.tls.min_version='1.3'")
