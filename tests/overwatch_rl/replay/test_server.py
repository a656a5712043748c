"""The replay server as a real process, called by plain gRPC: who may call, what is refused, how it ends."""

import os
import queue
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest

from overwatch_rl.protos.replay.v1 import replay_pb2 as pb
from overwatch_rl.replay import messages
from overwatch_rl.replay.protocol import RETRY_AFTER, SERVICE, STREAM, UNARY_NAMES, WAITED_FOR, answer_of
from tests.overwatch.collector import pki
from tests.overwatch_rl.replay.serving import COMMAND, ENCODING, Served, chunk, message, served

TOKEN = "0123456789abcdef"  # noqa: S105 of the tests
WAIT_S = 30.0


class Stub:
    """Every call of the service by its name, one try each."""

    def __init__(self, channel: grpc.Channel, token: str | None = None) -> None:
        self.metadata = [] if token is None else [("authorization", f"Bearer {token}")]
        self.channel = channel

    def raw(self, name: str, body: bytes, timeout: float = WAIT_S) -> bytes:
        """Bytes to bytes."""
        call = self.channel.unary_unary(f"/{SERVICE.full_name}/{name}")
        answered: bytes = call(body, timeout=timeout, metadata=self.metadata)
        return answered

    def __getattr__(self, name: str) -> Any:
        def call(request: Any, timeout: float = WAIT_S) -> Any:
            return answer_of(name).FromString(self.raw(name, request.SerializeToString(), timeout))

        return call

    def stream(self, requests: Iterator[pb.SampleStreamRequest]) -> Any:
        """Answers as they come."""
        call = self.channel.stream_stream(
            f"/{SERVICE.full_name}/{STREAM}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=pb.SampleStreamResponse.FromString,
        )
        return call(requests, timeout=WAIT_S, metadata=self.metadata)

    def declare(self, table: str = "") -> None:
        """The encoding of the tests."""
        self.Declare(pb.DeclareRequest(table=table, encoding=messages.encoding_message(ENCODING)))

    def append(self, *chunks: Any, table: str = "", number: int = 0, timeout: float = WAIT_S) -> Any:
        """Chunks of one writer where there is a number."""
        request = pb.AppendRequest(
            table=table, encoding_hash=ENCODING.hash, writer="w" if number else "", number=number,
            chunks=[message(one) for one in chunks],
        )  # fmt: skip
        return self.Append(request, timeout)


