"""Each row of learner, actors, replay and orchestrator is emitted by a real cluster; its traces are whole.

The programs are those that `overwatch-rl cluster --local --collector` starts. While it runs it is commanded
as by `curl`, and its learner is killed once; what came is read from what the collector wrote.
"""

import json
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from overwatch.catalog import Scope, of_scope
from overwatch.snapshot import Snapshot
from tests.live.faults import PROOFS
from tests.overwatch_rl.cluster.running import Running, config, settings

SCOPES: Final = (Scope.LEARNER, Scope.ACTOR, Scope.REPLAY, Scope.ORCHESTRATOR)
WAITS: Final = {
    **{
        row: f"{proof.fault}: tests/live/faults.py, `{proof.program.name}`"
        for proof in PROOFS
        for row in proof.rows
    },
    "replay.refused": "chunks that are refused: tests/overwatch_rl/replay/test_telemetry.py",
    "replay.removed": "a table that is cleared: tests/overwatch_rl/replay/test_telemetry.py",
    "replay.late": "a late acknowledgement: tests/overwatch_rl/replay/test_telemetry.py",
}
"""Rows that need a fault which is not planted here, each with where it is."""


TURN: Final = {
    *(("learner", name) for name in ("rl.loop", "queue_wait", "rl.train", "rl.sync", "replay.acknowledge")),
    ("replay", "replay.Acknowledge"),
}
"""What a turn of the loop holds whose experience was acknowledged: of two processes."""
APPEND: Final = {("actor", "replay.append"), ("replay", "replay.Append")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the collector wrote."""

    snapshots: list[Snapshot]
    spans: list[tuple[str, dict[str, Any]]]
    """With the role of their process."""
    logs: list[tuple[str, dict[str, Any]]]

    def facts(self, name: str) -> list[tuple[str, dict[str, Any]]]:
        """Events of a name."""
        return [(role, log) for role, log in self.logs if log.get("eventName") == f"overwatch.{name}"]


def _query(url: str, path: str, body: object) -> None:
    request = urllib.request.Request(  # noqa: S310 its own address
        f"{url}/api/v1/runs/live{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as reply:  # noqa: S310 as above
        assert reply.status < 300


def _items(file: Path, outer: str, inner: str, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """What each line of an OTLP file holds, with the role of who sent it."""
    for line in file.read_text().splitlines():
        for of in json.loads(line).get(outer, []):
            stated = {one["key"]: one["value"] for one in of["resource"]["attributes"]}
            role = stated.get("overwatch.role", {}).get("stringValue", "")
            for scope in of[inner]:
                yield from ((role, item) for item in scope[name])


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """Some updates; a tune, a pause and a resume; the learner is killed; some more."""
    folder = tmp_path_factory.mktemp("cluster")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("XDG_RUNTIME_DIR", "OVERWATCH_SPOOL_DIR", "OVERWATCH_RING_DIR"):
            patch.setenv(name, str(folder))
        made = settings(folder, config(), run_id="live", has_collector=True, is_reporting=True)
        with Running(made) as running:
            running.more(8, "the first updates")
            orchestrator = str(running.cluster.places["orchestrator"])
            _query(
                orchestrator, "/commands", {"command": {"kind": "tune", "values": {"learning_rate": 1e-4}}}
            )
            running.more(4, "after a tune")
            _query(orchestrator, "/pause", {})
            _query(orchestrator, "/resume", {})
            running.kill_amid_leases()
            running.more(8, "after the learner was killed")
    tower = folder / "tower"
    lines = (tower / "snapshots.jsonl").read_bytes().splitlines()
    otlp = tower / "otlp"
    return Seen(
        snapshots=[msgspec.json.decode(line, type=Snapshot) for line in lines],
        spans=list(_items(otlp / "traces.jsonl", "resourceSpans", "scopeSpans", "spans")),
        logs=list(_items(otlp / "logs.jsonl", "resourceLogs", "scopeLogs", "logRecords")),
    )


@pytest.mark.timeout(600)
def test_every_row_of_the_services_is_emitted_by_them(seen: Seen) -> None:
    """In the snapshot, under its own name."""
    names = {name.partition("#")[0] for shot in seen.snapshots for name in shot.services}
    names |= {one.name for shot in seen.snapshots for one in shot.tallies}
    wanted = {row.name for scope in SCOPES for row in of_scope(scope)}

    assert wanted - names <= set(WAITS)
    assert set(WAITS) <= wanted


def test_what_an_episode_was_really_worth_is_seen(seen: Seen) -> None:
    """The world's own rows come from the learner, so that a proxy that parts from the truth is found."""
    names = {name for shot in seen.snapshots for name in shot.policy}

    assert {"true_return", "proxy_return", "food_share", "poison_share", "survival"} <= names
    assert any(shot.parting is not None for shot in seen.snapshots)


def test_each_service_has_its_line(seen: Seen) -> None:
    """With the version of its weights, its queue, its checkpoint, what it holds, the state of the run."""
    words = defaultdict(set)
    for shot in seen.snapshots:
        for one in shot.processes:
            words[one.name] |= {part.split()[0] for part in one.parts}

    assert {"v", "queue", "ckpt"} <= words["learner"]
    assert {"v", "weights"} <= words["actor"]
    assert words["actor 1"]
    assert {"in", "out"} <= words["replay"]
    assert {"running", "heartbeat"} <= words["orchestrator"]
    assert words["orchestrator"] & {"tune", "pause", "resume"}


def test_run_control_is_seen(seen: Seen) -> None:
    """States and commands are facts of the run, in its feed and its snapshot."""
    states = [shot.run.control for shot in seen.snapshots if shot.run.control is not None]
    assert "running" in states
    commands = [shot.run.command for shot in seen.snapshots if shot.run.command is not None]
    assert commands
    assert set(commands) <= {"tune done", "pause done", "resume done"}
    assert len(seen.facts("command_applied")) >= 3
    assert {line.kind for shot in seen.snapshots for line in shot.feed} >= {
        "run_state_changed", "command_applied", "checkpoint_saved",
    }  # fmt: skip


def test_one_trace_goes_through_learner_and_replay(seen: Seen) -> None:
    """A turn of the loop: its phases, and the calls to replay with the server's own spans below them."""
    traces: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for role, span in seen.spans:
        traces[span["traceId"]].add((role, span["name"]))
    whole = [names for names in traces.values() if names >= TURN]

    assert whole
    assert {name for _, name in whole[0]} >= {"estimate", "log"}
    assert any(("learner", "checkpoint") in names for names in traces.values())
    assert any(
        names >= {("actor", "replay.append"), ("replay", "replay.Append")} for names in traces.values()
    )
    below = {span["spanId"]: span for _, span in seen.spans}
    served = [span for role, span in seen.spans if role == "replay" and span.get("parentSpanId") in below]
    assert served


def test_episodes_and_checkpoints_name_the_span_of_their_phase(seen: Seen) -> None:
    """The span that they name was sent, is of that phase, and is in the trace that they name."""
    spans = {span["spanId"]: (role, span) for role, span in seen.spans}
    for name, role, phases in (
        ("episode_ended", "actor", {"collect"}),
        ("checkpoint_saved", "learner", {"checkpoint", "last_checkpoint"}),
    ):
        facts = [log for of, log in seen.facts(name) if of == role and log.get("spanId")]
        assert facts
        known = [(log, spans[log["spanId"]]) for log in facts if log["spanId"] in spans]
        assert len(known) > len(facts) / 2
        for log, (of, span) in known:
            stated = {one["key"]: one["value"] for one in span["attributes"]}
            assert (of, span["traceId"]) == (role, log["traceId"])
            assert stated["overwatch.phase"]["stringValue"] in phases
