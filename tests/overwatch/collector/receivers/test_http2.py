"""What a client says in HTTP/2 is looked through: paths that are no text and floods end the connection."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overwatch.collector.receivers.http2 import (
    IDLE_FRAMES_OF_GOOD,
    MAX_HEAD,
    MAX_IDLE_FRAMES,
    MAX_IDLE_FRAMES_PER_PEER,
    PREFACE,
    Http2Error,
    IdleFrames,
    Watch,
    unpacked,
)
from tests.overwatch.collector import raw_http2 as h2

METHOD = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
PADDED, PRIORITIZED = 0x8, 0x20


def literal(name: bytes, value: bytes) -> bytes:
    """A header spelt out, name and value shorter than 127 bytes."""
    return b"\x00" + bytes((len(name),)) + name + bytes((len(value),)) + value


def packed(value: bytes) -> bytes:
    """A string that is packed already."""
    return bytes((0x80 | len(value),)) + value


def head(block: bytes, flags: int = h2.END_HEADERS) -> bytes:
    """A connection with one head."""
    return PREFACE + h2.frame(h2.SETTINGS, 0, 0, b"") + h2.frame(h2.HEADERS, flags, 1, block)


def judged(data: bytes, size: int | None = None) -> Watch:
    """A watch that saw these bytes, in pieces of a size; raises `Http2Error`."""
    watch = Watch(now=lambda: 0.0)
    step = size or len(data) or 1
    for at in range(0, len(data), step):
        watch.feed(data[at : at + step])
    return watch


@given(st.integers(1, 64), st.binary(max_size=300))
def test_a_good_call_passes_in_whatever_pieces(size: int, message: bytes) -> None:
    """The head of a call is seen, however its bytes arrive."""
    assert judged(h2.whole_call(METHOD, message), size).asked


@given(st.integers(1, 400), st.binary(max_size=300))
def test_a_head_passes_once_it_is_whole(size: int, message: bytes) -> None:
    """All bytes pass, in order, and of a head that is cut short nothing but where its frame begins."""
    call = h2.whole_call(METHOD, message)
    begins = call.index(h2.frame(h2.SETTINGS, 0, 0, b"")) + 9
    ends = begins + 9 + int.from_bytes(call[begins : begins + 3])
    watch, passed = Watch(now=lambda: 0.0), b""
    for at in range(0, len(call), size):
        passed += watch.feed(call[at : at + size])
        fed = min(at + size, len(call))
        assert passed == call[: len(passed)]
        assert len(passed) == fed or begins <= len(passed) < begins + 9 <= fed < ends
    assert passed == call


@given(st.binary(max_size=400))
def test_whatever_is_said_is_passed_or_ended(data: bytes) -> None:
    """No bytes make the watch itself fail."""
    for said in (data, PREFACE + data, PREFACE + h2.frame(h2.HEADERS, h2.END_HEADERS, 1, data)):
        with contextlib.suppress(Http2Error):
            judged(said)


HEADS = {
    "plain-name-and-value": literal(b":path", b"/a.\xf4/E"),
    "name-of-the-static-table": b"\x04" + b"\x06/a.\xf4/E",
    "name-of-the-static-table-kept": b"\x44" + b"\x06/a.\xf4/E",
    "never-to-be-kept": b"\x14" + b"\x06/a.\xf4/E",
    "name-of-the-connections-table": b"\x7e" + b"\x06/a.\xf4/E",
    "packed": b"\x04" + packed(b"\xff\xff\xff\xff"),
    "a-name-that-is-no-text": literal(b":p\xe4th", b"\xf4"),
    "behind-others": b"\x83\x86" + literal(b"x", b"y") + literal(b":path", b"\xff"),
}


@pytest.mark.parametrize("how", HEADS)
def test_a_path_that_is_no_text_ends_the_connection(how: str) -> None:
    """However it is written, no such path reaches gRPC."""
    with pytest.raises(Http2Error, match="no plain text"):
        judged(head(HEADS[how]))


def test_other_values_may_be_any_bytes() -> None:
    """Binary metadata is none of our business."""
    judged(head(literal(b"trace-bin", b"\x00\xff\xfe") + literal(b":path", METHOD.encode())))


@pytest.mark.parametrize(
    "block",
    [b"\x00", b"\x00\x05:pa", b"\x04\x7f\xff\xff\xff\xff\xff", b"\x7f\xff\xff\xff\xff\xff\xff", b"\x04"],
)
def test_a_broken_head_ends_the_connection(block: bytes) -> None:
    """What cannot be looked through does not pass."""
    with pytest.raises(Http2Error, match="broken"):
        judged(head(block))


def test_padding_and_priority_are_no_part_of_a_head() -> None:
    """A path is found behind them too."""
    block = HEADS["packed"]
    for flags, payload in (
        (PADDED, b"\x02" + block + b"\0\0"), (PRIORITIZED, bytes(5) + block),
        (PADDED | PRIORITIZED, b"\x01" + bytes(5) + block + b"\0"),
    ):  # fmt: skip
        with pytest.raises(Http2Error, match="no plain text"):
            judged(head(payload, h2.END_HEADERS | flags))
    with pytest.raises(Http2Error, match="padded"):
        judged(head(b"\xff" + block, h2.END_HEADERS | PADDED))


def test_a_head_in_pieces_is_one_head() -> None:
    """A path split over continuations is looked at whole; other frames between them end the connection."""
    block = HEADS["plain-name-and-value"]
    begun = head(block[:4], 0)
    rest = h2.frame(h2.CONTINUATION, 0, 1, block[4:9]) + h2.frame(
        h2.CONTINUATION, h2.END_HEADERS, 1, block[9:]
    )
    with pytest.raises(Http2Error, match="no plain text"):
        judged(begun + rest)
    with pytest.raises(Http2Error, match="one piece"):
        judged(begun + h2.frame(h2.PING, 0, 0, bytes(8)))
    with pytest.raises(Http2Error, match="one piece"):
        judged(PREFACE + h2.frame(h2.CONTINUATION, 0, 1, b""))


def test_a_head_that_does_not_end_is_bounded() -> None:
    """A flood of continuations costs no more than one head."""
    more = h2.frame(h2.CONTINUATION, 0, 1, bytes(1 << 13))
    with pytest.raises(Http2Error, match="larger than"):
        judged(head(b"", 0) + more * (MAX_HEAD // (1 << 13) + 1))


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(h2.frame(h2.RST_STREAM, 0, 1, struct.pack(">I", 8)), id="resets"),
        pytest.param(h2.frame(h2.PING, 0, 0, bytes(8)), id="pings"),
        pytest.param(h2.frame(h2.SETTINGS, 0, 0, b""), id="settings"),
        pytest.param(h2.frame(h2.DATA, 0, 1, b""), id="empty-data"),
    ],
)
def test_a_flood_of_frames_that_carry_nothing_ends_the_connection(frame: bytes) -> None:
    """A thousand a second pass, more do not; the next second is another one."""
    seconds = iter([0.0] * MAX_IDLE_FRAMES + [1.5] * (MAX_IDLE_FRAMES + 2))
    watch = Watch(now=lambda: next(seconds))
    watch.feed(PREFACE + frame * (2 * MAX_IDLE_FRAMES))
    with pytest.raises(Http2Error, match="carry nothing"):
        watch.feed(frame)


def test_another_protocol_ends_the_connection() -> None:
    """HTTP/1.1 and TLS are told from HTTP/2 by their first byte."""
    for said in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01", b"PRI * HTTP/2.0\r\n\r\nXX"):
        with pytest.raises(Http2Error, match="no HTTP/2"):
            judged(said, 1)


def test_packed_strings_are_those_of_the_standard() -> None:
    """The examples of RFC 7541, appendix C.4 and C.6."""
    known = {
        "f1e3c2e5f23a6ba0ab90f4ff": b"www.example.com", "a8eb10649cbf": b"no-cache",
        "25a849e95ba97d7f": b"custom-key", "25a849e95bb8e8b4bf": b"custom-value", "6402": b"302",
        "aec3771a4b": b"private", "9d29ad171863c78f0b97c8e9ae82ae43d3": b"https://www.example.com",
        "d07abe941054d444a8200595040b8166e082a62d1bff": b"Mon, 21 Oct 2013 20:13:21 GMT",
    }  # fmt: skip

    assert {text: unpacked(bytes.fromhex(text)) for text in known} == known


def test_floods_of_an_address_are_bounded_over_its_connections() -> None:
    """However many connections share the flood; those that reset little go on, and the next second is new."""
    now = [1.0]
    peer = IdleFrames()
    flooding = [Watch(lambda: now[0], peer) for _ in range(200)]
    good = Watch(lambda: now[0], peer)
    reset = h2.frame(h2.RST_STREAM, 0, 1, bytes(4))
    for watch in (*flooding, good):
        watch.feed(PREFACE)
    ended: set[Watch] = set()
    for _ in range(600):
        for watch in flooding:
            if watch not in ended:
                try:
                    watch.feed(reset)
                except Http2Error:
                    ended.add(watch)
    assert len(ended) == 200
    for _ in range(IDLE_FRAMES_OF_GOOD):
        good.feed(reset)
    now[0] += 1
    good.feed(reset * (IDLE_FRAMES_OF_GOOD + 1))


def test_an_address_below_its_bound_resets_at_will() -> None:
    """Connections that cancel many calls live as before while the address has few of them."""
    peer = IdleFrames()
    for _ in range(MAX_IDLE_FRAMES_PER_PEER // MAX_IDLE_FRAMES):
        watch = Watch(lambda: 1.0, peer)
        watch.feed(PREFACE + h2.frame(h2.PING, 0, 0, bytes(8)) * MAX_IDLE_FRAMES)
