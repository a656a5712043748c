"""`overwatch export --to wandb`: an offline run that W&B's own package wrote, read back from its log."""

import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from overwatch.analyse.export import moments
from overwatch.analyse.export_wandb import wandb_run
from overwatch.analyse.run_history import AnalyseError, RunHistory

BLOCK = 32_768


def _records(file: Path) -> Iterator[bytes]:
    """LevelDB's log, which W&B writes: blocks of pieces, each with checksum, length and place."""
    data, at, parts = file.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if BLOCK - at % BLOCK < 7:
            at += BLOCK - at % BLOCK
            continue
        length, place = struct.unpack_from("<HB", data, at + 4)
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if place in (1, 4):
            yield parts
            parts = b""


def _rows(file: Path) -> tuple[list[dict[str, Any]], Any]:
    """Each row of history, and the record of the run."""
    from wandb.proto.wandb_internal_pb2 import Record

    parsed = [Record.FromString(one) for one in _records(file)]
    rows = [
        {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in one.history.item}
        for one in parsed
        if one.WhichOneof("record_type") == "history"
    ]
    return rows, next(one.run for one in parsed if one.WhichOneof("record_type") == "run")


def test_wandb_has_every_value_over_its_update_or_second(run_history: RunHistory, tmp_path: Path) -> None:
    """With the time of the recording, under the run's id and configuration; nothing of this machine."""
    pytest.importorskip("wandb", reason="wandb is not installed (extra `wandb`)")
    count = wandb_run(run_history, tmp_path)
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    rows, run = _rows(file)
    found = moments(run_history)

    assert count == sum(len(one.values) for one in found) > 0
    assert len(rows) == len(found)
    for row, one in zip(rows, found, strict=True):
        assert {name: row[name] for name in one.values} == one.values
        assert row["update" if one.is_update else "second"] == one.step
        assert row["_timestamp"] == one.time
    assert (run.display_name, run.project, run.host) == (
        run_history.run.run_id,
        "overwatch",
        run_history.run.node or "",
    )
    assert {item.key for item in run.config.update} >= set(run_history.config)


def test_wandb_without_its_extra_names_it(
    run_history: RunHistory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that it can be installed; nothing is written."""
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(AnalyseError, match=r'pip install "esper-overwatch\[wandb\]"'):
        wandb_run(run_history, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_wandb_needs_a_folder(run_history: RunHistory, tmp_path: Path) -> None:
    """A file of that name is left as it is."""
    pytest.importorskip("wandb", reason="wandb is not installed (extra `wandb`)")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(AnalyseError, match="wandb needs a folder"):
        wandb_run(run_history, tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
