"""A storm of tallies through a whole collector: its recording replays to the bytes that were live."""

import hashlib
import random
import re
import time
from pathlib import Path

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from overwatch import codec
from overwatch.catalog import Scope
from overwatch.catalog.services import SECONDS
from overwatch.collector import Service
from overwatch.events import Buckets, Measured, Origin, Record, Tallied, TallySeries, scalars
from overwatch.feeds.recording import Recording
from overwatch.otlp.encode import request
from overwatch.snapshot import Snapshot
from tests.overwatch.collector.running import eventually, http, running
from tests.overwatch.otlp.test_settle import metric

ROUNDS = 40
PROCESSES = 3
ENVS = "abcde"


def _series(total: int, process: int) -> tuple[TallySeries, ...]:
    counts = [0] * (len(SECONDS) + 1)
    counts[process] = total
    held = Buckets(bounds=SECONDS, counts=tuple(counts))
    accepted = (
        TallySeries(metric="overwatch.rollouts.accepted", labels={"env": env}, sum=float(total))
        for env in ENVS
    )
    wait = TallySeries(metric="overwatch.rollouts.wait_time", sum=total / 8, count=total, buckets=held)
    return (*accepted, wait)


def _records(turn: int, process: int) -> list[Record]:
    """What one of our processes reports in a turn; every tenth turn it has begun again."""
    life, at = turn // 10, time.time_ns()
    origin = Origin(run_id="r", role="rollouts", rank=process, epoch=f"{process}-{life}", ours=True)
    total = 1 + turn % 10
    gauge = Measured(
        at=at, scope=Scope.ROLLOUTS, values=scalars({"overwatch.rollouts.queue.groups": float(turn)})
    )
    reported = Tallied(at=at, scope=Scope.ROLLOUTS, series=_series(total, process))
    first = 2 * (turn % 10) + 1
    return [
        Record(origin=origin, event=reported, seq=first),
        Record(origin=origin, event=gauge, seq=first + 1),
    ]


def _foreign(turn: int) -> bytes:
    """A learner's own OTLP counters, of which the process began again half way."""
    message = ExportMetricsServiceRequest()
    reported = metric(message, "learner.samples", overwatch__role="learner").sum
    message.resource_metrics[0].resource.attributes[0].value.string_value = "r"
    reported.aggregation_temporality, reported.is_monotonic = 2, True
    began = time.time_ns() - (turn % 20 + 1) * 1_000_000 if turn in (0, 20) else 0
    point = reported.data_points.add(time_unix_nano=time.time_ns(), as_double=float(turn % 20 + 1))
    point.start_time_unix_nano = began
    label = point.attributes.add()
    label.key, label.value.string_value = "status", "ok"
    return message.SerializeToString()


def _send(service: Service, path: str, body: bytes) -> None:
    headers = {"Content_Type": "application/x-protobuf"}
    assert http(f"{service.endpoints.otlp_http}{path}", body, "POST", **headers).status == 200


def _counted(snapshot: Snapshot, name: str) -> dict[str, float | None]:
    """Totals by process and labels."""
    return {
        f"{one.role}/{one.rank} {','.join(one.labels.values())}": one.total
        for one in snapshot.tallies
        if one.name == name
    }


def test_a_storm_of_tallies_replays_to_the_bytes_that_were_live(tmp_path: Path) -> None:
    """Processes that begin again, records out of order and twice: exact totals, the same in the replay."""
    chance = random.Random(31)  # noqa: S311 the same storm each time
    with running(tmp_path) as service:
        held: list[bytes] = []
        for turn in range(ROUNDS):
            bodies = [request(_records(turn, process), {}) for process in range(PROCESSES)]
            held += bodies
            chance.shuffle(held)
            late = 0 if turn == ROUNDS - 1 else chance.randrange(4)
            for body in held[late:] + chance.sample(held, 1):
                _send(service, "/v1/logs", body)
            held = held[:late]
            _send(service, "/v1/metrics", _foreign(turn))
        page = eventually(lambda: _whole(service))

    live = (tmp_path / "snapshots.jsonl").read_bytes().splitlines()
    again = [codec.encode(one) for frame in Recording(tmp_path / "otlp").frames() for one in frame.recorded]
    assert hashlib.sha256(b"\n".join(again)).hexdigest() == hashlib.sha256(b"\n".join(live)).hexdigest()

    newest = codec.decode(live[-1])
    lives = ROUNDS // 10
    assert _counted(newest, "overwatch.rollouts.accepted") == {
        f"rollouts/{process} {env}": 10.0 * lives for process in range(PROCESSES) for env in ENVS
    }
    assert _counted(newest, "learner.samples") == {"learner/0 ok": 40.0}
    assert newest.totals["overwatch.rollouts.wait_time"].count == 10 * lives * PROCESSES
    assert {reading.rank for reading in newest.services.values()} == set(range(PROCESSES))
    assert b'overwatch_rollouts_accepted_total{env="e",rank="2",rl_run_id="r",role="rollouts"} 40' in page


def _whole(service: Service) -> bytes:
    """The page of metrics once the last life of the learner is on it."""
    page = http(f"{service.endpoints.metrics}/metrics").body
    return page if re.search(rb'rank="0",[^}]*role="learner",status="ok"} 40', page) else b""
