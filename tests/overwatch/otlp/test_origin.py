"""Attributes as plain values."""

import math

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from overwatch.otlp.origin import values_of
from overwatch.otlp.value import Value, to_any, to_python
from tests.overwatch.otlp.strategies import INTS, WORDS

PLAIN: st.SearchStrategy[Value] = st.one_of(
    st.none(), WORDS, st.booleans(), INTS, st.floats(), st.binary(max_size=4),
    st.sampled_from(["", 0, 0.0, -0.0, False, b"", math.nan]),
)  # fmt: skip
VALUES = st.recursive(
    PLAIN, lambda below: st.lists(below, max_size=3) | st.dictionaries(WORDS, below, max_size=3)
)


@given(st.lists(st.tuples(st.sampled_from("abc"), VALUES.map(to_any)), max_size=6))
def test_the_last_value_of_each_name_is_read_with_its_kind(told: list[tuple[str, AnyValue]]) -> None:
    """As one by one: nothing empty is taken for another kind, no zero loses its sign."""
    expected: dict[str, Value] = {}
    for name, value in told:
        expected[name] = to_python(value)
    assert repr(values_of(KeyValue(key=name, value=value) for name, value in told)) == repr(expected)
