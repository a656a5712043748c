"""Logging in from a browser: the cookie, what it lets in, and each refusal, over real HTTP."""

import asyncio
import json
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import ClientSession, CookieJar, WSMsgType, WSServerHandshakeError

from overwatch.collector import Service
from overwatch.collector.auth import AGAIN_S, MOST_WRONG, Throttle
from overwatch.events import EnvCrashed
from overwatch.serve.stream import REVOKED
from tests.overwatch.collector.pki import OPENSSL, authority, signed
from tests.overwatch.collector.running import Reply, http, reported, run_started, running

READ, CONTROL, INGEST = "read-77b1", "control-c0de", "ingest-3f9a"
TOKENS = (
    f"service.security.tokens.ingest.token={INGEST}",
    f"service.security.tokens.read.token={READ}",
    f"service.security.tokens.control.token={CONTROL}",
)


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Service]:
    """A collector with a token for each role."""
    with running(tmp_path, *TOKENS) as service:
        yield service


def at(service: Service, path: str) -> str:
    """The URL of a path of the view API."""
    return f"{service.context.urls['view']}{path}".replace("ws", "http", 1)


def own(service: Service) -> str:
    """The origin of the collector's own page."""
    return at(service, "")


def log_in(service: Service, token: str, **headers: str) -> Reply:
    """Send a token as the page does."""
    return http(at(service, "/api/v1/login"), token.encode(), "POST", **{"origin": own(service)} | headers)


def cookie(reply: Reply) -> str:
    """What a browser sends from now on."""
    return reply.headers["Set-Cookie"].partition(";")[0]


def test_the_page_needs_no_token_and_shows_who_one_is(guarded: Service) -> None:
    """Page, modules and roles are for all; numbers are not."""
    statuses = [http(at(guarded, path)).status for path in ("/", "/web/app.js", "/web/nothing.js")]
    nobody = json.loads(http(at(guarded, "/api/v1/me")).body)
    reader = json.loads(http(at(guarded, "/api/v1/me"), authorization=f"Bearer {READ}").body)
    actor = json.loads(http(at(guarded, "/api/v1/me"), authorization=f"Bearer {CONTROL}").body)

    assert statuses == [200, 200, 404]
    assert (nobody["roles"], reader["roles"], actor["roles"]) == ([], ["read"], ["read", "control"])
    assert http(at(guarded, "/api/v1/runs")).status == 401
    assert http(at(guarded, "/"), host="evil.example").status == 403
    assert http(at(guarded, "/api/v1/me"), origin="https://evil.example").status == 403


def test_a_token_becomes_a_cookie_that_reads(guarded: Service) -> None:
    """It is out of reach of scripts and other sites, and does not hold the token."""
    reply = log_in(guarded, READ)
    parts = {part.strip().partition("=")[0].lower() for part in reply.headers["Set-Cookie"].split(";")[1:]}
    mine = cookie(reply)

    assert (reply.status, json.loads(reply.body)["roles"]) == (200, ["read"])
    assert parts == {"httponly", "path", "samesite"}
    assert "SameSite=Strict" in reply.headers["Set-Cookie"]
    assert READ not in mine
    assert http(at(guarded, "/api/v1/runs"), cookie=mine).status == 200
    assert http(at(guarded, "/api/v1/runs"), cookie=mine + "x").status == 401
    assert http(at(guarded, "/api/v1/runs"), cookie=f"other={mine.partition('=')[2]}").status == 401
    value = mine.partition("=")[2]
    assert http(at(guarded, "/api/v1/runs"), authorization=f"Bearer {value}").status == 401
    assert http(at(guarded, "/api/v1/runs"), cookie=mine, authorization="Bearer wrong").status == 401
    other = http(at(guarded, "/api/v1/runs"), cookie=mine, origin="http://127.0.0.1:1")
    assert (other.status, json.loads(other.body)["parameter"]) == (403, "Origin")


def test_logging_out_takes_the_cookie_back(guarded: Service) -> None:
    """The browser is to forget it."""
    reply = http(at(guarded, "/api/v1/login"), method="DELETE", origin=own(guarded))

    assert (reply.status, json.loads(reply.body)["roles"]) == (200, [])
    assert "Max-Age=0" in reply.headers["Set-Cookie"]


@pytest.mark.parametrize(
    ("token", "status"),
    [("wrong", 401), (INGEST, 401), ("", 400), (" \n", 400), ("x" * 5000, 400), ("\u00e9\u00ff", 401)],
)
def test_what_is_no_token_makes_no_cookie(guarded: Service, token: str, status: int) -> None:
    """Wrong, of another role, empty, long, strange."""
    reply = log_in(guarded, token)

    assert (reply.status, "Set-Cookie" in reply.headers) == (status, False)


def test_a_page_of_another_origin_logs_nobody_in_or_out(guarded: Service) -> None:
    """Not even with the right token."""
    assert log_in(guarded, READ, origin="https://evil.example").status == 403
    assert http(at(guarded, "/api/v1/login"), method="DELETE", origin="null").status == 403


