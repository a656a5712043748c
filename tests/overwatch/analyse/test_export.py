"""`overwatch export`: what other programs read is what the run emitted."""

import csv
import io
import json
import math
import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from overwatch.analyse.export import crc32c, export, openmetrics
from overwatch.analyse.rows import rows
from overwatch.analyse.run_history import AnalyseError, RunHistory
from overwatch.catalog import KL, prometheus_name
from tests.overwatch.analyse.reading import read_history
from tests.overwatch.feeds import otlpfiles
from tests.overwatch.simulate.runs import overwatch

NAME = prometheus_name(KL)


def _families(text: str) -> Iterator[Metric]:
    families: Iterator[Metric] = text_string_to_metric_families(text)  # type: ignore[no-untyped-call]  # theirs
    return families


def _openmetrics(run_history: RunHistory) -> str:
    return "".join(text for text, _ in openmetrics(run_history))


def _table(file: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(file.read_text())))


def _kl(run_history: RunHistory) -> list[float]:
    return list(run_history.curves.policy[KL.short].value)


def test_csv_holds_every_value_exactly(storm: Path, run_history: RunHistory, tmp_path: Path) -> None:
    """With its update, steps and times."""
    out = tmp_path / "run.csv"
    assert overwatch("export", storm, "--to", "csv", "-o", out).exit_code == 0
    reported = [row for row in _table(out) if row["metric"] == KL.name]

    assert [float(row["value"]) for row in reported] == _kl(run_history)
    assert [float(row["update"]) for row in reported] == list(run_history.curves.policy[KL.short].update)
    assert {row["run"] for row in reported} == {"storm"}
    assert float(reported[0]["time"]) == pytest.approx(run_history.began + float(reported[0]["at"]))


@pytest.mark.parametrize("table", ["findings", "events", "envs"])
def test_other_tables_hold_what_query_finds(run_history: RunHistory, tmp_path: Path, table: str) -> None:
    """A line a row."""
    out = tmp_path / "rows.csv"
    count = export(run_history, "csv", out, table)
    reported = _table(out)
    found = rows(run_history, (table.removesuffix("s"),))

    assert count == len(reported) == len(found) > 0
    assert [row["text"] for row in reported] == [row.text for row in found]
    assert [json.loads(row["fields"]) for row in reported] == [row.fields for row in found]


def test_a_value_that_was_not_finite_is_missing(run_history: RunHistory, tmp_path: Path) -> None:
    """Empty in CSV, no sample in OpenMetrics; never 0."""
    broken = _anew(run_history)
    broken.curves.policy[KL.short].value[3] = math.nan
    export(broken, "csv", tmp_path / "run.csv")
    reported = [row["value"] for row in _table(tmp_path / "run.csv") if row["metric"] == KL.name]
    samples = [line for line in _openmetrics(broken).splitlines() if line.startswith(f"{NAME}{{")]

    assert reported[3] == ""
    assert len(samples) == len(reported) - 1
    assert "nan" not in "".join(samples).lower()


def _anew(run_history: RunHistory) -> RunHistory:
    """Another story of the same recording."""
    return read_history(run_history.path / "snapshots.jsonl")


def test_parquet_holds_the_same_table(run_history: RunHistory, tmp_path: Path) -> None:
    """With types, nulls and the run's name."""
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed (extra `parquet`)")
    for table in ("metrics", "findings"):
        export(run_history, "parquet", tmp_path / "run.parquet", table)
        export(run_history, "csv", tmp_path / "run.csv", table)
        reported = parquet.read_table(tmp_path / "run.parquet")
        lines = _table(tmp_path / "run.csv")

        assert reported.column_names == list(lines[0])
        assert reported.num_rows == len(lines)
        assert reported.schema.metadata[b"run"] == b"storm"
        for row, line in zip(reported.to_pylist(), lines, strict=True):
            assert {name: "" if value is None else str(value) for name, value in row.items()} == line


