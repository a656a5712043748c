"""Starting: what is loaded, what is off, what is wrong."""

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from typing import Final, NoReturn

import pytest

import overwatch.sdk
from overwatch.events import RunStarted
from tests.overwatch.sdk.sink import http_sink

LIGHT: Final = ("catalog", "events", "discovery", "file_lock", "platform", "regular", "sdk")
"""Packages of ours that a trainer loads."""


def test_importing_the_sdk_loads_nothing_heavy() -> None:
    """Only the standard library, msgspec (and what that loads), catalogue, events, discovery and platform."""
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
    allowed = tuple(f"overwatch.{part}" for part in LIGHT)
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


class _Raising(dict[str, object]):
    """A value whose own code raises."""

    def __raise(self, *_: object) -> NoReturn:
        raise KeyError("its own fault")

    __iter__ = __index__ = __float__ = __bool__ = __str__ = __repr__ = items = __raise  # type: ignore[assignment]


_BAD: Final[Mapping[str, object]] = {
    "run_id": "",
    "task": _Raising(),
    "algo": 7,
    "n_envs": "x",
    "config": 3,
    "reward_mode": b"r",
    "devices": "cuda:0",
    "slots": 4,
    "embargo": -1,
    "blueprints": ["conv"],
    "words": {"heads": 3},
    "metric": "accuracy",
    "preset": "grop",
    "library": "sb4",
    "updates": 10**400,
    "resumed": "many",
    "batches": 1.5,
    "modes": "amp",
    "endpoint": "localhost:4318",
    "role": 8,
    "rank": "first",
    "group": 9,
    "env_offset": float("nan"),
    "sample": _Raising(),
    "quiet": _Raising(),
}


@pytest.mark.parametrize(
    ("name", "value", "fix"),
    [
        ("endpoint", "localhost:4318", "localhost:4318.*write e.g. http://"),
        ("endpoint", "http://user:hidden@h:99999", "http://.redacted.@h:99999.*write e.g. http://"),
        ("metric", "accuracy", "MetricInfo"),
        ("n_envs", "x", "'x'.*write a whole number"),
        ("n_envs", -3, "-3.*write a whole number"),
        ("rank", "first", "'first'.*write a whole number"),
        ("updates", 10**400, "does not fit into 64"),
        ("devices", "cuda:0", "cuda:0.*write e.g. "),
        ("slots", 4, "=4 .*no list of names"),
        ("blueprints", ["conv"], "no mapping"),
        ("words", {"heads": 3}, r"array.*pass overwatch.sdk.WordTables\(heads="),
        ("words", {"heads": [("op", ["a"])], "uses": [[True, True]]}, "uses needs 1 rows"),
        ("modes", {"ddp": "many"}, "'many'.*write a whole number"),
        ("config", "password=hidden", "no configuration"),
        ("config", _Raising(), "its own fault"),
        ("preset", "grop", "did you mean 'grpo'"),
        ("library", "sb4", "did you mean 'SB3'"),
        ("library", "my own", "known are SB3, CleanRL, "),
    ],
)
def test_a_bad_argument_is_left_out_with_a_warning(
    name: str, value: object, fix: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The line names the argument, its value and the fix, and never a secret."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    overwatch.sdk.start(**{name: value})  # type: ignore[arg-type]
    (line,) = [record.getMessage() for record in caplog.records]
    assert name in line
    assert re.search(fix, line)
    assert "hidden" not in line


def test_every_argument_may_be_bad_and_the_run_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """No argument raises, whatever its type and its own code; the good ones and the updates arrive."""
    assert set(_BAD) == set(inspect.signature(overwatch.sdk.start).parameters)
    with http_sink() as sink:
        for name, value in _BAD.items():
            run = overwatch.sdk.start(**{"endpoint": sink.endpoint, "sample": False, name: value})  # type: ignore[arg-type]
            assert (run.exporter_pid is None) == (name == "endpoint"), name
            run.close(timeout=0.0)
        good = {"endpoint": sink.endpoint, "sample": False, "algo": "ppo", "slots": ["r0c0"]}
        run = overwatch.sdk.start(**{**_BAD, **good})  # type: ignore[arg-type]
        run.update(kl_divergence=0.1)
        assert run.close(timeout=60).delivered
        (start,) = (one for one in sink.events(RunStarted) if one.slots)
    assert (start.algo, start.slots, start.n_envs, start.config) == ("ppo", ("r0c0",), None, {})
    assert "n_envs='x' is left out" in caplog.text


def test_what_cannot_be_sent_turns_telemetry_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error of any type on the way to an exporter is a warning and a run that sends nothing."""

    def fail(*_: object) -> NoReturn:
        raise OverflowError("no way")

    monkeypatch.setattr("overwatch.sdk.launch.Link", fail)
    run = overwatch.sdk.start(run_id="r")
    run.update(kl_divergence=0.1)
    assert (run.run_id, run.close().delivered) == ("r", False)
    assert "telemetry is off: OverflowError: no way" in caplog.text


@pytest.mark.parametrize(
    ("given", "wanted", "algo", "judge"),
    [
        (None, "", None, None),
        (None, "", "GRPO", "grpo"),
        (None, "esper", "grpo", "esper"),
        ("ppo-continuous", "esper", "grpo", "ppo-continuous"),
        (None, "espr", "grpo", "grpo"),
    ],
)
def test_a_preset_is_the_arguments_the_environments_or_the_algorithms(
    given: str | None, wanted: str, algo: str | None, judge: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this order; an environment that spells it wrong stops no training."""
    monkeypatch.setenv("OVERWATCH_PRESET", wanted)
    with http_sink() as sink:
        overwatch.sdk.start(preset=given, algo=algo, endpoint=sink.endpoint, sample=False).close(timeout=60)
        (start,) = sink.events(RunStarted)

    assert start.preset == judge
