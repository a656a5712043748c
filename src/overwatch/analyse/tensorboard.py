"""A run as a TensorBoard event file, written without TensorBoard: TFRecords of `Event` messages.

A record is its length, a masked CRC-32C of that, the message, a masked CRC-32C of it. Of a message: wall time
(field 1), step (2), and as its first the file version (3), then summaries (5) of a tag and a plain value.
The step of a policy's number is the update, that of a machine's the second of the run.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from overwatch.analyse.curves import Curve
from overwatch.analyse.samples import Series, samples, series
from overwatch.analyse.source import AnalyseError
from overwatch.analyse.story import Story
from overwatch.analyse.whole import whole
from overwatch.otlp.protobuf import varint

_POLYNOMIAL: Final = 0x82F63B78
_MASK: Final = 0xA282EAD8
_VERSION: Final = b"brain.Event:2"


def write_events(story: Story, out: Path) -> int:
    """Write one event file into a folder, which is a run of TensorBoard's; returns how many values it has.

    A file of this run that is there already is replaced. Raises `AnalyseError` for what is no folder.
    """
    if str(out) == "-" or (out.exists() and not out.is_dir()):
        raise AnalyseError(f"tensorboard needs a folder of its own; {out} is none")
    file = out / f"events.out.tfevents.{int(story.began)}.overwatch"
    values = 0
    with whole(file) as part, part.open("wb") as stream:
        stream.write(record(_double(1, story.began) + _bytes(3, _VERSION)))
        for time, step, told in _moments(story):
            pairs = (_bytes(1, tag.encode()) + _float(2, value) for tag, value in told)
            summary = b"".join(_bytes(1, pair) for pair in pairs)
            stream.write(record(_double(1, time) + _number(2, step) + _bytes(5, summary)))
            values += len(told)
    return values


def _moments(story: Story) -> Iterator[tuple[float, int, list[tuple[str, float]]]]:
    """Time, step and values that share them, in order of time."""
    told: dict[tuple[float, int], list[tuple[str, float]]] = {}
    policy = {id(curve) for curve in story.curves.policy.values()}
    for one in series(story):
        tag = _tag(one)
        for sample in samples(story, one):
            if sample.value is not None:
                step = sample.update if id(one.curve) in policy else sample.at
                told.setdefault((sample.time, max(0, round(step))), []).append((tag, sample.value))
    for time, step in sorted(told):
        yield time, step, told[time, step]


def _tag(one: Series) -> str:
    """`policy/kl_divergence`, `gpu/utilization/gpu0`: grouped by what stands before the first bar."""
    curve: Curve = one.curve
    return "/".join(word for word in (curve.scope.value, curve.name, curve.subject) if word)


def record(message: bytes) -> bytes:
    """One TFRecord."""
    length = struct.pack("<Q", len(message))
    return length + _masked(length) + message + _masked(message)


def _masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + _MASK) & 0xFFFFFFFF)


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _row(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


_TABLE: Final = tuple(map(_row, range(256)))


def _number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def _double(field: int, value: float) -> bytes:
    return varint(field << 3 | 1) + struct.pack("<d", value)


def _float(field: int, value: float) -> bytes:
    """As a float of four bytes; what is too large for one is infinite."""
    limit = 3.4028234663852886e38
    short = value if abs(value) <= limit else float("inf") if value > 0 else float("-inf")
    return varint(field << 3 | 5) + struct.pack("<f", short)


def _bytes(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value
