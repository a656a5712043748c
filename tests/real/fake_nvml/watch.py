"""Runs a sampler until standard input ends, and writes what it emits as lines of JSON."""

import json
import math
import os
import sys
import threading

from overwatch.catalog import Scope
from overwatch.events import Event, LogLine, Measured
from overwatch.sdk.exporter.gpus import SampleLimits, Trainer
from overwatch.sdk.exporter.sampler import Sampler

LIMITS = SampleLimits(interval_s=0.05, gather_s=0.04, again_s=0.1, rarely_s=0.2)


def report(event: Event) -> None:
    """One line a host or lane."""
    entries: list[dict[str, object]] = []
    if isinstance(event, LogLine):
        entries.append(
            {"kind": "log", "severity": event.severity.value, "message": event.message, **event.fields}
        )
    elif isinstance(event, Measured) and event.scope is Scope.GPU:
        for row, lane in enumerate(event.keys["gpu_id"].words()):
            entry: dict[str, object] = {"kind": "gpu", "lane": lane, "at": event.at}
            for name, column in event.values.items():
                value = column.array()[row].item() if column.labels is None else column.words()[row]
                if not isinstance(value, float) or math.isfinite(value):
                    entry[name] = value
            entries.append(entry)
    elif isinstance(event, Measured):
        entries.append({"kind": "host", **{name: column.first() for name, column in event.values.items()}})
    for entry in entries:
        entry["threads"] = threading.active_count()
        print(json.dumps(entry), flush=True)


trainer = Trainer(node="n1", pid=int(os.environ.get("TRAINER", "4711")))
sampler = Sampler(sys.argv[1], report, trainer, LIMITS)
sampler.start()
sys.stdin.read()
sampler.stop()
os._exit(0)
