"""Clients that ask the same again and again: answered ahead of the web server, never otherwise than by it."""

import gzip
import http.client
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from overwatch.collector import Service
from overwatch.collector.decoding import Decoding
from overwatch.collector.intake import TINY_BYTES
from overwatch.collector.receivers.otlp import OtlpReceiver
from overwatch.collector.receivers.otlp_express import LATE_S
from overwatch.journal import Signal
from tests.bench.doors import shapes
from tests.overwatch.collector.running import eventually, fill, run_started, running, told

PROTOBUF = {"Content-Type": "application/x-protobuf"}
LIMIT = 1 << 16


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """A collector of its own."""
    sets = ("max_request_body_size=65536", "read_timeout_s=2")
    with running(tmp_path, *(f"receivers.otlp.protocols.http.{word}" for word in sets)) as started:
        yield started


def served(service: Service) -> int:
    """Requests that did not need the web server."""
    (receiver,) = [one for one in service._started if isinstance(one, OtlpReceiver)]
    return receiver.express.served


def port(service: Service) -> int:
    """Of the OTLP door."""
    found = urlsplit(str(service.endpoints.otlp_http)).port
    assert found
    return found


@pytest.fixture
def client(service: Service) -> Iterator[http.client.HTTPConnection]:
    """One connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port(service), timeout=20)
    yield connection
    connection.close()


def post(
    client: http.client.HTTPConnection, body: bytes, path: str = "/v1/metrics", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """One request on this connection."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    client.request("POST", path, body, PROTOBUF | named)
    answer = client.getresponse()
    said = {name: value for name, value in answer.headers.items() if name not in {"Date", "Server"}}
    return answer.status, said, answer.read()


def test_the_same_words_are_answered_ahead_as_by_the_web_server(
    service: Service, client: http.client.HTTPConnection
) -> None:
    """From the second request on, whatever the length of the body; status, headers and body are the same."""
    bodies = [*shapes.otlp(8, 6), b"", *shapes.otlp(9, 2)]
    answers = [post(client, body) for body in bodies]

    assert served(service) == len(bodies) - 1
    assert all(answer == answers[0] for answer in answers)
    assert answers[0][0] == 200
    batches = eventually(lambda: service.context.bell.latest and service.context.bell.latest.tower.batches)
    assert batches


def test_what_is_taken_in_ahead_is_folded_and_counted(
    service: Service, client: http.client.HTTPConnection
) -> None:
    """Every point of every request is in the state and in the counters."""
    rounds = 12
    for body in shapes.otlp(16, rounds):
        assert post(client, body)[0] == 200
    tally = service.context.tally

    def landed() -> bool:
        name = "otelcol_receiver_accepted_metric_points"
        return tally.get(name, receiver="otlp", transport="http") == rounds * 16 * len(shapes.GAUGES)

    eventually(landed)
    latest = service.context.bell
    env = eventually(
        lambda: next(
            (
                row
                for snapshot in (latest.latest.snapshots.values() if latest.latest else ())
                for row in snapshot.envs
                if row.env_id == 7 and row.reward == shapes.value_of(rounds - 1, 0, 7)
            ),
            None,
        )
    )
    assert env.env_id == 7


def test_gzip_is_inflated_ahead(service: Service, client: http.client.HTTPConnection) -> None:
    """A packed body of a client that packs all; one that is broken is refused as ever."""
    packed = [gzip.compress(body) for body in shapes.otlp(8, 4)]
    for body in packed:
        assert post(client, body, Content_Encoding="gzip")[0] == 200
    before = served(service)
    assert before == len(packed) - 1

    status, _, said = post(client, b"no gzip", Content_Encoding="gzip")
    assert (status, b"gzip" in said) == (400, True)


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/v1/metrics", {"X_Other": "1"}),
        ("/v1/metrics", {"Content_Type": "application/json"}),
        ("/v1/logs", {}),
        ("/v1/nothing", {}),
        ("/v1/metrics", {"Host": "evil.example"}),
        ("/v1/metrics", {"Content_Encoding": "br"}),
        ("/v1/metrics", {"Expect": "100-continue"}),
    ],
)
def test_other_words_are_the_web_servers(
    service: Service, client: http.client.HTTPConnection, path: str, headers: dict[str, str]
) -> None:
    """A head that differs in anything is judged anew, and the answer is that of a first request."""
    body = shapes.otlp(4, 1)[0]
    assert post(client, body)[0] == post(client, body)[0] == 200
    fresh = http.client.HTTPConnection("127.0.0.1", port(service), timeout=20)
    expected = post(fresh, body, path, **headers)
    fresh.close()

    assert served(service) == 1
    assert post(client, body, path, **headers) == expected


