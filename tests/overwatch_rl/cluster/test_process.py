"""A cluster of real processes: it learns what one process learns, and survives the end of any of them."""

import json
import os
import socket
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from overwatch.objects.store import below
from overwatch_rl.algorithms.ppo import PPO
from overwatch_rl.checkpoints.reading import find_checkpoint
from overwatch_rl.cli.common import Stop
from overwatch_rl.cluster import process
from overwatch_rl.cluster.process import Cluster, ClusterSettings, remembered
from overwatch_rl.cluster.supervision import Part, Supervisor
from overwatch_rl.learner.config import LearnerConfig, learner_config
from overwatch_rl.learner.process import spec_of
from overwatch_rl.learner.trace import Trained
from overwatch_rl.telemetry.reporter import Silent
from overwatch_rl.trained import load_policy
from overwatch_rl.training.keeper import position_of
from overwatch_rl.training.trainer import Trainer, TrainerConfig
from overwatch_rl.worlds import make
from overwatch_rl.worlds.base import WorldConfig
from tests.e2e.memory_groups import memory_group
from tests.overwatch.collector import pki
from tests.overwatch_rl.cluster.running import Running, config, settings, surviving
from tests.overwatch_rl.learner.whole import same
from tests.overwatch_rl.servers import RedisServer, s3_url, synced_redis
from tests.ports import free_port


def alone(given: LearnerConfig, *, updates: int) -> dict[str, Tensor]:
    """What one process learns."""
    world = make(given.world, WorldConfig(num_envs=given.batch.envs), given.world_settings)
    algorithm = PPO(spec_of(given), given.learned, seed=given.seed)
    limits = TrainerConfig(updates=updates, steps=given.batch.steps, seed=given.seed)
    Trainer(world, algorithm, limits, Silent(), lambda: None).run()
    return algorithm.state_dict()


@pytest.mark.timeout(300)
def test_an_actor_that_takes_turns_learns_what_one_process_learns(tmp_path: Path) -> None:
    """Through replay, files of weights and checkpoints: parameters, moments, generators equal to the bit."""
    given = config(batch={"ahead": 0})
    with Running(settings(tmp_path, given, actors=1, updates=6)) as running:
        assert running.cluster.run(lambda: None) == "completed"
    kept = position_of(find_checkpoint(tmp_path))

    assert kept.updates == 6
    assert same(kept.algorithm, alone(given, updates=6))
    assert remembered(tmp_path) is not None


class Apart(Cluster):
    """Learner and actors share no folder: the learner serves its weights, by a token over TLS."""

    def __init__(self, settings: ClusterSettings, report: Callable[[str, str], None]) -> None:
        self._port = free_port()
        super().__init__(settings, report)

    def _replay(self) -> Part:
        return _with(super()._replay(), "--token-file", str(self._settings.out / "token"), *self._tls())

    def _tls(self) -> tuple[str, ...]:
        pki = self._settings.out / "pki"
        return ("--tls-cert", str(pki / "server.pem"), "--tls-key", str(pki / "server.key"))

    def _common(self) -> list[str]:
        out = self._settings.out
        words = super()._common()
        words[words.index("--replay") + 1] = self.places["replay"]
        return [*words, "--replay-token", str(out / "token"), "--replay-ca", str(out / "pki" / "ca.pem")]

    def _learner(self) -> Part:
        own = ("--listen", f"127.0.0.1:{self._port}", "--listen-token", str(self._settings.out / "token"))
        return _with(super()._learner(), *own, *self._tls())

    def _actor(self, rank: int) -> Part:
        out, place = self._settings.out, f"https://127.0.0.1:{self._port}"
        own = ("--weights-token", str(out / "token"), "--weights-ca", str(out / "pki" / "ca.pem"))
        return _with(super()._actor(rank), "--weights", place, *own, "--check-weights")


def _with(part: Part, *words: str) -> Part:
    """A later flag comes before an earlier one."""
    return replace(part, words=(*part.words, *words))


def secrets(folder: Path) -> None:
    """Certificates and a token."""
    if pki.OPENSSL is None:
        pytest.skip("certificates are made by openssl")
    (folder / "pki").mkdir()
    pki.authority(folder / "pki", "ca")
    pki.signed(folder / "pki", "server")
    (folder / "token").write_text("a-token-of-24-characters")


