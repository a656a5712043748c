"""Addresses: reading, reach, and ports that are taken."""

import os
import socket

import pytest

from overwatch.collector.net import Address, AddressError, holder, listen, parse


@pytest.mark.parametrize(
    ("text", "host", "port", "loopback"),
    [
        ("127.0.0.1:4318", "127.0.0.1", 4318, True),
        ("localhost:0", "localhost", 0, True),
        ("127.8.8.8:1", "127.8.8.8", 1, True),
        ("[::1]:65535", "::1", 65535, True),
        ("0.0.0.0:1", "0.0.0.0", 1, False),
        ("[::]:1", "::", 1, False),
        (":1", "0.0.0.0", 1, False),
        ("collector.internal:4317", "collector.internal", 4317, False),
    ],
)  # fmt: skip
def test_reading(text: str, host: str, port: int, *, loopback: bool) -> None:
    """Host and port, and whether only this machine reaches them."""
    address = parse(text)

    assert (address.host, address.port, address.loopback) == (host, port, loopback)


@pytest.mark.parametrize("text", ["", "127.0.0.1", "host:port", "host:65536", "host:-1", "::1:80", "host:٣"])
def test_what_is_no_address_is_named(text: str) -> None:
    """The text that cannot be read is in the message."""
    with pytest.raises(AddressError) as caught:
        parse(text)

    assert repr(text) in str(caught.value)


def test_a_url_can_be_used_from_here() -> None:
    """A wildcard becomes an address that a client can connect to."""
    assert Address(host="0.0.0.0", port=1).url("http") == "http://127.0.0.1:1"
    assert Address(host="::1", port=1).url("ws") == "ws://[::1]:1"


def test_the_next_port_is_taken_and_the_holder_named() -> None:
    """A busy port is left to its holder."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        wanted = Address(host="127.0.0.1", port=held.getsockname()[1])
        found = listen(wanted)
        with found.sock:
            assert found.address.port > wanted.port
            assert found.moved is not None
            assert holder(wanted.port) in found.moved


def test_a_port_that_may_not_move_names_its_holder() -> None:
    """A busy port is an error with the address and the process that has it."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        with pytest.raises(AddressError, match=rf"127\.0\.0\.1:{port}.*pid {os.getpid()}"):
            listen(Address(host="127.0.0.1", port=port), may_move=False)


def test_any_free_port_can_be_named() -> None:
    """Port 0 is never busy."""
    with listen(Address(host="127.0.0.1", port=0), may_move=False).sock as found:
        assert found.getsockname()[1] > 0


def test_an_address_that_is_not_ours_is_refused() -> None:
    """An address of another machine fails with its text."""
    with pytest.raises(AddressError, match=r"192\.0\.2\.1:4318"):
        listen(Address(host="192.0.2.1", port=4318))
