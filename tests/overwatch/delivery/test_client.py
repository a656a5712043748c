"""One request to a URL, as the webhook, and the view commands make it."""

import time
from collections.abc import Callable

import pytest

from overwatch.delivery.connection import TooLongError, http_request
from tests.overwatch.delivery.evil import OK, SOON_S, Call, evil, reply, serving
from tests.overwatch.delivery.test_http import LONG, SLOW


def test_a_get_has_no_body_and_a_post_has_one() -> None:
    """Path and query go as they are; the connection ends with the request."""
    with evil(serving(reply("200 OK", body=b"here"))) as server:
        assert http_request(f"{server.endpoint}/a/b?c=d", timeout_s=20).body == b"here"
        assert http_request(server.endpoint, b"", timeout_s=20, headers={"x-one": "1"}).status == 200
        got, posted = server.requested
        assert (got.head.split(b"\r\n")[0], got.headers.get("content-length")) == (
            b"GET /a/b?c=d HTTP/1.1",
            None,
        )
        assert (posted.head.split(b"\r\n")[0], posted.headers["content-length"]) == (b"POST / HTTP/1.1", "0")
        assert posted.headers["x-one"] == "1"
        assert server.connections == 2


def test_a_redirect_is_a_reply() -> None:
    """The other server is not called, and learns no header."""
    with (
        evil(serving(OK)) as other,
        evil(serving(reply("307 Away", f"Location: {other.endpoint}"))) as server,
    ):
        found = http_request(server.endpoint, timeout_s=20, headers={"authorization": "secret"})
        assert (found.status, found.headers["location"]) == (307, other.endpoint)
        assert other.connections == 0


def test_a_proxy_is_used_where_it_is_named_and_not_for_this_machine() -> None:
    """`{}` for the environment is the direct way."""
    with evil(serving(OK)) as gate, evil(serving(OK)) as server:
        env = {"http_proxy": gate.endpoint}
        assert http_request("http://far.example/x", timeout_s=20, env=env).status == 200
        assert [requested.path for requested in gate.requested] == ["http://far.example:80/x"]
        assert http_request(server.endpoint, timeout_s=20, env=env).status == 200
        assert len(server.requested) == 1
        with pytest.raises(OSError, match=r"."):
            http_request("http://far.invalid/x", timeout_s=20, env={})
        assert len(gate.requested) == 1


@pytest.mark.parametrize("script", SLOW, ids=lambda script: script.__name__)
def test_the_time_is_of_the_whole_request(script: Callable[[Call], None]) -> None:
    """A server that sends a byte at a time gains nothing."""
    with evil(script) as server:
        begun = time.monotonic()
        with pytest.raises(TimeoutError):
            http_request(server.endpoint, bytes(32 << 20), timeout_s=0.3)
        assert 0.3 <= time.monotonic() - begun < SOON_S


@pytest.mark.parametrize("script", LONG, ids=lambda script: script.__name__)
def test_a_reply_is_read_up_to_the_size_that_is_asked_for(script: Callable[[Call], None]) -> None:
    """In its head, its body and its trailers."""
    with evil(script) as server:
        with pytest.raises(TooLongError):
            http_request(server.endpoint, timeout_s=20, most=1000)
        assert server.poured < 24 << 20


@pytest.mark.parametrize("url", ["", "host:80", "ftp://host", "http://", "http:///path"])
def test_what_is_no_address_is_rejected(url: str) -> None:
    """By its value."""
    with pytest.raises(ValueError, match=r"is no http:// or https:// URL"):
        http_request(url, timeout_s=1)


def test_a_reply_that_is_no_http_is_an_error_of_the_server() -> None:
    """Whatever it answers; a header that cannot be sent is the caller's."""

    def script(call: Call) -> None:
        call.receive()
        call.emit(b"SSH-2.0 what\r\n")

    with evil(script) as server:
        with pytest.raises(OSError, match="BadStatusLine"):
            http_request(server.endpoint, timeout_s=20)
        with pytest.raises(ValueError, match="Invalid header"):
            http_request(server.endpoint, timeout_s=20, headers={"x": "a\r\nb: c"})
