"""Requests of many facts: those of known shapes are read many at once, the others by the general path.

Rules: gives exactly what the general path would, or nothing. What is learned is bounded, and learned by who
is in no hurry. Must not know what a fact means.
"""

from typing import Final, NamedTuple

from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.resource.v1.resource_pb2 import Resource as ResourceMessage

from overwatch.events import Origin
from overwatch.otlp.decode import LogGathering, Spoken
from overwatch.otlp.fact_template import learn_fact
from overwatch.otlp.frames import OddError, Place, framed, messages
from overwatch.otlp.groups import LEAST, Groups
from overwatch.otlp.origin import Resource, resource_of, run_id_in, scope_name_of, with_run
from overwatch.otlp.result import Decoded, RejectedError, Rest

LARGEST_BYTES: Final = 4 << 20
"""Larger requests are left to the general path, which may refuse them."""


class _Scope(NamedTuple):
    """Records of one scope."""

    resource: Resource
    name: str
    places: list[Place]


class FactTemplates:
    """Reads facts; remembers shapes. Safe from any thread."""

    def __init__(self) -> None:
        self._groups: Groups[Spoken] = Groups(learn_fact)

    @property
    def learned(self) -> int:
        """Templates made so far."""
        return self._groups.learned

    def read(self, body: bytes, rest: Rest = None) -> Decoded | None:
        """As `decode` reads it, where templates can read some of its facts; else `None`. May `rest`."""
        if len(body) > LARGEST_BYTES:
            return None
        try:
            scopes = _scopes(body)
            places = [place for scope in scopes for place in scope.places]
            said = self._groups.read(body, places, rest) if len(places) >= LEAST else None
            return _gathered(body, scopes, said, rest) if said else None
        except (OddError, DecodeError, RejectedError):
            return None

    def learn(self) -> None:
        """Learn the shapes that pay of what was strange: as much work as some parsing."""
        self._groups.learn()


def _scopes(body: bytes) -> list[_Scope]:
    """The scopes of a request; raises `OddError`, or `DecodeError` where its frame is no message."""
    found = []
    for start, stop in messages(body, 0, len(body)):
        head, scopes, schema = framed(body, start, stop)
        resource = resource_of(ResourceMessage.FromString(head or b""))
        _checked(schema)
        for begin, end in scopes:
            head, places, schema = framed(body, begin, end)
            name = scope_name_of(InstrumentationScope.FromString(head or b""))
            _checked(schema)
            found.append(_Scope(resource, name, places))
    return found


def _checked(schema: bytes) -> None:
    if not schema.isascii():
        raise OddError


def _gathered(body: bytes, scopes: list[_Scope], said: dict[int, Spoken], rest: Rest) -> Decoded:
    """All records in their order; raises `DecodeError`, `RejectedError`."""
    gathering = LogGathering()
    for scope in scopes:
        origins: dict[str | None, Origin | None] = {}
        for start, stop in scope.places:
            one = said.get(start)
            if one is None:
                if rest is not None:
                    rest()
                gathering.add(scope.resource, scope.name, LogRecord.FromString(body[start:stop]))
                continue
            if one.run_id not in origins:
                run_id = run_id_in(scope.resource, one.run_id)
                origins[one.run_id] = None if run_id is None else with_run(scope.resource, run_id)
            gathering.add_said(origins[one.run_id], one)
    return gathering.result()
