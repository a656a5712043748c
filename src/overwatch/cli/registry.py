"""`overwatch catalog registry`: names as files, the policies they keep, what changed between versions.

Rules: status 0 when every policy is kept, 1 when one is broken, 2 when a registry cannot be read.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from overwatch import conventions
from overwatch.cli.opening import BadInputError
from overwatch.conventions.model import Registry
from overwatch.conventions.policies import Broken, check, compare

_FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)
_FORMAT = click.option(
    "--format", "fmt", type=click.Choice(["text", "json"]), default="text", show_default=True
)


@click.group("registry")
def registry_group() -> None:
    """The names that are told, as semantic conventions: write, check and compare them."""


@registry_group.command("write")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def write(folder: Path) -> None:
    """Write this version's registry into FOLDER, as Weaver reads it."""
    from overwatch.generate.registry import FILES

    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in FILES.items():
            (folder / Path(path).name).write_text(text(), encoding="utf-8")
    except OSError as error:
        raise BadInputError(f"{error.filename or folder}: {error.strerror or error}") from error
    click.echo(f"{len(FILES)} files are in {folder}")


@registry_group.command("check")
@click.argument("folder", type=_FOLDER, required=False)
@_FORMAT
def check_(folder: Path | None, fmt: str) -> None:
    """Check names, units, types and stability of the registry in FOLDER; of this version's without."""
    _tell(check(_registry(folder)), fmt, "every policy is kept")


@registry_group.command("diff")
@click.argument("before", type=_FOLDER)
@click.argument("after", type=_FOLDER, required=False)
@_FORMAT
def diff(before: Path, after: Path | None, fmt: str) -> None:
    """Say what users of the registry BEFORE would miss, or misread, in AFTER; in this version's without.

    What is removed, renamed, retyped or less stable breaks compatibility; what is new does not.
    """
    old, new = _registry(before), _registry(after)
    added = sorted(_names(new) - _names(old))
    if fmt == "text":
        for kind, name in added:
            click.echo(f"new {kind} {name}")
    _tell(compare(old, new), fmt, "nothing is broken", [" ".join(one) for one in added])


def _registry(folder: Path | None) -> Registry:
    from overwatch.generate.registry_reading import RegistryFileError, read_registry

    if folder is None:
        return conventions.registry()
    try:
        return read_registry(folder)
    except RegistryFileError as error:
        raise BadInputError(str(error)) from error


def _names(registry: Registry) -> set[tuple[str, str]]:
    signals = {(kind, one.name) for kind, one in registry.signals() if not one.imported}
    return signals | {("attribute", key) for key, one in registry.attributes.items() if not one.imported}


def _tell(broken: Sequence[Broken], fmt: str, well: str, added: Sequence[str] | None = None) -> None:
    if fmt == "json":
        more = {"added": list(added)} if added is not None else {}
        found = [{"policy": one.policy, "name": one.name, "message": one.message} for one in broken]
        click.echo(json.dumps({**more, "broken": found}, indent=2))
    else:
        for one in broken:
            click.echo(str(one))
        click.echo(
            f"{len(broken)} {'policy is' if len(broken) == 1 else 'policies are'} broken" if broken else well
        )
    sys.exit(1 if broken else 0)
