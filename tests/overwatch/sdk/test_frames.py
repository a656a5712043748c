"""The stream between trainer and exporter, however it is cut."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overwatch.sdk.frames import Dropped, FrameError, FrameReader, Update, encode
from tests.overwatch.otlp.strategies import EVENTS


@settings(deadline=None)
@given(st.lists(EVENTS, max_size=4), st.integers(1, 50))
def test_frames_survive_any_cut(events: list[object], step: int) -> None:
    """Byte by byte or at once: the same frames."""
    stream = b"".join(encode(event) for event in events)
    reader = FrameReader()
    found = [
        frame
        for start in range(0, len(stream), step)
        for frame, _ in reader.feed(stream[start : start + step])
    ]
    assert [encode(frame) for frame in found] == [encode(event) for event in events]


def test_a_malformed_frame_is_counted_and_its_neighbours_live() -> None:
    """Nonsense within a frame harms that frame alone."""
    reader = FrameReader()
    stream = encode(Dropped(total=1)) + b"\x03\0\0\0abc" + encode(Dropped(total=2))
    assert [frame for frame, _ in reader.feed(stream)] == [Dropped(total=1), Dropped(total=2)]
    assert reader.malformed == 1


def test_a_wild_length_ends_the_stream() -> None:
    """A frame of four gigabytes is no frame."""
    with pytest.raises(FrameError, match="longer"):
        FrameReader().feed(b"\xff\xff\xff\xff")


def test_numbers_keep_what_is_not_finite() -> None:
    """NaN and infinities cross the pipe."""
    ((frame, _),) = FrameReader().feed(encode(Update(at=1, values={"a": math.nan, "b": -math.inf})))
    assert isinstance(frame, Update)
    assert math.isnan(frame.values["a"])
    assert frame.values["b"] == -math.inf
