"""Starting: what is loaded, what is off, what is wrong."""

import json
import subprocess
import sys

import pytest

import overwatch.sdk
from overwatch.events import RunStarted
from tests.overwatch.sdk.sink import http_sink


def test_importing_the_sdk_loads_nothing_heavy() -> None:
    """Only the standard library, msgspec (and what that loads), catalogue, events and discovery."""
    script = """
import json, sys
before = set(sys.modules)
import overwatch.sdk
print(json.dumps(sorted(set(sys.modules) - before)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout)
    outside = {name.partition(".")[0] for name in loaded} - set(sys.stdlib_module_names)
    assert {name for name in outside if not name.startswith("_")} <= {
        "msgspec",
        "typing_extensions",
        "overwatch",
    }
    allowed = ("overwatch.catalog", "overwatch.events", "overwatch.discovery", "overwatch.sdk")
    ours = [name for name in loaded if name.startswith("overwatch.")]
    assert [name for name in ours if not name.startswith(allowed)] == []
    assert [name for name in ours if name.startswith("overwatch.sdk.exporter")] == []


def test_a_disabled_sdk_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """`OTEL_SDK_DISABLED` makes every call a no-op and the report honest."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    run = overwatch.sdk.start(run_id="r")
    run.update(kl_divergence=0.1)
    with run.phase("collect"):
        pass
    assert run.exporter_pid is None
    assert run.run_id == "r"
    assert run.close() == overwatch.sdk.Report(delivered=False, accepted=0, dropped={})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"endpoint": "localhost:4318"}, "localhost:4318"),
        ({"metric": "accuracy"}, "MetricInfo"),
        ({"n_envs": "8"}, "whole"),
        ({"preset": "grop"}, "did you mean 'grpo'"),
    ],
)
def test_a_wrong_argument_says_what_is_wrong(arguments: dict[str, object], said: str) -> None:
    """Mistakes of the caller are told at the start, where they can be mended."""
    with pytest.raises((ValueError, TypeError), match=said):
        overwatch.sdk.start(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "wanted", "algo", "judge"),
    [
        (None, "", None, "ppo"),
        (None, "", "GRPO", "grpo"),
        (None, "esper", "grpo", "esper"),
        ("ppo-continuous", "esper", "grpo", "ppo-continuous"),
        (None, "espr", "grpo", "grpo"),
    ],
)
def test_a_preset_is_the_arguments_the_environments_or_the_algorithms(
    given: str | None, wanted: str, algo: str | None, judge: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this order; an environment that spells it wrong stops no training."""
    monkeypatch.setenv("OVERWATCH_PRESET", wanted)
    with http_sink() as sink:
        overwatch.sdk.start(preset=given, algo=algo, endpoint=sink.endpoint, sample=False).close(timeout=60)
        (start,) = sink.events(RunStarted)

    assert start.preset == judge
