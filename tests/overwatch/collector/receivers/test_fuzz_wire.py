"""A real collector under requests that no producer means, over its sockets: it answers, and goes on.

A few thousand a door in every run, a million with `long`. `OVERWATCH_FUZZ_SEED` and `OVERWATCH_FUZZ_COUNT`
choose others for the long ones.
"""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

import grpc
import psutil
import pytest

from overwatch.discovery import Endpoints
from overwatch.events import RunStarted
from overwatch.journal import Signal
from tests.e2e.collecting import collecting, snapshot_of, until
from tests.overwatch.collector.receivers import fuzz_grpc, fuzz_http, fuzz_http2, fuzzing
from tests.overwatch.collector.running import http, reported

T = TypeVar("T")
SHORT, LONG, ROUND = 1500, 1_000_000, 50_000
TORN = 50
"""One request in so many is mutated in its framing, too."""
LEAVES_IN_TIME = "receivers.otlp.protocols.http.connections={request_timeout_s: 1, read_header_timeout_s: 1}"
ANSWERED = frozenset({200, 400, 413, 503})
TORN_ANSWERED = ANSWERED | {fuzz_http.ENDED, 403, 404, 405, 408, 411, 415, 417, 431, 501, 505}
"""403 is to a strange host."""
CODES = frozenset({"OK", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "UNAVAILABLE"})
BUSY = 0.01
"""Share of requests that may be asked to retry."""


@pytest.fixture
def endpoints(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Endpoints]:
    """A collector of its own for each test; the long ones record spans alone, for the disk's sake."""
    more = [LEAVES_IN_TIME]
    if request.node.get_closest_marker("long"):
        more += [f"service.pipelines.{name}.exporters=[aggregator]" for name in ("logs", "metrics")]
    with collecting(tmp_path, *more) as started:
        yield started
    # A fault of a door, and of a thread behind it, is in the log.
    assert "Traceback" not in (tmp_path / "collector.log").read_text()


def port_of(url: str | None) -> int:
    """The port of an address."""
    return int(str(url).rpartition(":")[2])


def still_good(endpoints: Endpoints, patience_s: float) -> bool:
    """Whether clients that behave are served at both doors, and seen by the fold once it has caught up."""
    began = RunStarted(at=time.time_ns(), task="digits", algo="ppo")
    reply = http(f"{endpoints.otlp_http}/v1/logs", reported("good", [began]), Content_Type=fuzzing.PROTOBUF)
    until(lambda: snapshot_of(endpoints, "good"), "the good client's run", patience_s)
    with grpc.insecure_channel(str(endpoints.otlp_grpc).removeprefix("http://")) as channel:
        answer = channel.unary_unary(fuzz_grpc.method(Signal.TRACES))(b"", timeout=10)
    return (reply.status, answer) == (200, b"")


def shown(listener: str, seen: Counter[int] | Counter[str], began: float) -> None:
    """Print what came of it, for the long ones."""
    took = time.monotonic() - began
    total = sum(seen.values())
    print(f"\n{listener}: {total} in {took:.0f} s, {total / took:.0f}/s: {dict(seen.most_common())}")


def rounds(inputs: Iterator[T]) -> Iterator[Iterator[T]]:
    """The same inputs in parts, so that what came of each can be printed."""
    for first in inputs:
        yield chain([first], islice(inputs, ROUND - 1))


def fuzz_http_door(endpoints: Endpoints, count: int, seed: int) -> None:
    """Honest framing around other bodies, and other framing."""
    port, known, seen = port_of(endpoints.otlp_http), fuzzing.corpus(), Counter[int]()
    bodies = (fuzz_http.whole(sent) for sent in fuzzing.inputs(seed, count - count // TORN, known))
    for part in rounds(bodies):
        began = time.monotonic()
        answers = asyncio.run(fuzz_http.ask_all(port, part, keep=True))
        shown("http bodies", answers, began)
        seen += answers
    began = time.monotonic()
    torn = asyncio.run(fuzz_http.ask_all(port, fuzz_http.torn(seed, count // TORN), keep=False))
    shown("http framing", torn, began)

    assert set(seen) <= ANSWERED | {fuzz_http.ENDED}
    assert {200, 400} <= set(seen)
    assert seen[503] <= BUSY * count
    assert set(torn) <= TORN_ANSWERED
    assert sum(seen.values()) + sum(torn.values()) == count + len(known)
    assert still_good(endpoints, 60 + count / 500)


def fuzz_grpc_door(endpoints: Endpoints, count: int, seed: int) -> None:
    """Good calls with other messages, and connections that send other bytes."""
    address, known = str(endpoints.otlp_grpc).removeprefix("http://"), fuzzing.messages()
    seen = Counter[str]()
    for part in rounds(fuzzing.inputs(seed, count - count // TORN, known)):
        began = time.monotonic()
        answers = asyncio.run(fuzz_grpc.ask_all(address, part))
        shown("grpc messages", answers, began)
        seen += answers
    began = time.monotonic()
    connections = fuzz_grpc.torn(seed, count // TORN)
    torn = asyncio.run(fuzz_grpc.tear_all(port_of(endpoints.otlp_grpc), connections))
    shown("grpc framing", torn, began)

    assert set(seen) <= CODES
    assert {"OK", "INVALID_ARGUMENT"} <= set(seen)
    assert seen["UNAVAILABLE"] + seen["RESOURCE_EXHAUSTED"] <= BUSY * count
    assert sum(seen.values()) + sum(torn.values()) == count + len(known)
    assert still_good(endpoints, 60 + count / 500)


def tear_grpc_door(endpoints: Endpoints, count: int, seed: int) -> None:
    """Connections that break the rules of HTTP/2, or keep them in ways that nobody does."""
    stated = fuzz_http2.connections(seed)
    for part in rounds(islice(stated, count)):
        began = time.monotonic()
        port = port_of(endpoints.otlp_grpc)
        shown("http/2 framing", asyncio.run(fuzz_grpc.tear_all(port, part, workers=128)), began)
    assert still_good(endpoints, 60 + count / 500)


def test_the_http_door_answers_whatever_comes(endpoints: Endpoints) -> None:
    """The corpus and a few thousand others: no 500, no end, and good clients are served."""
    fuzz_http_door(endpoints, SHORT, 1)


def test_the_grpc_door_answers_whatever_comes(endpoints: Endpoints) -> None:
    """The same of gRPC: no INTERNAL, no UNKNOWN."""
    fuzz_grpc_door(endpoints, SHORT, 2)


def test_the_grpc_door_outlives_strange_frames(endpoints: Endpoints) -> None:
    """Whatever a connection sends in HTTP/2, it is the only one that ends."""
    tear_grpc_door(endpoints, SHORT, 3)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    "listener", [fuzz_http_door, fuzz_grpc_door, tear_grpc_door], ids=["http", "grpc", "http2"]
)
def test_a_million_requests_are_answered(endpoints: Endpoints, listener: object) -> None:
    """A million a door; what the collector needs meanwhile is printed."""
    count = int(os.environ.get("OVERWATCH_FUZZ_COUNT", LONG))
    assert callable(listener)
    listener(endpoints, count, int(os.environ.get("OVERWATCH_FUZZ_SEED", "7")))
    rss = max(
        child.memory_info().rss for child in psutil.Process().children() if "collect" in child.cmdline()
    )
    print(f"collector: {rss >> 20} MiB")
