"""`overwatch catalog registry`."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from overwatch.cli import main

ROOT = Path(__file__).parents[3]


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["catalog", "registry", *arguments])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """This version's registry as files."""
    made = tmp_path / "registry"
    assert _run("write", str(made)).exit_code == 0
    return made


def _edit(folder: Path, file: str, old: str, new: str) -> None:
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))


def test_what_is_written_is_what_is_committed(folder: Path) -> None:
    """An installed Overwatch can hand its names on without its sources."""
    committed = {path.name: path.read_text() for path in (ROOT / "otel/registry").glob("*.yaml")}

    assert {path.name: path.read_text() for path in folder.glob("*.yaml")} == committed


def test_this_version_keeps_every_policy(folder: Path) -> None:
    """As it is in memory, and as files."""
    for arguments in ((), (str(folder),)):
        result = _run("check", *arguments)
        assert (result.exit_code, result.stdout) == (0, "every policy is kept\n")


def test_nothing_differs_from_itself(folder: Path) -> None:
    """Of two folders, and of a folder and this version."""
    for arguments in ((str(folder),), (str(folder), str(folder))):
        result = _run("diff", *arguments)
        assert (result.exit_code, result.stdout) == (0, "nothing is broken\n")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("file", "old", "new", "policies"),
    [
        ("metrics.yaml", "name: overwatch.policy.grad_norm", "name: overwatch.policy.gradient",
         {"compatibility_metric_missing"}),
        ("metrics.yaml", "unit: '{nat}'", "unit: '1'", {"compatibility_metric_changed"}),
        ("attributes.yaml", "key: overwatch.rank\n  type: int", "key: overwatch.rank\n  type: string",
         {"compatibility_attribute_type"}),
        ("attributes.yaml", "key: overwatch.group", "key: overwatch.arm",
         {"compatibility_attribute_missing"}),
        ("events.yaml", "name: overwatch.env_crashed", "name: overwatch.env_died",
         {"compatibility_event_missing"}),
        ("attributes.yaml", "\n  stability: development\n", "\n", set()),
    ],
)  # fmt: skip
def test_what_is_removed_renamed_or_retyped_is_a_violation(
    file: str, old: str, new: str, policies: set[str], folder: Path
) -> None:
    """Status 1 and the policy; a form that means the same breaks nothing."""
    after = folder.parent / "after"
    assert _run("write", str(after)).exit_code == 0
    _edit(after, file, old, new)

    result = _run("diff", str(folder), str(after), "--format", "json")

    assert result.exit_code == bool(policies)
    assert {one["policy"] for one in json.loads(result.stdout)["broken"]} == policies


def test_what_is_new_is_told_and_breaks_nothing(folder: Path) -> None:
    """A registry of before lacks it."""
    path = folder / "metrics.yaml"
    parts = path.read_text().split("\n- name: ")
    kept = [part for part in parts if not part.startswith("overwatch.policy.grad_norm\n")]
    path.write_text("\n- name: ".join(kept))

    result = _run("diff", str(folder))

    assert (result.exit_code, result.stdout) == (
        0, "new metric overwatch.policy.grad_norm\nnothing is broken\n",
    )  # fmt: skip


def test_a_broken_policy_is_told_with_who_breaks_it(folder: Path) -> None:
    """Status 1."""
    _edit(folder, "metrics.yaml", "name: overwatch.policy.grad_norm", "name: overwatch.policy.gradNorm")

    result = _run("check", str(folder))

    assert result.exit_code == 1
    assert "overwatch.policy.gradNorm: use lower-case words" in result.stdout
    assert result.stdout.endswith("1 policy is broken\n")


@pytest.mark.parametrize("command", ["check", "diff"])
def test_what_is_no_registry_is_said_in_one_line(command: str, tmp_path: Path) -> None:
    """Status 2, with what to give."""
    (tmp_path / "a.yaml").write_text("groups: []")
    result = _run(command, str(tmp_path))

    assert (result.exit_code, result.stderr) == (
        2, f"Error: {tmp_path}/a.yaml: file_format is None; only 'definition/2' is read\n",
    )  # fmt: skip
    assert _run(command, str(tmp_path / "none")).exit_code == 2


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    """Status 2."""
    (tmp_path / "file").write_text("")

    result = _run("write", str(tmp_path / "file" / "below"))

    assert result.exit_code == 2
    assert "Not a directory" in result.stderr


@pytest.mark.skipif(shutil.which("weaver") is None, reason="OpenTelemetry's weaver is not on the path")
def test_weaver_takes_the_registry() -> None:
    """Its own policies besides ours; it loads OpenTelemetry's conventions, which needs the network."""
    command = ["weaver", "registry", "check", "-r", str(ROOT / "otel/registry"), "--v2"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)

    assert ran.returncode == 0, ran.stdout + ran.stderr
