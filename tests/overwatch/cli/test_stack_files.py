"""The files that `overwatch stack up` writes."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from overwatch.cli import main
from overwatch.cli.stack_files import GRAFANA, PARTS, Spot, StackError, Wanted, shipped, write_all

PORTS = {"prometheus": 19090, "alertmanager": 19093, "grafana": 13000}


def wanted(**more: Any) -> Wanted:
    """A stack with ports of its own."""
    requested: dict[str, Any] = {
        "ports": PORTS,
        "runs": "http://127.0.0.1:18889",
        "collector": "https://[::1]:18888",
    }
    return Wanted(**(requested | more))


def read(path: Path) -> Any:
    """A YAML file."""
    return yaml.safe_load(path.read_text())


def test_addresses_are_filled_in_and_nothing_else_changes(tmp_path: Path) -> None:
    """Jobs, intervals and labels are those that are shipped."""
    write_all(tmp_path, wanted())
    made = read(tmp_path / "prometheus" / "prometheus.yml")
    shown = read(shipped() / "prometheus" / "prometheus.yml")

    assert made["global"] == shown["global"]
    assert [job["job_name"] for job in made["scrape_configs"]] == ["overwatch", "overwatch-collector"]
    runs, collector = made["scrape_configs"]
    assert (runs["scheme"], runs["static_configs"]) == ("http", [{"targets": ["127.0.0.1:18889"]}])
    assert (collector["scheme"], collector["static_configs"]) == ("https", [{"targets": ["[::1]:18888"]}])
    assert runs["honor_labels"] is True
    assert made["alerting"]["alertmanagers"] == [{"static_configs": [{"targets": ["127.0.0.1:19093"]}]}]


def test_the_rules_of_the_runs_length_link_to_this_grafana(tmp_path: Path) -> None:
    """One file for all lengths and one for this one."""
    write_all(tmp_path, wanted(windows="6h"))
    files = [Path(name) for name in read(tmp_path / "prometheus" / "prometheus.yml")["rule_files"]]

    assert [path.name for path in files] == ["overwatch.yaml", "windows-6h.yaml"]
    assert "dashboard_url: http://127.0.0.1:13000/d/overwatch-collector" in files[0].read_text()
    assert "127.0.0.1:3000" not in "".join(path.read_text() for path in files)


def test_without_an_alertmanager_nobody_is_notified(tmp_path: Path) -> None:
    """Prometheus does not try one that is not there."""
    write_all(tmp_path, wanted(ports={"prometheus": 19090}))

    assert "alerting" not in read(tmp_path / "prometheus" / "prometheus.yml")


def test_secrets_are_made_once_and_are_this_users_alone(tmp_path: Path) -> None:
    """A second `up` keeps them; nobody else can read them."""
    files = [tmp_path / "prometheus" / "scrape_token", tmp_path / "grafana" / "admin_password"]
    write_all(tmp_path, wanted())
    before = [path.read_text() for path in files]
    write_all(tmp_path, wanted())

    assert [path.read_text() for path in files] == before
    assert len(set(before)) == 2
    assert all(len(text) >= 32 for text in before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE(tmp_path.joinpath("prometheus").stat().st_mode) == 0o700


def test_a_collectors_own_token_is_used(tmp_path: Path) -> None:
    """Where the collector asks for a token, the scrape brings that one."""
    write_all(tmp_path, wanted())
    write_all(tmp_path, wanted(token="theirs"))  # noqa: S106 a test's own

    assert (tmp_path / "prometheus" / "scrape_token").read_text() == "theirs"


def test_alerts_go_to_the_webhook_and_nowhere_without(tmp_path: Path) -> None:
    """The shipped example's receivers are placeholders, so none of them is called."""
    path = tmp_path / "alertmanager" / "alertmanager.yml"
    write_all(tmp_path, wanted())
    silent = read(path)["receivers"]
    write_all(tmp_path, wanted(webhook="http://127.0.0.1:9/hook"))
    reported = read(path)["receivers"]

    assert all(set(receiver) == {"name"} for receiver in silent)
    assert {receiver["name"] for receiver in reported} == {receiver["name"] for receiver in silent}
    assert all(receiver["webhook_configs"] == [{"url": "http://127.0.0.1:9/hook"}] for receiver in reported)


def test_grafana_finds_prometheus_and_the_dashboards(tmp_path: Path) -> None:
    """Provisioning names the stack's own port and folder, and the dashboards lie there."""
    write_all(tmp_path, wanted())
    provisioning = tmp_path / "grafana" / "provisioning"
    (source,) = read(provisioning / "datasources" / "overwatch.yaml")["datasources"]
    (provider,) = read(provisioning / "dashboards" / "overwatch.yaml")["providers"]
    boards = Path(provider["options"]["path"])

    assert source["url"] == "http://127.0.0.1:19090"
    assert source["jsonData"]["timeInterval"] == "15s"
    assert {path.name for path in boards.iterdir()} == {
        path.name for path in (shipped() / "grafana").glob("*.json")
    }


def test_grafana_is_set_to_keep_to_itself(tmp_path: Path) -> None:
    """It listens on loopback, reads its password from a file, and asks nothing of the network."""
    settings = GRAFANA.environment(Spot(binary="/bin/grafana", folder=tmp_path, port=13000))

    assert settings["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"
    assert settings["GF_SECURITY_ADMIN_PASSWORD__FILE"] == str(tmp_path / "admin_password")
    for name in ("REPORTING_ENABLED", "CHECK_FOR_UPDATES", "CHECK_FOR_PLUGIN_UPDATES"):
        assert settings[f"GF_ANALYTICS_{name}"] == "false"
    assert settings["GF_PLUGINS_PREINSTALL_DISABLED"] == "true"


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_every_server_listens_on_loopback(part: Any, tmp_path: Path) -> None:
    """No other machine reaches any of them."""
    spot = Spot(binary=f"/usr/bin/{part.programs[0]}", folder=tmp_path, port=12345)
    stated = " ".join([*part.command(spot), *part.environment(spot).values()])

    assert "127.0.0.1" in stated
    assert "0.0.0.0" not in stated


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """No traceback, but the path."""
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(StackError, match="file"):
        write_all(tmp_path / "file" / "stack", wanted())


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
    ("options", "stated"),
    [
        (("--grafana-port", "9090"), "a port of its own"),
        (("--runs", "nowhere"), "--runs 'nowhere' is not a URL"),
    ],
)
def test_what_cannot_be_is_refused_as_up_refuses_it(
    data: Path, options: tuple[str, ...], stated: str
) -> None:
    """Bad usage, and nothing is written."""
    for command in ("compose", "up"):
        result = CliRunner().invoke(main, ["stack", command, *options])
        assert (result.exit_code, stated in result.output) == (2, True)
    assert not (data / "stack").exists()
