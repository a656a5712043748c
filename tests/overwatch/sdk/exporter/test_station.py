"""When what gathered at the station is to leave."""

from pathlib import Path

from opentelemetry.sdk.resources import Resource

from overwatch.events import RunStarted
from overwatch.journal import Signal
from overwatch.sdk.exporter.instruments import Instruments
from overwatch.sdk.exporter.spool import Spool
from overwatch.sdk.exporter.station import FULL_BYTES, Place, Ring, Station
from overwatch.sdk.frames import SpanEnded
from overwatch.sdk.tracing import opened
from tests.fakes import START_NS


def test_spans_fill_the_station_as_facts_do(tmp_path: Path) -> None:
    """Their room in the trainer's ring is free only once they have left."""
    spool = Spool(tmp_path / "spool")
    instruments = Instruments(Resource({}), spool, frozenset({Signal.TRACES}), {})
    station = Station(Resource({}), spool, instruments, RunStarted(at=START_NS))
    span = SpanEnded(at=START_NS, name="call", duration_s=0.1, traceparent=opened(None).traceparent)

    is_full = []
    for sequence, size in enumerate((FULL_BYTES - 1, 1), start=1):
        station.take_span(span, Place(Ring.FACTS, sequence), size=size)
        is_full.append(station.is_full)
    station.export()
    is_full.append(station.is_full)

    assert is_full == [False, True, False]
    instruments.close()
    spool.close()
