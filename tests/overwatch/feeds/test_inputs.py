"""Opening whatever a person names: by what it holds, whole or damaged, and an error for what is nothing."""

import gzip
import io
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from overwatch import codec
from overwatch.feeds.inputs import STDIN, Input, open_input
from overwatch.feeds.recording import Recording, RecordingError
from overwatch.feeds.snapshotlog import SnapshotLog
from overwatch.journal import DurableJournal, Folder, Signal
from overwatch.snapshot import SCHEMA_VERSION
from tests.overwatch.feeds import otlpfiles
from tests.overwatch.feeds.recordings import two_lives

SENT = otlpfiles.reported(range(1, 8))
PLAIN = otlpfiles.lines(SENT)
PROTO = [otlpfiles.protobuf(request) for request in SENT]


def _lines(opened: Input) -> list[bytes]:
    return [codec.encode(snapshot) for snapshot in opened.recorded()]


def _usual(tmp_path: Path) -> list[bytes]:
    """What the plain file comes to."""
    return _lines(open_input(otlpfiles.written(tmp_path / "usual.json", PLAIN)))


def _zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


def _joined(between: str, reported: list[dict[str, Any]] = SENT, indent: int | None = None) -> bytes:
    return between.join(json.dumps(one, indent=indent) for one in reported).encode()


def _mixed() -> bytes:
    texts = (json.dumps(one, indent=2 if place % 3 else None) for place, one in enumerate(SENT))
    return "\n".join(texts).encode()


def _together() -> list[dict[str, Any]]:
    """Requests of one moment as one object."""
    return [{**a, **b, **c} for a, b, c in zip(SENT[::3], SENT[1::3], SENT[2::3], strict=True)]


