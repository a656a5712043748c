"""The README's tree is the tree, and its two commands exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_tree_names_every_part_of_the_tower() -> None:
    """Every module and folder of the tower has its line, and no line names one that is gone."""
    block = README.split("src/overwatch/            the tower", 1)[1].split("src/overwatch_rl/", 1)[0]
    named = set(re.findall(r"^ {2}([a-z_]+(?:/|\.py))", block, re.MULTILINE))
    named |= set(re.findall(r"^ {2}config\.py {2}(cli/)", block, re.MULTILINE))
    there = {
        f"{path.name}/" if path.is_dir() else path.name
        for path in (ROOT / "src/overwatch").iterdir()
        if not path.name.startswith(("_", ".")) and path.name != "py.typed"
    }

    assert named == there


def test_the_two_commands_are_targets() -> None:
    """`make demo` and `make test` are what the README says."""
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))

    assert {"demo", "test"} <= targets
    assert re.search(r"^make demo .*\nmake test ", README, re.MULTILINE)


def test_every_linked_file_is_there() -> None:
    """No picture and no page is missing."""
    linked = re.findall(r"\]\(((?!https?:)[^)#]+)\)", README)

    assert [name for name in linked if not (ROOT / name).is_file()] == []
