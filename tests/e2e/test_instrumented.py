"""A trainer under `opentelemetry-instrument`: its own OpenTelemetry and ours do not disturb one another."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from overwatch.events import LogLine, RunFinished
from tests.overwatch.sdk.sink import http_sink

pytest.importorskip("opentelemetry.instrumentation", reason="needs opentelemetry-distro")

TRAINER = """
import logging, overwatch.sdk
from opentelemetry import trace
from overwatch.sdk.logs import RunHandler
run = overwatch.sdk.start(task="ant", sample=False)
logging.getLogger("loop").addHandler(RunHandler(run))
with trace.get_tracer("mine").start_as_current_span("update") as span:
    run.update(update=1, entropy=0.5)
    logging.getLogger("loop").warning("inside")
    print(f"{span.get_span_context().trace_id:032x}")
assert run.close(30).delivered
"""


def test_a_run_under_automatic_instrumentation(tmp_path: Path) -> None:
    """The run arrives whole, its lines name the spans that the instrumented program opened."""
    program = Path(sys.executable).with_name("opentelemetry-instrument")
    script = tmp_path / "train.py"
    script.write_text(TRAINER)
    with http_sink() as sink:
        own = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": sink.endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_SERVICE_NAME": "instrumented",
        }
        done = subprocess.run(
            [program, sys.executable, script],
            env={**os.environ, **own},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        (line,) = sink.events(LogLine)
        assert (line.message, line.trace_id) == ("inside", done.stdout.strip())
        assert [event.outcome for event in sink.events(RunFinished)] == ["completed"]
