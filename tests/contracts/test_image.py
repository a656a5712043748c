"""The images' recipe has what the build of the wheel reads, and what runs is nobody special."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
RECIPE = (ROOT / "docker/Dockerfile").read_text().replace("\\\n", " ")
STAGES = re.split(r"^FROM ", RECIPE, flags=re.MULTILINE)[1:]


def _copied() -> set[str]:
    """What is copied out of the project, folders and files."""
    lines = re.findall(r"^COPY (?!--from)(.+)$", RECIPE, flags=re.MULTILINE)
    return {word for line in lines for word in line.split()[:-1]}


def test_all_that_the_wheel_is_made_of_is_copied() -> None:
    """Else the build ends at its last step."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    wanted = {*wheel["force-include"], project["project"]["readme"], *project["project"]["license-files"]}
    wanted |= {package.partition("/")[0] for package in wheel["packages"]}

    assert wanted | {"pyproject.toml", "constraints.txt"} <= _copied()


def test_what_is_copied_is_not_ignored() -> None:
    """`.dockerignore` keeps everything out but what it names."""
    lines = (ROOT / ".dockerignore").read_text().split()

    assert lines[0] == "*"
    assert {line.removeprefix("!") for line in lines if line.startswith("!")} == _copied()


def test_images_begin_at_the_given_base_and_end_without_root() -> None:
    """No base is fixed; both targets come from the stage that gives root up."""
    names = {stage.split()[2]: stage for stage in STAGES}

    assert {name: stage.split()[0] for name, stage in names.items()} == {
        "sources": "${BASE}", "build": "sources", "build-rl": "sources",
        "base": "${BASE}", "rl": "base", "tower": "base",
    }  # fmt: skip
    assert all("ARG PIP_FLAGS" in names[name] for name in ("build", "build-rl"))  # a stage inherits none
    assert "USER 10001:10001" in names["base"]
    assert not any("USER" in names[name] for name in ("rl", "tower"))


def test_the_image_of_the_learner_stack_has_a_driver_of_postgresql() -> None:
    """For the orchestrator's database; of the version that the tests run with, and no other image."""
    (stage,) = (stage for stage in STAGES if '"psycopg[binary]"' in stage)

    assert stage.split()[2] == "build-rl"
    assert '-c constraints.txt ".[rl,gpu]" "psycopg[binary]"' in stage
    assert {"psycopg", "psycopg-binary"} <= {
        line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines()
    }


def test_where_packages_come_from_is_a_secret_of_the_build() -> None:
    """Neither in the file nor in a layer."""
    installing = [line for line in RECIPE.splitlines() if "pip install" in line]

    assert len(installing) == 2
    for line in installing:
        assert line.startswith("RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf")
        assert "--mount=type=secret,id=ca.crt" in line
    assert "index-url" not in RECIPE