def test_refusals_are_in_the_web_servers_words(service: Service) -> None:
    """Bodies that are no protobuf, or too large: as a first request is refused."""
    good = shapes.otlp(4, 1)[0]
    bad, large = b"\xff" * 300, bytes(LIMIT + 1)
    answers = {}
    for warm in (False, True):
        for name, body in (("bad", bad), ("large", large)):
            client = http.client.HTTPConnection("127.0.0.1", port(service), timeout=20)
            if warm:
                assert post(client, good)[0] == 200
            answers[name, warm] = post(client, body)
            client.close()

    assert answers["bad", True][::2] == answers["bad", False][::2]
    assert answers["large", True][::2] == answers["large", False][::2]
    assert (answers["bad", True][0], answers["large", True][0]) == (400, 413)


def test_a_full_journal_asks_to_come_back_ahead_too(tmp_path: Path) -> None:
    """503 with a delay, and the refusal is counted."""
    with running(tmp_path, "exporters.aggregator.journal_size_mib=8") as service:
        client = http.client.HTTPConnection("127.0.0.1", port(service), timeout=20)
        body = told("run", [run_started()])
        assert post(client, body, "/v1/logs")[0] == 200
        fill(service, leave=0)
        status, headers, _ = post(client, body, "/v1/logs")
        client.close()
        assert (status, headers["Retry-After"]) == (503, "2")
        assert served(service) == 1


def test_who_sends_too_much_is_told_so_ahead(service: Service) -> None:
    """While the fold lags: as a first request is told, once each, and 200 again when it has caught up."""
    body, intake, tally = told("run", [run_started()]), service.context.intake, service.context.tally
    clients = [http.client.HTTPConnection("127.0.0.1", port(service), timeout=20) for _ in range(2)]
    warm, fresh = clients
    assert post(warm, body, "/v1/logs")[0] == 200
    intake.heed(lambda: 9.0)
    expected = post(fresh, body, "/v1/logs")
    ahead = served(service)
    answers = [post(warm, body, "/v1/logs") for _ in range(3)]
    intake.heed(lambda: 0.0)
    after = post(warm, body, "/v1/logs")
    for client in clients:
        client.close()

    assert answers == [expected] * 3
    assert (expected[0], expected[1]["Retry-After"], after[0]) == (503, "2", 200)
    assert served(service) == ahead + 4
    refused = tally.get("overwatch_receiver_refused_requests", reason="busy", transport="http")
    assert refused == 4


@pytest.mark.parametrize("cut", [1, 40, 90])
def test_the_rest_of_a_refused_body_is_passed_over(service: Service, cut: int) -> None:
    """Refused before all of it has come; the rest may come with the next request, which is taken in."""
    words = _words(bytes(shapes.otlp(4, 1)[0]))
    assert len(words) > 2 * cut
    with socket.create_connection(("127.0.0.1", port(service)), 20) as opened:
        opened.sendall(words)
        assert _statuses(opened, 1) == [200]
        service.context.intake.heed(lambda: 9.0)
        opened.sendall(words[:-cut])
        assert _statuses(opened, 1) == [503]
        service.context.intake.heed(lambda: 0.0)
        opened.sendall(words[-cut:] + words)
        assert _statuses(opened, 1) == [200]
        opened.sendall(words)
        assert _statuses(opened, 1) == [200]
    assert served(service) == 3


