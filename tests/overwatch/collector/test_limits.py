"""What requests may cost: memory, parts, bytes on their way."""

import asyncio
import resource
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from overwatch.collector.intake import Body, Decoding, Intake, Reason, RefusedError
from overwatch.collector.limits import (
    LimitsConfig,
    MemoryLimiter,
    NoRoomError,
    Resident,
    Room,
    available_bytes,
)
from overwatch.collector.receivers import bodies
from overwatch.collector.tally import Tally
from overwatch.journal import MemoryJournal, Signal
from overwatch.otlp.decode import Decoded
from tests.overwatch.collector.running import eventually, http, reported, run_started, running
from tests.overwatch.otlp.test_protobuf import empties

MIB = 1 << 20


class Machine:
    """A clock and a memory that a test sets."""

    def __init__(self) -> None:
        self.now, self.resident = 0.0, 10 * MIB

    def limiter(self, **keys: float) -> MemoryLimiter:
        """A limiter of this machine."""
        config = LimitsConfig(limit_mib=100, **keys)  # type: ignore[arg-type] # the keys of a test
        return MemoryLimiter(config, lambda: self.resident, lambda: self.now)


def test_memory_above_the_soft_limit_refuses_until_it_falls() -> None:
    """From a fifth below the limit on nothing is taken in; below that everything is again."""
    machine = Machine()
    limiter = machine.limiter(check_interval_s=0)
    assert limiter.problem() is None
    machine.resident = 81 * MIB
    assert "81 MiB" in str(limiter.problem())
    machine.resident = 79 * MIB
    assert limiter.problem() is None
    assert limiter.reclaims == 1


def test_memory_is_looked_at_once_an_interval() -> None:
    """Between two looks the last one counts."""
    machine = Machine()
    limiter = machine.limiter(check_interval_s=0.1)
    assert limiter.problem() is None
    machine.resident, machine.now = 99 * MIB, 0.05
    assert limiter.problem() is None
    machine.now = 0.1
    assert limiter.problem() is not None


def test_memory_is_known_without_a_descriptor_to_spare() -> None:
    """Who holds a connection is answered as ever while the process can open nothing more."""
    limiter = MemoryLimiter(LimitsConfig(check_interval_s=0, limit_mib=1))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        assert Resident()() == 0
        problem = limiter.problem()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "nothing is taken in" in str(problem)


def test_memory_that_is_short_is_given_back_by_force_but_not_all_the_time() -> None:
    """Where nothing is taken in garbage is collected, at most every ten seconds."""
    machine = Machine()
    limiter = machine.limiter(check_interval_s=0)
    machine.resident = 81 * MIB
    for machine.now in (0.0, 1.0, 9.0, 10.0):
        assert limiter.problem() is not None
    assert limiter.reclaims == 2


@pytest.mark.parametrize(
    "keys",
    [
        {"max_elements": 0},
        {"limit_mib": 0},
        {"limit_mib": 10, "spike_limit_mib": 10},
        {"spike_limit_mib": -1},
        {"check_interval_s": -1},
        {"max_in_flight_mib": 0},
        {"large_body_size": 0},
    ],
)
def test_limits_that_cannot_hold_are_refused(keys: dict[str, int]) -> None:
    """A limit is positive, and the spike is below it."""
    with pytest.raises(ValueError, match=next(reversed(keys))):
        LimitsConfig(**keys)  # type: ignore[arg-type] # the keys of a test


def test_the_default_leaves_the_machine_its_half() -> None:
    """Without a limit of its own the process may take half of what there is, and no more than 4 GiB."""
    config = LimitsConfig()
    assert Resident()() < available_bytes()
    assert config.soft_bytes < config.hard_bytes <= min(available_bytes(), 4096 * MIB)


def intake(**limits: int) -> Intake:
    """An intake of its own."""
    made = Intake(MemoryJournal(lambda: 1, 64 * MIB), Tally(), LimitsConfig(**limits))
    made.open()
    return made


