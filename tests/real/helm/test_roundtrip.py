"""What `helm test` runs finds its log record in a real collector's `/metrics`, with the chart's tokens."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import yaml

from tests.real.helm.charts import CHART, objects, rendered

_SCRIPT = CHART / "files/tests/roundtrip.py"


def _collector(tmp_path: Path) -> tuple[list[str], dict[str, str]]:
    """The chart's own configuration, with files and ports of this machine."""
    found = objects(rendered(CHART / "ci/default-values.yaml").read_text())
    (text,) = [one["data"]["collector.yaml"] for one in found
               if one["kind"] == "ConfigMap" and "collector.yaml" in one["data"]]  # fmt: skip
    for role in ("ingest", "read", "control"):
        (tmp_path / role).write_text(f"token-of-{role}\n")
    text = text.replace("/etc/overwatch/tokens", str(tmp_path)).replace("0.0.0.0:", "127.0.0.1:")
    data = yaml.safe_load(text)
    sections = (
        data["receivers"]["otlp"]["protocols"]["http"], data["receivers"]["otlp"]["protocols"]["grpc"],
        data["exporters"]["prometheus"], *data["extensions"].values(),
    )  # fmt: skip
    for section in sections:
        section["endpoint"] = "127.0.0.1:0"
    data["service"]["telemetry"]["metrics"]["address"] = "127.0.0.1:0"
    path = tmp_path / "collector.yaml"
    path.write_text(yaml.safe_dump(data))
    places = {"OVERWATCH_DATA_DIR": "data", "XDG_RUNTIME_DIR": "run", "OVERWATCH_READY_FILE": "ready.json"}
    env = {**os.environ, **{name: str(tmp_path / place) for name, place in places.items()}}
    return [sys.executable, "-m", "overwatch.cli", "collect", "--config", str(path)], env


def test_the_charts_test_finds_its_log_record(tmp_path: Path) -> None:
    """And states it."""
    command, env = _collector(tmp_path)
    ready = Path(env["OVERWATCH_READY_FILE"])
    with subprocess.Popen(command, env=env) as process:
        try:
            until = time.monotonic() + 60
            while not ready.exists() and time.monotonic() < until:
                time.sleep(0.05)
            at = json.loads(ready.read_text())
            requested = {
                **env, "SEND_URL": at["otlp_http"], "SCRAPE_URL": at["metrics"].removesuffix("/metrics"),
                "INGEST_TOKEN": "token-of-ingest", "READ_TOKEN": "token-of-read",
            }  # fmt: skip
            good = subprocess.run(
                [sys.executable, str(_SCRIPT)],
                env=requested,
                capture_output=True,
                text=True,
                check=False,
                timeout=90,
            )
        finally:
            process.terminate()

    assert good.returncode == 0, good.stderr
    assert "is in /metrics" in good.stdout
