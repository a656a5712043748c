"""The script for shells: bash really completes commands and options with it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from overwatch.cli import main


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str) -> None:
    """That asks `overwatch` itself."""
    done = CliRunner().invoke(main, ["completion", shell])
    assert done.exit_code == 0
    assert "_OVERWATCH_COMPLETE" in done.output


def test_bash_completes_commands_with_it(tmp_path: Path) -> None:
    """`overwatch si` becomes `overwatch simulate`."""
    if shutil.which("bash") is None:
        pytest.skip("no bash on this machine")
    program = tmp_path / "overwatch"
    program.write_text(f"#!{sys.executable}\nfrom overwatch.cli import main\nmain()\n")
    program.chmod(0o755)
    asked = {"COMP_WORDS": "overwatch si", "COMP_CWORD": "1", "_OVERWATCH_COMPLETE": "bash_complete"}
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        [str(program)], env={**os.environ, **asked, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert "plain,simulate" in done.stdout.split()


@pytest.mark.parametrize("verb", ["compare", "report", "query", "audit", "export"])
def test_every_verb_has_its_help_with_examples(verb: str) -> None:
    """And says what its exit codes mean."""
    told = CliRunner().invoke(main, [verb, "--help"]).output
    assert f"overwatch {verb} " in told.split("\n", 3)[3]
    assert "Exit codes:" in told
