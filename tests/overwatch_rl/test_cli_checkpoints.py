"""The command that shows and verifies checkpoints."""

import json
from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result

from overwatch.objects.store import open_store
from overwatch_rl.checkpoints.listing import post_evaluation
from overwatch_rl.checkpoints.manifest import Evaluation
from overwatch_rl.checkpoints.store import claim
from overwatch_rl.cli import main
from tests.overwatch_rl.checkpoints.made import state, upload, write
from tests.overwatch_rl.orchestrator.threaded import Operator, in_thread, requested
from tests.overwatch_rl.servers import s3_url

EVALUATION = Evaluation(lineage=1, number=2, mean_return=4.5, episodes=8)


def run(*words: str | Path) -> Result:
    """The command."""
    return CliRunner().invoke(main, ["checkpoints", *(str(word) for word in words)])


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """Three checkpoints, of which the first was evaluated as the best."""
    if request.param == "folder":
        for updates in (1, 2):
            write(tmp_path / "checkpoints", state(updates, score=float(updates)))
        post_evaluation(tmp_path, EVALUATION)
        write(tmp_path / "checkpoints", state(3, score=3.0))
        return tmp_path
    url = s3_url(request.getfixturevalue("moto_address"), uuid4().hex)
    store = open_store(url)
    assert claim(store) == 1
    for updates in (1, 2):
        upload(store, state(updates, score=float(updates)))
    post_evaluation(url, EVALUATION)
    upload(store, state(3, score=3.0))
    return url


def test_checkpoints_are_listed(place: Path | str) -> None:
    """Oldest first, with what is known of each; the best is that of the evaluation."""
    made = run(place)
    assert made.exit_code == 0, made.output
    cells = [line.split() for line in made.output.splitlines()]

    assert [row[0] for row in cells] == ["version", "001-00000001", "001-00000002", "001-00000003"]
    assert [row[1] for row in cells[1:]] == ["1", "2", "3"]
    assert [row[3] for row in cells[1:]] == ["+1.000", "+2.000", "+3.000"]
    assert [row[4] for row in cells[1:]] == ["-", "+4.500", "-"]
    assert [" ".join(row[5:]) for row in cells[1:]] == ["whole", "whole, best", "whole, latest"]
    rows = json.loads(run(place, "--json", "--verify").output)
    assert [(row["version"], row["is_best"], row["fault"]) for row in rows] == [
        ("001-00000001", False, None), ("001-00000002", True, None), ("001-00000003", False, None),
    ]  # fmt: skip


def test_a_damaged_one_is_found_where_files_are_read(place: Path | str) -> None:
    """By the exit status; without reading files it looks whole."""
    folder = place / "checkpoints" if isinstance(place, Path) else place
    store = open_store(folder)
    key = "001-00000002/optimizer.safetensors"
    held = store.get(key)
    assert held is not None
    store.put(key, held.data[:-1] + b"?")

    assert run(place).exit_code == 0
    made = run(place, "--verify")
    assert made.exit_code == 1
    (line,) = (line for line in made.output.splitlines() if "damaged" in line)
    assert line.startswith("001-00000002")
    assert "optimizer.safetensors" in line


def test_a_place_without_any_is_no_error(tmp_path: Path) -> None:
    """One that is not there is."""
    made = run(tmp_path)
    assert (made.exit_code, made.output) == (0, f"{tmp_path} holds no checkpoint\n")
    assert run(tmp_path / "none").exit_code == 2
    assert "is no store; use a folder" in run("ftp://x/y").output


def test_what_an_evaluation_finds_is_recorded(tmp_path: Path) -> None:
    """By its version; not where it played in another world, or is of no policy."""
    words = [
        "train",
        "--envs",
        "2",
        "--slots",
        "1",
        "--no-telemetry",
        "--updates",
        "1",
        "--out",
        str(tmp_path),
    ]
    assert CliRunner().invoke(main, words).exit_code == 0
    version = json.loads(run(tmp_path, "--json").output)[0]["version"]
    with in_thread() as server:
        operator = Operator(server.url)
        operator.create()
        artifact = {"kind": "checkpoint", "version": version, "uri": "file:///a"}
        requested(server.url, "POST", "/api/v1/runs/r/artifacts", artifact)
        posted = ["--post", "--orchestrator", server.url, "--run-id", "r"]
        made = CliRunner().invoke(main, ["evaluate", str(tmp_path), "--episodes", "2", "--json", *posted])
        assert made.exit_code == 0, made.output
        (listed,) = operator.get("/artifacts")["artifacts"]
    (row,) = json.loads(run(tmp_path, "--json").output)

    assert row["evaluated"] == listed["mean_return"] == json.loads(made.stdout)["policy"]["return"]
    for other in (["evaluate", str(tmp_path), "--slots", "1", "--post"], ["evaluate", "--post"]):
        refused = CliRunner().invoke(main, other)
        assert refused.exit_code == 2
        assert "--post records a return of a policy in its own world" in refused.output


def test_a_run_goes_on_from_a_url(tmp_path: Path, moto_address: str) -> None:
    """Of a checkpoint that was copied there; kept in the folder that is named."""
    words = ["train", "--envs", "2", "--slots", "1", "--no-telemetry", "--updates", "1", "--out"]
    assert CliRunner().invoke(main, [*words, str(tmp_path / "run")]).exit_code == 0
    url = s3_url(moto_address, uuid4().hex)
    store = open_store(url)
    for one in (tmp_path / "run/checkpoints/001-00000001").iterdir():
        store.put(f"001-00000001/{one.name}", one.read_bytes())
    words = ["train", "--no-telemetry", "--resume", url, "--updates", "2", "--out", str(tmp_path / "new")]
    resumed = CliRunner().invoke(main, words)
    assert resumed.exit_code == 0, resumed.output

    rows = json.loads(run(tmp_path / "new", "--json").output)
    assert [(row["version"], row["updates"]) for row in rows] == [("002-00000002", 2)]
    assert CliRunner().invoke(main, ["evaluate", url, "--episodes", "2", "--post"]).exit_code == 0
    (row,) = json.loads(run(url, "--json").output)
    assert row["evaluated"] is not None