def test_parquet_without_its_extra_names_it(
    run_history: RunHistory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that it can be installed."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    with pytest.raises(AnalyseError, match=r'pip install "esper-overwatch\[parquet\]"'):
        export(run_history, "parquet", tmp_path / "run.parquet")


def test_openmetrics_is_read_by_a_strict_parser(run_history: RunHistory) -> None:
    """Under the names of `/metrics`, with times that rise."""
    text = _openmetrics(run_history)
    families = {family.name: family for family in _families(text)}
    samples = families[NAME].samples

    assert [sample.value for sample in samples] == _kl(run_history)
    times = [float(sample.timestamp) for sample in samples if sample.timestamp is not None]
    assert times == sorted(set(times))
    assert samples[0].labels == {"rl_run_id": "storm"}
    assert {sample.labels["hw_id"] for sample in families["hw_gpu_utilization_ratio"].samples} == {
        "gpu0",
        "gpu1",
    }


def test_openmetrics_escapes_what_a_run_is_called(run_history: RunHistory) -> None:
    """Quotes, backslashes and line ends in its id and in names of its own."""
    hostile = 'a"b\\c\nd'
    broken = _anew(run_history)
    run = msgspec.structs.replace(broken.run, run_id=hostile)
    broken.last = msgspec.structs.replace(broken.last, run=run)
    broken.curves.policy[KL.short].name = "0 my\nown %"
    text = _openmetrics(broken)

    families = {family.name: family for family in _families(text)}
    assert families["overwatch_custom_0_my_own"].samples[0].labels["rl_run_id"] == hostile


def test_prometheus_makes_blocks_of_it(storm: Path, tmp_path: Path) -> None:
    """All samples, by its own tool."""
    if shutil.which("promtool") is None:
        pytest.skip("no promtool on this machine (Debian: apt install prometheus)")
    out = tmp_path / "run.om"
    stated = overwatch("export", storm / "snapshots.jsonl", "--to", "openmetrics", "-o", out)
    done = subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(out), str(tmp_path / "data")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    count = stated.stdout.split(": ")[1].split(" ")[0].replace(",", "")
    assert count in done.stdout.split()


def _records(data: bytes) -> Iterator[bytes]:
    """Messages of a TFRecord file; asserts both checksums of each."""

    def masked(part: bytes) -> int:
        crc = crc32c(part)
        return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF

    stream = io.BytesIO(data)
    while head := stream.read(12):
        length, check = struct.unpack("<QI", head)
        assert check == masked(head[:8])
        message = stream.read(length)
        assert struct.unpack("<I", stream.read(4))[0] == masked(message)
        yield message


def test_checksums_are_those_of_the_standard() -> None:
    """RFC 3720, B.4, and the usual check value."""
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(bytes([0xFF]) * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E


def test_tensorboard_files_are_whole_records(run_history: RunHistory, tmp_path: Path) -> None:
    """One that states its version, then the values; written again, it replaces itself."""
    for _ in range(2):
        export(run_history, "tensorboard", tmp_path / "logs")
    (file,) = (tmp_path / "logs").iterdir()
    messages = list(_records(file.read_bytes()))

    assert file.name.startswith("events.out.tfevents.")
    assert messages[0].endswith(b"\x1a\x0dbrain.Event:2")
    assert sum(message.count(b"policy/kl_divergence") for message in messages) == len(_kl(run_history))


_READ = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
read = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
read.Reload()
tags = read.Tags()["scalars"]
print(json.dumps({tag: [[one.step, one.value] for one in read.Scalars(tag)] for tag in tags}))
"""


def test_tensorboard_itself_reads_them(run_history: RunHistory, tmp_path: Path) -> None:
    """Every value of KL at its update."""
    python = os.environ.get("OVERWATCH_BENCH_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import tensorboard"], capture_output=True, check=False).returncode:
        pytest.skip("no tensorboard here; OVERWATCH_BENCH_PYTHON may name a Python that has it")
    export(run_history, "tensorboard", tmp_path / "logs")
    done = subprocess.run(
        [python, "-c", _READ, str(tmp_path / "logs")], capture_output=True, text=True, check=True, timeout=120
    )
    reported = json.loads(done.stdout)

    curve = run_history.curves.policy[KL.short]
    assert [step for step, _ in reported["policy/kl_divergence"]] == [
        round(update) for update in curve.update
    ]
    assert [value for _, value in reported["policy/kl_divergence"]] == pytest.approx(
        _kl(run_history), rel=1e-6
    )
    assert "gpu/utilization/gpu1" in reported


@pytest.mark.parametrize(
    ("words", "stated"),
    [
        (("--to", "xml", "-o", "x"), "'xml' is not one of"),
        (("--to", "openmetrics", "--table", "events", "-o", "x"), "holds metrics only"),
        (("--to", "tensorboard", "-o", "-"), "needs a folder"),
        (("--to", "wandb", "--table", "envs", "-o", "x"), "wandb holds metrics only"),
        (("--to", "parquet", "-o", "-"), "name a file"),
        (("--to", "csv", "-o", "."), "is a folder"),
        (("--to", "csv"), "--out"),
    ],
)
def test_bad_input_is_status_2(storm: Path, words: tuple[str, ...], stated: str) -> None:
    """Naming what is wrong."""
    result = overwatch("export", storm / "snapshots.jsonl", *words)

    assert result.exit_code == 2
    assert stated in result.stderr


def test_a_disk_that_takes_nothing_leaves_nothing(storm: Path, tmp_path: Path) -> None:
    """No half a file, no part of one."""
    (tmp_path / "file").touch()
    result = overwatch(
        "export", storm / "snapshots.jsonl", "--to", "csv", "-o", tmp_path / "file" / "run.csv"
    )

    assert result.exit_code == 2
    assert "run.csv cannot be written" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_csv_and_openmetrics_are_printed(storm: Path) -> None:
    """With `-o -`."""
    log = storm / "snapshots.jsonl"

    assert overwatch("export", log, "--to", "csv", "-o", "-").stdout.startswith("run,metric,unit,gpu,time")
    assert overwatch("export", log, "--to", "openmetrics", "-o", "-").stdout.endswith("# EOF\n")


def test_steps_that_no_producer_numbered_are_absent_everywhere(tmp_path: Path) -> None:
    """A run of returns alone: its steps are no 0 in text, JSON or table, and nothing is aligned by them."""
    path = otlpfiles.written(tmp_path / "a.json", otlpfiles.lines(map(otlpfiles.metrics, range(1, 9))))
    summary = overwatch("replay", path, "--summary").stdout
    last = json.loads(overwatch("replay", path).stdout.splitlines()[-1])
    compared = overwatch("compare", path, path)
    rows = list(csv.DictReader(io.StringIO(overwatch("export", path, "--to", "csv", "-o", "-").stdout)))
    by_steps = overwatch("compare", path, path, "--align", "steps")

    assert not re.search(r"\b0 (steps|episodes)", summary + compared.stdout + compared.stderr)
    assert ("steps" in last["counters"], last["run"]["steps"]) == (False, None)
    assert {row["steps"] for row in rows} == {""}
    assert (by_steps.exit_code, "has no env steps to align by" in by_steps.stderr) == (2, True)
