"""One fleet's numbers, as each receiver takes them: OTLP, Prometheus remote write, Prometheus text.

The same points everywhere: a value a gauge and env, with three labels. Every round has other values and a
later time; with a seed, envs come in another order each round, so that no two bodies are alike.
"""

import random
import struct
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from overwatch.otlp.shapes import slots_of
from overwatch.otlp.value import Value
from tests.overwatch.otlp.attributes import to_pairs

Places: TypeAlias = npt.NDArray[np.intp]

GAUGES = ("overwatch.env.reward", "overwatch.env.metric", "overwatch.env.rent", "overwatch.env.step_time")
LANES = ("GPU-0", "GPU-1", "GPU-2", "GPU-3")
BEGAN_NS = 1_790_000_000_000_000_000
STEP_NS = 1_000_000_000


def value_of(round_: int, gauge: int, env: int) -> float:
    """What an env's gauge is at a round; of few digits, as not every receiver keeps them all."""
    return round_ + gauge / 8 + env / 64


def _envs(envs: int, round_: int, seed: int | None) -> list[int]:
    order = list(range(envs))
    if seed is not None:
        random.Random(seed + round_).shuffle(order)  # noqa: S311 the same each time
    return order


def otlp(envs: int, rounds: int, *, seed: int | None = None) -> list[bytes]:
    """Requests of OTLP metrics, one a round."""
    if seed is not None:
        return [_otlp(_envs(envs, round_, seed), round_) for round_ in range(rounds)]
    first = _otlp(_envs(envs, 0, None), 0)
    slots = slots_of(first)
    if slots is None:
        raise AssertionError("a fleet's numbers have a fixed width")
    places = _eights([slot.value for slot in slots])
    times = _eights([slot.time for slot in slots])
    return [_with(first, places, times, round_, envs) for round_ in range(rounds)]


def _with(first: bytes, places: Places, times: Places | None, round_: int, envs: int) -> bytes:
    """The first round's body with a later round's numbers."""
    made = np.frombuffer(bytearray(first), np.uint8)
    made[places] = _values(round_, envs).view(np.uint8).reshape(-1, 8)
    if times is not None:
        made[times] = np.array([BEGAN_NS + round_ * STEP_NS], "<u8").view(np.uint8)
    return made.tobytes()


def _values(round_: int, envs: int) -> npt.NDArray[np.float64]:
    """What `value_of` gives for every gauge and env, in their order on the wire."""
    every = np.arange(envs) / 64
    return np.concatenate([round_ + gauge / 8 + every for gauge in range(len(GAUGES))])


def _eights(starts: list[int]) -> Places:
    return np.array(starts)[:, None] + np.arange(8)


def _otlp(envs: list[int], round_: int) -> bytes:
    message = ExportMetricsServiceRequest()
    producer = message.resource_metrics.add()
    producer.resource.attributes.extend(
        to_pairs({"rl.run.id": "doors", "service.instance.id": "bench", "service.name": "bench"})
    )
    scope = producer.scope_metrics.add()
    for gauge, name in enumerate(GAUGES):
        points = scope.metrics.add(name=name).gauge.data_points
        for env in envs:
            pairs: dict[str, Value] = {
                "overwatch.env.id": env,
                "overwatch.lane.id": LANES[env % 4],
                "bench": "doors",
            }
            points.add(
                attributes=to_pairs(pairs),
                time_unix_nano=BEGAN_NS + round_ * STEP_NS,
                as_double=value_of(round_, gauge, env),
            )
    return message.SerializeToString()


def remote_write(envs: int, rounds: int) -> list[bytes]:
    """The same as requests of remote write 1.0, before compression."""
    series = list(_series(envs, 0))
    first = b"".join(series)
    # A value is followed by the tag and the six bytes of a time in milliseconds, then the series ends.
    ends = np.cumsum([len(one) for one in series])
    places, time = _eights((ends - 15).tolist()), ends[:, None] - 6 + np.arange(6)
    made = []
    for round_ in range(rounds):
        body = np.frombuffer(_with(first, places, None, round_, envs), np.uint8).copy()
        body[time] = np.frombuffer(_varint((BEGAN_NS + round_ * STEP_NS) // 1_000_000), np.uint8)
        made.append(body.tobytes())
    return made


def _series(envs: int, round_: int) -> Iterator[bytes]:
    at = _varint((BEGAN_NS + round_ * STEP_NS) // 1_000_000)
    for gauge, name in enumerate(GAUGES):
        for env in range(envs):
            pairs = (
                ("__name__", name.replace(".", "_")), ("bench", "doors"), ("env", str(env)),
                ("lane", LANES[env % 4]),
            )  # fmt: skip
            labels = b"".join(
                _message(1, _message(1, key.encode()) + _message(2, word.encode())) for key, word in pairs
            )
            sample = b"\x09" + struct.pack("<d", value_of(round_, gauge, env)) + b"\x10" + at
            yield _message(1, labels + _message(2, sample))


def text(envs: int, rounds: int) -> list[bytes]:
    """The same in Prometheus' text format with times."""
    return ["".join(_lines(envs, round_)).encode() for round_ in range(rounds)]


def _lines(envs: int, round_: int) -> Iterator[str]:
    at = (BEGAN_NS + round_ * STEP_NS) // 1_000_000
    for gauge, name in enumerate(GAUGES):
        word = name.replace(".", "_")
        for env in range(envs):
            labels = f'bench="doors",env="{env}",lane="{LANES[env % 4]}"'
            yield f"{word}{{{labels}}} {value_of(round_, gauge, env)!r} {at}\n"


def _message(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*made, value))
