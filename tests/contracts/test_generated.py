"""Committed files equal what their generators make."""

from pathlib import Path

import jsonschema
import msgspec
import pytest

from overwatch.generate import FILES, stale_files, write_files

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", FILES)
def test_a_committed_file_equals_its_generator(name: str) -> None:
    """Nobody edited the file, and nobody forgot to generate it."""
    assert (ROOT / name).read_text(encoding="utf-8") == FILES[name]()


def test_a_stale_file_is_noticed_and_rewritten(tmp_path: Path) -> None:
    """An edited copy is reported, and writing repairs it."""
    write_files(tmp_path)
    (tmp_path / "docs/catalog.md").write_text("edited by hand")

    assert stale_files(tmp_path) == ["docs/catalog.md"]
    assert write_files(tmp_path) == ["docs/catalog.md"]
    assert stale_files(tmp_path) == []


def test_the_snapshot_schema_is_a_valid_json_schema() -> None:
    """The published schema can be used as one."""
    schema = msgspec.json.decode(FILES["otel/snapshot.schema.json"]())

    jsonschema.Draft202012Validator.check_schema(schema)
