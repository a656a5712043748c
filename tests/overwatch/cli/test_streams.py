"""What commands print of an error steers no terminal."""

import re
import unicodedata
from pathlib import Path

import pytest

from tests.overwatch.simulate.runs import overwatch

HOSTILE = "x\x1b]52;c;eA==\x07\x9b2J\u202e\r"
COMMANDS = (
    ("export", "{run}", "--run", HOSTILE, "--to", "csv", "-o", "-"),
    ("query", "{run}", "--run", HOSTILE),
    ("query", "{run}", HOSTILE),
    ("query", "{run}", f"severity={HOSTILE}"),
    ("report", "{run}", "--run", HOSTILE),
    ("audit", "{run}", "--run", HOSTILE),
    ("compare", "{run}", "{run}", "--run", HOSTILE),
    ("replay", "{run}", "--run", HOSTILE, "--quiet"),
    ("replay", HOSTILE),
    ("query", HOSTILE),
    ("export", HOSTILE, "--to", HOSTILE),
    ("tui", "--replay", HOSTILE),
    ("tui", "--once", "--connect", HOSTILE),
    ("tui", "--size", HOSTILE),
    ("collect", "--config", HOSTILE),
    ("collect", "--set", HOSTILE),
    ("collect", "--set", f"{HOSTILE}=1"),
    ("config", "validate", HOSTILE),
    ("simulate", "--fault", HOSTILE),
    ("simulate", "--out", "/proc/" + HOSTILE),
    ("simulate", "--endpoint", HOSTILE),
    ("catalog", "explain", HOSTILE),
    ("rules", HOSTILE),
    (HOSTILE,),
    (f"--{HOSTILE}",),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short recording whose run has a hostile id too."""
    folder = tmp_path_factory.mktemp("errors") / "run"
    made = overwatch("simulate", "--run-id", "a\x1b[2J", "--seconds", "3", "--envs", "2", "--out", folder)
    assert made.exit_code == 0
    return folder


@pytest.mark.parametrize("words", COMMANDS)
def test_an_argument_is_not_echoed_raw(run: Path, words: tuple[str, ...]) -> None:
    """Whatever command and argument it is, the command fails and its words are text."""
    result = overwatch(*(word.replace("{run}", str(run)) for word in words))

    assert result.exit_code not in (0, None)
    assert result.stderr
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    printed = (result.stdout + result.stderr).replace("\n", "")
    assert {unicodedata.category(letter) for letter in printed}.isdisjoint({"Cc", "Cf", "Cs", "Zl", "Zp"})


@pytest.mark.parametrize("value", ["nan", "NaN", "inf", "-inf", "1e300"])
@pytest.mark.parametrize(
    "words",
    [
        ("replay", "{run}", "--at"), ("replay", "{run}", "--every"), ("tui", "{run}", "--once", "--at"),
        ("fleet", "--once", "--timeout"), ("sync", "--timeout"), ("demo", "--headless", "--seconds"),
        ("follow", "{run}", "--until-idle"), ("compare", "{run}", "{run}", "--last"),
        ("simulate", "--out", "{run}x", "--rate"), ("rules", "--budget"), ("rules", "--useful"),
    ],
)  # fmt: skip
def test_a_number_that_is_in_no_range_is_refused(run: Path, words: tuple[str, ...], value: str) -> None:
    """Status 2, with the value; nothing begins."""
    result = overwatch(*(word.format(run=run) for word in words), value)

    assert result.exit_code == 2
    assert re.search(rf"{re.escape(str(float(value)))}|{re.escape(value)}|1e\+300", result.stderr)
