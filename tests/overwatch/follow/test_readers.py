"""Every format: rows are the same however the bytes are cut; what is no row is counted and ends nothing."""

import json
import math
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from overwatch.cli.follow import FORMATS
from overwatch.follow.base import Logged, Reader
from overwatch.follow.readers import READERS, Format, by_head, by_name
from overwatch.follow.readers.pattern import PatternReader, parse_pattern

OFFLINE = Path(__file__).parent / "recorded/offline.wandb"
"""History, settings and exit of 40 steps that wandb 0.31.0 wrote; other records were taken out."""


def event_file(folder: Path, *, new_style: bool = False) -> bytes:
    """Three steps of two scalars and a histogram, as PyTorch's writer writes them."""
    written_by = pytest.importorskip("torch.utils.tensorboard", reason="PyTorch writes the event files")
    with written_by.SummaryWriter(str(folder)) as writer:
        for step in range(3):
            writer.add_scalar("losses/value_loss", step + 0.5, step, walltime=1e9 + step, new_style=new_style)
            writer.add_scalar("losses/approx_kl", 0.25, step, walltime=1e9 + step, double_precision=False)
            writer.add_histogram("weights", np.array([1.0, 2.0, 3.0]), step)
    (file,) = folder.glob("*tfevents*")
    return file.read_bytes()


def _csv(_: Path) -> bytes:
    return b"step,loss,text,empty\n1,0.5,word,\n2,nan,word,\n3,-inf,word,7\n"


def _jsonl(_: Path) -> bytes:
    lines = [{"step": 1, "data": {"actor/kl": 0.5}}, {"a": {"b": {"c": 2}}, "bad": "NaN"}, {"x": [1, 2]}]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def _wandb(_: Path) -> bytes:
    return OFFLINE.read_bytes()


EXAMPLES: dict[str, Callable[[Path], bytes]] = {
    "csv": _csv,
    "jsonl": _jsonl,
    "wandb": _wandb,
    "tensorboard": event_file,
}
FILES = {
    "wandb": "run-1.wandb",
    "tensorboard": "events.out.tfevents.1.host",
    "jsonl": "metrics.jsonl",
    "csv": "progress.csv",
}


def rows_of(reader: Reader, data: bytes, size: int = 1 << 20) -> list[Logged]:
    """All rows of a file that comes in pieces of one size."""
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    return [row for piece in pieces for row in reader.feed(piece)]


def _merged(rows: list[Logged]) -> list[tuple[float | None, str, object]]:
    """Single values: a cut may end a row of event files early."""
    return [(row.step, name, repr(value)) for row in rows for name, value in row.values.items()]


def test_each_format_has_an_example_a_name_and_an_option() -> None:
    """A row that is new must be in the tables of these tests, and in the choices of the command."""
    assert [one.name for one in READERS] == list(FORMATS)
    assert set(EXAMPLES) == set(FILES) == set(FORMATS)


@pytest.mark.parametrize("kind", READERS, ids=lambda kind: kind.name)
def test_a_format_is_known_by_its_file_and_by_its_bytes(kind: Format, tmp_path: Path) -> None:
    """The name in a folder, the first bytes elsewhere, and no other format's bytes."""
    head = EXAMPLES[kind.name](tmp_path)[:4096]

    assert by_name(FILES[kind.name]) is kind
    assert by_head(head) is kind
    assert by_name("notes.txt") is None


@pytest.mark.parametrize("head", [b"", b"\0" * 64, bytes(range(255, 0, -1)), b"one word\n", b"\xff\xd8\xff"])
def test_bytes_of_no_format_are_of_none(head: bytes) -> None:
    """Nothing, zeros, noise, prose and a picture."""
    assert by_head(head) is None


@pytest.mark.parametrize("kind", READERS, ids=lambda kind: kind.name)
def test_rows_are_the_same_however_the_bytes_are_cut(kind: Format, tmp_path: Path) -> None:
    """Whole, in pieces of a few bytes, and byte by byte."""
    data = EXAMPLES[kind.name](tmp_path)
    whole = _merged(rows_of(kind.make(), data))

    assert whole
    assert _merged(rows_of(kind.make(), data, random.randint(2, 99))) == whole  # noqa: S311 a test
    assert _merged(rows_of(kind.make(), data, 1)) == whole


