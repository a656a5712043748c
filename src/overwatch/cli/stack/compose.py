"""The stack as a compose file: the same servers with the same configuration, as containers.

Rules: containers share the machine's network, so that all listen on loopback as without containers and reach
the collector there; each sees its own folder at the path that it has outside, and runs as this user. No
secret is in the file. Must not know how containers are started.
"""

import os
from pathlib import Path
from typing import Any, Final

import yaml

from overwatch.cli.stack.parts import PARTS, Part, Spot
from overwatch.cli.stack.writing import StackError, Wanted, write_all

FILE: Final = "compose.yaml"
_MADE: Final = "# Written by `overwatch stack compose`; changes here are lost with the next one.\n"
_DATA: Final = ("data", "logs", "plugins")


def write_compose(folder: Path, wanted: Wanted) -> Path:
    """Write all files of the stack and the compose file that uses them; raises `StackError`."""
    folder = folder.absolute()
    write_all(folder, wanted)
    services = {part.name: _service(part, folder, wanted) for part in PARTS}
    file = folder / FILE
    try:
        for part in PARTS:
            for name in _DATA:
                (folder / part.name / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        text = yaml.safe_dump({"name": "overwatch-stack", "services": services}, sort_keys=False, width=200)
        file.write_text(_MADE + text, encoding="utf-8")
    except OSError as error:
        raise StackError(f"{error.filename or file} cannot be written: {error.strerror or error}") from error
    return file


def _service(part: Part, folder: Path, wanted: Wanted) -> dict[str, Any]:
    own = folder / part.name
    spot = Spot(binary=part.inside, folder=own, port=wanted.ports[part.name], home=part.inside_home)
    program, *arguments = part.command(spot)
    told = part.environment(spot)
    made = {
        "image": part.image,
        "entrypoint": [program],
        "command": arguments,
        "network_mode": "host",
        "user": f"{os.getuid()}:{os.getgid()}",
        "restart": "unless-stopped",
        **({"environment": told} if told else {}),
        "volumes": [{"type": "bind", "source": str(own), "target": str(own)}],
    }
    return {key: _literal(value) for key, value in made.items()}


def _literal(value: Any) -> Any:
    """A value in which compose sees no variable: a dollar sign begins one."""
    if isinstance(value, dict):
        return {key: _literal(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_literal(one) for one in value]
    return value.replace("$", "$$") if isinstance(value, str) else value
