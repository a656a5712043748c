"""A registry's files are read back as they were meant; what cannot be read is reported with its place."""

from pathlib import Path

import pytest
import yaml

from overwatch.conventions import registry
from overwatch.conventions.model import Level, Registry
from overwatch.conventions.policies import check, compare
from overwatch.generate.registry import FILES
from overwatch.generate.registry_reading import RegistryFileError, read_registry

_HEAD = "file_format: definition/2\n"
_OWN = """
attributes:
- {key: my.mode, type: {members: [{id: a, value: a}, {id: b, value: b}]}, brief: A mode.}
- {key: my.code, type: {members: [{id: a, value: 1}]}, brief: A code.}
metrics:
- name: my.metric
  instrument: gauge
  unit: s
  brief: A metric.
  attributes: [{ref: my.mode, requirement_level: {recommended: sometimes}}, {ref: host.name}]
  entity_associations: [{one_of: [host, service]}]
"""


def _written(folder: Path) -> Path:
    for path, text in FILES.items():
        (folder / Path(path).name).write_text(text())
    return folder


def _read(folder: Path, text: str) -> Registry:
    (folder / "own.yaml").write_text(text)
    return read_registry(folder)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    """Nothing is lost on the way, nothing is new, and no policy is broken."""
    read, own = read_registry(_written(tmp_path)), registry()

    assert compare(own, read) == compare(read, own) == check(read) == []
    assert {key: (one.kind, one.members) for key, one in read.attributes.items() if not one.imported} == {
        key: (one.kind, one.members) for key, one in own.attributes.items() if not one.imported
    }
    assert {name: (one.unit, one.instrument, one.attributes, one.entities, one.exceptions)
            for name, one in read.metrics.items()} == {
        name: (one.unit, one.instrument, one.attributes, one.entities, one.exceptions)
        for name, one in own.metrics.items() if not one.imported
    }  # fmt: skip


def test_what_others_define_is_theirs(tmp_path: Path) -> None:
    """A level with words is read, members may be numbers, keys of a dependency are no mistake."""
    found = _read(tmp_path, _HEAD + _OWN)

    assert [found.attributes[key].kind for key in ("my.mode", "my.code")] == ["string", "int"]
    assert found.attributes["host.name"].imported
    assert [ref.level for ref in found.metrics["my.metric"].attributes] == [Level.RECOMMENDED] * 2
    assert check(found) == []


def test_a_slip_in_an_own_namespace_is_one(tmp_path: Path) -> None:
    """Otherwise a misspelt key would pass as somebody else's."""
    found = _read(tmp_path, _HEAD + _OWN.replace("ref: my.mode", "ref: my.mood"))

    assert [(one.policy, one.name) for one in check(found)] == [("unknown_attribute", "my.metric")]


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("groups: []", "file_format is None; only 'definition/2'"),
        ("- 1", "file_format is None"),
        ("{", "is no YAML"),
        (_HEAD + "metrics: [{name: a.b, instrument: gauge, unit: 3}]", r"\$.metrics\[0\].unit"),
        (_HEAD + "attributes: [{key: a.b, type: int}, {key: a.b, type: int}]", "'a.b' is defined twice"),
    ],
)
def test_what_cannot_be_read_is_reported_with_its_place(text: str, stated: str, tmp_path: Path) -> None:
    """File, path in it, and what is wanted."""
    with pytest.raises(RegistryFileError, match=stated) as raised:
        _read(tmp_path, text)
    assert "own.yaml" in str(raised.value)


def test_a_folder_without_a_registry_is_reported(tmp_path: Path) -> None:
    """A manifest alone is none."""
    (tmp_path / "manifest.yaml").write_text(yaml.safe_dump({"name": "x"}))

    with pytest.raises(RegistryFileError, match="holds no registry"):
        read_registry(tmp_path)
