"""Who may come in: hosts, origins and tokens at every door, before a byte of the body is read."""

import http.client
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import grpc
import pytest
from google.rpc import status_pb2
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

from overwatch.collector import Service, StartError
from overwatch.collector.auth import LONGEST_TOKEN, Denial, Role, TokenConfig, Tokens, TokensConfig
from overwatch.collector.guard import host_allowed
from overwatch.collector.net import Address
from overwatch.collector.setting_types import Secret
from overwatch.collector.signals import WIRES
from overwatch.journal import Signal
from tests.overwatch.collector.running import config, reported, run_started, running
from tests.overwatch.collector.running import http as query

INGEST, READ, CONTROL = "ingest-3f9a", "read-77b1", "control-c0de"
TOKENS = (
    f"service.security.tokens.ingest.token={INGEST}",
    f"service.security.tokens.read.tokens=[{READ}, read-next]",
    f"service.security.tokens.control.token={CONTROL}",
)
PROTOBUF = {"Content_Type": "application/x-protobuf"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A collector with a token for each role."""
    with running(tmp_path_factory.mktemp("guarded"), *TOKENS) as service:
        yield service


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A collector as it is shipped, with a name and a page that are let in."""
    hosts = "service.security.allowed_hosts=['tower.example', '*.pods.example']"
    pages = "service.security.allowed_origins=['https://board.example']"
    with running(tmp_path_factory.mktemp("plain"), hosts, pages) as service:
        yield service


def doors(service: Service) -> dict[str, str]:
    """A path that answers at each HTTP door, as a URL."""
    found, own = service.endpoints, service.context.urls.get("telemetry")
    return {
        "otlp_http": f"{found.otlp_http}/v1/logs",
        "metrics": f"{found.metrics}/metrics",
        "telemetry": f"{own}/metrics",
        "health": f"{found.health}/",
        "view": f"{found.view}/api/v1/runs".replace("ws:", "http:"),
    }


def raw(url: str, headers: list[tuple[str, str]], method: str = "GET") -> int:
    """The status of a request with exactly these headers, `Host` among them."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=10)
    try:
        connection.putrequest(method, parts.path, skip_host=True, skip_accept_encoding=True)
        for name, value in headers:
            connection.putheader(name, value)
        connection.endheaders()
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ([("Host", "localhost:1")], True),
        ([("Host", "127.0.0.1")], True),
        ([("Host", "127.1.2.3:99")], True),
        ([("Host", "[::1]:1")], True),
        ([("Host", "LOCALHOST")], True),
        ([("Host", "tower.example:4318")], True),
        ([("Host", "a.pods.example")], True),
        ([("Host", ".pods.example")], False),
        ([("Host", "pods.example")], False),
        ([("Host", "evil.example")], False),
        ([("Host", "127.0.0.1.evil.example")], False),
        ([("Host", "localhost.evil.example")], False),
        ([("Host", "192.0.2.1")], False),
        ([("Host", "0.0.0.0")], False),
        ([("Host", "me@localhost")], False),
        ([("Host", "localhost:port")], False),
        ([("Host", "[::1")], False),
        ([("Host", "")], False),
        ([], False),
        ([("Host", "localhost:1"), ("Origin", "http://localhost:1")], True),
        ([("Host", "localhost:1"), ("Origin", "https://board.example")], True),
        ([("Host", "localhost:1"), ("Origin", "http://localhost:2")], False),
        ([("Host", "localhost:1"), ("Origin", "https://evil.example")], False),
        ([("Host", "localhost:1"), ("Origin", "https://board.example.evil.example")], False),
        ([("Host", "localhost:1"), ("Origin", "null")], False),
        ([("Host", "localhost:1"), ("Origin", "")], False),
        ([("Host", "localhost:1"), ("Origin", "file://localhost:1")], False),
        ([("Host", "evil.example"), ("Origin", "http://evil.example")], False),
    ],
)
def test_rebound_names_and_other_pages_are_refused(
    plain: Service, headers: list[tuple[str, str]], *, allowed: bool
) -> None:
    """Every HTTP door answers hosts and origins that are its own or are allowed, and no other."""
    before = {}
    for name, url in doors(plain).items():
        before[name] = raw(url, headers)

    # The OTLP door knows no GET, and answers so to those that it lets in.
    inside = {name: 405 if name == "otlp_http" else 200 for name in before}
    assert before == (inside if allowed else dict.fromkeys(before, 403) | _malformed(headers, before))


def _malformed(headers: list[tuple[str, str]], statuses: dict[str, int]) -> dict[str, int]:
    """Two or unreadable headers may also be refused by the HTTP parser itself."""
    return {name: 400 for name, status in statuses.items() if status == 400 and not dict(headers).get("Host")}


@pytest.mark.parametrize(
    ("bound", "host", "allowed"),
    [
        ("0.0.0.0", "10.1.2.3:4318", True),
        ("0.0.0.0", "localhost", True),
        ("0.0.0.0", f"{socket.gethostname()}:4318", True),
        ("0.0.0.0", "evil.example", False),
        ("::", "[fd00::1]:4318", True),
        ("10.1.2.3", "10.1.2.3:4318", True),
        ("10.1.2.3", "10.1.2.4:4318", False),
        ("10.1.2.3", "localhost", False),
        ("tower.example", "tower.example", True),
        ("localhost", "127.0.0.1", True),
    ],
)
def test_a_door_knows_its_own_names(bound: str, host: str, *, allowed: bool) -> None:
    """A wildcard takes any address, which cannot be rebound; a single address takes itself."""
    assert host_allowed(host, Address(host=bound, port=4318), ()) is allowed


GIVEN = [
    ([], 401),
    ([f"Bearer {INGEST}"], 200),
    ([f"bearer  {INGEST} "], 200),
    ([f"Bearer {READ}"], 403),
    ([f"Bearer {CONTROL}"], 403),
    (["Bearer wrong"], 401),
    (["Bearer"], 401),
    (["Bearer "], 401),
    ([""], 401),
    ([INGEST], 401),
    ([f"Basic {INGEST}"], 401),
    ([f"Bearer {INGEST}x"], 401),
    ([f"Bearer {INGEST[:-1]}"], 401),
    ([f"Bearer {INGEST} {INGEST}"], 401),
    ([f"Bearer {INGEST}", f"Bearer {INGEST}"], 401),
    ([f"Bearer {INGEST}", "Bearer wrong"], 401),
    ([f"Bearer {'x' * LONGEST_TOKEN}"], 401),
    ([f"Bearer {INGEST}\u00e9"], 401),
    (["Bearer \u00e9\u00ff"], 401),
]


@pytest.mark.parametrize(("given", "status"), GIVEN)
def test_http_takes_the_one_right_token(guarded: Service, given: list[str], status: int) -> None:
    """Missing, wrong, empty, long, doubled and strange tokens are 401, a token of another role 403."""
    url = doors(guarded)["otlp_http"]
    headers = [("Host", "localhost"), ("Content-Type", "application/x-protobuf"), ("Content-Length", "0")]

    assert raw(url, [*headers, *(("Authorization", one) for one in given)], "POST") == status


@pytest.mark.parametrize(
    ("given", "status"), [(given, status) for given, status in GIVEN if all(one.isascii() for one in given)]
)
def test_grpc_takes_the_one_right_token(guarded: Service, given: list[str], status: int) -> None:
    """The same table in gRPC's codes."""
    codes = {401: grpc.StatusCode.UNAUTHENTICATED, 403: grpc.StatusCode.PERMISSION_DENIED}
    metadata = [("authorization", one) for one in given]

    assert call(guarded, metadata) is codes.get(status, grpc.StatusCode.OK)


def call(service: Service, metadata: list[tuple[str, str]], method: str = "Export") -> grpc.StatusCode:
    """The code of one empty request over gRPC, on a connection of its own."""
    url = str(service.endpoints.otlp_grpc)
    # Else gRPC may take the connection of an earlier call that is being cut.
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(url.partition("://")[2], options) as channel:
        export = channel.unary_unary(f"/{WIRES[Signal.LOGS].service}/{method}")
        try:
            ExportLogsServiceResponse.FromString(export(b"", metadata=metadata, timeout=10))
        except grpc.RpcError as error:
            code: grpc.StatusCode = error.code()
            return code
    return grpc.StatusCode.OK


def test_a_token_of_a_megabyte_costs_the_connection_only(guarded: Service) -> None:
    """Headers beyond any use are refused by both transports, and the collector goes on."""
    long = f"Bearer {'x' * (1 << 20)}"
    url = doors(guarded)["otlp_http"]
    try:
        status = raw(url, [("Host", "localhost"), ("Authorization", long)], "POST")
    except ConnectionError:
        status = 400  # The answer was lost because the collector did not read to the end.
    code = call(guarded, [("authorization", long)])

    assert status in (400, 401)
    assert code is not grpc.StatusCode.OK
    assert call(guarded, [("authorization", f"Bearer {INGEST}")]) is grpc.StatusCode.OK


def test_a_token_in_a_query_is_none(guarded: Service) -> None:
    """Only the header counts: addresses end up in logs."""
    url = doors(guarded)["view"]

    assert query(f"{url}?access_token={READ}").status == 401


def test_unknown_routes_reveal_nothing(guarded: Service) -> None:
    """Without a token nobody learns which paths and methods there are."""
    found = {name: query(f"{url}/nothing").status for name, url in doors(guarded).items() if name != "health"}

    assert set(found.values()) == {401}
    assert call(guarded, [], "Nothing") is grpc.StatusCode.UNAUTHENTICATED
    assert call(guarded, [("authorization", f"Bearer {INGEST}")], "Nothing") is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (None, {"otlp_http": 401, "metrics": 401, "telemetry": 401, "health": 200, "view": 401}),
        (INGEST, {"otlp_http": 405, "metrics": 403, "telemetry": 403, "health": 200, "view": 403}),
        (READ, {"otlp_http": 403, "metrics": 200, "telemetry": 200, "health": 200, "view": 200}),
        ("read-next", {"otlp_http": 403, "metrics": 200, "telemetry": 200, "health": 200, "view": 200}),
        (CONTROL, {"otlp_http": 403, "metrics": 200, "telemetry": 200, "health": 200, "view": 200}),
    ],
)
def test_each_door_wants_its_role(guarded: Service, token: str | None, expected: dict[str, int]) -> None:
    """Senders cannot read, readers cannot send; who may act may also read; health is for all."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    assert {name: query(url, **headers).status for name, url in doors(guarded).items()} == expected


@pytest.mark.parametrize(("token", "status"), [(None, 401), (READ, 403), (INGEST, 403), (CONTROL, 405)])
def test_to_act_needs_the_token_of_control(guarded: Service, token: str | None, status: int) -> None:
    """A method that changes something is judged before it is known whether there is such a route."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    assert query(doors(guarded)["view"], b"", "POST", **headers).status == status


