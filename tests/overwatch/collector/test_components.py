"""Every component follows from its row: settings, names in pipelines, lists of commands, start and stop."""

import json
from pathlib import Path
from typing import ClassVar, Final

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from overwatch.cli.configuration import config as config_command
from overwatch.collector import components
from overwatch.collector.components import COMPONENTS, ROOTS, Component, Kind, of_kinds, row_of, table
from overwatch.collector.context import Context
from overwatch.config import ConfigError, as_yaml, load
from tests.overwatch.collector.running import config, running

LISTEN: Final = "127.0.0.1:0"
SETTINGS: Final[dict[tuple[str, str], dict[str, object]]] = {
    ("receivers", "otlp"): {"protocols": {"grpc": {"endpoint": LISTEN}, "http": {"endpoint": LISTEN}}},
    ("exporters", "aggregator"): {"max_runs": 7},
    ("exporters", "prometheus"): {"endpoint": LISTEN},
    ("exporters", "otlp_file"): {"path": "DIR/otlp"},
    ("exporters", "webhook"): {"url": "http://127.0.0.1:9/x"},
    ("exporters", "command"): {"argv": ["/bin/true"]},
    ("exporters", "snapshots"): {"path": "DIR/snapshots.jsonl"},
    ("extensions", "health_check"): {"endpoint": LISTEN},
    ("extensions", "view"): {"endpoint": LISTEN},
    ("extensions", "file_storage"): {"directory": "DIR"},
}
"""What each needs to work, with DIR for a folder of its own."""
SIGNALS: Final = ("logs", "metrics", "traces")
rows = pytest.mark.parametrize("row", COMPONENTS, ids=lambda row: f"{row.kind.root}.{row.name}")


def _written(row: Component, folder: Path) -> dict[str, object]:
    """The section of a row, with what it writes below a folder."""
    text = json.dumps(SETTINGS[row.kind.root, row.name]).replace("DIR", str(folder))
    found: dict[str, object] = json.loads(text)
    return found


def test_every_row_has_an_example() -> None:
    """A new row is tried by all the tests below, or this one fails."""
    assert set(SETTINGS) == {(one.kind.root, one.name) for one in COMPONENTS}
    assert len({one.config for one in COMPONENTS}) == len(COMPONENTS)


@rows
def test_a_row_can_be_configured_doubled_where_allowed_and_printed(row: Component, tmp_path: Path) -> None:
    """What was written is what is printed, and what is printed can be read."""
    root, more = row.kind.root, f"{row.name}/more"
    file = tmp_path / "collector.yaml"
    sections = {row.name: _written(row, tmp_path)}
    if row.is_several:
        sections[more] = _written(row, tmp_path / "more")
    file.write_text(yaml.safe_dump({root: sections}))

    found = load(file, [])

    kind = row.config
    assert list(found.every(kind)) == list(sections)
    assert all(type(one) is kind for one in found.every(kind).values())
    printed = yaml.safe_load(as_yaml(found))[root]
    for name, section in sections.items():
        assert _is_within(section, printed[name])
    file.write_text(yaml.safe_dump({root: {more: _written(row, tmp_path / "more")}}))
    if not row.is_several:
        with pytest.raises(ConfigError, match=f"{root}.{more}: there are no several {root} of type"):
            load(file, [])


def _is_within(given: object, shown: object) -> bool:
    """Whether every value that was given is shown, or is a secret."""
    if isinstance(given, dict) and isinstance(shown, dict):
        return all(_is_within(value, shown.get(key)) for key, value in given.items())
    return shown in (given, "[REDACTED]")


@rows
def test_a_row_is_listed_and_in_the_schema(row: Component) -> None:
    """By `config components` and `config schema`."""
    root = row.kind.root
    listed = yaml.safe_load(CliRunner().invoke(config_command, ["components"]).output)[root]
    assert listed[row.name]["about"] == row.about
    assert (row.name in listed.get("type/name", {"settings": ()})["settings"]) is row.is_several
    stated = json.loads(CliRunner().invoke(config_command, ["schema"]).output)["$defs"][root.capitalize()]
    assert row.name in stated["properties"]
    patterns = [one for one in stated.get("patternProperties", {}) if one.startswith(f"^{row.name}/")]
    assert len(patterns) == row.is_several


def _all(tmp_path: Path) -> Path:
    """A file with every row, twice where that is allowed, all of them in pipelines."""
    text: dict[str, dict[str, object]] = {root: {} for root in ROOTS}
    for row in COMPONENTS:
        text[row.kind.root][row.name] = _written(row, tmp_path)
        if row.is_several:
            text[row.kind.root][f"{row.name}/more"] = _written(row, tmp_path / "more")

    def names(*kinds: Kind) -> list[str]:
        several = (
            (one.name, f"{one.name}/more") if one.is_several else (one.name,) for one in of_kinds(*kinds)
        )
        return [name for found in several for name in found]

    line = {"receivers": names(Kind.RECEIVER), "exporters": names(Kind.AGGREGATOR, Kind.BATCH_EXPORTER)}
    snapshots = {"receivers": ["aggregator"], "exporters": names(Kind.SNAPSHOT_EXPORTER)}
    text["service"] = {
        "extensions": names(Kind.EXTENSION),
        "pipelines": {**dict.fromkeys(SIGNALS, line), "snapshots": snapshots},
    }
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump(text))
    return file


