"""Inputs that no producer means: random, cut short and mutated requests, the same for the same seed.

The corpus is what producers really send, one of each shape that the decoders distinguish, and what has broken
servers before.
"""

import gzip
import random
from collections.abc import Iterator
from typing import Final, NamedTuple

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from overwatch.journal import Signal
from overwatch.otlp.jsonl import to_json
from tests.overwatch.collector.running import reported, run_started, update
from tests.overwatch.collector.test_fuzz_listeners import mutated
from tests.overwatch.collector.test_otlp_conformance import one_bad_log, span, two_bad_points
from tests.overwatch.otlp.test_protobuf import empties
from tests.overwatch.otlp.test_settle import CUMULATIVE, DELTA, SHAPES, one, sums

PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"


class Input(NamedTuple):
    """One request."""

    signal: Signal
    body: bytes
    kind: str = PROTOBUF
    packing: str = ""
    """`gzip`, or nothing."""


def _series() -> list[bytes]:
    """Sums and distributions, each as changes and as totals."""
    made: list[ExportMetricsServiceRequest] = [
        sums([(1, 2, 5.0), (2, 3, 1.0), (3, 4, 9.0)], temporality) for temporality in (DELTA, CUMULATIVE)
    ]
    made += [one(kind, count=4, sum=8.0, **fields) for kind, fields in SHAPES.items()]
    return [message.SerializeToString() for message in made]


def _bodies() -> dict[Signal, list[bytes]]:
    run = reported("run-fuzz", [run_started(), update(0.01), update(0.02, 2)])
    return {
        Signal.LOGS: [run, one_bad_log(), empties(50)],
        Signal.METRICS: [two_bad_points(), empties(20), *_series()],
        Signal.TRACES: [span(), b""],
    }


def corpus() -> list[Input]:
    """Every body in every encoding."""
    made = []
    for signal, bodies in _bodies().items():
        for body in bodies:
            text = to_json(signal, body)
            made += [
                Input(signal, body),
                Input(signal, text, JSON),
                Input(signal, gzip.compress(body, mtime=0), PROTOBUF, "gzip"),
                Input(signal, gzip.compress(text, mtime=0), JSON, "gzip"),
            ]
    return made


def messages() -> list[Input]:
    """Every body as protobuf alone."""
    return [sent for sent in corpus() if (sent.kind, sent.packing) == (PROTOBUF, "")]


def inputs(seed: int, count: int, known: list[Input]) -> Iterator[Input]:
    """What is known, then so many others: mutated, cut short, random, and mutated before they were packed."""
    chance = random.Random(seed)  # noqa: S311 a test's own chance
    yield from known
    for _ in range(count):
        base = chance.choice(known)
        match chance.randrange(10):
            case 0:
                yield base._replace(body=base.body[: chance.randint(0, len(base.body))])
            case 1:
                yield base._replace(body=chance.randbytes(chance.randint(0, 200)))
            case 2 | 3 if base.packing:
                inner = mutated(chance, gzip.decompress(base.body))
                yield base._replace(body=gzip.compress(inner, 1, mtime=0))
            case 4 | 5 | 6:
                yield base._replace(body=flipped(chance, base.body))
            case _:
                yield base._replace(body=mutated(chance, base.body))


def flipped(chance: random.Random, body: bytes) -> bytes:
    """A body with one bit turned: most such still parse, and mean something else."""
    data = bytearray(body)
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(data)
