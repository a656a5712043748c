"""Every command that a text names can be typed: in sources, the page, runbooks and the documentation."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from overwatch.cli import main as overwatch
from overwatch_rl.cli import main as overwatch_rl

ROOT = Path(__file__).parents[2]
PROGRAMS: dict[str, click.Command] = {"overwatch": overwatch, "overwatch-rl": overwatch_rl}
QUOTED = re.compile(r"`(overwatch(?:-rl)? [a-z][^`\n]*)`")
LINE = re.compile(r"^\s*(?:\$ )?(overwatch(?:-rl)? [a-z-]+(?: .*)?)$", re.MULTILINE)
WRITTEN = (
    *sorted((ROOT / "src").rglob("*.js")), *sorted((ROOT / "src").rglob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md",
)  # fmt: skip
PROSE = re.compile(r"(?:, |\.|:|;)$| {3,}\S|; \w")
"""A line that only begins with the name of a command: a sentence, or a picture."""


def _texts(source: Path) -> Iterator[str]:
    """Strings of a module, with `X` for what a value takes the place of."""
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        match node:
            case ast.JoinedStr(values=parts):
                yield "".join(str(one.value) if isinstance(one, ast.Constant) else "X" for one in parts)
            case ast.Constant(value=str(text)):
                yield text


def _named() -> dict[str, str]:
    """Commands, each with a file that names it."""
    texts = [(path, path.read_text(encoding="utf-8")) for path in WRITTEN]
    texts += [(path, text) for path in sorted((ROOT / "src").rglob("*.py")) for text in _texts(path)]
    found: dict[str, str] = {}
    for path, text in texts:
        joined = re.sub(r"\\\n\s*", "", text)
        for line in (*QUOTED.findall(joined), *LINE.findall(joined)):
            if not PROSE.search(line.partition("#")[0].rstrip()):
                found.setdefault(line.strip(), str(path.relative_to(ROOT)))
    return found


def _words(line: str) -> list[str]:
    """The words of one command, up to what a shell does with it."""
    lexer = shlex.shlex(line.replace("…", "..."), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list[str]()
    for word in lexer:
        if word[0] in "&|;<>()":
            break
        words.append(word)
    return words


def _wrong(line: str) -> str | None:
    """What a shell's user would get for it; `None` where it can be typed."""
    name, *words = (word for word in _words(line) if word != "...")
    command = PROGRAMS[name]
    context = click.Context(command, info_name=name)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        below = command.get_command(context, words.pop(0))
        if below is None:
            return "there is no such command"
        command = below
        context = click.Context(command, info_name=name, parent=context)
    try:
        given, rest, _ = command.make_parser(context).parse_args(list(words))
    except click.UsageError as error:
        # An option's name alone, as in "with `overwatch query --sql`", names the option.
        is_option = isinstance(error, click.BadOptionUsage) and words[-1] == error.option_name
        return None if is_option and not isinstance(error, click.NoSuchOption) else error.format_message()
    if words and rest and not isinstance(command, click.Group):
        return f"{rest} is too much"
    for option in command.params:
        value = given.get(str(option.name))
        if isinstance(option.type, click.Choice) and isinstance(value, str) and value.islower():
            for word in value.split("|"):
                if word not in option.type.choices:
                    return f"{value} is not one of {option.type.choices}"
    return None


def test_a_command_that_a_text_names_can_be_typed() -> None:
    """Its options are there, and so many arguments are taken."""
    named = _named()
    wrong = {f"{path}: {line}": cause for line, path in named.items() if (cause := _wrong(line))}

    assert len(named) > 200
    assert wrong == {}


@pytest.mark.parametrize(
    "line",
    ["overwatch nothing", "overwatch report --fast", "overwatch query a b c", "overwatch tui --runs",
     "overwatch export a --to xml -o b"],
)  # fmt: skip
def test_one_that_cannot_be_typed_is_seen(line: str) -> None:
    """A wrong name, option, number of arguments, value."""
    assert _wrong(line) is not None
