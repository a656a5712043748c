"""What updates say of each name: read all at once with NumPy, or one by one without it."""

import math
import struct
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overwatch.sdk.rings.layout import Kind
from overwatch.sdk.rings.records import spans
from overwatch.sdk.rings.writer import Entry


def updates(rows: list[list[float]]) -> list[Entry]:
    """Rows as records of one form."""
    return [Entry(kind=Kind.UPDATE, at=i, payload=msgspec.msgpack.encode(row)) for i, row in enumerate(rows)]


def exact(values: list[float]) -> list[bytes]:
    """Values by their bits, any NaN as any other."""
    return [b"nan" if math.isnan(value) else struct.pack("<d", value + 0.0) for value in values]


@given(
    st.integers(1, 20).flatmap(
        lambda names: st.lists(
            st.lists(st.floats(width=64), min_size=names, max_size=names), min_size=1, max_size=30
        )
    )
)
def test_read_at_once_is_as_read_one_by_one(rows: list[list[float]]) -> None:
    """Both ways say the same of every name, also of 16 names and of what is not finite."""
    entries = updates(rows)
    at_once = spans(entries, len(rows[0]))
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(sys.modules, "numpy")
        one_by_one = spans(entries, len(rows[0]))
    for one, other in zip(at_once, one_by_one, strict=True):
        assert exact(list(one.values)) == exact(list(other.values))
        extremes = [[found for found in (span.low, span.high) if found is not None] for span in (one, other)]
        assert exact(extremes[0]) == exact(extremes[1])
        assert exact([one.last]) == exact([other.last])
        assert (one.n, one.nan, one.inf) == (other.n, other.nan, other.inf)
