"""Our exporter and a collector that asks for everything: TLS, a client's certificate, a token."""

import shutil
import time
from pathlib import Path

import pytest

from overwatch.delivery import OtlpTransport, destination
from overwatch.delivery.answer import Verdict
from overwatch.journal import Signal
from tests.overwatch.collector.pki import OPENSSL, authority, signed
from tests.overwatch.collector.running import reported, run_started, running
from tests.overwatch.delivery.waiting import request

pytestmark = pytest.mark.skipif(OPENSSL is None, reason="no openssl to make certificates with")


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
@pytest.mark.parametrize(
    ("given", "verdict"), [("announced", Verdict.TAKEN), ("named", Verdict.TAKEN), ("wrong", Verdict.REFUSED)]
)
def test_telemetry_arrives_over_both_transports(
    tmp_path: Path, protocol: str, given: str, verdict: Verdict
) -> None:
    """With the token that is announced, or one of the environment; a wrong one is refused for good."""
    pki = tmp_path / "pki"
    pki.mkdir()
    authority(pki, "ca")
    signed(pki, "server")
    signed(pki, "us", extension="extendedKeyUsage=clientAuth")
    shutil.copy(pki / "ca.pem", pki / "clients.pem")
    at = "service.security"
    sets = (
        *(f"{at}.tls.{key}_file={pki}/server.{kind}" for key, kind in (("cert", "pem"), ("key", "key"))),
        f"{at}.tls.client_ca_file={pki}/clients.pem",
        f"{at}.tokens.ingest.token=in-1",
    )
    env = {
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        "OTEL_EXPORTER_OTLP_CERTIFICATE": str(pki / "ca.pem"),
        "OTEL_EXPORTER_OTLP_CLIENT_KEY": str(pki / "us.key"),
        "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": str(pki / "us.pem"),
    }
    if given != "announced":
        word = "in-1" if given == "named" else "in-2"
        env["OTEL_EXPORTER_OTLP_HEADERS"] = f"authorization=Bearer%20{word}"
    with running(tmp_path, *sets) as service:
        service.announce()
        made = OtlpTransport({Signal.LOGS: destination(Signal.LOGS, None, env)})
        answer = made.send(request(1, reported("run-a", [run_started()])), time.monotonic() + 20)
        made.close()
        name, transport = "otelcol_receiver_accepted_log_records", protocol.partition("/")[0]
        accepted = service.context.tally.get(name, receiver="otlp", transport=transport)

    assert answer.verdict is verdict
    assert accepted == (1 if verdict is Verdict.TAKEN else 0)
