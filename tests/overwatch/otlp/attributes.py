"""Attributes as protobuf's own messages, to hold Overwatch's encoder and decoder against."""

from collections.abc import Mapping

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList

from overwatch.otlp.value import Value


def to_any(value: Value) -> AnyValue:
    """The AnyValue of a plain value; raises `ValueError` on an integer beyond 64 bits or a lone surrogate."""
    if value is None:
        return AnyValue()
    if isinstance(value, str):
        return AnyValue(string_value=value)
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, bytes):
        return AnyValue(bytes_value=value)
    if isinstance(value, Mapping):
        return AnyValue(kvlist_value=KeyValueList(values=to_pairs(value)))
    return AnyValue(array_value=ArrayValue(values=[to_any(item) for item in value]))


def to_pairs(values: Mapping[str, Value]) -> list[KeyValue]:
    """Attributes as key-value messages, in the mapping's order."""
    return [KeyValue(key=key, value=to_any(value)) for key, value in values.items()]