@pytest.mark.timeout(300)
def test_weights_over_https_alone_teach_what_one_process_learns(tmp_path: Path) -> None:
    """Equal to the bit: each rollout is of the version that the learner published before it."""
    secrets(tmp_path)
    given = config(batch={"ahead": 0})
    with Running(settings(tmp_path, given, actors=1, updates=6), kind=Apart) as running:
        assert running.cluster.run(lambda: None) == "completed"

    assert same(position_of(find_checkpoint(tmp_path)).algorithm, alone(given, updates=6))


@pytest.mark.timeout(600)
def test_actors_come_and_go_while_the_learner_trains(tmp_path: Path) -> None:
    """Two, six, then one: updates go on, each step is trained once, and little of it grew too old."""
    with Running(settings(tmp_path, config(batch={"max_age": 8}), actors=2)) as running:
        running.more(10, "updates of two actors")
        for rank in range(2, 6):
            running.cluster.supervisor.start(running.cluster._actor(rank))
        running.more(20, "updates of six actors")
        for rank in range(1, 6):
            running.end(f"actor-{rank}")
        running.more(10, "updates of one actor")
    cursor = find_checkpoint(tmp_path).state.cursor
    history = surviving(tmp_path / "trace.jsonl")

    assert cursor is not None
    assert set(steps_of(history).values()) == {1}
    chunks = sum(len(update.parts) for update in history)
    assert cursor["counts"].get("samples.late", 0) < chunks / 4


@pytest.mark.timeout(600)
def test_actors_go_on_with_a_replay_server_or_a_learner_that_was_killed(tmp_path: Path) -> None:
    """A resumed learner publishes a lineage of its own."""
    secrets(tmp_path)
    given = config(weights={"dtype": "bfloat16"})
    with Running(settings(tmp_path, given, actors=1), kind=Apart) as running:
        running.more(3, "the first updates")
        for name in ("replay", "learner"):
            running.kill(name)
            running.more(6, f"after {name} was killed")
    history = surviving(tmp_path / "trace.jsonl")

    assert set(steps_of(history).values()) == {1}
    assert max(one.name for one in (tmp_path / "weights").glob("*.safetensors")).startswith("002-")


def steps_of(updates: Sequence[Trained]) -> Counter[tuple[str, int, int]]:
    """How often each step was trained."""
    return Counter(
        (env, episode, step)
        for update in updates
        for env, episode, first, count in update.parts
        for step in range(first, first + count)
    )


@pytest.mark.timeout(900)
def test_training_goes_on_whichever_process_is_killed(tmp_path: Path) -> None:
    """In the history of the surviving weights each step is trained once; of an episode none is left out.

    Of all but the replay server, whose memory goes with it: that is shown above, and for Redis below.
    """
    with Running(settings(tmp_path, config())) as running:
        running.more(6, "the first updates")
        for name in ("actor-1", "orchestrator", "learner", "actor-0"):
            running.kill(name)
            running.more(6, f"after {name} was killed")
    history = surviving(tmp_path / "trace.jsonl")
    trained = steps_of(history)

    assert [one.updates for one in history] == list(range(1, len(history) + 1))
    assert set(trained.values()) == {1}
    episodes = defaultdict(list)
    for env, episode, step in trained:
        episodes[env, episode].append(step)
    whole = {key: sorted(steps) == list(range(len(steps))) for key, steps in episodes.items()}
    assert all(whole.values()), [key for key, is_whole in whole.items() if not is_whole]


@pytest.mark.timeout(600)
def test_a_learner_that_the_kernel_kills_for_want_of_memory_goes_on(tmp_path: Path) -> None:
    """In a control group with no room; the cluster starts it again, and each step is trained once."""
    with (
        memory_group(f"overwatch-{os.getpid()}-learner", 1) as group,
        Running(settings(tmp_path, config(), actors=1)) as running,
    ):
        running.more(4, "the first updates")
        pid = running.cluster.supervisor.pid("learner")
        assert pid is not None
        group.take(pid)
        running.until(lambda: running.cluster.supervisor.pid("learner") not in (None, pid), "it is killed")
        assert group.kills >= 1
        assert any(name == "learner" and "ended with status -9" in line for name, line in running.lines)
        running.more(4, "after it was killed")
    history = surviving(tmp_path / "trace.jsonl")

    assert [one.updates for one in history] == list(range(1, len(history) + 1))
    assert set(steps_of(history).values()) == {1}