def test_without_tokens_reading_is_open_and_acting_is_not(plain: Service) -> None:
    """A shipped collector on loopback lets everybody here send and read; acting wants its fresh token."""
    token = plain.context.guard.tokens.first(Role.CONTROL)
    assert token is not None
    view = doors(plain)["view"]

    assert query(view).status == 200
    assert query(view, b"", "POST").status == 401
    assert query(view, b"", "POST", Authorization=f"Bearer {token.reveal()}").status == 405


@pytest.mark.parametrize(
    ("content_type", "token", "code"),
    [("application/x-protobuf", None, 16), ("application/x-protobuf", READ, 7)],
)
def test_refusals_speak_the_protocol_of_the_request(
    guarded: Service, content_type: str, token: str | None, code: int
) -> None:
    """OTLP/HTTP answers a Status in the request's encoding, with a challenge on 401."""
    headers = {"Content_Type": content_type} | ({} if token is None else {"Authorization": f"Bearer {token}"})
    packed = query(doors(guarded)["otlp_http"], b"", "POST", **headers)
    stated = query(
        doors(guarded)["otlp_http"], b"{}", "POST", **headers | {"Content_Type": "application/json"}
    )

    assert status_pb2.Status.FromString(packed.body).code == code
    assert stated.body.startswith(f'{{"code":{code},'.encode())
    assert (packed.headers.get("WWW-Authenticate") == 'Bearer realm="overwatch"') == (code == 16)