@pytest.mark.parametrize("json", [False, True], ids=["protobuf", "json"])
def test_too_many_elements_are_refused_for_good(*, json: bool) -> None:
    """Whichever way a body is written, more elements than are allowed are too large."""
    data = b'{"resourceLogs":[' + b"{}," * 2000 + b"{}]}" if json else empties(2000)
    body = Body(signal=Signal.LOGS, data=data, transport="http", json=json)
    with pytest.raises(RefusedError, match="more than 1000 elements") as caught:
        asyncio.run(intake(max_elements=1000).take(body))
    assert caught.value.reason is Reason.TOO_LARGE


class Gated(Decoding):
    """Decoding that keeps large bodies waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.inside = self.most = 0

    def decode(self, signal: Signal, body: bytes) -> Decoded:
        """As ever, once the gate is open."""
        if len(body) > 1000:
            self.inside += 1
            self.most = max(self.most, self.inside)
            assert self.gate.wait(10)
            self.inside -= 1
        return super().decode(signal, body)


def test_small_bodies_pass_while_large_ones_wait_for_each_other() -> None:
    """Large bodies are checked one at a time by another thread, and small ones do not wait for them."""
    decoding = Gated()
    journal = MemoryJournal(lambda: 1, 64 * MIB)
    own = Intake(journal, Tally(), LimitsConfig(large_body_size=1000), decoding)
    own.open()

    async def take(data: bytes) -> None:
        await own.take(Body(signal=Signal.LOGS, data=data, transport="http"))

    async def all_of_them() -> None:
        large = [asyncio.ensure_future(take(empties(2000))) for _ in range(3)]
        for _ in range(20):
            await take(reported("run-small", [run_started()]))
        assert not any(task.done() for task in large)
        decoding.gate.set()
        await asyncio.gather(*large)

    asyncio.run(all_of_them())
    own.close()
    assert decoding.most == 1


def test_a_hold_gives_back_what_it_took() -> None:
    """What does not fit is refused whole, and the end of a request frees its bytes."""
    room = Room(100)
    with room.hold("") as second:
        with room.hold("") as first:
            first(60)
            with pytest.raises(NoRoomError, match="on their way"):
                second(41)
            second(40)
        assert room.taken == 40
    assert room.taken == 0


def test_a_peer_leaves_room_to_others() -> None:
    """Who sends much at once is refused before the room is used up."""
    room = Room(100, of_a_peer=50)
    with room.hold("flood") as more, room.hold("good") as good:
        with room.hold("flood") as flood:
            flood(45)
            with pytest.raises(NoRoomError):
                more(10)
            good(40)
        more(10)
        assert room.taken == 50


def test_a_body_without_room_is_not_read_on() -> None:
    """A body stops being read where there is no room for it."""

    async def chunks() -> bytes:
        async def endless() -> AsyncIterator[bytes]:
            while True:
                yield bytes(100)

        with Room(1000).hold("") as grow:
            return await bodies.read(endless(), 1 << 30, grow, None)

    with pytest.raises(NoRoomError):
        asyncio.run(chunks())


def test_without_memory_both_doors_ask_to_come_back(tmp_path: Path) -> None:
    """Above the limit of memory senders get a retryable refusal with a delay, in their protocol's words."""
    method = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
    with running(tmp_path, "receivers.otlp.limits={limit_mib: 2, spike_limit_mib: 1}") as service:
        body = reported("run-memory", [run_started()])
        reply = http(
            f"{service.endpoints.otlp_http}/v1/logs", body, "POST", Content_Type="application/x-protobuf"
        )
        with (
            grpc.insecure_channel(str(service.endpoints.otlp_grpc).removeprefix("http://")) as channel,
            pytest.raises(grpc.RpcError) as caught,
        ):
            channel.unary_unary(method)(body, timeout=10)
        counted = eventually(
            lambda: service.context.tally.get(
                "overwatch_receiver_refused_requests", reason="memory", transport="grpc"
            )
        )

    assert (reply.status, reply.headers["Retry-After"]) == (503, "2")
    assert "MiB of memory" in status_pb2.Status.FromString(reply.body).message
    trailing = dict(caught.value.trailing_metadata() or ())
    retry = error_details_pb2.RetryInfo.FromString(trailing["google.rpc.retryinfo-bin"])
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert (retry.retry_delay.seconds, counted) == (2, 1)