@pytest.mark.timeout(600)
def test_a_folder_that_was_used_before_goes_on(tmp_path: Path) -> None:
    """With its run, its updates and a lineage of its own; nothing is trained again."""
    with Running(settings(tmp_path, config(), updates=5)) as running:
        assert running.cluster.run(lambda: None) == "completed"
    with Running(settings(tmp_path, config(), updates=9)) as running:
        assert running.cluster.run(lambda: None) == "completed"
    history = surviving(tmp_path / "trace.jsonl")

    assert [one.updates for one in history] == list(range(1, 10))
    assert set(steps_of(history).values()) == {1}
    assert find_checkpoint(tmp_path).state.version.lineage == 2


@pytest.mark.timeout(600)
def test_a_cluster_that_samples_survives_the_end_of_replay_and_learner(tmp_path: Path) -> None:
    """Two actors fill a prioritised table; a new server is filled again, a new learner goes on."""
    dqn = {"hidden": 8, "batch": 8, "gradient_steps": 4, "capacity": 4096, "first_at": 200}
    given = learner_config(
        {
            "world": "gym:CartPole-v1", "algorithm": "dqn", "dqn": dqn, "seed": 3, "heartbeat_s": 5,
            "batch": {"steps": 16, "envs": 4}, "checkpoint": {"every_steps": 256, "keep": 3},
        }
    )  # fmt: skip
    table = tmp_path / "updates.csv"

    def done() -> int:
        return len(table.read_text().splitlines()) - 1 if table.exists() else 0

    with Running(settings(tmp_path, given, trace=None)) as running:
        running.until(lambda: done() >= 8, "the first updates")
        running.kill("replay")
        before = done()
        running.until(lambda: done() >= before + 4, "after replay was killed")
        running.kill("learner")
        running.until(lambda: find_checkpoint(tmp_path).state.version.lineage == 2, "a new life is kept")
    state = find_checkpoint(tmp_path).state
    cursor = state.cursor or {}

    assert (cursor["experience"], cursor["servers"]) == ("sampled", [])
    assert cursor["env_steps"]["steps"] >= 64 * state.updates
    assert load_policy(tmp_path).algorithm == "dqn"


def post(running: Running, command: dict[str, object]) -> str:
    """Send a command as an operator does; its id."""
    url = f"{running.cluster.places['orchestrator']}/api/v1/runs/run-1/commands"
    body = json.dumps(command).encode()
    head = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, body, head, method="POST")  # noqa: S310 of this test
    with urllib.request.urlopen(request, timeout=30) as reply:  # noqa: S310 of this test
        assert reply.status in (200, 201)
    return str(command["id"])


def requested(running: Running, path: str = "") -> dict[str, Any]:
    """What the orchestrator knows of the run."""
    url = f"{running.cluster.places['orchestrator']}/api/v1/runs/run-1{path}"
    with urllib.request.urlopen(url, timeout=30) as reply:  # noqa: S310 of this test
        found: dict[str, Any] = json.load(reply)
    return found


def obeyed(running: Running, command: str) -> Callable[[], bool]:
    """Whether a command is acknowledged."""
    return lambda: any(
        one["id"] == command and one["done"] is not None
        for one in requested(running, "/commands")["commands"]
    )