def test_refusals_are_counted(tmp_path: Path) -> None:
    """Each door counts what it did not let in, by what decided."""
    with running(tmp_path, *TOKENS) as service:
        url = doors(service)["otlp_http"]
        raw(url, [("Host", "evil.example")])
        raw(url, [("Host", "localhost"), ("Origin", "null")])
        raw(url, [("Host", "localhost")])
        call(service, [])
        name, tally = "overwatch_listener_refused_requests", service.context.tally
        found = {
            (entry, by): tally.get(name, listener=entry, reason=by)
            for entry in ("otlp_http", "otlp_grpc")
            for by in ("host", "origin", "authorization")
        }

    assert {key for key, count in found.items() if count} == {
        ("otlp_http", "host"),
        ("otlp_http", "origin"),
        ("otlp_http", "authorization"),
        ("otlp_grpc", "authorization"),
    }


def test_a_reload_logs_each_time_what_it_could_not_take_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Who has replaced a token must not read that it holds when it does not, not the second time either."""
    file = tmp_path / "read.tokens"
    file.write_text("first")
    with running(tmp_path, f"service.security.tokens.read.filename={file}") as service:
        stated = []
        for text in ("", "", "second"):
            file.write_text(text)
            caplog.clear()
            with caplog.at_level("INFO", "overwatch.collector"):
                service.reload()
            lines = [record.getMessage() for record in caplog.records]
            stated.append(
                ("were read again" in "".join(lines), any("not all is taken up" in line for line in lines))
            )

    assert stated == [(False, True), (False, True), (True, False)]


def test_tokens_of_files_follow_the_files(tmp_path: Path) -> None:
    """A reload takes new tokens up at once; a file that is empty, or gone, leaves the old ones."""
    file = tmp_path / "read.tokens"
    file.write_text("first\n\nsecond\n")
    body = reported("run-a", [run_started()])
    with running(tmp_path, f"service.security.tokens.read.filename={file}") as service:
        view, guard = doors(service)["view"], service.context.guard

        def admitted() -> list[str]:
            words = ("first", "second", "third")
            return [word for word in words if query(view, Authorization=f"Bearer {word}").status == 200]

        assert admitted() == ["first", "second"]
        assert query(doors(service)["otlp_http"], body, "POST", **PROTOBUF).status == 200
        file.write_text("second\nthird\n")
        guard.reload()
        assert admitted() == ["second", "third"]
        file.write_text("")
        guard.reload()
        assert admitted() == ["second", "third"]
        assert "tokens of before are kept" in service.context.health.degraded["tokens"]
        file.unlink()
        guard.reload()
        assert admitted() == ["second", "third"]
        file.write_text("first")
        guard.reload()
        assert admitted() == ["first"]
        assert "tokens" not in service.context.health.degraded


def test_a_token_file_that_cannot_be_used_stops_the_start(tmp_path: Path) -> None:
    """No door opens without the tokens that were asked for; the message names the file."""
    file = tmp_path / "ingest.tokens"
    for text in (None, "", "with space", "b\u00e9b\u00e9"):
        if text is not None:
            file.write_text(text)
        with pytest.raises(StartError, match=r"ingest\.tokens"):
            Service(config(tmp_path, f"service.security.tokens.ingest.filename={file}")).start()


def test_judging_looks_at_every_role() -> None:
    """One token may stand for several roles."""
    both = TokenConfig(token=Secret("both"))
    tokens = Tokens(TokensConfig(ingest=both, read=both, control=TokenConfig(token=Secret("other"))))
    tokens.load()

    assert [tokens.judge(role, ["Bearer both"]) for role in Role] == [None, None, Denial.FORBIDDEN]


@pytest.mark.parametrize(
    ("authorization", "expected"),
    [("Bearer wrong", b"HTTP/1.1 401 "), (f"Bearer {INGEST}", b"HTTP/1.1 100 ")],
)
def test_nobody_is_asked_for_a_body_that_is_not_wanted(
    guarded: Service, authorization: str, expected: bytes
) -> None:
    """Who waits for `100 Continue` gets it with the right token, and a refusal at once without."""
    port = urlsplit(str(guarded.endpoints.otlp_http)).port
    head = (
        "POST /v1/logs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\n"
        f"Authorization: {authorization}\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(head.encode())
        first = connection.recv(4096)

    assert first.startswith(expected)
