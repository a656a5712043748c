"""Small files that unpack to much more than any recording: refused early, whatever they are taken for."""

import gzip
import io
from functools import cache
from pathlib import Path

import pytest
import zstandard

from overwatch.recordings.packed import unpacked
from overwatch.recordings.stored import StoredFile
from tests.overwatch.simulate.runs import overwatch

_MIB = 1 << 20


@cache
def _bomb(mebibytes: int, filler: bytes = b"\0", level: int = 19) -> bytes:
    packed = io.BytesIO()
    with zstandard.ZstdCompressor(level=level).stream_writer(packed, closefd=False) as stream:
        for _ in range(mebibytes):
            stream.write(filler * (_MIB // len(filler)))
    return packed.getvalue()


@pytest.mark.parametrize("filler", [b"\0", b" ", b"\n", b"{}", b"{}\n"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_bomb_is_refused_as_soon_as_it_is_one(tmp_path: Path, filler: bytes, times: int) -> None:
    """Packed once or within itself, of whatever it is made."""
    data = _bomb(256, filler)
    for _ in range(times - 1):
        data = zstandard.compress(data)
    path = tmp_path / "bomb"
    path.write_bytes(data)

    with pytest.raises(OSError, match="unpacks to more than 8,192 times its size") as caught:
        StoredFile(path)
    assert caught.value.filename == str(path)


def test_commands_name_the_file(tmp_path: Path) -> None:
    """And that it is damaged, alone and in a folder."""
    path = tmp_path / "bomb.jsonl.zst"
    path.write_bytes(_bomb(256))
    for place in (path, tmp_path):
        result = overwatch("replay", place)
        assert result.exit_code != 0
        assert str(path) in result.stderr
        assert "8,192 times its size" in result.stderr


def test_an_index_that_is_a_bomb_is_damaged(tmp_path: Path) -> None:
    """Of one long line, or of many."""
    for filler, why in ((b"\0", "a line of more than"), (b"x" * 1023 + b"\n", "times its size")):
        (tmp_path / "index").write_bytes(_bomb(256, filler))
        with pytest.raises(OSError, match=why), (tmp_path / "index").open("rb") as file:
            sum(map(len, unpacked(file, tmp_path)))


def test_a_message_that_is_a_bomb_stays_small(tmp_path: Path) -> None:
    """Each is unpacked to a bounded part of what it may be."""
    message = _bomb(16)
    (tmp_path / "messages").write_bytes((len(message).to_bytes(4, "big") + message) * 8)
    parts = list(StoredFile(tmp_path / "messages").parts())

    assert len(parts) == 8
    assert sum(len(part.data or b"") for part in parts) <= 8 * (_MIB + 8192 * len(message))


def test_what_repeats_as_no_recording_does_is_read(tmp_path: Path) -> None:
    """A line of 100 kB again and again, but for its time, packed as well as can be; gzip cannot be a bomb."""
    text = '"x":"' + "".join(f"{number * 7919 % 1000:03}" for number in range(33_000)) + '"'
    lines = "".join(f'{{"time":{second},{text}}}\n' for second in range(800)).encode()
    parameters = zstandard.ZstdCompressionParameters.from_level(19, window_log=27, enable_ldm=True)
    packed = zstandard.ZstdCompressor(compression_params=parameters).compress(lines)
    (tmp_path / "zstd").write_bytes(packed)
    (tmp_path / "gzip").write_bytes(gzip.compress(bytes(96 * _MIB)))

    assert len(lines) > 1000 * len(packed)
    assert StoredFile(tmp_path / "zstd").size() == len(lines)
    assert StoredFile(tmp_path / "gzip").size() == 96 * _MIB