@pytest.mark.timeout(600)
def test_a_learner_obeys_and_reports_what_it_did(tmp_path: Path) -> None:
    """Tune, pause, resume, terminate, without a restart; the last checkpoint is registered."""
    with Running(settings(tmp_path, config())) as running:
        running.more(2, "the first updates")
        tuned = post(running, {"id": "a", "command": {"kind": "tune", "values": {"learning_rate": 5e-4}}})
        running.until(obeyed(running, tuned), "tuned")
        paused = post(running, {"id": "b", "command": {"kind": "pause"}})
        running.until(obeyed(running, paused), "paused")
        still = running.updates()
        running.until(lambda: requested(running)["state"] == "paused", "the run's state")
        assert running.updates() == still
        resumed = post(running, {"id": "c", "command": {"kind": "resume"}})
        running.until(obeyed(running, resumed), "resumed")
        running.more(2, "after the pause")
        post(running, {"id": "d", "command": {"kind": "terminate"}})
        assert running.cluster.run(lambda: None) == "completed"
        record, artifacts = requested(running), requested(running, "/artifacts")["artifacts"]
        done = {one["id"]: one["done"] for one in requested(running, "/commands")["commands"]}
    kept = find_checkpoint(tmp_path)

    assert done["a"]["changes"] == {"learning_rate": {"before": 1e-3, "after": 5e-4}}
    assert float(kept.tensors("optimizer.safetensors")["optimizer.lr"]) == 5e-4
    assert record["state"] == "terminated"
    assert record["checkpoint_version"] == str(kept.state.version)
    assert str(kept.state.version) in [one["version"] for one in artifacts]
    assert running.cluster.supervisor.restarts == 0


@pytest.mark.timeout(600)
def test_redis_and_an_object_store_take_the_place_of_files(
    tmp_path: Path, redis_server: RedisServer, moto_address: str
) -> None:
    """By their URLs; a learner that is killed goes on from the bucket."""
    bucket = s3_url(moto_address, "cluster")
    made = settings(tmp_path, config(), redis=redis_server.url, bucket=bucket)
    with Running(made) as running:
        running.more(4, "the first updates")
        running.kill("learner")
        running.more(4, "after the learner was killed")
    history = surviving(tmp_path / "trace.jsonl")
    kept = find_checkpoint(str(below(bucket, "checkpoints")))

    assert set(steps_of(history).values()) == {1}
    assert kept.state.version.lineage == 2
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.timeout(900)
def test_experience_in_redis_streams_is_trained_once_whoever_is_killed(tmp_path: Path) -> None:
    """Redis too; no replay server runs, and of an episode no step is left out."""
    with synced_redis(tmp_path / "redis") as server:
        made = settings(tmp_path, config(), replay=f"{server.url}?max_items=64")
        with Running(made) as running:
            assert len(running.cluster.supervisor.pids()) == 4
            running.more(6, "the first updates")
            for name in ("actor-1", "learner"):
                running.kill(name)
                running.more(6, f"after {name} was killed")
            server.kill()
            server.start()
            running.more(6, "after Redis was killed")
    history = surviving(tmp_path / "trace.jsonl")
    trained = steps_of(history)

    assert [one.updates for one in history] == list(range(1, len(history) + 1))
    assert set(trained.values()) == {1}
    episodes = defaultdict(list)
    for env, episode, step in trained:
        episodes[env, episode].append(step)
    assert all(sorted(steps) == list(range(len(steps))) for steps in episodes.values())


def test_a_collector_whose_ports_another_takes_listens_at_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when two clusters start at the same moment: what was free is held when it starts."""
    ports = process._free_ports
    held = socket.create_server(("127.0.0.1", 0))
    base = held.getsockname()[1]
    taken = iter([base])
    monkeypatch.setattr(process, "_free_ports", lambda first, count: next(taken, None) or ports(first, count))
    supervisor = Supervisor(tmp_path / "logs", lambda _, __: None)
    try:
        with held:
            places = process.start_collector(supervisor, tmp_path / "tower")
    finally:
        supervisor.close()

    assert places["tower"] != f"http://127.0.0.1:{base}"
    assert next(taken, None) is None
    assert "is held by" in (tmp_path / "logs" / "collector.log").read_text()


@pytest.mark.timeout(600)
def test_seconds_count_from_the_first_update(tmp_path: Path) -> None:
    """A start takes longer than the time given, and it trains; a folder that is used again too."""
    for updates in (1, 2):
        stop, learned = Stop(0.001, is_begun=False), list[int]()

        def begun(stop: Stop = stop, learned: list[int] = learned) -> None:
            numbers = (tmp_path / "updates.jsonl").read_bytes().splitlines()
            learned.append(json.loads(numbers[-1])["update"])
            stop.begin()

        with Running(settings(tmp_path, config())) as running:
            assert running.cluster.run(stop.outcome, begun) == "completed"
        assert len(learned) == 1
        assert learned[0] >= updates
