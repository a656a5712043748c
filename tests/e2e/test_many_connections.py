"""Very many clients of one address at a real collector: served, or given the reason, as the operator is."""

import asyncio
import json
import re
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest

from overwatch.discovery import Endpoints
from tests.e2e.collecting import collecting, until
from tests.overwatch.collector.running import http, reported, run_started

CLIENTS: Final = 1200
RUNS: Final = 400
MOST: Final = 100
ROUNDS: Final = 2


def requesting(number: int) -> bytes:
    """A request of one of the runs, on a connection that is kept."""
    body = reported(f"run-{number % RUNS}", [run_started()], first_seq=number + 1)
    head = (
        "POST /v1/logs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-protobuf\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def answers(endpoints: Endpoints) -> list[bytes]:
    """What each client is answered last, all being connected at once."""
    place = urlsplit(str(endpoints.otlp_http))
    everybody = asyncio.Barrier(CLIENTS)

    async def client(number: int) -> bytes:
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        answer = b""
        for _ in range(ROUNDS):
            if answer.startswith(b"HTTP/1.1 503"):
                break
            writer.write(requesting(number))
            head = await reader.readuntil(b"\r\n\r\n")
            size = re.search(rb"(?i)content-length: (\d+)", head)
            answer = head + await reader.readexactly(int(size[1]) if size else 0)
        await everybody.wait()
        writer.close()
        return answer

    return await asyncio.gather(*(client(number) for number in range(CLIENTS)))


def figure(endpoints: Endpoints, name: str) -> float:
    """One of the OTLP/HTTP listener's figures on the collector's own page."""
    page = http(f"{endpoints.telemetry}/metrics").body.decode()
    found = re.search(rf'^{name}{{listener="otlp_http"}} (\S+)$', page, re.MULTILINE)
    assert found is not None, page
    return float(found[1])


def test_the_defaults_serve_a_thousand_clients_behind_one_address(tmp_path: Path) -> None:
    """A load balancer, a NAT or a sidecar is one address: nothing is refused, no condition stands."""
    with collecting(tmp_path) as endpoints:
        found = asyncio.run(asyncio.wait_for(answers(endpoints), 120))
        assert {answer for answer in found if not answer.startswith(b"HTTP/1.1 200")} == set()
        assert figure(endpoints, "overwatch_listener_turned_away_connections_total") == 0
        until(lambda: json.loads(http(str(endpoints.health)).body)["healthy"], "a healthy collector")


@pytest.mark.parametrize("cap", ["max_connections", "max_connections_per_peer"])
def test_clients_beyond_a_cap_and_the_operator_are_given_the_reason(tmp_path: Path, cap: str) -> None:
    """503 with the cap's name for each; a counter, one line in the log, a condition, and readiness."""
    setting = f"receivers.otlp.protocols.http.connections.{cap}={MOST}"
    with collecting(tmp_path, setting) as endpoints:
        found = asyncio.run(asyncio.wait_for(answers(endpoints), 120))
        refused = [answer for answer in found if answer.startswith(b"HTTP/1.1 503")]
        assert len(found) - len(refused) == MOST
        assert all(f"({cap})".encode() in answer and b"Retry-After: 2" in answer for answer in refused)
        assert figure(endpoints, "overwatch_listener_turned_away_connections_total") == CLIENTS - MOST
        conditions = json.loads(http(str(endpoints.health)).body)["components"]["collector"]["components"]
        assert cap in conditions["collector:listener:otlp_http"]["error"]
        assert http(f"{endpoints.health}/ready").status == 200
    assert (tmp_path / "collector.log").read_text().count("listener:otlp_http fails") == 1
