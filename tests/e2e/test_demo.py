"""The demo, end to end: a real policy trains, and every road shows the numbers that the trainer computed."""

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import jsonschema
import pytest
from google.protobuf.message import Message
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from overwatch import codec
from overwatch.catalog.phases import parse_phase
from overwatch.conventions import registry
from overwatch.feeds.inputs import open_input
from overwatch.feeds.recording import Recording
from overwatch.journal import Signal
from overwatch.otlp import wire
from overwatch.snapshot import Snapshot
from overwatch.state.derived import SLOPE_NEEDS, SPREAD_FROM, correlation, slope
from overwatch.state.policy import HISTORY

pytestmark = [pytest.mark.xdist_group("demo"), pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
SECONDS = 30
CLIPPED_AT = 0.5
"""Norm to which the trainer clips gradients by default."""
PULSE = ("kl_divergence", "entropy", "clip_fraction", "explained_variance", "grad_norm")


@dataclass(frozen=True)
class Demo:
    """What one run of the demo left."""

    folder: Path
    result: "subprocess.CompletedProcess[str]"

    @cached_property
    def lines(self) -> list[bytes]:
        """The snapshot log, a line each."""
        return (self.folder / "snapshots.jsonl").read_bytes().splitlines()

    @cached_property
    def snapshots(self) -> list[Snapshot]:
        """The snapshot log, decoded."""
        return [codec.decode(line) for line in self.lines]

    @cached_property
    def updates(self) -> dict[int, dict[str, float]]:
        """The trainer's own numbers by update."""
        rows = (json.loads(line) for line in (self.folder / "trainer/updates.jsonl").read_text().splitlines())
        return {int(row["update"]): row for row in rows}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """One headless run of the demo on free ports, shared by the tests of this file."""
    folder = tmp_path_factory.mktemp("demo") / "out"
    command = [sys.executable, "-m", "overwatch.cli", "demo", "--headless", "--seconds", str(SECONDS)]
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder.parent), "XDG_STATE_HOME": str(folder.parent)}
    result = subprocess.run(
        [*command, "--out", str(folder), "--envs", "16", "--slots", "3", "--seed", "1"],
        capture_output=True, text=True, timeout=200, check=False, env=environment, cwd=folder.parent,
    )  # fmt: skip
    return Demo(folder, result)


def test_the_demo_ends_well_and_reports_it(demo: Demo) -> None:
    """Exit 0, status lines on the way, a summary at the end."""
    assert demo.result.returncode == 0, demo.result.stdout + demo.result.stderr
    summary = json.loads((demo.folder / "summary.json").read_text())

    assert summary["ok"] is True
    assert summary["updates"] >= 3
    assert (summary["outcome"], summary["trainer_exit"], summary["collector_exit"]) == ("completed", 0, 0)
    assert demo.result.stdout.count("LIVE") >= 2


def test_everything_lies_in_its_folder(demo: Demo) -> None:
    """Snapshots, OTLP files with their index, the last scrape, the summary and the logs."""
    for name in (
        "snapshots.jsonl", "otlp/logs.jsonl", "otlp/metrics.jsonl", "otlp/traces.jsonl", "otlp/index.jsonl",
        "metrics.prom", "summary.json", "collector.log", "trainer.log",
    ):  # fmt: skip
        assert (demo.folder / name).stat().st_size > 0, name


