"""`overwatch config`: what is valid, what holds, what there is; secrets are never shown."""

from pathlib import Path

import msgspec
import pytest
import yaml
from click.testing import CliRunner, Result

from overwatch.cli.configuration import placed
from overwatch.cli.main import main
from overwatch.collector.setting_types import SHOWN
from overwatch.collector.settings import listeners
from overwatch.config import file_type, load, load_named
from tests.overwatch.simulate.runs import overwatch

CANARY = "canary-91d2"


def cli(*arguments: str) -> Result:
    """One call of the command."""
    return CliRunner().invoke(main, ["config", *arguments])


def test_the_shipped_configuration_is_valid() -> None:
    """Without arguments the defaults are checked."""
    result = cli("validate")

    assert (result.exit_code, result.output) == (0, "the shipped configuration is valid\n")


@pytest.mark.parametrize(
    ("item", "parts"),
    [
        ("service.security.tokens.raed.token=x", ["service.security.tokens.raed: unknown key", "'read'"]),
        ("service.security.tls.cert=x", ["service.security.tls.cert: unknown key", "'cert_file'"]),
        ("service.security.tokens.read={}", ["service.security.tokens.read", "one of token, tokens"]),
        ("service.security.tokens.read.token=", ["service.security.tokens.read", "one of token, tokens"]),
        ("service.security.tokens.read.token=''", ["service.security.tokens.read", "a token is empty"]),
        ("service.security.tokens.read.token=12345", ["service.security.tokens.read.token", "in quotes"]),
        ("service.security.tokens.read.token='a b'", ["service.security.tokens.read", "visible ASCII"]),
        ("service.security.tokens.read.filename=/no/where", ["tokens", "/no/where"]),
        ("service.security.allowed_hosts=['http://x']", ["service.security", "allowed_hosts: 'http://x'"]),
        ("service.security.allowed_hosts=['*']", ["service.security", "allowed_hosts: '*'"]),
        ("service.security.allowed_origins=['x']", ["service.security", "allowed_origins: 'x'"]),
        ("service.telemetry.logs.level=loud", ["service.telemetry.logs.level", "loud"]),
        ("extensions.view.endpoint=0.0.0.0:4380", ["extensions.view.endpoint", "tls and", "tokens.read"]),
    ],
)
def test_what_is_wrong_is_named(item: str, parts: list[str]) -> None:
    """The path, what is wrong and what to do; the status is 1."""
    result = cli("validate", "--set", item)

    assert result.exit_code == 1
    assert [part for part in parts if part not in result.output] == []


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ((), "tls and service.security.tokens.ingest"),
        (("token",), "set tls,"),
        (("tls",), "set service.security.tokens.ingest,"),
        (("token", "tls"), None),
        (("read token", "tls"), "set service.security.tokens.ingest,"),
        (("insecure",), None),
    ],
)
def test_a_bind_for_others_needs_its_token_and_tls(
    given: tuple[str, ...], missing: str | None, tmp_path: Path
) -> None:
    """The message names what is missing; the switch lets everything pass."""
    at = "service.security"
    words = {
        "token": [f"{at}.tokens.ingest.token=abc"],
        "read token": [f"{at}.tokens.read.token=abc"],
        "tls": [f"{at}.tls.cert_file={tmp_path}/c", f"{at}.tls.key_file={tmp_path}/k"],
        "insecure": [f"{at}.allow_insecure_bind=true"],
    }
    sets = ["receivers.otlp.protocols.grpc.endpoint=0.0.0.0:4317"] + [
        item for word in given for item in words[word]
    ]
    try:
        load(None, sets)
        stated = None
    except ValueError as error:
        stated = str(error)

    assert (stated is None) if missing is None else (missing in str(stated))


def test_health_for_others_needs_tls_alone(tmp_path: Path) -> None:
    """Probes carry no token; the shared section does not count, for health does not use it."""
    bind = "extensions.health_check.endpoint=0.0.0.0:13133"
    shared = [f"service.security.tls.{key}_file={tmp_path}/{key}" for key in ("cert", "key")]
    own = [f"extensions.health_check.tls.{key}_file={tmp_path}/{key}" for key in ("cert", "key")]

    with pytest.raises(ValueError, match="set tls, or use"):
        load(None, [bind, *shared])
    assert load(None, [bind, *own]).extensions["health_check"].tls is not None