def test_to_act_by_a_cookie_takes_the_own_page(tmp_path: Path) -> None:
    """A header is proof of intent, a cookie is not: without the origin of the own page it is 403."""
    with running(tmp_path, *TOKENS, "service.security.allowed_origins=['https://board.example']") as service:
        logs = f"{service.context.urls['otlp_http']}/v1/logs"
        events = [run_started(), EnvCrashed(at=time.time_ns(), env_id=3, error="boom")]
        content = {"content_type": "application/x-protobuf", "authorization": f"Bearer {INGEST}"}
        assert http(logs, reported("run-1", events), **content).status == 200
        mine, reader = cookie(log_in(service, CONTROL)), cookie(log_in(service, READ))
        ack = at(service, "/api/v1/findings/nothing/ack?run=run-1")

        def act(**headers: str) -> int:
            return http(ack, b"", "POST", **headers).status

        assert act(cookie=mine) == 403
        assert act(cookie=mine, origin="https://board.example") == 403
        assert act(cookie=mine, origin="https://evil.example") == 403
        assert act(cookie=reader, origin=own(service)) == 403
        assert act(origin=own(service)) == 401
        assert act(cookie=mine, origin=own(service)) == 404
        assert act(authorization=f"Bearer {CONTROL}", origin="https://board.example") == 404
        assert act(authorization=f"Bearer {CONTROL}") == 404


def test_too_many_wrong_tokens_wait(guarded: Service) -> None:
    """Even the right one then does, with how long."""
    statuses = [log_in(guarded, f"wrong-{turn}").status for turn in range(MOST_WRONG)]
    reply = log_in(guarded, READ)

    assert statuses == [401] * MOST_WRONG
    assert reply.status == 429
    assert 1 <= int(reply.headers["Retry-After"]) <= AGAIN_S + 1


@pytest.mark.parametrize(
    ("door", "path", "right"),
    [("view", "/api/v1/runs", READ), ("metrics", "/metrics", READ), ("otlp_http", "/v1/logs", INGEST)],
)
def test_too_many_wrong_tokens_in_headers_wait_at_every_door(
    guarded: Service, door: str, path: str, right: str
) -> None:
    """What is right is never refused, one wrong token that is repeated is 401, and the login goes on."""
    url = guarded.context.urls[door].replace("ws", "http", 1) + path
    body = reported("run-1", [run_started()]) if door == "otlp_http" else None
    content = {"content_type": "application/x-protobuf"} if body else {}

    def ask(*tokens: str) -> list[Reply]:
        return [http(url, body, **content, authorization=f"Bearer {token}") for token in tokens]

    statuses = [reply.status for reply in ask(*(f"wrong-{turn}" for turn in range(MOST_WRONG)))]
    (throttled,) = ask("another")

    assert statuses == [401] * MOST_WRONG
    assert throttled.status == 429
    assert 1 <= int(throttled.headers["Retry-After"]) <= AGAIN_S + 1
    assert b"too many wrong tokens" in throttled.body
    assert [reply.status for reply in ask(right, "wrong-0", right)] == [200, 401, 200]
    assert http(url, body, **content).status == 401
    assert log_in(guarded, READ).status == 200


def test_a_peer_that_waited_may_try_again() -> None:
    """One more each time, and others are not held up."""
    now = 100.0
    throttle = Throttle(lambda: now)
    for _ in range(MOST_WRONG):
        assert throttle.wait_s("10.0.0.1") == 0
        throttle.wrong("10.0.0.1")
    assert throttle.wait_s("10.0.0.1") == AGAIN_S
    assert throttle.wait_s("10.0.0.2") == 0
    now += AGAIN_S
    assert throttle.wait_s("10.0.0.1") == 0
    throttle.wrong("10.0.0.1")
    assert throttle.wait_s("10.0.0.1") == AGAIN_S
    for number in range(2000):
        throttle.wrong(f"peer-{number}")
    assert throttle.wait_s("10.0.0.1") == 0  # Let go of: what is remembered is bounded.


def test_the_cookie_of_a_revoked_token_ends_its_stream(tmp_path: Path) -> None:
    """As a header's does, and it opens nothing any more."""
    file = tmp_path / "read.tokens"
    file.write_text("first")
    with running(tmp_path, f"service.security.tokens.read.filename={file}") as service:
        mine = cookie(log_in(service, "first"))

        async def watch() -> tuple[WSMsgType, int | None, int]:
            async with asyncio.timeout(20), ClientSession(cookie_jar=CookieJar(unsafe=True)) as client:
                address, headers = at(service, "/api/v1/stream"), {"Cookie": mine}
                async with client.ws_connect(address, headers=headers) as stream:
                    file.write_text("second")
                    await asyncio.to_thread(service.reload)
                    message = await stream.receive()
                    code = stream.close_code
                try:
                    await client.ws_connect(address, headers=headers)
                except WSServerHandshakeError as error:
                    return message.type, code, error.status
                return message.type, code, 101

        assert asyncio.run(watch()) == (WSMsgType.CLOSE, REVOKED, 401)


@pytest.mark.skipif(OPENSSL is None, reason="no openssl to make certificates with")
def test_under_tls_the_cookie_never_goes_in_clear(tmp_path: Path) -> None:
    """It is marked so that a browser sends it by TLS only."""
    authority(tmp_path, "ca")
    signed(tmp_path, "server")
    tls = f"extensions.view.tls={{cert_file: {tmp_path}/server.pem, key_file: {tmp_path}/server.key}}"
    with running(tmp_path, *TOKENS, tls) as service:

        async def log_in() -> str:
            context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
            async with asyncio.timeout(20), ClientSession() as client:
                answer = await client.post(at(service, "/api/v1/login"), data=READ.encode(), ssl=context)
                return answer.headers["Set-Cookie"]

        assert "; secure" in asyncio.run(log_in()).lower()