SHAPES: dict[str, Callable[[], bytes]] = {
    "JSON lines": lambda: PLAIN,
    "JSON lines with CRLF": lambda: PLAIN.replace(b"\n", b"\r\n"),
    "JSON lines after a byte order mark": lambda: b"\xef\xbb\xbf" + PLAIN,
    "JSON lines with blank ones between": lambda: PLAIN.replace(b"\n", b"\n\n  \n"),
    "JSON lines without the last line end": lambda: PLAIN[:-1],
    "JSON lines, packed as a whole with zstd": lambda: _zstd(PLAIN),
    "JSON lines in two zstd frames": lambda: _zstd(PLAIN[:3000]) + _zstd(PLAIN[3000:]),
    "JSON lines, packed as a whole with gzip": lambda: gzip.compress(PLAIN),
    "JSON objects over many lines": lambda: _joined("\n", indent=2),
    "JSON objects over many lines with CRLF": lambda: _joined("\n", indent=1).replace(b"\n", b"\r\n"),
    "JSON objects over many lines after a byte order mark": lambda: b"\xef\xbb\xbf" + _joined("", indent=2),
    "JSON objects one behind another": lambda: _joined(""),
    "JSON objects with blanks between": lambda: b"\n \n" + _joined(" \t "),
    "JSON lines and objects over many lines": _mixed,
    "a JSON array": lambda: json.dumps(SENT).encode(),
    "a JSON array over many lines": lambda: json.dumps(SENT, indent="\t").encode() + b"\n",
    "a JSON array, an element a line": lambda: b"[\n" + _joined(",\n") + b"\n]\n",
    "several JSON arrays": lambda: json.dumps(SENT[:5]).encode() + json.dumps(SENT[5:], indent=2).encode(),
    "a JSON array, packed with gzip": lambda: gzip.compress(json.dumps(SENT).encode()),
    "JSON objects over many lines, packed with zstd": lambda: _zstd(_joined("\n", indent=2)),
    "JSON objects of all three signals": lambda: _joined("\n", _together()),
    "protobuf messages": lambda: otlpfiles.framed(PROTO),
    "protobuf messages, each packed": lambda: otlpfiles.packed(PROTO),
    "JSON messages, each packed": lambda: otlpfiles.packed(json.dumps(one).encode() for one in SENT),
    "protobuf messages, packed as a whole": lambda: _zstd(otlpfiles.framed(PROTO)),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_form_of_an_otlp_file_is_the_same_replay(tmp_path: Path, shape: str) -> None:
    """As the specification's file exporter and otelcol's write them; the name states nothing."""
    opened = open_input(otlpfiles.written(tmp_path / "a.file", SHAPES[shape]()))

    assert _lines(opened) == _usual(tmp_path)
    assert isinstance(opened, Recording)
    assert (opened.bad_lines, opened.bad_batches) == (0, 0)
    assert "newest time" in opened.remarks()[0]


def test_what_a_foreign_file_holds_is_shown(tmp_path: Path) -> None:
    """Its metrics as custom numbers, its log lines in the feed, under its run."""
    *_, last = open_input(otlpfiles.written(tmp_path / "a.json", PLAIN)).recorded()

    assert last.run.run_id == otlpfiles.RUN
    assert any("an epoch is over" in line.message for line in last.feed)
    assert last.policy


def test_records_come_with_the_times_that_stand_for_their_receipt(tmp_path: Path) -> None:
    """Decoded, in order, each batch at the newest time in it."""
    opened = open_input(otlpfiles.written(tmp_path / "a.json", PLAIN))
    assert isinstance(opened, Recording)
    reported = list(opened.reported())

    assert [round(stamp / 1e9) - otlpfiles.START_S for stamp, _ in reported] == [
        s for s in range(1, 8) for _ in "abc"
    ]
    assert [stamp for stamp, _ in reported] == sorted({stamp for stamp, _ in reported})
    assert all(decoded.records for _, decoded in reported[::3])


def test_rotated_and_packed_files_of_a_folder_are_one_replay(tmp_path: Path) -> None:
    """Whatever they are called, in whatever form; the order is that of the times in them."""
    usual = _usual(tmp_path)
    here = tmp_path / "exported"
    otlpfiles.written(here / "out.json", otlpfiles.lines(SENT[15:]))
    otlpfiles.written(here / "out-2026-01-01T00-00-02.000.json", otlpfiles.packed(PROTO[9:15]))
    otlpfiles.written(here / "older" / "out-2025.json.gz", gzip.compress(otlpfiles.lines(SENT[:9])))

    assert _lines(open_input(here)) == usual


def test_bad_lines_are_counted_and_their_neighbours_are_unharmed(tmp_path: Path) -> None:
    """Garbage, JSON of something else, binary, a line cut in the middle, one at the end."""
    each = PLAIN.splitlines(keepends=True)
    wrong = [b"garbage\n", b'{"a": 1}\n', b"[1, 2]\n", b"\x00\xff\xfe\n", each[4][:100] + b"\n", b"null\n"]
    data = b"".join([*each[:5], *wrong, *each[5:], each[0][:77]])
    opened = open_input(otlpfiles.written(tmp_path / "a.json", data))

    assert _lines(opened) == _usual(tmp_path)
    assert isinstance(opened, Recording)
    assert opened.bad_lines == len(wrong) + 1
    assert any("cut off at the end" in line for line in opened.remarks())


def test_a_line_of_a_hundred_megabytes_is_passed_over(tmp_path: Path) -> None:
    """It is not held in memory, and counted."""
    with (tmp_path / "a.json").open("wb") as file:
        file.write(PLAIN[: PLAIN.index(b"\n") + 1])
        for _ in range(100):
            file.write(b"x" * (1 << 20))
        file.write(b"\n" + PLAIN[PLAIN.index(b"\n") + 1 :])
    opened = open_input(tmp_path / "a.json")

    assert _lines(opened) == _usual(tmp_path)
    assert any("1 passed over: longer than 64 MiB" in line for line in opened.remarks())


@pytest.mark.sampled(6)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_truncated_file_is_read_as_far_as_it_goes(tmp_path: Path, shape: str) -> None:
    """At many places; never an exception but that nothing is left of it."""
    whole = SHAPES[shape]()
    usual = _usual(tmp_path)
    for length in range(1, len(whole), max(1, len(whole) // 23)):
        path = otlpfiles.written(tmp_path / "cut.file", whole[:length])
        try:
            shown = _lines(open_input(path))
        except RecordingError as error:
            assert "nothing that can be replayed" in str(error)  # noqa: PT017 both are right
        else:
            assert len(shown) <= len(usual)


def test_a_silence_of_more_than_a_minute_is_left_out(tmp_path: Path) -> None:
    """Two sessions a day apart replay at once: the day between is not folded tick by tick."""
    data = otlpfiles.lines([*otlpfiles.reported(range(1, 4)), *otlpfiles.reported(range(86_400, 86_403))])
    frames = list(open_input(otlpfiles.written(tmp_path / "a.json", data)).frames())

    assert len(frames) < 700
    assert frames[-1].tick // 10**9 == otlpfiles.START_S + 86_402


def test_a_journal_replays_what_was_accepted(tmp_path: Path) -> None:
    """The folder, the one above it, or one of its files; with the stamps of the collector."""
    clock = iter(range(otlpfiles.START_S * 10**9, 1 << 62, 10**9 // 3))
    folder = Folder(tmp_path / "data" / "journal")
    journal = DurableJournal(folder, lambda: next(clock))
    journal.append(Signal.START, b'{"version":"1","pid":1,"config_digest":""}')
    for request, body in zip(SENT, PROTO, strict=True):
        signal = {"L": Signal.LOGS, "M": Signal.METRICS, "S": Signal.TRACES}[next(iter(request))[8]]
        journal.append(signal, body)
    journal.close()
    folder.close()
    segment = next((tmp_path / "data" / "journal").glob("*.ow1"))
    opened = open_input(tmp_path / "data")
    assert isinstance(opened, Recording)
    stamps = [stamp for stamp, _ in opened.reported()]

    assert stamps == [otlpfiles.START_S * 10**9 + n * (10**9 // 3) for n in range(1, 1 + len(SENT))]
    assert _lines(open_input(segment)) == _lines(open_input(segment.parent)) == _lines(opened) != []


def test_a_log_of_snapshots_is_shown_as_it_is(tmp_path: Path) -> None:
    """Its lines in order; other versions and what is no snapshot are counted."""
    live = _lines(open_input(two_lives(tmp_path / "otlp")))
    old = live[0].replace(SCHEMA_VERSION.encode(), b"0.9", 1)
    data = b"\xef\xbb\xbf" + b"\r\n".join([live[0], old, b"{}", b"garbage", *live[1:], live[-1][:50]])
    opened = open_input(otlpfiles.written(tmp_path / "snapshots.jsonl", data))

    assert isinstance(opened, SnapshotLog)
    assert _lines(opened) == live
    assert [len(frame.recorded) for frame in opened.frames()] == [1] * len(live)
    assert any("schema version 0.9, this build reads" in line for line in opened.remarks())
    assert opened.account.skipped == 4


def test_a_log_of_another_major_version_alone_is_refused(tmp_path: Path) -> None:
    """The message names both versions."""
    live = _lines(open_input(two_lives(tmp_path / "otlp")))
    path = otlpfiles.written(tmp_path / "old.jsonl", live[0].replace(SCHEMA_VERSION.encode(), b"0.9", 1))

    with pytest.raises(RecordingError, match=r"schema version 0\.9, this build reads"):
        open_input(path)


def test_a_folder_of_all_plays_batches_and_names_what_it_leaves_out(tmp_path: Path) -> None:
    """Several recordings and files below one folder are one replay in the order of their times."""
    two_lives(tmp_path / "runs" / "a" / "otlp")
    snapshots = _lines(open_input(tmp_path / "runs" / "a"))
    otlpfiles.written(tmp_path / "runs" / "b.json", PLAIN)
    otlpfiles.written(tmp_path / "runs" / "snapshots.jsonl", b"\n".join(snapshots) + b"\n")
    otlpfiles.written(tmp_path / "runs" / "notes.txt", b"hello\n")
    otlpfiles.written(tmp_path / "runs" / "nothing", b"")
    opened = open_input(tmp_path / "runs")

    assert len({snapshot.run.run_id for snapshot in opened.recorded()}) == 2
    stated = " ".join(opened.remarks())
    assert "snapshots.jsonl: a log of snapshots is not played" in stated
    assert "notes.txt (neither OTLP nor snapshots)" in stated
    assert "nothing (empty)" in stated


def test_an_index_names_its_folder(tmp_path: Path) -> None:
    """So does the folder above it, and so do a folder's data files without their index."""
    folder = two_lives(tmp_path / "otlp")
    usual = _lines(open_input(folder))
    assert _lines(open_input(folder / "index.jsonl")) == _lines(open_input(tmp_path)) == usual
    shutil.copy(folder / "logs.jsonl", tmp_path / "alone.jsonl")
    alone = open_input(tmp_path / "alone.jsonl")

    assert isinstance(alone, Recording)
    assert len(list(alone.batches())) >= 41 + 23


def test_standard_input_is_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `-`."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(PLAIN)))

    assert _lines(open_input(STDIN)) == _usual(tmp_path)


@pytest.mark.parametrize(
    "data",
    [b"", b"\n\n", b"hello\n", b"\x00" * 64, b"{}\n", b"\x28\xb5\x2f\xfd", b"\x1f\x8b\x08", b"{" * 5000],
)
def test_what_is_nothing_of_these_is_refused(tmp_path: Path, data: bytes) -> None:
    """A clear message names the file, what it is, and what can be named."""
    path = otlpfiles.written(tmp_path / "a.file", data)
    with pytest.raises(
        RecordingError, match=r"a\.file holds nothing that can be replayed; found .* Name a folder"
    ):
        open_input(path)
    with pytest.raises(RecordingError, match="is not there"):
        open_input(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RecordingError, match="there is nothing in it"):
        open_input(tmp_path / "empty")


def test_requests_without_any_time_are_of_the_time_of_others_or_of_the_file(tmp_path: Path) -> None:
    """Of the one before, else of the first with a time, else of when the file was written: never of 1970."""
    timeless = otlpfiles.logs(1, "no time")
    del timeless["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0]["timeUnixNano"]
    wrong = otlpfiles.logs(1, "in seconds", timeUnixNano="1700000000")
    path = otlpfiles.written(tmp_path / "a.json", otlpfiles.lines([timeless]))
    os.utime(path, (otlpfiles.START_S + 50, otlpfiles.START_S + 50))
    (shown,) = open_input(path).recorded()
    assert {line.time for line in shown.feed} == {otlpfiles.START_S + 50}

    reported = [timeless, wrong, otlpfiles.logs(3.5), timeless]
    *_, last = open_input(otlpfiles.written(path, otlpfiles.lines(reported))).recorded()
    assert [round(line.time, 3) for line in last.feed] == [otlpfiles.START_S + 3.5] * 3
