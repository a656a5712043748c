"""What the pages print works: commands and options exist, blocks of configuration load."""

import itertools
import re
from pathlib import Path

import click
import pytest
import yaml

from overwatch import config
from overwatch.cli import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SECTIONS = {"receivers", "exporters", "extensions", "service", "diagnosis"}
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@each_page
def test_blocks_of_the_collectors_configuration_load(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each block whose keys are sections of the file is one that a collector would start with."""
    for text in _blocks(page, "yaml"):
        for name in re.findall(r"\$\{env:([A-Z_]+)\}", text):
            monkeypatch.setenv(name, "http://127.0.0.1:9" if name.endswith("URL") else "a-token-of-this-test")
        block = yaml.safe_load(text)
        if isinstance(block, dict) and block.keys() <= SECTIONS:
            (tmp_path / "collector.yaml").write_text(text)
            config.load(tmp_path / "collector.yaml", ())


@each_page
def test_every_command_that_is_printed_exists(page: Path) -> None:
    """No page shows a command or an option that was renamed or removed."""
    lines = [line for text in _blocks(page, "sh") for line in _commands(text)]

    assert [f"{line}: {fault}" for line in lines for fault in _unknown(line)] == []


def _blocks(page: Path, language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [text for name, text in fenced if name == language]


def _commands(text: str) -> list[str]:
    """The lines that call `overwatch`, joined where they are continued."""
    lines = text.replace("\\\n", " ").splitlines()
    return [line.split("#")[0].strip() for line in lines if line.startswith("overwatch ")]


_ENDS = {"--", "|", "||", "&&", ">", "&"}
"""Words after which another command's words follow."""


def _unknown(line: str) -> list[str]:
    """Words of a command line that are no command, and options that its command has not."""
    command: click.Command = main
    faults = []
    for word in itertools.takewhile(lambda word: word not in _ENDS, line.split()[1:]):
        if isinstance(command, click.Group) and not word.startswith("-"):
            found = command.commands.get(word)
            if found is None:
                return [f"no command {word!r}"]
            command = found
        elif word.startswith("--"):
            known = {option for parameter in command.params for option in parameter.opts}
            if word.split("=")[0] not in known | {"--help", "--version"}:
                faults.append(f"no option {word!r}")
    return faults


def test_a_command_that_is_gone_is_noticed() -> None:
    """Unknown commands and options are named, words of a program behind `--` are its own."""
    assert _unknown("overwatch fly now") == ["no command 'fly'"]
    assert _unknown("overwatch tui --onse && overwatch fly") == ["no option '--onse'"]
    assert _unknown("overwatch catalog registry write -- --lr 3") == []