@contextmanager
def called(server: Served, token: str | None = None) -> Iterator[Stub]:
    """A plain connection."""
    with grpc.insecure_channel(server.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield Stub(channel, token)


@contextmanager
def refused(code: grpc.StatusCode, *words: str) -> Iterator[list[grpc.RpcError]]:
    """A call that is answered with this status, in these words."""
    found: list[grpc.RpcError] = []
    with pytest.raises(grpc.RpcError) as error:
        yield found
    found.append(error.value)
    assert error.value.code() == code, error.value
    for word in words:
        assert word in error.value.details(), error.value.details()


def trailing(error: grpc.RpcError) -> dict[str, str]:
    """Metadata of an answer."""
    return dict(error.trailing_metadata())


INVALID = grpc.StatusCode.INVALID_ARGUMENT


def test_a_bad_request_names_its_path_and_costs_nothing(tmp_path: Path) -> None:
    """Garbage and every kind of wrong field is INVALID_ARGUMENT; what is right is stored beside it."""
    with served(tmp_path) as server, called(server) as stub:
        with refused(grpc.StatusCode.FAILED_PRECONDITION, "Declare"):
            stub.append(chunk())
        stub.declare()
        for name in UNARY_NAMES:
            with refused(INVALID, f"replay.v1.{name}Request"):
                stub.raw(name, b"\xff\xff garbage")
        with refused(INVALID, "chunks[1]", "action", "8 bytes"):
            bad = chunk(first=4)
            stub.append(chunk(), replaced(bad, action=bytes(8)))
        with refused(INVALID, "chunks[0].end"):
            stub.Append(pb.AppendRequest(encoding_hash=ENCODING.hash, chunks=[pb.Chunk(env="e")]))
        with refused(INVALID, "chunks[0].columns are 1"):
            one = pb.Chunk(env="e", end=pb.END_CUT, columns=[b""])
            stub.Append(pb.AppendRequest(encoding_hash=ENCODING.hash, chunks=[one]))
        with refused(INVALID, "learner"):
            stub.Lease(pb.LeaseRequest(steps=1))
        with refused(grpc.StatusCode.NOT_FOUND, "'other'", "experience"):
            stub.append(chunk(), table="other")
        with refused(grpc.StatusCode.FAILED_PRECONDITION, "leased, not sampled"):
            stub.Sample(pb.SampleRequest(config=pb.SampleConfig(batch_size=1)))
        with refused(grpc.StatusCode.FAILED_PRECONDITION, "another"):
            other = pb.Encoding(columns=[pb.Column(name="observation", dtype="int8")])
            stub.Declare(pb.DeclareRequest(encoding=other))

        assert stub.append(chunk()).steps == 4
        assert stub.GetStats(pb.GetStatsRequest()).total_transitions == 4


def replaced(of: Any, **columns: bytes) -> Any:
    """A chunk with other bytes."""
    return msgspec.structs.replace(of, columns={**of.columns, **columns})


def test_a_message_that_is_too_large_is_refused_and_the_server_goes_on(tmp_path: Path) -> None:
    """The connection survives it, too."""
    with served(tmp_path, "--max-message-mib", "1") as server, called(server) as stub:
        stub.declare()
        with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "larger than max") as found:
            stub.raw("Append", bytes(2 << 20))
        assert RETRY_AFTER not in trailing(found[0])
        assert stub.append(chunk()).items == 1


def test_a_full_table_states_when_to_retry_and_keeps_what_it_has(tmp_path: Path) -> None:
    """RESOURCE_EXHAUSTED with its pause; after an acknowledgement there is room."""
    with served(tmp_path, tables=["experience:items=2"]) as server, called(server) as stub:
        stub.declare()
        stub.append(chunk(first=0), chunk(first=4))
        with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "full") as found:
            stub.append(chunk(first=8))
        assert int(trailing(found[0])[RETRY_AFTER]) > 0
        lease = stub.Lease(pb.LeaseRequest(learner="l", steps=8)).lease
        assert [item.chunk.first_step for item in lease.items] == [0, 4]
        assert stub.Acknowledge(pb.AcknowledgeRequest(learner="l", upto=lease.number)).items == 2
        assert stub.append(chunk(first=8)).items == 1


def test_a_limiter_holds_an_append_until_it_is_sampled_or_its_deadline(tmp_path: Path) -> None:
    """At the deadline the answer states what it waited for; nothing of it is stored."""
    table = "experience:kind=steps,samples_per_insert=1,min_steps=4,buffer=0"
    with served(tmp_path, tables=[table]) as server, called(server) as stub:
        stub.declare()
        stub.append(chunk(first=0))
        stub.append(chunk(first=4))
        with refused(grpc.StatusCode.DEADLINE_EXCEEDED, "limiter", "samples per insert 1.0") as found:
            stub.append(chunk(first=8), timeout=0.5)
        assert trailing(found[0])[WAITED_FOR] == "limiter"
        waiting = stub.channel.unary_unary(f"/{SERVICE.full_name}/Append").future(
            pb.AppendRequest(
                encoding_hash=ENCODING.hash, chunks=[message(chunk(first=8))]
            ).SerializeToString(),
            timeout=WAIT_S,
        )
        stub.Sample(pb.SampleRequest(config=pb.SampleConfig(batch_size=4)))
        assert pb.AppendResponse.FromString(waiting.result()).steps == 4
        assert stub.GetStats(pb.GetStatsRequest()).total_transitions == 12