@pytest.mark.parametrize("kind", READERS, ids=lambda kind: kind.name)
def test_a_file_that_is_cut_gives_what_is_whole_and_counts_the_rest(kind: Format, tmp_path: Path) -> None:
    """The last byte but one is missing, or a cell: nothing half is given, and the end is counted once."""
    data = EXAMPLES[kind.name](tmp_path)
    whole, reader = _merged(rows_of(kind.make(), data)), kind.make()
    cut = _merged(rows_of(reader, data.rpartition(b",")[0] if kind.name == "csv" else data[:-2]))
    assert not reader.end()

    assert cut == whole[: len(cut)]
    assert list(reader.known.problems.values()) == [1]


@pytest.mark.parametrize("kind", READERS, ids=lambda kind: kind.name)
def test_damage_anywhere_raises_nothing(kind: Format, tmp_path: Path) -> None:
    """Bytes that were turned over, left out or put in give other rows, or none, and no exception."""
    data = EXAMPLES[kind.name](tmp_path)
    for _ in range(60):
        place, noise = random.randrange(len(data)), random.randbytes(random.randint(0, 20))  # noqa: S311 a test
        reader = kind.make()
        rows_of(reader, data[:place] + noise + data[place + random.randint(0, 20) :], 700)  # noqa: S311 a test
        reader.end()


