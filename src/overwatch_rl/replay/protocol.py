"""What client and server of `replay.v1` share beside its messages: methods, metadata, limits."""

from typing import Any, Final

from google.protobuf.message import Message

from overwatch_rl.protos.replay.v1 import replay_pb2 as pb

SERVICE: Final = pb.DESCRIPTOR.services_by_name["Replay"]
STREAM: Final = "SampleStream"
UNARY_NAMES: Final = tuple(method.name for method in SERVICE.methods if method.name != STREAM)
RETRY_AFTER: Final = "retry-after-ms"
"""Trailing metadata of RESOURCE_EXHAUSTED where to ask again helps."""
WAITED_FOR: Final = "waited-for"
"""Trailing metadata of DEADLINE_EXCEEDED: `limiter`, or `steps` that were too few."""
MOST_BYTES: Final = 64 << 20
"""Of one message, unless a server is given another limit."""
_FRAME_BYTES: Final = (1 << 24) - 1
"""HTTP/2's largest frame: small ones cost more than their copies."""


def options(most_bytes: int) -> list[tuple[str, Any]]:
    """Of channels and servers whose messages have at most so many bytes."""
    return [
        ("grpc.max_receive_message_length", most_bytes),
        ("grpc.max_send_message_length", most_bytes),
        ("grpc.http2.max_frame_size", _FRAME_BYTES),
    ]


def request_of(method: str) -> type[Message]:
    """The class of a method's requests."""
    made: type[Message] = getattr(pb, SERVICE.methods_by_name[method].input_type.name)
    return made


def answer_of(method: str) -> type[Message]:
    """The class of a method's answers."""
    made: type[Message] = getattr(pb, SERVICE.methods_by_name[method].output_type.name)
    return made