def test_all_rows_start_and_stop_together(tmp_path: Path) -> None:
    """Each is healthy by its whole name while the collector runs, and no stop fails."""
    found = load(_all(tmp_path), ["service.telemetry.metrics.address=127.0.0.1:0"])
    with running(tmp_path, found) as service:
        named = {name for parts in found.graph.values() for name in parts}
        assert (
            len(named) == sum(1 + one.is_several for one in COMPONENTS) + 1
        )  # the aggregator is in two kinds
        assert service.context.urls.get("metrics/more") is not None
    assert service.failed_stops == 0


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every component of these tests can be set to."""

    word: str = "yes"
    """A word."""


class ReceiverSection(_Section, frozen=True, kw_only=True):
    """Of a receiver."""


class BatchSection(_Section, frozen=True, kw_only=True):
    """Of an exporter of batches."""


class FrameSection(_Section, frozen=True, kw_only=True):
    """Of an exporter of snapshots."""


class ExtensionSection(_Section, frozen=True, kw_only=True):
    """Of an extension."""


class Noted:
    """A component that notes what becomes of it."""

    notes: ClassVar[list[tuple[str, str, str]]] = []

    def __init__(self, section: _Section, _: Context, name: str) -> None:
        self._name, self._word = name, section.word
        self._note("made")

    def _note(self, what: str) -> None:
        self.notes.append((self._name, self._word, what))

    def start(self) -> None:
        """Begin."""
        self._note("started")

    def publish(self, _: object) -> None:
        """Take a frame."""

    def close(self) -> None:
        """No more frames come."""

    def stop(self) -> None:
        """End."""
        self._note("stopped")


STRANGERS: Final = {
    Kind.RECEIVER: ReceiverSection,
    Kind.BATCH_EXPORTER: BatchSection,
    Kind.SNAPSHOT_EXPORTER: FrameSection,
    Kind.EXTENSION: ExtensionSection,
}


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str]]:
    """A stranger's component of each kind in the table: one row each."""
    factory = f"{__name__}:{Noted.__name__}"
    more = [
        Component(name=f"my_{kind.name.lower()}", kind=kind, config=config, about="Mine.", factory=factory)
        for kind, config in STRANGERS.items()
    ]
    monkeypatch.setattr(components, "COMPONENTS", (*COMPONENTS, *more))
    monkeypatch.setattr(Noted, "notes", [])
    return Noted.notes


def test_a_row_and_its_file_are_all_that_a_new_component_takes(
    noted: list[tuple[str, str, str]], tmp_path: Path
) -> None:
    """It is set, doubled, printed, listed by a pipeline, made, started and stopped."""
    line = "{receivers: [otlp, my_receiver/b], exporters: [aggregator, my_batch_exporter/b]}"
    found = config(
        tmp_path,
        *(f"{kind.root}.my_{kind.name.lower()}/b.word=two" for kind in STRANGERS),
        f"service.pipelines.logs={line}",
        "service.pipelines.snapshots={receivers: [aggregator], exporters: [my_snapshot_exporter/b]}",
        "service.extensions=[file_storage, my_extension/b]",
    )

    assert yaml.safe_load(as_yaml(found))["receivers"]["my_receiver/b"] == {"word": "two"}
    with running(tmp_path, found):
        pass

    names = {f"my_{kind.name.lower()}/b" for kind in STRANGERS}
    for what in ("made", "started", "stopped"):
        assert {name for name, word, done in noted if done == what and word == "two"} == names
    assert {name for name, *_ in noted} == names, "what no pipeline lists is not made"


def test_what_no_pipeline_lists_is_not_started(noted: list[tuple[str, str, str]], tmp_path: Path) -> None:
    """Be it set: an exporter, an extension, and a receiver as well."""
    found = config(tmp_path, *(f"{kind.root}.my_{kind.name.lower()}.word=one" for kind in STRANGERS))
    with running(tmp_path, found):
        pass
    assert noted == []


def test_a_pipeline_refuses_a_component_of_another_kind(
    noted: list[tuple[str, str, str]], tmp_path: Path
) -> None:
    """With the names that it can list, a new one among them."""
    with pytest.raises(ConfigError) as refused:
        config(tmp_path, "service.pipelines.logs.exporters=[aggregator, prometheus]")
    assert "'prometheus' is not defined here; there is aggregator, otlp_file" in str(refused.value)
    assert "my_batch_exporter" in str(refused.value)
    assert noted == []


def test_rows_are_found_by_their_sections() -> None:
    """The section names the row, whatever its root."""
    assert [row_of(one.config) for one in COMPONENTS] == list(COMPONENTS)
    assert {name for root in ROOTS for name in table(root)} == {one.name for one in COMPONENTS}
