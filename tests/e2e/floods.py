"""Floods against a collector, each made ready beforehand, so that what floods takes little of the machine.

They run in a process of their own: `get_ready` there, then `go`.
"""

import asyncio
import os
import resource
import time
from collections.abc import Callable
from itertools import repeat
from typing import Final, NamedTuple, TypeAlias

from overwatch.events import EnvCrashed, Origin, Record
from overwatch.otlp.encode import request
from tests.e2e.flooding import (
    bomb,
    empty_attributes,
    flood,
    label_values,
    named_attributes,
    senders,
    slow_connections,
)

PARTS: Final = 2
"""Parts that a flood comes in."""
SLOW_S: Final = 5.0
OVERLOAD_S: Final = 10.0
CAPACITY: Final = 25_000
"""Events that a collector takes a second, about; an overload is five times as much."""

Going: TypeAlias = Callable[[], str]
"""Floods; reports what came of it."""
Flood: TypeAlias = Callable[[str, int], Going]
"""Makes a part of a flood against a URL ready."""


class Came(NamedTuple):
    """What came of a part of a flood."""

    stated: str
    took_s: float
    cpu_s: float
    """What the flood itself took of the machine."""


def million_label_values(url: str, part: int) -> Going:
    """A million names of slots and users, 5,000 a request."""
    each = 1_000_000 // PARTS
    bodies = list(label_values(part * each, each, 5_000))
    return lambda: str(flood(url, "/v1/metrics", iter(bodies), 2))


def gzip_bomb(url: str, part: int) -> Going:
    """A GiB of zeros in a MiB, several times at once; each is refused."""
    packed = bomb(1)

    def go() -> str:
        answers = flood(url, "/v1/logs", repeat(packed, 240), 4, **{"Content-Encoding": "gzip"})
        assert not answers.statuses[200]
        return f"part {part}: {answers}"

    return go


def ten_million_attributes(url: str, part: int) -> Going:
    """Ten million empty attributes: in bodies beyond the most elements, and in some just below."""
    beyond, below = empty_attributes(2_000_000), empty_attributes(500_000)

    def go() -> str:
        refused = flood(url, "/v1/logs", repeat(beyond, 10 // PARTS), 2)
        assert not refused.statuses[200]
        return f"part {part}: {refused}, then {flood(url, '/v1/logs', repeat(below, 20 // PARTS), 2)}"

    return go


def five_million_names(url: str, part: int) -> Going:
    """Attributes that all have another name, as many as a body may hold."""
    body = named_attributes(250_000)

    def go() -> str:
        answers = flood(url, "/v1/logs", repeat(body, 20 // PARTS), 2)
        assert set(answers.statuses) <= {200, 503}
        return f"part {part}: {answers}"

    return go


def thousand_slow_connections(url: str, part: int) -> Going:
    """A thousand connections that never finish a header; each is cut."""

    def go() -> str:
        with slow_connections(url, 1000) as connections:
            time.sleep(SLOW_S)
            return f"part {part}: {len(connections)} connections"

    return go


def overload(url: str, part: int) -> Going:
    """Five times as much as a collector takes, of senders that do not heed what they are answered."""
    origin = Origin(run_id=f"load-{part}", epoch="1", ours=True)
    at, count, each = time.time_ns(), 200, 100
    crashes = [EnvCrashed(at=at, env_id=number % 64, error="boom") for number in range(each)]
    body = request([Record(origin=origin, event=e, seq=n) for n, e in enumerate(crashes, 1)], {})
    pace_s = count * each / (5 * CAPACITY)
    return lambda: str(asyncio.run(senders(url, body, count=count, each_s=pace_s, for_s=OVERLOAD_S)))


FLOODS: Final[tuple[Flood, ...]] = (
    million_label_values,
    gzip_bomb,
    ten_million_attributes,
    five_million_names,
    thousand_slow_connections,
    overload,
)

_ready: list[Going] = []


def get_ready(flooding: Flood, url: str, part: int) -> None:
    """Make a part of a flood ready in this process."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    _ready.append(flooding(url, part))


def go() -> Came:
    """Flood with what is ready."""
    began, cpu = time.monotonic(), os.times()
    stated = _ready.pop()()
    after = os.times()
    return Came(stated, time.monotonic() - began, after.user + after.system - cpu.user - cpu.system)
