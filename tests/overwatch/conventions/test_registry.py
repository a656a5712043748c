"""The registry is derived whole: every row, event, field and phase, by OpenTelemetry's own definitions."""

import importlib
import re

import pytest
import yaml
from opentelemetry.semconv import schemas

from overwatch.catalog import ROWS, Kind
from overwatch.catalog.phases import Phase
from overwatch.conventions import registry
from overwatch.conventions.model import MetricDef, Registry
from overwatch.conventions.registry import SEMCONV_VERSION
from overwatch.events import Measured, RunStarted
from overwatch.generate.registry import FILES
from overwatch.otlp import wire
from overwatch.sdk.exporter.resource import Revision, resource, scheduler
from overwatch.sdk.frames import Hello
from overwatch.sdk.trainer_env import SCHEDULER

_MODULES = (
    "error", "hw", "host", "k8s", "process", "service", "system", "telemetry", "vcs", "deployment",
)  # fmt: skip


def _upstream() -> set[str]:
    """Keys of all attributes that OpenTelemetry's package knows in the namespaces used here."""
    keys = set()
    for name in _MODULES:
        for place in ("_incubating.attributes", "attributes"):
            try:
                module = importlib.import_module(f"opentelemetry.semconv.{place}.{name}_attributes")
            except ModuleNotFoundError:
                continue
            keys |= {value for value in vars(module).values() if isinstance(value, str)}
    return keys


def test_names_are_lower_case_words_in_namespaces() -> None:
    """As OpenTelemetry's policies want them, of which Weaver holds the others."""
    held = registry()
    names = {*held.attributes, *held.metrics, *held.events, *held.spans, *held.entities} - {"host"}

    wrong = [one for one in names if not re.fullmatch(r"[a-z][a-z0-9]*([._][a-z0-9]+)*\.[a-z0-9._]+", one)]
    assert wrong == []


def test_every_row_is_a_metric_or_an_attribute() -> None:
    """Numbers are metrics with the row's unit; words are attributes."""
    held = registry()

    for row in ROWS:
        if row.kind is Kind.STATE:
            assert row.name in held.attributes
        else:
            assert held.metrics[row.name].unit == row.unit


def test_every_event_and_its_fields_are_registered() -> None:
    """A field is an attribute, or a column of the body."""
    held = registry()

    for kind in wire.EVENT_TYPES:
        event = held.events[f"{wire.EVENT_PREFIX}{wire.TAGS[kind]}"]
        stated = {ref.key for ref in event.attributes} | set(event.columns)
        reported = set(wire.FIELDS[kind]) - wire.OWN_PLACES[kind]
        for field in reported if kind is not Measured else ():
            assert field in stated or wire.attribute_of(field) in stated, (event.name, field)


def test_every_phase_is_a_span_with_its_other_words() -> None:
    """So that a span of any known name has a type."""
    spans = registry().spans

    of_the_run = {"overwatch.loop", "overwatch.startup", "overwatch.shutdown"}
    assert set(spans) == of_the_run | {f"overwatch.phase.{phase.value}" for phase in Phase}
    assert spans["overwatch.phase.rollout"].names == ("rl.sample",)
    assert "barrier" in spans["overwatch.phase.sync"].names


def test_what_a_producer_states_of_itself_is_registered() -> None:
    """All resource attributes of the SDK's exporter, under any scheduler."""
    hello = Hello(
        run_id="r", role="trainer", rank=0, epoch="e", pid=1, join="j", endpoint=None, sample=False,
        started=RunStarted(at=1, task="t", algo="a", attempt=1, group="g"),
    )  # fmt: skip
    env = dict.fromkeys(SCHEDULER.values(), "x")
    stated = {*resource(hello, Revision(sha="0", dirty=True), "h").attributes, *scheduler(env)}

    assert stated <= set(registry().attributes)
    assert len(scheduler(env)) == len(env)


def test_imported_names_are_opentelemetrys() -> None:
    """Attributes exist there; the version is one that the package knows."""
    known = _upstream()
    imported = {one.key for one in registry().attributes.values() if one.imported}

    assert imported - known - {"telemetry.distro.name", "telemetry.distro.version"} == set()
    assert f"https://opentelemetry.io/schemas/{SEMCONV_VERSION}" in {one.value for one in schemas.Schemas}


@pytest.mark.parametrize(
    "metric", [one for one in registry().metrics.values() if one.imported], ids=lambda one: one.name
)
def test_an_imported_metric_is_as_opentelemetry_defines_it(metric: MetricDef) -> None:
    """Same instrument, same unit; metrics of later versions of the conventions are named here."""
    module = importlib.import_module(
        f"opentelemetry.semconv._incubating.metrics.{metric.name.split('.')[0]}_metrics"
    )
    source = importlib.util.find_spec(module.__name__)
    assert source is not None
    assert source.origin is not None
    with open(source.origin, encoding="utf-8") as file:  # noqa: PTH123 the package's own file
        text = file.read()
    found = re.search(rf'= "{re.escape(metric.name)}"\n"""\n(?:.*\n)*?Instrument: (\w+)\nUnit: (.+)\n', text)

    assert found is not None
    assert (metric.instrument, metric.unit) == found.groups()


def test_the_files_hold_the_registry() -> None:
    """Every definition of ours, none of others', in Weaver's second format."""
    held: Registry = registry()
    metrics = yaml.safe_load(FILES["otel/registry/metrics.yaml"]())
    attributes = yaml.safe_load(FILES["otel/registry/attributes.yaml"]())

    assert metrics["file_format"] == attributes["file_format"] == "definition/2"
    assert {one["name"] for one in metrics["metrics"]} | set(metrics["imports"]["metrics"]) == set(
        held.metrics
    )
    assert {one["key"] for one in attributes["attributes"]} == {
        key for key, one in held.attributes.items() if not one.imported
    }
    clock = next(one for one in metrics["metrics"] if one["name"] == "overwatch.gpu.clock")
    assert clock["annotations"]["naming_conventions"]["policy_exceptions"] == ["metric_namespace_collision"]
