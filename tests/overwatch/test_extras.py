"""What a wheel without extras answers where something is missing: the extra, in a line."""

import re
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from overwatch.cli import main
from overwatch.cli.doctor import versions
from overwatch.cli.doctor_machine import State
from overwatch.extras import EXTRAS, GPU, Extra
from overwatch.sdk.exporter.nvml import Nvml
from tests.overwatch.simulate.runs import record

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
WITHOUT_A_ROW = {"adapters", "bench", "dev", "docs", "gym", "real-runs"}
"""Those of developers; an adapter is imported by its library's user, and a world names `gym` itself."""


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment in which no extra is installed."""
    for extra in EXTRAS.values():
        for module in extra.modules:
            monkeypatch.setitem(sys.modules, module, None)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of a few seconds."""
    out = tmp_path_factory.mktemp("runs") / "short"
    record(out, "--gpus", "1", "--envs", "2", "--slots", "1", "--seconds", "3")
    return out


def test_every_extra_of_the_distribution_has_its_row() -> None:
    """And no row is of an extra that cannot be installed."""
    assert set(EXTRAS) == set(PROJECT["optional-dependencies"]) - WITHOUT_A_ROW


@pytest.mark.usefixtures("without")
@pytest.mark.parametrize("extra", EXTRAS.values(), ids=lambda extra: extra.name)
def test_what_is_missing_is_one_line_with_the_command_that_brings_it(extra: Extra) -> None:
    """It names the modules that are not there."""
    assert extra.missing == extra.modules
    named = " and ".join(extra.modules)
    assert re.fullmatch(rf'.+ needs {named}; pip install "[^"]+\[{extra.name}\]"', extra.need)


@pytest.mark.usefixtures("without")
@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("tui", "--once", "--replay", "{run}"), "tui"),
        (("tui", "--replay", "{run}"), "tui"),
        (("export", "{run}", "--to", "parquet", "-o", "{run}/table"), "parquet"),
    ],
)
def test_a_command_that_lacks_its_packages_names_the_extra(
    words: tuple[str, ...], name: str, recorded: Path
) -> None:
    """In one line, with the status of an error."""
    ended = CliRunner().invoke(main, [word.format(run=recorded) for word in words])
    assert ended.exit_code in (1, 2)
    assert ended.output == f"Error: {EXTRAS[name].need}\n"


@pytest.mark.usefixtures("without")
def test_the_doctor_lists_all_that_is_missing_in_one_line() -> None:
    """With what each brings; it is no warning."""
    [verdict] = [one for one in versions() if "not installed" in one.found]
    assert verdict.state is State.OK
    assert all(f"{extra.name} ({extra.brings})" in verdict.found for extra in EXTRAS.values())


def test_a_driver_without_its_bindings_is_read_nowhere_and_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the driver shows its library only and no file of Linux, as under WSL."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr("overwatch.sdk.exporter.nvml.LIBRARY", None)
    nvml = Nvml(1, [tmp_path / "none"])
    assert [nvml.open(), nvml.open()] == [(), ()]
    assert [note.text for note in nvml.unread.take()] == [GPU.need]
