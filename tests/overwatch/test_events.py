"""Events are well formed once they exist, and survive a trip through bytes."""

import math

import msgspec
import numpy as np
import pytest

from overwatch.catalog import Scope
from overwatch.events import Column, Event, Measured, scalars


def test_a_scalar_column_is_one_double() -> None:
    """A scalar keeps every bit, NaN included."""
    assert Column.scalar(0.1).first() == 0.1
    assert math.isnan(Column.scalar(math.nan).first())
    assert len(Column.scalar(1.0)) == 1


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1.5, 2.5], "<f8"),
        (np.array([1, 2], dtype=np.float32), "<f4"),
        (np.array([1, 2], dtype=">i4"), "<i4"),
        (np.array([True, False]), "|u1"),
        (np.array([1, 2], dtype=np.float16), "<f8"),
        (np.array([1, 2], dtype=np.uint64), "<i8"),
        ([3, 4], "<i8"),
    ],
)
def test_a_column_keeps_values_and_a_supported_width(values: object, dtype: str) -> None:
    """Any array of one dimension becomes a little-endian column with the same values."""
    column = Column.of(values)  # type: ignore[arg-type]  # the point of the test

    assert column.dtype == dtype
    np.testing.assert_array_equal(column.array(), np.asarray(values))


def test_words_are_dictionary_coded() -> None:
    """Repeated words cost one label, and absent ones stay absent."""
    column = Column.of_labels(["b", None, "b", "a"])

    assert column.labels == ("b", "a")
    assert column.words() == ["b", None, "b", "a"]


@pytest.mark.parametrize(
    ("fields", "stated"),
    [
        ({"dtype": "<c16", "data": b""}, "'<c16' is not supported"),
        ({"dtype": "<f8", "data": b"123"}, "3 bytes"),
        ({"dtype": "<i4", "data": b"\x05\0\0\0", "labels": ("a",)}, "label index 5"),
        ({"dtype": "<f8", "data": b"", "labels": ("a",)}, "holds integers"),
    ],
)
def test_a_malformed_column_states_what_is_wrong(fields: dict[str, object], stated: str) -> None:
    """Errors name the offending value."""
    with pytest.raises(ValueError, match=stated):
        Column(**fields)  # type: ignore[arg-type]  # the point of the test


def test_columns_of_one_measurement_have_one_length() -> None:
    """Columns that differ in length cannot be rows."""
    with pytest.raises(ValueError, match="env_id=2, a=1"):
        Measured(at=1, scope=Scope.ENV, keys={"env_id": Column.of([1, 2])}, values=scalars({"a": 1.0}))


def test_env_numbers_need_to_name_their_envs() -> None:
    """A measurement of envs without env ids is refused."""
    with pytest.raises(ValueError, match="needs keys: env_id"):
        Measured(at=1, scope=Scope.ENV, values=scalars({"a": 1.0}))


def test_an_event_survives_a_trip_through_bytes() -> None:
    """MessagePack and back gives an equal event of the same kind."""
    event = Measured(at=5, scope=Scope.POLICY, values=scalars({"a": 1.0}), index=3)

    assert msgspec.msgpack.decode(msgspec.msgpack.encode(event), type=Event) == event
