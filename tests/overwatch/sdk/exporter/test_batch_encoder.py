"""When what gathered is to leave."""

from pathlib import Path

from opentelemetry.sdk.resources import Resource

from overwatch.events import RunStarted
from overwatch.journal import Signal
from overwatch.sdk.exporter.batch_encoder import FULL_BYTES, BatchEncoder, Place, Ring
from overwatch.sdk.exporter.instruments import Instruments
from overwatch.sdk.exporter.spool import Spool
from overwatch.sdk.frames import SpanEnded
from overwatch.sdk.tracing import opened
from tests.fakes import START_NS


def test_spans_fill_a_batch_as_facts_do(tmp_path: Path) -> None:
    """Their room in the trainer's ring is free only once they have left."""
    spool = Spool(tmp_path / "spool")
    instruments = Instruments(Resource({}), spool, frozenset({Signal.TRACES}), {})
    encoder = BatchEncoder(Resource({}), spool, instruments, RunStarted(at=START_NS))
    span = SpanEnded(at=START_NS, name="call", duration_s=0.1, traceparent=opened(None).traceparent)

    is_full = []
    for sequence, size in enumerate((FULL_BYTES - 1, 1), start=1):
        encoder.take_span(span, Place(Ring.FACTS, sequence), size=size)
        is_full.append(encoder.is_full)
    encoder.export()
    is_full.append(encoder.is_full)

    assert is_full == [False, True, False]
    spool.close()