@pytest.mark.parametrize("kind", READERS, ids=lambda kind: kind.name)
def test_a_file_that_begins_anew_is_read_from_there(kind: Format, tmp_path: Path) -> None:
    """After half a file a new one: all of its rows."""
    data, reader = EXAMPLES[kind.name](tmp_path), kind.make()
    rows_of(reader, data[: len(data) // 2])
    reader.restart()

    assert _merged(rows_of(reader, data)) == _merged(rows_of(kind.make(), data))


@pytest.mark.parametrize("new_style", [False, True])
def test_scalars_of_one_step_are_a_row_with_its_time(tmp_path: Path, *, new_style: bool) -> None:
    """A simple value and a tensor alike; histograms are no numbers."""
    reader = READERS[1].make()
    rows = rows_of(reader, event_file(tmp_path, new_style=new_style))

    assert [(row.step, row.values) for row in rows] == [
        (step, {"losses/value_loss": step + 0.5, "losses/approx_kl": 0.25}) for step in range(3)
    ]
    assert [row.at for row in rows][:2] == [1e9, pytest.approx(1e9 + 1)]
    assert not reader.known.problems


def test_a_record_with_a_wrong_checksum_is_passed_over(tmp_path: Path) -> None:
    """One bit in the last scalar; then a broken length, after which reading goes on."""
    data = bytearray(event_file(tmp_path))
    place = data.rindex(b"losses/approx_kl")
    data[place] ^= 1
    reader = READERS[1].make()
    rows = rows_of(reader, bytes(data))
    broken = READERS[1].make()
    found = rows_of(broken, data[:60] + b"garbage" + data[60:place])

    assert rows[-1].values == {"losses/value_loss": 2.5}
    assert dict(reader.known.problems) == {"records with a wrong checksum": 1}
    assert found[-1].values == {"losses/value_loss": 2.5}
    assert broken.known.problems["stretches of bytes that are no record"] >= 1


def test_an_event_file_has_settings_of_its_dashboard_and_of_texts(tmp_path: Path) -> None:
    """As `add_hparams`, and as CleanRL's table or JSON under a tag that states it; another text has none."""
    written_by = pytest.importorskip("torch.utils.tensorboard", reason="PyTorch writes the event files")
    with written_by.SummaryWriter(str(tmp_path)) as writer:
        writer.add_text("hyperparameters", "|param|value|\n|-|-|\n|env_id|CartPole-v1|\n|gamma|0.99|")
        writer.add_text("run/config", '{"optim": {"lr": 0.001}, "tags": [1]}')
        writer.add_text("notes", "|a|b|\n|-|-|\n|not|this|")
        writer.add_text("config", "as before")
        given = {"n_actions": 2, "clip": 0.2, "act": "relu"}
        writer.add_hparams(given, {"hparam/return": 1.0}, run_name=".")
    reader = READERS[1].make()
    for file in sorted(tmp_path.glob("*tfevents*")):
        rows_of(reader, file.read_bytes())
        reader.restart()

    assert reader.known.config == {
        "env_id": "CartPole-v1", "gamma": "0.99", "optim/lr": "0.001", "tags": "[1]",
        "n_actions": "2", "clip": "0.2", "act": "relu",
    }  # fmt: skip


def test_wandbs_run_has_history_settings_and_its_end() -> None:
    """40 steps as `wandb.log` took them, nested names joined, NaN as NaN; the settings; exit status 0."""
    reader = READERS[0].make()
    rows = rows_of(reader, OFFLINE.read_bytes())

    assert len(rows) == 40
    assert rows[2].values["losses/policy_loss"] == pytest.approx(-0.02)
    assert rows[2].values["nested/a"] == 2
    assert math.isnan(rows[3].values["bad"])
    assert (reader.known.ending, reader.known.is_over) == (("completed", None), True)


def test_columns_may_change_and_odd_lines_are_counted() -> None:
    """A second header in the file, a line with too many cells, a NUL, a line of binary."""
    reader = READERS[3].make()
    rows = rows_of(reader, b"a;b\n1;2\n1;2;3\n\0\xff\xfe;\0\nb;c\n\n5;6\n\x00,\n")

    assert [row.values for row in rows if row.values.keys() & {"c"} or row.values.get("a") == 1] == [
        {"a": 1, "b": 2},
        {"b": 5, "c": 6},
    ]
    assert reader.known.problems["rows that are longer than the header: left out"] == 1


def test_a_json_line_that_is_none_is_counted() -> None:
    """Text, a list, a number; then an object."""
    reader = READERS[2].make()
    rows = rows_of(reader, b'Traceback\n[1]\n7\n{"a": 1}\n' + b"[" * 5000 + b"\n")

    assert [row.values for row in rows] == [{"a": 1}]
    assert dict(reader.known.problems) == {"lines that are no JSON": 2, "lines that are no JSON object": 2}


_ROWS = [{"step": n, "a": {"text": '"]}\\{['}, "list": [{}]} for n in range(4)]


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("inside", ['7, "x", ', '[1, {"b": 2}], ', ""])
def test_an_array_of_rows_is_read_like_lines(indent: int | None, inside: str, size: int) -> None:
    """On one line or on many, however it is cut; other elements are counted, lines may follow."""
    array = json.dumps(_ROWS, indent=indent)
    reader = READERS[2].make()
    rows = rows_of(reader, f'\ufeff [{inside}{array[1:]}\n{{"after": 1}}\n'.encode(), size)

    assert [row.values.get("step") for row in rows] == [0, 1, 2, 3, None]
    assert rows[0].values["a/text"] == _ROWS[0]["a"]["text"]  # type: ignore[index]
    assert rows[-1].values == {"after": 1}
    assert reader.end() == []
    assert sum(reader.known.problems.values()) == (1 if inside else 0)


def test_an_array_that_is_cut_or_has_a_huge_element_gives_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is whole is read, what is not is counted once, and nothing large is held."""
    monkeypatch.setattr("overwatch.follow.readers.jsonl.MOST_BYTES", 1 << 20)
    reader = READERS[2].make()
    huge = b'{"a": "' + b"]}{" * (1 << 20) + b'"}'
    rows = rows_of(reader, b'[{"a": 1}, ' + huge + b', {"a": 2}, {"a": 3', 1 << 16)

    assert [row.values for row in rows] == [{"a": 1}, {"a": 2}]
    assert reader.end() == []
    assert {name: count for name, count in reader.known.problems.items() if count} == {
        "elements of more than 1 MiB": 1,
        "arrays cut off at the end": 1,
    }


def test_a_line_without_an_end_is_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the most bytes of a line it is passed over, and the next line is read."""
    monkeypatch.setattr("overwatch.follow.base.MOST_BYTES", 1 << 20)
    reader = READERS[2].make()
    rows = rows_of(reader, b"x" * (3 << 20) + b'\n{"a": 1}\n')

    assert [row.values for row in rows] == [{"a": 1}]


def test_a_pattern_names_numbers() -> None:
    """Named groups of a line, or every pair of `name` and `value`; other lines are no rows."""
    line = b"epoch 3: step=12 loss=0.5\nnothing here\nstep=13 loss=nan\n"
    groups = PatternReader(parse_pattern(r"step=(?P<step>\d+) loss=(?P<loss>\S+)"))
    pairs = PatternReader(parse_pattern(r"(?P<name>\w+)=(?P<value>\S+)"))

    assert repr([row.values for row in groups.feed(line)]) == repr(
        [{"step": 12.0, "loss": 0.5}, {"step": 13.0, "loss": math.nan}]
    )
    assert next(pairs.feed(line)).values == {"step": 12.0, "loss": 0.5}


@pytest.mark.parametrize("text", ["(", "loss=", r"(\d+)"])
def test_a_pattern_that_names_nothing_is_refused(text: str) -> None:
    """With what it is and what to write."""
    with pytest.raises(ValueError, match=r"regular expression|\?P<loss>"):
        parse_pattern(text)
