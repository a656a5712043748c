"""`collect --data DIR --port-base N`: what they stand for."""

from pathlib import Path

import pytest

from overwatch.cli.configured import placed
from overwatch.collector.settings import listeners
from overwatch.config import load_named
from tests.overwatch.simulate.runs import overwatch


def test_a_folder_holds_all_that_a_collector_writes(tmp_path: Path) -> None:
    """Whatever the folder's name, also where a file names others; `--set` goes before."""
    folder = tmp_path / 'a: "b" #c'
    file = tmp_path / "c.yaml"
    file.write_text("exporters: {otlp_file: {path: /elsewhere}}")
    config, _ = load_named(file, placed(file, (), folder, None))
    own, _ = load_named(file, placed(file, ("exporters.otlp_file.path=/own",), folder, None))

    assert config.exporters["otlp_file"].path == folder / "otlp"
    assert config.exporters["snapshots"].path == folder / "snapshots.jsonl"
    assert config.extensions["file_storage"].directory == folder
    assert own.exporters["otlp_file"].path == Path("/own")


def test_ports_follow_one_another_and_hosts_stay(tmp_path: Path) -> None:
    """Six addresses from the base on, each a person's own, so that a busy one is an error."""
    file = tmp_path / "c.yaml"
    file.write_text(
        "extensions: {view: {endpoint: '[::1]:1'}}\nexporters: {prometheus/b: {endpoint: 'localhost:9'}}"
    )
    config, fixed = load_named(
        file, placed(file, ("service.telemetry.metrics.address=127.0.0.1:7",), None, 5000)
    )
    found = {one.path: one.endpoint for one in listeners(config)}

    assert found == {
        "receivers.otlp.protocols.http.endpoint": "127.0.0.1:5000",
        "receivers.otlp.protocols.grpc.endpoint": "127.0.0.1:5001",
        "exporters.prometheus.endpoint": "127.0.0.1:5002",
        "exporters.prometheus/b.endpoint": "localhost:9",
        "extensions.view.endpoint": "[::1]:5003",
        "service.telemetry.metrics.address": "127.0.0.1:7",
        "extensions.health_check.endpoint": "127.0.0.1:5005",
    }
    assert fixed == set(found.values())


@pytest.mark.parametrize("base", ["0", "65530", "x"])
def test_a_base_that_is_no_port_is_bad_usage(base: str) -> None:
    """The last of the ports must be one too."""
    assert overwatch("collect", "--port-base", base).exit_code == 2
