"""What a user installs is whole: the shipped configuration and both packages."""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"


def _built(folder: Path) -> Path:
    made = subprocess.run(
        [sys.executable, "-c", BUILD, str(folder)], cwd=ROOT, check=True, capture_output=True, text=True
    )
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
    page = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src/overwatch/web").rglob("*.*")}
    assert {name for name in page if name.endswith((".html", ".js", ".css"))} <= names
    assert not [name for name in names if name.startswith(("tests", "docs"))]


def test_the_wheel_is_for_every_machine(tmp_path: Path) -> None:
    """An install needs no compiler, and what is built here runs elsewhere."""
    wheel = _built(tmp_path)
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as held:
        assert not [name for name in held.namelist() if name.endswith((".so", ".c", ".h"))]
