"""`overwatch stack compose`: the stack as containers, with the files that `up` would use."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from overwatch.cli import main
from overwatch.cli.stack.parts import PARTS


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with a name that compose would read as a variable; no collector runs."""
    folder = tmp_path / "a$HOME b"
    monkeypatch.setenv("OVERWATCH_DATA_DIR", str(folder))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    return folder


def _written(*options: str) -> dict[str, Any]:
    """The services as compose reads them: two dollar signs are one, and there is no variable."""
    result = CliRunner().invoke(main, ["stack", "compose", *options])
    assert result.exit_code == 0, result.output
    file = Path(result.stdout.splitlines()[0].removeprefix("wrote "))
    assert f"docker compose -f {file} up -d" in result.stdout
    made: dict[str, Any] = yaml.safe_load(file.read_text().replace("$$", "\N{DOLLAR SIGN}"))["services"]
    assert "$" not in file.read_text().replace("$$", "")
    return made


def test_each_server_is_a_container_of_this_user_on_loopback(data: Path) -> None:
    """Its own folder at its own path, a version and no `latest`, and the port that was given."""
    made = _written("--prometheus-port", "19090")

    assert set(made) == {part.name for part in PARTS}
    for part in PARTS:
        service, own = made[part.name], str(data / "stack" / part.name)
        assert service["image"].rpartition(":")[2] not in ("", "latest")
        assert (service["network_mode"], service["user"]) == ("host", f"{os.getuid()}:{os.getgid()}")
        assert service["volumes"] == [{"type": "bind", "source": own, "target": own}]
        assert service["entrypoint"] == [part.inside]
    assert "--web.listen-address=127.0.0.1:19090" in made["prometheus"]["command"]
    assert made["grafana"]["environment"]["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"
    assert made["grafana"]["command"][-2:] == ["--homepath", "/usr/share/grafana"]


def test_every_file_that_a_container_is_given_is_there(data: Path) -> None:
    """No secret is in the file."""
    made = _written()
    stack = data / "stack"
    words = [
        word
        for service in made.values()
        for word in (*service["command"], *service.get("environment", {}).values())
    ]
    named = [Path(word.rpartition("=")[2]) for word in words if str(stack) in word]

    assert len(named) > 6
    assert all(path.exists() for path in named)
    password = (stack / "grafana" / "admin_password").read_text()
    assert password not in (stack / "compose.yaml").read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--grafana-port", "9090"), "a port of its own"),
        (("--runs", "nowhere"), "--runs 'nowhere' is not a URL"),
    ],
)
def test_what_cannot_be_is_refused_as_up_refuses_it(data: Path, options: tuple[str, ...], said: str) -> None:
    """Bad usage, and nothing is written."""
    for command in ("compose", "up"):
        result = CliRunner().invoke(main, ["stack", command, *options])
        assert (result.exit_code, said in result.output) == (2, True)
    assert not (data / "stack").exists()