def test_a_fault_with_a_tiny_body_is_told_and_the_connection_goes_on(
    service: Service, client: http.client.HTTPConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """500 in OTLP's words, logged and counted; the next request of the connection is taken in."""
    body = told("run", [run_started()])
    assert len(body) <= TINY_BYTES
    assert post(client, body, "/v1/logs")[0] == 200

    def fail(*_: object) -> None:
        raise RuntimeError("the decoder is broken")

    with monkeypatch.context() as broken:
        broken.setattr(Decoding, "decode", fail)
        assert post(client, body, "/v1/logs")[0] == 500
    assert post(client, body, "/v1/logs")[0] == 200
    assert served(service) == 2
    assert (
        service.context.tally.get("overwatch_receiver_refused_requests", reason="fault", transport="http")
        == 1
    )


def _words(body: bytes, path: str = "/v1/metrics") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _statuses(opened: socket.socket, count: int) -> list[int]:
    """The statuses of so many answers."""
    said = b""
    found: list[int] = []
    while len(found) < count:
        while b"\r\n\r\n" not in said:
            piece = opened.recv(1 << 16)
            if not piece:
                return found
            said += piece
        head, _, said = said.partition(b"\r\n\r\n")
        found.append(int(head.split()[1]))
        length = int(
            next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-len")).split()[1]
        )
        while len(said) < length:
            said += opened.recv(1 << 16)
        said = said[length:]
    return found


@pytest.mark.parametrize("seed", range(6))
def test_however_the_bytes_are_cut_every_request_is_answered_in_order(service: Service, seed: int) -> None:
    """Requests that follow each other, good, bad and unknown, cut at random places or sent at once."""
    chance = random.Random(seed)  # noqa: S311 the same each time
    good, bad = shapes.otlp(4, 1)[0], b"\xff" * 40
    kinds = [
        (good, "/v1/metrics", 200),
        (bad, "/v1/metrics", 400),
        (good, "/v1/nothing", 404),
        (b"", "/v1/logs", 200),
    ]
    asked = [kinds[0], kinds[0], *(chance.choice(kinds) for _ in range(10))]
    with socket.create_connection(("127.0.0.1", port(service)), 20) as opened:
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        waits = chance.random() < 0.7
        for body, path, status in asked:
            words = _words(body, path)
            for _ in range(chance.randrange(3)):
                cut = chance.randrange(len(words))
                opened.sendall(words[:cut])
                words = words[cut:]
            opened.sendall(words)
            if waits:
                assert _statuses(opened, 1) == [status]
        if not waits:
            assert _statuses(opened, len(asked)) == [status for _, _, status in asked]


def test_a_body_that_lingers_is_the_web_servers(service: Service) -> None:
    """It is taken in when it comes after a while, and told 408 when it never does."""
    body = shapes.otlp(4, 1)[0]
    words = _words(body)
    with socket.create_connection(("127.0.0.1", port(service)), 20) as opened:
        opened.sendall(words)
        assert _statuses(opened, 1) == [200]
        opened.sendall(words[:-10])
        opened.settimeout(2 * LATE_S)
        with pytest.raises(TimeoutError):
            opened.recv(1)
        opened.settimeout(20)
        opened.sendall(words[-10:])
        assert _statuses(opened, 1) == [200]
        assert served(service) == 0
        opened.sendall(words[:-10])
        assert _statuses(opened, 1) == [408]


def test_a_client_that_leaves_gives_everything_back(service: Service) -> None:
    """In the middle of a body, after it, or with half a head; the room and the count are as before."""
    words = _words(shapes.otlp(40, 1)[0])
    (receiver,) = [one for one in service._started if isinstance(one, OtlpReceiver)]
    express = receiver.express
    for cut in (len(words) // 2, len(words), 20):
        with socket.create_connection(("127.0.0.1", port(service)), 20) as opened:
            opened.sendall(words)
            assert _statuses(opened, 1) == [200]
            opened.sendall(words[:cut])
    calm = service.context.intake.calm
    eventually(lambda: not express.reading and not express.room.taken and not calm._busy)

    with socket.create_connection(("127.0.0.1", port(service)), 20) as opened:
        opened.sendall(words)
        assert _statuses(opened, 1) == [200]


def test_tokens_that_were_taken_away_hold_no_more(tmp_path: Path) -> None:
    """A connection that was let in is judged anew once the tokens are read again."""
    tokens = tmp_path / "tokens"
    tokens.write_text("first\n")
    with running(tmp_path / "data", f"service.security.tokens.ingest.filename={tokens}") as service:
        client = http.client.HTTPConnection("127.0.0.1", port(service), timeout=20)
        body = shapes.otlp(4, 1)[0]
        statuses = [post(client, body, Authorization="Bearer first")[0] for _ in range(3)]
        assert (statuses, served(service)) == ([200] * 3, 2)
        tokens.write_text("second\n")
        service.context.guard.reload()
        assert post(client, body, Authorization="Bearer first")[0] == 401
        assert post(client, body, Authorization="Bearer second")[0] == 200
        client.close()


def test_logs_and_metrics_of_one_connection_are_both_known(
    service: Service, client: http.client.HTTPConnection
) -> None:
    """A connection knows a few heads, each with its own signal."""
    for number in range(3):
        assert post(client, told("run", [run_started()], first_seq=number + 1), "/v1/logs")[0] == 200
        assert post(client, shapes.otlp(4, 1)[0])[0] == 200
    assert served(service) == 4
    name = "otelcol_receiver_accepted_log_records"
    eventually(lambda: service.context.tally.get(name, receiver="otlp", transport="http") == 3)
    assert Signal.LOGS in service.context.signals
