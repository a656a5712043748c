"""Random protobuf messages of any type, by their descriptors: valid to the parser, senseless to a reader."""

import math

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

from overwatch.catalog import BY_NAME
from overwatch.otlp import wire

_KNOWN = st.sampled_from(
    sorted(BY_NAME) + sorted(wire.BY_EVENT_NAME) + [
        wire.RUN_ID, wire.SEQ, wire.SCOPE, wire.INDEX, wire.ENV_ID, wire.SLOT_ID, wire.LANE_ID, wire.DISTRO,
        "overwatch", "env", "policy", "keys", "values", "dtype", "data", "labels", "<f8", "<i4", "env_id",
    ]
)  # fmt: skip
_TEXTS = _KNOWN | st.text(max_size=5)
_VALUES = {
    FieldDescriptor.CPPTYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT32: st.integers(0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: st.integers(0, 2**64 - 1),
    FieldDescriptor.CPPTYPE_ENUM: st.integers(0, 24),
    FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
    FieldDescriptor.CPPTYPE_DOUBLE: st.floats().map(lambda value: math.nan if math.isnan(value) else value),
}
"""JSON has one NaN: no sign, no payload."""


@st.composite
def messages(draw: st.DrawFn, descriptor: Descriptor, depth: int = 14) -> Message:
    """A message with any of its fields set, nested up to `depth`."""
    message: Message = GetMessageClass(descriptor)()
    names = [field.name for field in descriptor.fields]
    for name in draw(st.lists(st.sampled_from(names), unique=True, max_size=4)) if names else ():
        field = descriptor.fields_by_name[name]
        if field.cpp_type != FieldDescriptor.CPPTYPE_MESSAGE:
            _set(draw, message, field)
        elif depth > 0:
            times = draw(st.integers(0, 2)) if field.is_repeated else 1
            target = getattr(message, name)
            for _ in range(times):
                child = draw(messages(field.message_type, depth - 1))
                (target.add() if field.is_repeated else target).CopyFrom(child)
    return message


def _set(draw: st.DrawFn, message: Message, field: FieldDescriptor) -> None:
    values = _VALUES.get(field.cpp_type, _TEXTS)
    if field.type == FieldDescriptor.TYPE_BYTES:
        values = st.binary(max_size=16)
    if field.is_repeated:
        getattr(message, field.name).extend(draw(st.lists(values, max_size=3)))
    else:
        setattr(message, field.name, draw(values))
