"""The README fits a screen or two, its commands exist; the tree of CONTRIBUTING.md is the tree."""

import re
import tomllib
from pathlib import Path

import yaml

from overwatch import __version__

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
MOST_LINES = 120


def test_the_tree_names_every_part_of_the_tower() -> None:
    """Every module and folder of the tower has its line, and no line names one that is gone."""
    block = CONTRIBUTING.split("src/overwatch/  ", 1)[1].split("src/overwatch_rl/", 1)[0]
    named = set(re.findall(r"^ {2}([a-z_]+(?:/|\.py))", block, re.MULTILINE))
    named |= set(re.findall(r"^ {2}config\.py {2}(cli/)", block, re.MULTILINE))
    there = {
        f"{path.name}/" if path.is_dir() else path.name
        for path in (ROOT / "src/overwatch").iterdir()
        if not path.name.startswith(("_", ".")) and path.name != "py.typed"
    }

    assert named == there


def test_the_two_commands_are_targets() -> None:
    """`make demo` and `make test` are what the README states."""
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))

    assert {"demo", "test"} <= targets
    assert re.search(r"^make demo .*\nmake test ", README, re.MULTILINE)


def test_every_linked_file_is_there() -> None:
    """No picture and no page is missing."""
    linked = re.findall(r"\]\(((?!https?:)[^)#]+)(?:#[^)]*)?\)", README + CONTRIBUTING)

    assert [name for name in linked if not (ROOT / name).is_file()] == []


def test_the_readme_stays_short() -> None:
    """What does not fit belongs to `docs/`."""
    assert len(README.splitlines()) <= MOST_LINES


def test_every_extra_of_the_readme_exists_and_every_one_for_users_is_named() -> None:
    """The table of extras is that of `pyproject.toml`; developers' own are left out."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = set(re.findall(r"^\| `([a-z]+)` \|", README, re.MULTILINE))

    assert named == set(project["optional-dependencies"]) - {"bench", "dev", "real-runs"}
    assert f'pip install "{project["name"]}[' in README


def test_one_version_everywhere() -> None:
    """Package, chart, images and changelog are of one version."""
    chart = yaml.safe_load((ROOT / "helm/overwatch/Chart.yaml").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.findall(r"^## \[?(\d+\.\d+\.\d+)", changelog, re.MULTILINE)[0]

    assert {project["version"], chart["version"], str(chart["appVersion"]), newest} == {__version__}