def test_a_repeated_append_is_stored_once_and_promises_nothing_after_a_kill(tmp_path: Path) -> None:
    """By its writer's number; every answer states that it is not durable, and the next life is empty."""
    with served(tmp_path) as server:
        with called(server) as stub:
            stub.declare()
            first = stub.append(chunk(), number=1)
            assert (first.is_repeat, first.durable) == (False, False)
            assert stub.append(chunk(), number=1).is_repeat
            with refused(INVALID, "request 1 before with other chunks"):
                stub.append(chunk(first=4), number=1)
            with refused(INVALID, "name the writer in 1 to 256 letters"):
                stub.Append(
                    pb.AppendRequest(encoding_hash=ENCODING.hash, writer="w" * 257, chunks=[message(chunk())])
                )
            assert not stub.append(chunk(first=4), number=2).is_repeat
            assert stub.GetStats(pb.GetStatsRequest()).total_transitions == 8
        server.kill()
    with served(tmp_path) as server, called(server) as stub:
        assert stub.GetStats(pb.GetStatsRequest()).total_transitions == 0
        with refused(grpc.StatusCode.FAILED_PRECONDITION, "call Declare with the table's columns first"):
            stub.StoreTransition(pb.StoreTransitionRequest(transition=pb.Transition(env_id="e")))


def test_a_priority_of_a_stored_transition_is_refused_by_its_path(tmp_path: Path) -> None:
    """Where it is none; nothing is stored, and a right one is."""
    step = pb.Transition(env_id="e", observation=bytes(12), next_observation=bytes(12), action=bytes(8))
    with served(tmp_path, tables=["dqn:kind=steps,selector=prioritised"]) as server, called(server) as stub:
        stub.declare()
        for wrong in (float("nan"), -1.0, float("inf"), float("-inf"), 1e31):
            step.priority = wrong
            with refused(INVALID, f"transition.priority: a priority is {wrong}"):
                stub.StoreTransition(pb.StoreTransitionRequest(transition=step))
            with refused(INVALID, f"transitions[0].priority: a priority is {wrong}"):
                stub.StoreBatch(pb.StoreBatchRequest(transitions=[step]))
        assert stub.GetStats(pb.GetStatsRequest()).total_transitions == 0
        step.priority = 0.5
        stored = stub.StoreTransition(pb.StoreTransitionRequest(transition=step))
        assert (stored.stored, stored.durable) == (1, False)


def test_without_the_token_nothing_is_answered_but_health(tmp_path: Path) -> None:
    """No token, a wrong one, and one of another length are all UNAUTHENTICATED."""
    (tmp_path / "token").write_text(TOKEN + "\n")
    with served(tmp_path, "--token-file", str(tmp_path / "token")) as server:
        for token in (None, "0123456789abcdeX", TOKEN + "0", ""):
            with called(server, token) as stub:
                with refused(grpc.StatusCode.UNAUTHENTICATED, "Bearer"):
                    stub.GetStats(pb.GetStatsRequest())
                with refused(grpc.StatusCode.UNAUTHENTICATED, "Bearer"):
                    stub.raw("Append", b"\xff garbage")
                with refused(grpc.StatusCode.UNAUTHENTICATED, "Bearer"):
                    next(stub.stream(iter([pb.SampleStreamRequest()])))
        with called(server, TOKEN) as stub:
            assert stub.GetStats(pb.GetStatsRequest()).total_transitions == 0
        with called(server) as stub:
            assert health(stub) == b"\x08\x01"


def health(stub: Stub, service: str = "") -> bytes:
    """As grpc.health.v1 has it."""
    call = stub.channel.unary_unary("/grpc.health.v1.Health/Check")
    body = b"" if not service else b"\x0a" + bytes([len(service)]) + service.encode()
    answered: bytes = call(body, timeout=WAIT_S)
    return answered


def test_health_knows_the_service_and_no_other(tmp_path: Path) -> None:
    """As probes of a cluster ask it."""
    with served(tmp_path) as server, called(server) as stub:
        assert health(stub, "replay.v1.Replay") == b"\x08\x01"
        with refused(grpc.StatusCode.NOT_FOUND, "replay.v1.Replay"):
            health(stub, "other")


