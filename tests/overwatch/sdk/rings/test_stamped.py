"""An update in one piece is read as it was written, or not at all."""

import msgspec
import pytest

from overwatch.sdk.rings.layout import Kind, summing, tag
from overwatch.sdk.rings.stamped import Opened, opened, room, start

AT = 1_790_000_000_000_000_000
INDICES = [
    None, 0, 5, 127, 128, 255, 256, 65_535, 65_536, 1 << 32, (1 << 63) - 1,
    -1, -32, -33, -129, -40_000, -(1 << 63),
]  # fmt: skip


def payload_of(numbers: tuple[float, ...], index: int | None) -> tuple[bytes, int, int]:
    """Payload as it lies in a ring, tag, and sum."""
    which = tag(int(Kind.STAMPED), 8, len(numbers))
    data = msgspec.msgpack.encode((*numbers, AT, index))
    found = summing(room(len(numbers)))(data, start(which))
    return data.ljust(room(len(numbers)), b"\0"), which, found


@pytest.mark.parametrize("names", [1, 12, 13, 14, 15, 16, 64])
@pytest.mark.parametrize("index", INDICES)
def test_what_was_written_is_read(names: int, index: int | None) -> None:
    """Any count of numbers and any index: the numbers are a msgpack array of their own."""
    numbers = tuple(0.5 + i for i in range(names))
    payload, which, found = payload_of(numbers, index)
    assert opened(payload, names, which, found) == Opened(msgspec.msgpack.encode(numbers), AT, index)


def test_an_index_that_no_64_bits_hold_takes_nothing_else_along() -> None:
    """The numbers are there, without an index."""
    payload, which, found = payload_of((0.5,), (1 << 64) - 1)
    assert opened(payload, 1, which, found) == Opened(msgspec.msgpack.encode((0.5,)), AT, None)


def test_a_changed_byte_is_found() -> None:
    """Of numbers, moment and index, whatever it becomes; and of the sum, and of the tag."""
    payload, which, found = payload_of((0.5,) * 12, 70_000)
    length = len(msgspec.msgpack.encode((*(0.5,) * 12, AT, 70_000)))
    for place in range(length):
        for new in {payload[place] ^ 1, payload[place] ^ 128, 0, 255} - {payload[place]}:
            assert opened(payload[:place] + bytes([new]) + payload[place + 1 :], 12, which, found) is None
    assert opened(payload, 12, which, found ^ 1) is None
    assert opened(payload, 12, which ^ 1 << 16, found) is None


@pytest.mark.parametrize("names", [0, 1, 11, 13, 1 << 16])
def test_another_count_of_numbers_is_no_such_update(names: int) -> None:
    """The head says how many there are; a head that lies is not believed."""
    payload, which, found = payload_of((0.5,) * 12, 7)
    assert opened(payload, names, which, found) is None


def test_a_short_index_is_summed_as_the_longest_would_be() -> None:
    """Which sum it is hangs on the room for a payload, and not on what is used of it."""
    for names in (*range(1, 40), 453, 454, 455):
        payload, which, found = payload_of((0.5,) * names, None)
        assert opened(payload, names, which, found) is not None
