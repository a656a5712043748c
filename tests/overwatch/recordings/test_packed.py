"""Packed lines: any offset can be read, any zstd reader sees the plain stream, damage is reported."""

import random
from pathlib import Path

import pytest
import zstandard

from overwatch.recordings.packed import LineWriter, PackedReader, unpacked


def _lines(count: int, size: int) -> list[bytes]:
    chance = random.Random(count)  # noqa: S311 a test's own bytes
    return [chance.randbytes(chance.randrange(1, size)).hex().encode() for _ in range(count)]


def _packed(path: Path, lines: list[bytes]) -> list[int]:
    writer = LineWriter(path, is_packed=True)
    offsets = [writer.append(line) for line in lines]
    assert writer.close() == path.stat().st_size
    return offsets


@pytest.mark.parametrize(("count", "size"), [(0, 2), (1, 2), (3000, 1000), (4, 3_000_000)])
def test_every_line_is_found_at_its_offset(tmp_path: Path, count: int, size: int) -> None:
    """Offsets are those of the plain stream, whatever frame a line lies in."""
    lines = _lines(count, size)
    offsets = _packed(tmp_path / "a.zst", lines)
    reader = PackedReader(tmp_path / "a.zst")

    for place in random.Random(1).sample(range(count), min(count, 300)):  # noqa: S311 as above
        assert reader.read(offsets[place], len(lines[place])) == lines[place]
    assert reader.read(offsets[-1] + (1 << 40) if offsets else 0, 10) == b""


def test_other_readers_see_one_plain_stream(tmp_path: Path) -> None:
    """The table at the end is a frame that is skipped."""
    lines = _lines(3000, 1000)
    _packed(tmp_path / "a.zst", lines)
    plain = b"".join(line + b"\n" for line in lines)

    with (tmp_path / "a.zst").open("rb") as file:
        stream = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        assert stream.read(-1) == plain
        file.seek(0)
        assert b"".join(unpacked(file, tmp_path)) == plain


def test_a_file_that_was_cut_is_reported(tmp_path: Path) -> None:
    """At whatever byte it ends, it is an error and nothing else."""
    path = tmp_path / "a.zst"
    _packed(path, _lines(20, 100))
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(OSError, match="damaged"):
            PackedReader(path)


def test_a_frame_that_was_altered_is_reported(tmp_path: Path) -> None:
    """Bytes that are no zstd are an error when they are read."""
    path = tmp_path / "a.zst"
    _packed(path, _lines(20, 100))
    whole = bytearray(path.read_bytes())
    whole[:8] = bytes(8)
    path.write_bytes(whole)
    reader = PackedReader(path)

    with pytest.raises(OSError, match="damaged"):
        reader.read(0, 10)
