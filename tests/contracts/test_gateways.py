"""The configurations for the OpenTelemetry Collector hang together, and keep what our collectors rely on."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "otel/gateways").glob("*.yaml"))
KINDS = ("receivers", "processors", "exporters")
OLD_NAMES = {
    "loadbalancing", "otlphttp", "resourcedetection", "filestorage", "memorylimiter", "k8sattributes",
}  # fmt: skip
each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def _read(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text())


def _queues(data: Any) -> list[dict[str, Any]]:
    """Every `sending_queue` in a tree."""
    if isinstance(data, dict):
        own = [data["sending_queue"]] if "sending_queue" in data else []
        return own + [queue for part in data.values() for queue in _queues(part)]
    return []


@each_file
def test_every_component_that_is_used_is_there_and_the_other_way_round(path: Path) -> None:
    """Otherwise the collector does not start, or a part does nothing."""
    config = _read(path)
    service = config["service"]
    used = {kind: {name for line in service["pipelines"].values() for name in line.get(kind, ())}
            for kind in KINDS}  # fmt: skip

    assert {kind: set(config[kind]) for kind in KINDS} == used
    assert set(config["extensions"]) == set(service["extensions"])
    assert set(service["pipelines"]) == {"logs", "metrics", "traces"}
    assert not OLD_NAMES & {name.partition("/")[0] for kind in KINDS for name in config[kind]}


@each_file
def test_memory_is_limited_first_and_queues_are_on_disk(path: Path) -> None:
    """What is acknowledged outlives the gateway."""
    config = _read(path)

    assert all(line["processors"][0] == "memory_limiter" for line in config["service"]["pipelines"].values())
    assert {queue["storage"] for queue in _queues(config["exporters"])} == {"file_storage"}
    assert config["extensions"]["file_storage"]["fsync"] is True


def test_runs_are_routed_by_their_id_and_stay_in_order() -> None:
    """One collector a run, one consumer a queue, no end of trying, no batching before."""
    config = _read(ROOT / "otel/gateways/gateway.yaml")
    balancing = config["exporters"]["load_balancing"]

    assert (balancing["routing_key"], balancing["routing_attributes"]) == ("attributes", ["rl.run.id"])
    assert balancing["protocol"]["otlp"]["sending_queue"]["num_consumers"] == 1
    assert balancing["protocol"]["otlp"]["retry_on_failure"]["max_elapsed_time"] == "0s"
    assert "batch" not in config["processors"]


@each_file
def test_doors_for_other_machines_ask_for_a_token_over_tls(path: Path) -> None:
    """Those on loopback need neither."""
    for listener in _read(path)["receivers"]["otlp"]["protocols"].values():
        if not listener["endpoint"].startswith("127.0.0.1"):
            assert listener["auth"] == {"authenticator": "bearertokenauth"}
            assert {"cert_file", "key_file"} <= listener["tls"].keys()


@each_file
def test_the_page_names_every_file_and_every_variable_without_a_default(path: Path) -> None:
    """Nobody has to read the file to start it."""
    page = (ROOT / "docs/gateway.md").read_text()

    assert f"`{path.name}`" in page
    for name in re.findall(r"\$\{env:([A-Z0-9_]+)\}", path.read_text()):
        assert f"`{name}`" in page, name


def test_the_chart_routes_as_the_gateway_does() -> None:
    """By the same key; without a queue, since its pods have no disk: an answer is the collector's own."""
    template = (ROOT / "helm/overwatch/templates/_router.tpl").read_text()

    for line in (
        "routing_key: attributes",
        "routing_attributes: [rl.run.id]",
        "sending_queue: {enabled: false}",
    ):
        assert line in template
