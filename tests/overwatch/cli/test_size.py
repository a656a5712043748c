"""`overwatch size`."""

import json

import pytest
from click.testing import CliRunner, Result

from overwatch.cli import main


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["size", *arguments])


def test_a_load_has_lines_of_each_part_with_their_assumptions() -> None:
    """For a person, and the same for a program."""
    words = ("--runs", "300", "--envs", "64", "--gpus", "2", "--hz", "5", "--retention", "4w")
    shown, found = _run(*words), json.loads(_run(*words, "--format", "json").stdout)

    assert shown.exit_code == 0
    assert "300 runs × 2 ranks × 64 envs at 5 Hz, kept for 28 days" in shown.stdout
    assert found["load"] == {"runs": 300, "ranks": 2, "envs": 64, "hz": 5.0}
    assert found["retention_days"] == 28
    assert {line["where"] for line in found["lines"]} == {"trainers", "network", "collectors", "prometheus"}
    assert all(line["why"] and line["value"] > 0 for line in found["lines"])
    assert all(f"{line['name']} " in shown.stdout for line in found["lines"])


def test_more_of_anything_needs_no_less_of_anything() -> None:
    """Runs, ranks, envs and rate each only add."""
    small = ("--runs", "2", "--ranks", "2", "--envs", "8", "--hz", "2")
    base = _values(*small)
    for place, more in ((1, "40"), (3, "20"), (5, "800"), (7, "20")):
        grown = _values(*small[:place], more, *small[place + 1 :])
        # What a disk holds and what one of several collectors has may shrink.
        lesser = {name for name, value in grown.items() if value < base[name]}
        assert lesser <= {("collectors", "journal holds"), ("collectors", "memory each")}


def _values(*words: str) -> dict[tuple[str, str], float]:
    lines = json.loads(_run(*words, "--format", "json").stdout)["lines"]
    return {(line["where"], line["name"]): line["value"] for line in lines}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--retention", "30"), "'30' is no duration; write e.g. 12h, 30d or 4w"),
        (("--retention", "0d"), "'0d' is no duration"),
        (("--runs", "0"), "0 is not in the range"),
        (("--hz", "-1"), "-1.0 is not in the range"),
    ],
)
def test_what_cannot_be_is_named(words: tuple[str, ...], reason: str) -> None:
    """With the value and what to write."""
    refused = _run(*words)

    assert refused.exit_code == 2
    assert reason in refused.stderr
