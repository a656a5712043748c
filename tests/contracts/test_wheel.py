"""What a user installs is whole: the shipped configuration, both packages and what was compiled."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
RINGS = "overwatch/sdk/rings"


def _built(folder: Path, **environment: str) -> Path:
    made = subprocess.run(
        [sys.executable, "-c", BUILD, str(folder)],
        cwd=ROOT, env=os.environ | environment, check=True, capture_output=True, text=True,
    )  # fmt: skip
    (wheel,) = folder.glob("*.whl")
    assert wheel.name in made.stdout
    return wheel


def test_the_wheel_holds_what_the_commands_need(tmp_path: Path) -> None:
    """The collector's default configuration is inside, byte for byte, and so are both packages."""
    with zipfile.ZipFile(_built(tmp_path)) as wheel:
        names = set(wheel.namelist())
        shipped = wheel.read("overwatch/collector.yaml")
        boards = {name for name in names if name.startswith("overwatch/dashboards/grafana/")}

    assert shipped == (ROOT / "otel/collector.yaml").read_bytes()
    assert {"overwatch/py.typed", "overwatch_rl/__init__.py", "overwatch/cli/main.py"} <= names
    assert {path.name for path in (ROOT / "dashboards/grafana").glob("*.json")} <= {
        Path(name).name for name in boards
    }
    assert "overwatch/dashboards/prometheus/prometheus.yml" in names
    assert not [name for name in names if name.startswith(("tests", "docs"))]


def test_a_wheel_made_with_a_compiler_holds_the_compiled_rings_and_says_for_whom(tmp_path: Path) -> None:
    """For this Python and this kind of machine, and it can be loaded from there; its source stays behind."""
    if shutil.which("cc") is None and os.environ.get("OVERWATCH_REQUIRE_REAL") != "1":
        pytest.skip("no C compiler here")
    wheel = _built(tmp_path)
    module = f"{RINGS}/_compiled{sysconfig.get_config_var('EXT_SUFFIX')}"
    assert not wheel.name.endswith("none-any.whl")
    with zipfile.ZipFile(wheel) as held:
        names = held.namelist()
        held.extract(module, tmp_path)
    assert [name for name in names if name.endswith((".so", ".c", ".h"))] == [module]
    code = (
        "import _compiled; from overwatch.sdk.rings import compiled; "
        "print(_compiled.EDITION, compiled.EDITION)"
    )
    path = {"PYTHONPATH": str((tmp_path / module).parent)}
    found = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | path, check=True, capture_output=True, text=True
    )
    assert len(set(found.stdout.split())) == 1


@pytest.mark.parametrize("environment", [{"CC": "false"}, {"OVERWATCH_PURE_PYTHON": "1"}], ids=min)
def test_without_a_compiler_the_wheel_is_for_every_machine(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """Python does what would have been compiled."""
    wheel = _built(tmp_path, **environment)
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as held:
        names = held.namelist()
    assert f"{RINGS}/compiled.py" in names
    assert not [name for name in names if name.endswith((".so", ".c", ".h"))]