def test_print_shows_what_holds_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """All keys with defaults and overrides; a secret is a placeholder."""
    monkeypatch.setenv("TOKEN", CANARY)
    result = cli(
        "print",
        *("--set", "service.security.tokens.ingest.token=${env:TOKEN}"),
        *("--set", f"exporters.webhook.url=https://hooks.example/{CANARY}"),
        *("--set", "extensions.view.endpoint=127.0.0.1:1"),
    )
    printed = yaml.safe_load(result.output)

    assert result.exit_code == 0
    assert CANARY not in result.output
    assert printed["service"]["security"]["tokens"]["ingest"]["token"] == SHOWN
    assert printed["extensions"]["view"]["endpoint"] == "127.0.0.1:1"
    assert printed["receivers"]["otlp"]["protocols"]["http"]["endpoint"] == "127.0.0.1:4318"


def test_what_is_printed_is_a_configuration(tmp_path: Path) -> None:
    """Printed and read again it is the same."""
    file = tmp_path / "printed.yaml"
    file.write_text(cli("print").output)

    assert load(file, []) == load(None, [])


@pytest.mark.parametrize("text", ["12345", "1e5", "null", "0x10", "true", "a: b"])
def test_a_token_of_the_environment_is_its_text(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Tokens that look like numbers or other YAML stay what they are."""
    monkeypatch.setenv("TOKEN", text.replace(" ", ""))
    config = load(None, ["service.security.tokens.read.tokens=['${env:TOKEN}']"])
    read = config.service.security.tokens.read

    assert read is not None
    assert read.tokens[0].reveal() == text.replace(" ", "")


def test_components_lists_every_section_with_a_word_on_each_setting() -> None:
    """Every receiver, exporter and extension is there, and no setting without its sentence."""
    result = cli("components")
    listed = yaml.safe_load(result.output)

    assert result.exit_code == 0
    for kind in ("receivers", "exporters", "extensions", "service"):
        section = next(field.type for field in msgspec.structs.fields(file_type()) if field.name == kind)
        several = {"type/name"} if kind == "exporters" else set()
        assert set(listed[kind]) - several == {one.encode_name for one in msgspec.structs.fields(section)}
        for name, about in listed[kind].items():
            assert about["about"], name
            assert [key for key, text in about["settings"].items() if text.startswith(" ")] == []
    assert "protocols.http.tls.cert_file" in listed["receivers"]["otlp"]["settings"]
    assert "tokens.ingest.filename" in listed["service"]["security"]["settings"]


def test_a_file_that_is_wrong_is_named(tmp_path: Path) -> None:
    """`print` fails like `validate` does."""
    result = cli("print", "--config", str(tmp_path / "absent.yaml"))

    assert result.exit_code == 1
    assert "absent.yaml" in result.output


@pytest.mark.parametrize("command", [("collect",), ("config", "print"), ("config", "validate"), ("doctor",)])
def test_two_files_are_refused(command: tuple[str, ...], tmp_path: Path) -> None:
    """Of two the first would be left out without a word."""
    files = [tmp_path / "a.yaml", tmp_path / "b.yaml"]
    for file in files:
        file.write_text("service: {extensions: [veiw]}\n")
    result = CliRunner().invoke(main, [*command, *(one for file in files for one in ("--config", str(file)))])

    assert result.exit_code == 2
    assert "one file" in result.stderr


FAULTS = {
    "receivers.otlp.protocols.grpc.endpont": ("'127.0.0.1:1'", "unknown key; did you mean 'endpoint'?"),
    "receivers.otlp.protocols.http.endpoint": ("7", "Expected `str`, got `int`"),
    "receivers.otlp.protocols.http.max_request_body_size": ("0", "max_request_body_size 0 is not in"),
    "exporters.otlp_file.path": ("'${env:NOT_THERE_AT_ALL}'", "NOT_THERE_AT_ALL is not set"),
    "exporters.otlp_file/x y": ("{}", "'x y' is no name"),
    "exporters.webhook/chat.url": ("5", "exporters.webhook/chat.url: a secret is a text"),
    "service.security.allowed_hosts": ("[a.example, 8, 9]", "allowed_hosts[2]: Expected `str`, got `int`"),
    "service.security.tls.cert_file": ("5", "service.security.tls.cert_file: "),
    "service.telemetry.logs.level": ("loud", "Invalid enum value 'loud'"),
    "extensions.health_check.endpoint": ("nowhere", "extensions.health_check.endpoint: "),
}


@pytest.mark.parametrize("least", [1, 2, len(FAULTS)])
def test_all_that_is_wrong_is_named_at_once(least: int, tmp_path: Path) -> None:
    """Each fault of a file has its line, whatever else is wrong, and no line is there without a fault."""
    for first in range(len(FAULTS)):
        names = (list(FAULTS) * 2)[first : first + least]
        data: dict[str, object] = {}
        for name in names:
            section = data
            *path, last = name.split(".")
            for key in path:
                section = section.setdefault(key, {})  # type: ignore[assignment]
            section[last] = yaml.safe_load(FAULTS[name][0])
        file = tmp_path / "c.yaml"
        file.write_text(yaml.safe_dump(data))
        result = cli("validate", str(file))
        lines = result.output.removeprefix("Error: ").splitlines()

        assert result.exit_code == 1
        for name in names:
            assert [line for line in lines if FAULTS[name][1] in line], (name, lines)
        several = "service.security.allowed_hosts" in names
        assert len(lines) == len(names) + several, lines


def test_what_is_given_beside_a_file_is_named_too(tmp_path: Path) -> None:
    """Faults of `--set`, of the file, and of the files that it names are in one answer."""
    file = tmp_path / "c.yaml"
    file.write_text(
        "service: {security: {tokens: {read: {filename: /no/where}}}, telemetry: {logs: {level: x}}}"
    )
    result = cli("validate", str(file), "--set", "a.b", "--set", "exporters.prometheus.endpoint=7")

    for part in ("--set 'a.b'", "exporters.prometheus.endpoint: ", "logs.level: ", "/no/where"):
        assert part in result.output
    assert cli("validate", str(file), "--config", str(file)).exit_code == 2


def test_a_file_is_named_by_itself(tmp_path: Path) -> None:
    """As with `--config`."""
    file = tmp_path / "c.yaml"
    file.write_text("service: {telemetry: {logs: {level: warn}}}")

    assert cli("validate", str(file)).output == cli("validate", "--config", str(file)).output
    assert cli("validate", str(file)).exit_code == 0


def test_a_folder_holds_all_that_a_collector_writes(tmp_path: Path) -> None:
    """Whatever the folder's name, also where a file names others; `--set` goes before."""
    folder = tmp_path / 'a: "b" #c'
    file = tmp_path / "c.yaml"
    file.write_text("exporters: {otlp_file: {path: /elsewhere}}")
    config, _ = load_named(file, placed(file, (), folder, None))
    own, _ = load_named(file, placed(file, ("exporters.otlp_file.path=/own",), folder, None))

    assert config.exporters["otlp_file"].path == folder / "otlp"
    assert config.exporters["snapshots"].path == folder / "snapshots.jsonl"
    assert config.extensions["file_storage"].directory == folder
    assert own.exporters["otlp_file"].path == Path("/own")


def test_ports_follow_one_another_and_hosts_stay(tmp_path: Path) -> None:
    """Six addresses from the base on, each a person's own, so that a busy one is an error."""
    file = tmp_path / "c.yaml"
    file.write_text(
        "extensions: {view: {endpoint: '[::1]:1'}}\nexporters: {prometheus/b: {endpoint: 'localhost:9'}}"
    )
    config, fixed = load_named(
        file, placed(file, ("service.telemetry.metrics.address=127.0.0.1:7",), None, 5000)
    )
    found = {one.path: one.endpoint for one in listeners(config)}

    assert found == {
        "receivers.otlp.protocols.http.endpoint": "127.0.0.1:5000",
        "receivers.otlp.protocols.grpc.endpoint": "127.0.0.1:5001",
        "exporters.prometheus.endpoint": "127.0.0.1:5002",
        "exporters.prometheus/b.endpoint": "localhost:9",
        "extensions.view.endpoint": "[::1]:5003",
        "service.telemetry.metrics.address": "127.0.0.1:7",
        "extensions.health_check.endpoint": "127.0.0.1:5005",
    }
    assert fixed == set(found.values())


@pytest.mark.parametrize("base", ["0", "65530", "x"])
def test_a_base_that_is_no_port_is_bad_usage(base: str) -> None:
    """The last of the ports must be one too."""
    assert overwatch("collect", "--port-base", base).exit_code == 2
