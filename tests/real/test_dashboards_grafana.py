"""The shipped dashboards as values of Grafana's own types, of each line that they are reported to load on.

npm fetches what `grafana_types/package-lock.json` names; without npm, or where it reaches no registry, the
tests are skipped and state it. No Grafana is started: none can be had as a package of Debian, PyPI or npm.
"""

import json
import subprocess
from pathlib import Path

import pytest

from tests.packages import fetched

ROOT = Path(__file__).parents[2]
SOURCE = Path(__file__).parent / "grafana_types"
VERSIONS = ("grafana-10", "grafana-11", "grafana-12", "grafana-13")
JUDGE_S = 120


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the program and Grafana's types."""
    return fetched(SOURCE, tmp_path_factory.mktemp("types") / "grafana")


def judge(program: Path, boards: Path, *versions: str) -> tuple[int, str]:
    """Exit code and what the compiler reports of a folder of dashboards."""
    done = subprocess.run(
        ["node", "judge.mjs", str(boards), *versions],
        cwd=program, capture_output=True, text=True, timeout=JUDGE_S, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.mark.timeout(300)
def test_each_dashboard_is_one_to_grafana_10_to_13(program: Path) -> None:
    """Panels, targets, mappings, thresholds, variables: all are of the types that Grafana publishes."""
    folder = ROOT / "dashboards/grafana"
    boards = list(folder.glob("*.json"))
    code, stated = judge(program, folder, *VERSIONS)

    assert boards
    assert (code, stated.splitlines()[-1]) == (0, f"{len(boards) * len(VERSIONS)} files, 0 errors"), stated


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (("panels", 0, "fieldConfig", "defaults", "color", "mode"), "colour"),
        (("refresh",), "42"),
    ],
    ids=["a word that Grafana does not know", "a number for a text"],
)
def test_a_broken_dashboard_is_seen(
    program: Path, tmp_path: Path, broken: tuple[str | int, ...], words: str
) -> None:
    """A value of the wrong kind anywhere in it is an error."""
    board = json.loads((ROOT / "dashboards/grafana/run.json").read_text(encoding="utf-8"))
    inside = board
    for key in broken[:-1]:
        inside = inside[key]
    inside[broken[-1]] = int(words) if words.isdecimal() else words
    (tmp_path / "run.json").write_text(json.dumps(board))

    assert judge(program, tmp_path, VERSIONS[-1])[0] == 1
