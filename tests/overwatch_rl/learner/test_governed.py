"""The orchestrator of a run over TLS: reached by an authority that the system does not know."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from overwatch_rl.artifacts.signing import make_key
from overwatch_rl.cli import main
from overwatch_rl.learner.config import LearnerConfig, learner_config
from overwatch_rl.learner.governed import OrchestratorSession
from tests.overwatch.collector import pki

TOKEN = "token-of-the-learner"  # noqa: S105 of the tests
ROLES = ("operator", "learner")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates and tokens."""
    if pki.OPENSSL is None:
        pytest.skip("certificates are made by openssl")
    made = tmp_path_factory.mktemp("pki")
    pki.authority(made, "ca")
    pki.signed(made, "server")
    for role in ROLES:
        (made / role).write_text(f"token-of-the-{role}")
    return made


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    """An orchestrator that serves HTTPS."""
    flags = {f"--{role}-token": role for role in ROLES} | {
        "--tls-cert": "server.pem",
        "--tls-key": "server.key",
    }
    words = [str(word) for flag, name in flags.items() for word in (flag, folder / name)]
    command = [sys.executable, "-m", "overwatch_rl.cli", "orchestrator", "--listen", "127.0.0.1:0", *words]
    command += ["--store", f"sqlite:///{folder}/runs.db", "--no-telemetry"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().split()[3].removesuffix("/api/v1,")
        process.terminate()


def config() -> LearnerConfig:
    """Of any run."""
    return learner_config({"world": "goodhart:small"})


def test_a_learner_registers_by_the_named_authority(url: str, folder: Path) -> None:
    """Without it the orchestrator counts as away, and training begins without."""
    public = make_key(folder / "signing.key").public
    record = OrchestratorSession(url, "r", TOKEN, config(), folder / "ca.pem").begun(public)

    assert record is not None
    assert record.run_id == "r"
    assert OrchestratorSession(url, "other", TOKEN, config()).begun(public) is None


def test_an_actor_reads_the_record_by_the_named_authority(url: str, folder: Path) -> None:
    """Of a run that is not there the orchestrator itself states it."""
    words = ["--run-id", "none", "--weights", "http://127.0.0.1:1", "--no-telemetry", "--wait-s", "0"]
    words += ["--orchestrator", url, "--orchestrator-token", str(folder / "learner")]
    found = CliRunner().invoke(main, ["actor", *words, "--orchestrator-ca", str(folder / "ca.pem")])

    assert found.exit_code != 0
    assert "none" in found.output
    assert "certificate" not in found.output.lower()
