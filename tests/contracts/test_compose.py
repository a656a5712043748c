"""docker/compose.yaml is a Compose file, and what it starts are commands that there are."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import pytest
import yaml
from compose_spec import PyCompose

from overwatch import config
from overwatch_rl.cli import COMMANDS
from overwatch_rl.learner.config import learner_config, of_file

FILE = Path(__file__).parents[2] / "docker/compose.yaml"
RUN = FILE.parents[1] / "examples/launchers/run.yaml"
COMPOSE: dict[str, Any] = yaml.safe_load(FILE.read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
PARTS = sorted(name for name, one in SERVICES.items() if "command" in one and name not in ("tower", "tokens"))
TOKENS = ("replay", "operator", "learner", "reader")


def _words(name: str, root: Path) -> list[str]:
    """A service's command as its program gets it, where its files lie below a folder."""
    (root / "etc/overwatch").mkdir(parents=True, exist_ok=True)
    (root / "run/overwatch").mkdir(parents=True, exist_ok=True)
    (root / "etc/overwatch/run.yaml").write_text(RUN.read_text())
    for role in TOKENS:
        (root / "run/overwatch" / role).write_text("token")
    words = [re.sub(r"\$\{\w+:-(\w+)\}", r"\1", word) for word in SERVICES[name]["command"]]
    return [word.replace("=/etc/", f"={root}/etc/").replace("=/run/", f"={root}/run/") for word in words]


def _parsed(name: str, root: Path) -> click.Context:
    word, *given = _words(name, root)
    (command,) = [one for one in COMMANDS if one.name == word]
    return command.make_context(word, given, auto_envvar_prefix=None)


def test_it_keeps_to_the_specification() -> None:
    """Of Compose; a key that it does not have is found."""
    PyCompose.from_yaml(yaml.safe_dump(COMPOSE)).validate()

    with pytest.raises(ValueError, match="prots"):
        PyCompose.from_yaml(yaml.safe_dump({"services": {"tower": {"image": "overwatch", "prots": []}}}))


@pytest.mark.parametrize("name", PARTS)
def test_each_command_is_one(name: str, tmp_path: Path) -> None:
    """By its own parser, with the tokens that the file has made."""
    assert _parsed(name, tmp_path).params


def test_a_flag_that_no_program_has_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the test above would prove nothing."""
    monkeypatch.setitem(SERVICES["learner"], "command", ["learner", "--replays=grpc://replay:8100"])

    with pytest.raises(click.NoSuchOption, match="--replays"):
        _parsed("learner", tmp_path)


def test_the_tower_and_the_run_are_configured_as_their_programs_ask() -> None:
    """Each `--set` is a setting, and what is trained is a world."""
    sets = [word.removeprefix("--set=") for word in SERVICES["tower"]["command"][1:]]

    made = config.load(None, sets)
    assert made.extensions["view"].endpoint == "0.0.0.0:4380"
    assert made.service.security.allowed_hosts == ("tower",)  # as the others call it
    assert learner_config(of_file(RUN)).world == "goodhart:small"


def test_every_address_is_a_service_that_listens_there() -> None:
    """The port is in the command of the service that the host names."""
    named = {
        (url.hostname, url.port)
        for one in SERVICES.values()
        for word in (*one.get("command", ()), *dict(one.get("environment", {})).values())
        if (url := urlsplit(word.partition("=")[2] if word.startswith("--") else word)).scheme
        in ("http", "grpc")
    }

    assert {host for host, _ in named} == {"tower", "replay", "orchestrator", "learner"}
    for host, port in named:
        assert any(word.endswith(f"=0.0.0.0:{port}") for word in SERVICES[host]["command"]), (host, port)


def test_nothing_is_reachable_from_outside_of_the_machine() -> None:
    """Ports are published on loopback; the containers are nobody special."""
    for name, one in SERVICES.items():
        assert all(port.startswith("127.0.0.1:") for port in one.get("ports", ())), name
        assert not one["image"].endswith(":latest"), name
        assert re.search(r":v?\d+\.\d+\.\d+$", one["image"]), name
    for name in (*PARTS, "tower"):
        one = SERVICES[name]
        assert (one["user"], one["read_only"], one["cap_drop"]) == ("10001:10001", True, ["ALL"]), name


def test_every_file_volume_and_dependency_is_there() -> None:
    """Files of the project, volumes that are declared, services that are."""
    for name, one in SERVICES.items():
        assert set(one.get("depends_on", ())) <= SERVICES.keys(), name
        for volume in one.get("volumes", ()):
            source = volume.partition(":")[0]
            is_there = (FILE.parent / source).exists() if "/" in source else source in COMPOSE["volumes"]
            assert is_there, (name, source)


def test_every_token_that_is_read_is_made(tmp_path: Path) -> None:
    """The service `tokens` makes those that commands name."""
    named = {
        word.rpartition("/")[2] for name in PARTS for word in SERVICES[name]["command"] if "-token" in word
    }
    (script,) = SERVICES["tokens"]["command"]

    assert named == set(TOKENS)
    assert f"for role in {' '.join(TOKENS)};" in script
