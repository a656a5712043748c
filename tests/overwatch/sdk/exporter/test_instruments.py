"""Metrics and spans for third parties: what happens at the end."""

import threading
from pathlib import Path

from opentelemetry.sdk.resources import Resource

from overwatch.journal import Signal
from overwatch.sdk.exporter.instruments import Instruments
from overwatch.sdk.exporter.spool import Spool


def test_an_end_without_time_is_quiet(tmp_path: Path) -> None:
    """Nothing is raised, on no thread, and it is counted."""
    spool = Spool(tmp_path / "spool")
    instruments = Instruments(Resource({}), spool, frozenset({Signal.METRICS, Signal.TRACES}))
    before = set(threading.enumerate())
    instruments.flush(0.0)
    for thread in set(threading.enumerate()) - before:
        thread.join(10.0)
    assert instruments.late == 1
    spool.close()
