"""Compiled protocol buffers: made from their source, checked with all generated files, for any runtime."""

import sys
from pathlib import Path

import pytest

from overwatch.generate import protos, stale_files, write_files


def test_a_stale_one_is_noticed_and_written(tmp_path: Path) -> None:
    """Like every generated file."""
    write_files(tmp_path)
    assert stale_files(tmp_path) == []
    names = set(protos.FILES)
    assert len(names) == 2 * len(protos.SOURCES)
    for name in names:
        with (tmp_path / name).open("a") as file:
            file.write("# edited\n")
    assert set(stale_files(tmp_path)) == names


def test_it_asks_for_no_newer_runtime_than_the_project() -> None:
    """The compiler is a tool of developers; who installs the package may have an older protobuf."""
    for make in protos.FILES.values():
        text = make()
        assert text.startswith("# Made by `make generate`")
        assert "runtime_version" not in text.lower().replace(
            "validateprotobufruntimeversion", "runtime_version"
        )


def test_without_the_compiler_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an installation without the extra of developers."""
    monkeypatch.setitem(sys.modules, "grpc_tools", None)
    protos._compiled.cache_clear()
    try:
        with pytest.raises(protos.NoCompilerError, match="pip install grpcio-tools"):
            next(iter(protos.FILES.values()))()
    finally:
        protos._compiled.cache_clear()
