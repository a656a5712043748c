"""What a request is: which signal it is of and the newest time in it, without reading the rest.

For files of other programs, which name neither. Of OTLP/JSON nothing but times is looked for, so that it
costs little more than finding the ends of the values; protobuf bytes do not show their kind, so the signal
is the one whose messages leave nothing unexplained. Must not know where the bytes lie.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from overwatch.journal import Signal
from overwatch.otlp import wire
from overwatch.otlp.result import can_be


class RequestKind(NamedTuple):
    """What a request is."""

    signal: Signal
    newest: int | None
    """Unix nanoseconds; `None` where no time is in it."""


class _Line(msgspec.Struct, rename="camel"):
    """An object of OTLP/JSON: one request or several, each a list."""

    resource_logs: msgspec.Raw = msgspec.Raw(b"null")
    resource_metrics: msgspec.Raw = msgspec.Raw(b"null")
    resource_spans: msgspec.Raw = msgspec.Raw(b"null")


_TIMES: Final = {
    Signal.LOGS: ("time_unix_nano", "observed_time_unix_nano"),
    Signal.METRICS: ("time_unix_nano",),
    Signal.TRACES: ("end_time_unix_nano", "start_time_unix_nano"),
}
"""The times of an item; the second counts where no item has the first."""
_decoder: Final = msgspec.json.Decoder(_Line)


def sniff(data: bytes) -> tuple[RequestKind, ...]:
    """Of a request in JSON or protobuf; none where it is none. Raises `ValueError` for what is no JSON."""
    if is_json(data):
        return _sniff_json(data)
    found = _sniff_protobuf(data)
    return () if found is None else (found,)


def is_json(data: bytes) -> bool:
    """Whether bytes are no protobuf: that begins with the tag of its first field, never with a brace."""
    return data[:1] != b"\n"


def _sniff_json(text: bytes) -> tuple[RequestKind, ...]:
    """Of one object of OTLP/JSON, a request a signal."""
    try:
        line = _decoder.decode(text)
    except RecursionError as error:
        raise ValueError(str(error)) from None
    requests = ((signal, bytes(getattr(line, path[0]))) for signal, path in wire.ITEMS.items())
    return tuple(
        RequestKind(signal, _newest(_written_times(field, request) for field in _TIMES[signal]))
        for signal, request in requests
        if request.startswith(b"[")
    )


def _sniff_protobuf(body: bytes) -> RequestKind | None:
    """Of protobuf bytes; `None` where they are no request of any signal."""
    found: list[RequestKind] = []
    for signal, path in wire.ITEMS.items():
        try:
            message = wire.parse(signal, body)
        except wire.MalformedBody:
            continue
        if _is_explained(message, path):
            items = [timed for item in wire.items_in(message, path) for timed in _timed(item)]
            newest = _newest((getattr(item, field) for item in items) for field in _TIMES[signal])
            found.append(RequestKind(signal, newest))
    return max(found, key=lambda one: one.newest is not None, default=None)


def _newest(times: Iterable[Iterable[int]]) -> int | None:
    """The newest time of the first field that has any."""
    newest = (max(filter(can_be, of_field), default=None) for of_field in times)
    return next((time for time in newest if time is not None), None)


def _written_times(field: str, request: bytes) -> Iterator[int]:
    """The values of a field in OTLP/JSON: numbers, or text of numbers. No other text holds a bare quote."""
    first, *words = field.split("_")
    name = first + "".join(word.capitalize() for word in words)
    return map(int, re.findall(rb'"%b"\s*:\s*"?([0-9]{1,20})\b' % name.encode(), request))


def _is_explained(message: Message, path: tuple[str, ...]) -> bool:
    """Whether nothing is left over in the first item and in what it lies in."""
    parts = [message]
    for name in path:
        inside = getattr(parts[-1], name)
        if not inside:
            break
        parts.append(inside[0])
    return len(parts) > 1 and not any(len(UnknownFieldSet(part)) for part in parts)


def _timed(item: Message) -> Iterable[Message]:
    """The messages of an item that have times: of a metric its points."""
    if not isinstance(item, Metric):
        return (item,)
    kind = item.WhichOneof("data")
    return () if kind is None else getattr(item, kind).data_points
