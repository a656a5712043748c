"""What a checksum finds, of a whole payload and of both ends."""

import msgspec
import numpy as np
import pytest

from overwatch.sdk.rings.layout import PRIME, WHOLE, checksum, seed, summing

LENGTHS = [1, 40, 109, 256, 257, 1000, WHOLE, WHOLE + 1, 50_000]


@pytest.mark.parametrize("length", LENGTHS)
def test_written_functions_sum_as_the_reader_does(length: int) -> None:
    """Up to each length and above it."""
    data = np.random.default_rng(length).bytes(length)
    assert summing(length)(data, 12345) == checksum(data, 12345)


@pytest.mark.parametrize("length", [length for length in LENGTHS if length <= WHOLE])
def test_a_changed_byte_changes_the_sum(length: int) -> None:
    """Wherever it is, and whatever it becomes."""
    data = bytearray(np.random.default_rng(length).bytes(length))
    right = checksum(bytes(data), 7)
    for place in range(length):
        was = data[place]
        for new in {was ^ 1, was ^ 128, 0, 255} - {was}:
            data[place] = new
            assert checksum(bytes(data), 7) != right
        data[place] = was


def test_an_update_that_was_copied_in_part_is_found() -> None:
    """Numbers up to any byte, and from there on those that lay in the same place before."""
    random = np.random.default_rng(0)
    for _ in range(300):
        now, before = (msgspec.msgpack.encode(tuple(random.normal(size=12).tolist())) for _ in range(2))
        right = checksum(now, 7)
        for cut in range(1, len(now)):
            torn = now[:cut] + before[cut:]
            assert torn == now or checksum(torn, 7) != right


def test_a_change_of_the_head_changes_the_sum() -> None:
    """Another moment, number or tag, each by itself, is another start that any payload carries on."""
    start = seed(1_790_000_000_000_000_000, 5, 0x102)
    for other in (
        seed(1_790_000_000_000_000_001, 5, 0x102),
        seed(1_790_000_000_000_000_000, 6, 0x102),
        seed(1_790_000_000_000_000_000, 5, 0x102 | 1 << 16),
        seed(1_790_000_000_000_000_000, 5, 0x102 | 1 << 32),
    ):
        assert other != start
        for length in LENGTHS:
            data = np.random.default_rng(length).bytes(length)
            assert checksum(data, other) != checksum(data, start)
    assert PRIME < 1 << 30, "one digit of Python's"