def test_the_pulse_is_finite_and_moves(demo: Demo) -> None:
    """KL, entropy, clip fraction, explained variance and gradient norm change from update to update."""
    by_update = {snapshot.run.update: snapshot.policy for snapshot in demo.snapshots if snapshot.run.update}

    assert len(by_update) >= 3
    for name in PULSE:
        values = [policy[name].value for policy in by_update.values()]
        finite = [value for value in values if value is not None and math.isfinite(value)]
        assert len(finite) == len(values), name
        # A clip fraction is a share of counted samples: two updates may have the same.
        assert len(set(finite)) > (len(finite) // 2 if name == "clip_fraction" else len(finite) - 1), name


def _clipped(demo: Demo, update: int) -> float:
    """The share of the newest twenty updates whose gradient was beyond the norm to which it is clipped."""
    norms = [demo.updates[i]["grad_norm"] for i in sorted(demo.updates) if i <= update][-20:]
    return sum(norm > CLIPPED_AT for norm in norms) / len(norms)


def _newest(demo: Demo, update: int) -> dict[str, float]:
    """What the trainer computed last of each number: a head that decided nothing in an update has none."""
    found: dict[str, float] = {}
    for number in sorted(demo.updates):
        if number <= update:
            found |= {name: value for name, value in demo.updates[number].items() if value is not None}
    return found


def _following(demo: Demo, snapshot: Snapshot) -> dict[str, float]:
    """What follows from the trainer's own numbers: the clipped share, the slope of KL, KL by its limit."""
    update = snapshot.run.update or 0
    kls = [demo.updates[i]["kl_divergence"] for i in sorted(demo.updates) if i <= update][-10:]
    found = {"grad_clipped": _clipped(demo, update)}
    if len(kls) >= 5:
        found["policy_drift_rate"] = slope(kls)
    so_far = [demo.updates[i] for i in sorted(demo.updates) if i <= update]
    pairs = [(one["entropy"], one["clip_fraction"]) for one in so_far[-HISTORY:]]
    together = correlation(pairs) if len(pairs) >= SLOPE_NEEDS else None
    if together is not None:
        found["entropy_clip_correlation"] = together
    if len(so_far) >= SPREAD_FROM:
        wide = [one["value_max"] - one["value_min"] for one in so_far[SPREAD_FROM - 1 :]]
        found["value_spread"] = wide[-1] / wide[0]
    limit = snapshot.policy["kl_divergence"].limit
    if limit is not None:
        found["trust_region_health"] = demo.updates[update]["kl_joint"] / limit.value
    return found


def test_the_snapshot_equals_what_the_trainer_computed(demo: Demo) -> None:
    """Every policy value in every snapshot is the trainer's own, to the last bit, or follows from its own."""
    compared = 0
    for snapshot in demo.snapshots:
        if snapshot.run.update is None:
            continue
        own = _newest(demo, snapshot.run.update) | _following(demo, snapshot)
        for name, reading in snapshot.policy.items():
            if reading.value is not None:
                assert reading.value == own[name], (snapshot.run.update, name)
                compared += 1

    assert compared > 30


def test_replay_gives_the_same_bytes(demo: Demo) -> None:
    """Folding the recorded batches again gives every line of the snapshot log, byte for byte."""
    replayed = [
        codec.encode(snapshot)
        for frame in Recording(demo.folder / "otlp").frames()
        for snapshot in frame.recorded
    ]

    assert len(demo.lines) >= SECONDS // 2
    assert replayed == demo.lines


def test_every_snapshot_obeys_the_published_schema(demo: Demo) -> None:
    """The schema in `otel/` describes what is really written."""
    schema = json.loads((ROOT / "otel/snapshot.schema.json").read_text())
    validator = jsonschema.Draft202012Validator(schema)

    assert [error.message for line in demo.lines for error in validator.iter_errors(json.loads(line))] == []


def test_the_board_shows_envs_slots_and_actions(demo: Demo) -> None:
    """Sixteen envs on the lane `cpu`, three slots each, an action, a return and an accuracy."""
    last = demo.snapshots[-1]

    assert {env.gpu_id for env in last.envs} == {"cpu"}
    assert len(last.envs) == 16
    for env in last.envs:
        assert list(env.slots) == list(last.run.slots)
        assert len(env.slots) == 3
        assert env.last_action
        assert env.episode_return is not None
        assert env.metric is not None
        assert 0 <= env.metric <= 1
    assert sum(last.aggregates.seed_census.values()) == 48


def test_seeds_and_gates_are_in_the_feed(demo: Demo) -> None:
    """Lifecycle facts carry env, slot and seed."""
    kinds = {line.kind for snapshot in demo.snapshots for line in snapshot.feed}
    moves = [line for line in demo.snapshots[-1].feed if line.kind == "seed_stage_changed"]

    assert {"seed_stage_changed", "gate_evaluated"} <= kinds
    assert all(line.env_id is not None and line.slot and line.seed_id for line in moves)


def test_a_healthy_run_has_no_finding(demo: Demo) -> None:
    """Nothing is red in a run that learns; a busy machine may slow it, and it may be solved."""
    found = {finding.code for snapshot in demo.snapshots for finding in snapshot.findings}

    assert found <= {"policy-update-time", "converged"}


def test_nothing_was_dropped_on_the_way(demo: Demo) -> None:
    """The trainer's side dropped no record."""
    assert demo.snapshots[-1].counters["sdk_dropped"] == 0


def test_everything_is_emitted_in_registered_names(demo: Demo) -> None:
    """Logs, metrics and spans of a real run: no violation, and no name that the registry does not have."""
    recording, held = open_input(demo.folder), registry()
    assert isinstance(recording, Recording)
    sent = {
        name
        for segment in recording.segments()
        for batch in recording.read(segment.entries)
        if batch.signal is not Signal.START
        for name in _names(wire.parse(batch.signal, batch.body))
    }
    spans = {name for span in held.spans.values() for name in span.names}
    own = next(one.key for one in held.attributes.values() if one.kind.startswith("template"))

    assert {("metric", "overwatch.policy.kl_divergence", "{nat}"), ("span", "rl.loop", "")} <= sent
    for kind, name, unit in sent:
        match kind:
            case "metric":
                assert held.metrics[name].unit == unit
            case "event":
                assert name in held.events
            case "span":
                assert name in spans or parse_phase(name) is not None
            case _:
                assert name in held.attributes or name.startswith(f"{own}.")


def _names(message: Message) -> Iterator[tuple[str, str, str]]:
    """Kind, name and unit of all that a request names; not what is inside of values and bodies."""
    match message:
        case KeyValue():
            yield "attribute", message.key, ""
            return
        case Metric():
            yield "metric", message.name, message.unit
        case LogRecord() if message.event_name:
            yield "event", message.event_name, ""
        case Span():
            yield "span", message.name, ""
    for field, value in message.ListFields():
        if field.message_type is not None and field.name != "body":
            for below in value if field.is_repeated else (value,):
                yield from _names(below)


def test_promtool_finds_nothing_wrong_with_the_scrape(demo: Demo) -> None:
    """The real promtool checks the last scrape and stays silent."""
    promtool = shutil.which("promtool")
    if promtool is None:
        if os.environ.get("OVERWATCH_REQUIRE_REAL"):
            pytest.fail("promtool is required here and not installed: apt-get install prometheus")
        pytest.skip("promtool is not installed: apt-get install prometheus")
    page = (demo.folder / "metrics.prom").read_bytes()
    checked = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, check=False)

    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")
    assert b"overwatch_policy_kl_divergence{" in page
