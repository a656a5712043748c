"""How fast a backlog goes: the collector is away for a while, then there, and training never pauses.

The lag of a request is its arrival less the newest moment that it holds. What is delivered while the lag
is large is the backlog; how much of the trainer's time that is, in how much time, is the ratio.
"""

import time
from dataclasses import dataclass
from pathlib import Path

from overwatch.journal import Signal
from overwatch.otlp.decode import decode
from tests.bench.sdk.collectors import recorded
from tests.bench.sdk.host import Cores, collector, worker
from tests.bench.sdk.stats import Goals, emit
from tests.bench.sdk.steps import PIECE_NS, PIECES
from tests.ports import free_port

LATE_NS = 1_000_000_000
"""What lags more belongs to the backlog."""


@dataclass(frozen=True)
class Arrival:
    """One request of logs."""

    at: int
    newest: int
    """Of the moments that it holds."""
    records: int
    size: int


def measure(away_s: float, folder: Path, cores: Cores, goals: Goals) -> None:
    """Measure and print both loads."""
    for call in ("12+192", "12+192+fact"):
        arrivals, came = _outage(call, away_s, folder / f"drain-{call}", cores)
        late = [one for one in arrivals if one.at - one.newest > LATE_NS]
        if len(late) < 2:
            emit(f"{call}: {len(late)} of {len(arrivals)} requests came late; nothing to measure")
            goals.least(f"backlog of {call}, times the live rate", None, 5)
            continue
        sent_s = (late[-1].newest - late[0].newest) / 1e9
        took_s = (late[-1].at - late[0].at) / 1e9
        size = sum(one.size for one in late) / 1e6
        records = sum(one.records for one in late)
        emit(
            f"{call}: {sent_s:.1f} s of telemetry ({len(late)} requests, {records} records, {size:.1f} MB) "
            f"in {took_s:.2f} s; the first {late[0].at / 1e9 - came:.2f} s after the collector came"
        )
        goals.least(f"backlog of {call}, times the live rate", sent_s / took_s, 5)


def _outage(call: str, away_s: float, folder: Path, cores: Cores) -> tuple[list[Arrival], float]:
    """What arrived after an outage, and when the collector came, Unix seconds."""
    port = free_port()
    out = folder / "arrived"
    with worker("overwatch", f"http://127.0.0.1:{port}", folder, cores) as one:
        assert one is not None
        one.wanted("work", kind="arithmetic", piece_ns=PIECE_NS)
        one.wanted("live", call=call, seconds=away_s, pieces=PIECES)
        came = time.time()
        with collector("recording", cores, port, out):
            reported = one.wanted("live", call=call, seconds=max(away_s, 10.0), pieces=PIECES)
    if reported["dropped"]:
        emit(f"{call}: not as usual: {reported['dropped']}")
    return [found for at, body in recorded(out) if (found := _arrival(at, body)) is not None], came


def _arrival(at: int, body: bytes) -> Arrival | None:
    moments = [record.event.at for record in decode(Signal.LOGS, body).records]
    return Arrival(at, max(moments), len(moments), len(body)) if moments else None
