"""What an evil collector can make the exporter hold, measured in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.overwatch.delivery.evil import OK, Call, evil, serving
from tests.overwatch.delivery.test_grpc import serving as rpc
from tests.overwatch.delivery.test_http import bomb, endless_headers, long_chunks, long_reply

GROWTH = 16 << 20
CLIENT = """
import pathlib, sys, time
from overwatch.journal import Signal
from overwatch.delivery import OtlpTransport, destination
from overwatch.delivery.destination import target
from overwatch.sdk.exporter.queues import Request
good, bad = sys.argv[1:]
made = {e: OtlpTransport({Signal.LOGS: destination(Signal.LOGS, e)}) for e in (good, bad)}
one = Request(order=1, signal=Signal.LOGS, body=b"1", is_fact=False, records=1, last_seq=1)
def peak():
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))
def ask(endpoint):
    return made[endpoint].send(one, time.monotonic() + 20)
assert ask(good).verdict.value == "taken"
pathlib.Path("/proc/self/clear_refs").write_text("5")
before = peak()
codes = {ask(bad).code for _ in range(3)}
print(peak() - before, *codes)
"""


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")


def growth(good: str, bad: str, protocol: str) -> tuple[int, list[str]]:
    """Bytes that three requests to a bad collector cost at their peak, and the codes of the answers."""
    ran = subprocess.run(
        [sys.executable, "-c", CLIENT, good, bad],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"OTEL_EXPORTER_OTLP_PROTOCOL": protocol},
    )
    grown, *codes = ran.stdout.split()
    return int(grown), codes


@pytest.mark.parametrize("script", [long_reply, long_chunks, bomb, endless_headers])
def test_an_evil_reply_costs_16_mib_at_most(script: Callable[[Call], None]) -> None:
    """A gigabyte of body, of chunks, of headers; a bomb: the peak of the exporter's memory hardly moves."""
    with evil(serving(OK)) as good, evil(script) as bad:
        grown, codes = growth(good.endpoint, bad.endpoint, "http/protobuf")
    assert codes == ["reply"]
    assert grown <= GROWTH


def test_a_bomb_over_grpc_costs_no_more() -> None:
    """256 MiB, packed to a few hundred kilobytes."""
    with rpc(lambda *_: b"") as (good, _), rpc(lambda *_: bytes(256 << 20)) as (bad, _):
        grown, codes = growth(good, bad, "grpc")
    assert codes == ["resource_exhausted"]
    assert grown <= GROWTH