def test_an_address_that_others_reach_needs_a_token(tmp_path: Path) -> None:
    """It is refused before anything is served."""
    done = subprocess.run(
        [*COMMAND, "--listen", "0.0.0.0:0", "--no-telemetry"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "--token-file" in done.stderr


def test_a_busy_address_is_named(tmp_path: Path) -> None:
    """With what to give instead."""
    with served(tmp_path) as server:
        done = subprocess.run(
            [*COMMAND, "--listen", server.address, "--no-telemetry"],
            cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 1
        assert server.address in done.stderr
        assert "--listen" in done.stderr


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority, and certificates of a server and a client."""
    if pki.OPENSSL is None:
        pytest.skip("certificates are made by openssl")
    folder = tmp_path_factory.mktemp("tls")
    pki.authority(folder, "ca")
    pki.signed(folder, "server")
    pki.signed(folder, "client")
    return folder


def secured(server: Served, folder: Path, client: str | None) -> grpc.Channel:
    """A connection that trusts the authority, and shows a client's certificate where one is named."""
    own = [None, None] if client is None else [folder / f"{client}.key", folder / f"{client}.pem"]
    parts = [None if path is None else path.read_bytes() for path in (folder / "ca.pem", *own)]
    return grpc.secure_channel(
        server.address, grpc.ssl_channel_credentials(*parts),
        options=[("grpc.use_local_subchannel_pool", 1)],
    )  # fmt: skip


def test_mutual_tls_lets_in_who_shows_a_certificate(tmp_path: Path, certificates: Path) -> None:
    """A client without one, and one in plain, get no answer."""
    flags = [f"--tls-{flag}={certificates / name}" for flag, name in (
        ("cert", "server.pem"), ("key", "server.key"), ("client-ca", "ca.pem"),
    )]  # fmt: skip
    with served(tmp_path, *flags) as server:
        assert server.greeting.startswith("replay server at grpcs://")
        with secured(server, certificates, "client") as channel:
            assert Stub(channel).GetStats(pb.GetStatsRequest()).total_transitions == 0
        with secured(server, certificates, None) as channel, refused(grpc.StatusCode.UNAVAILABLE):
            Stub(channel).GetStats(pb.GetStatsRequest())
        with called(server) as stub, refused(grpc.StatusCode.UNAVAILABLE):
            stub.GetStats(pb.GetStatsRequest())


class Requests:
    """Requests of a stream, given one by one."""

    def __init__(self) -> None:
        self._queue: queue.Queue[pb.SampleStreamRequest | None] = queue.Queue()

    def give(self, **fields: Any) -> None:
        """Another."""
        self._queue.put(pb.SampleStreamRequest(**fields))

    def end(self) -> None:
        """No more."""
        self._queue.put(None)

    def __iter__(self) -> Iterator[pb.SampleStreamRequest]:
        return iter(self._queue.get, None)


def test_a_stream_sends_no_more_than_it_has_credits_for(tmp_path: Path) -> None:
    """With two credits two leases are taken from the table, and the others stay in it."""
    with served(tmp_path) as server, called(server) as stub:
        stub.declare()
        stub.append(*(chunk(first=4 * one) for one in range(6)))
        requests = Requests()
        requests.give(lease=pb.LeaseRequest(learner="l", steps=4), credits=2)
        answers = stub.stream(iter(requests))
        assert [next(answers).lease.items[0].chunk.first_step for _ in range(2)] == [0, 4]
        assert stub.GetStats(pb.GetStatsRequest()).tables[0].leases == 2
        requests.give(credits=1)
        assert next(answers).lease.items[0].chunk.first_step == 8
        assert stub.GetStats(pb.GetStatsRequest()).tables[0].leases == 3
        requests.end()
        assert list(answers) == []
        assert stub.GetStats(pb.GetStatsRequest()).tables[0].queued == 3


def test_what_a_client_had_that_vanished_is_leased_again(tmp_path: Path) -> None:
    """Once its lease ends, to another learner and flagged."""
    with served(tmp_path, tables=["experience:lease_s=1"]) as server:
        with called(server) as stub:
            stub.declare()
            stub.append(chunk())
            requests = Requests()
            requests.give(lease=pb.LeaseRequest(learner="gone", steps=4), credits=4)
            assert not next(stub.stream(iter(requests))).lease.items[0].is_redelivered
        with called(server) as stub:
            lease = stub.Lease(pb.LeaseRequest(learner="next", steps=4)).lease
            assert [item.is_redelivered for item in lease.items] == [True]
        requests.end()


def test_a_signal_ends_calls_that_wait_and_the_server(tmp_path: Path) -> None:
    """UNAVAILABLE at once, not at their deadline; the server's status is 0."""
    with served(tmp_path) as server, called(server) as stub:
        stub.declare()
        lease = stub.channel.unary_unary(f"/{SERVICE.full_name}/Lease").future(
            pb.LeaseRequest(learner="l", steps=4).SerializeToString(), timeout=WAIT_S
        )
        assert stub.append(chunk(steps=1)).items == 1
        server.process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        with refused(grpc.StatusCode.UNAVAILABLE):
            lease.result()
        assert server.process.wait(WAIT_S) == 0
        assert time.monotonic() - began < WAIT_S


STOCK = """
import sys
import grpc, numpy as np
import replay_pb2 as pb, replay_pb2_grpc
stub = replay_pb2_grpc.ReplayStub(grpc.insecure_channel(sys.argv[1]))
columns = [("observation", "float32", [3]), ("action", "int64", []), ("reward", "float32", []),
           ("log_probs", "float32", [])]
columns = [pb.Column(name=name, dtype=dtype, shape=shape) for name, dtype, shape in columns]
columns.append(pb.Column(name="final_observation", dtype="float32", shape=[3], per_chunk=True))
stub.Declare(pb.DeclareRequest(encoding=pb.Encoding(columns=columns)))
seen = [np.full(3, step, "<f4").tobytes() for step in range(5)]
batch = [
    pb.Transition(
        env_id="cart", episode_id="7", step_number=step, reward=step / 2, done=step == 3,
        observation=seen[step], next_observation=seen[step + 1],
        action=np.int64(step).astype("<i8").tobytes(),
        metadata={"run": "r", "lineage": "1", "version": "9", "log_probs": "-0.5"},
    )
    for step in range(4)
]
assert stub.StoreBatch(pb.StoreBatchRequest(transitions=batch)).stored == 4
answer = stub.Sample(pb.SampleRequest(config=pb.SampleConfig(batch_size=64)))
assert answer.total_available == 4 and len(answer.weights) == 64, answer
for one in answer.transitions:
    step = int(np.frombuffer(one.action, "<i8")[0])
    assert one.observation == seen[step], one
    assert one.next_observation == seen[step + 1] or step == 3, one
    assert one.reward == step / 2 and one.done == (step == 3), one
    assert one.metadata["version"] == "9" and float(one.metadata["log_probs"]) == -0.5, one
ids = [one.id for one in answer.transitions]
done = stub.UpdatePriorities(pb.UpdatePrioritiesRequest(ids=ids, new_priorities=[2.0] * 64))
assert (done.updated, done.late) == (64, 0), done
stats = stub.GetStats(pb.GetStatsRequest())
assert stats.total_transitions == 4 and stats.transitions_by_env == {"cart": 4}, stats
assert stub.Clear(pb.ClearRequest()).removed == 4
print("stock client done")
"""


def test_a_client_made_from_the_proto_alone_stores_and_samples(tmp_path: Path) -> None:
    """As another language would: compiled by protoc, called by its own stub."""
    proto = Path(__file__).parents[3] / "src/overwatch_rl/protos/replay/v1/replay.proto"
    shutil.copy(proto, tmp_path / "replay.proto")
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", "--python_out=.", "--grpc_python_out=."]
    subprocess.run([*command, "replay.proto"], cwd=tmp_path, check=True)
    (tmp_path / "stock.py").write_text(STOCK)
    with served(tmp_path, tables=["dqn:kind=steps,selector=prioritised,items=100"]) as server:
        done = subprocess.run(
            [sys.executable, "stock.py", server.address],
            cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
            env={**os.environ, "PYTHONPATH": "."},
        )  # fmt: skip
    assert done.stdout == "stock client done\n", done.stderr
