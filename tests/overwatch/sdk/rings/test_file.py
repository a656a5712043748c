"""What a checksum finds, of a whole payload and of both ends."""

import msgspec
import numpy as np
import pytest

from overwatch.sdk.rings.file import WHOLE, Kind, checksum, tag

LENGTHS = [1, 40, 109, 256, 257, 1000, WHOLE, WHOLE + 1, 50_000]


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


def test_another_tag_changes_the_sum() -> None:
    """Another kind or form is another start, which any payload carries on."""
    start = tag(Kind.UPDATE, 5)
    for other in (tag(Kind.COLUMNS, 5), tag(Kind.UPDATE, 6), tag(Kind.UPDATE, 8192)):
        assert other < 1 << 32
        for length in LENGTHS:
            data = np.random.default_rng(length).bytes(length)
            assert checksum(data, other) != checksum(data, start)
