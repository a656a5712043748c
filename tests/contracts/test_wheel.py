"""What a user installs is whole: the wheel holds the shipped configuration and both packages."""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"


def test_the_wheel_holds_what_the_commands_need(tmp_path: Path) -> None:
    """The collector's default configuration is inside, byte for byte, and so are both packages."""
    built = subprocess.run(
        [sys.executable, "-c", BUILD, str(tmp_path)], cwd=ROOT, check=True, capture_output=True, text=True
    )
    with zipfile.ZipFile(tmp_path / built.stdout.split()[-1]) as wheel:
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
