"""What a hostile or broken sender costs: itself, and nobody else."""

import asyncio
import contextlib
import copy
import gzip
import http.server
import json
import random
import threading
import time
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from overwatch_rl.rollouts import queue
from overwatch_rl.rollouts import server as rollouts_server
from overwatch_rl.rollouts.answers import Limits
from overwatch_rl.rollouts.calls import CallError, Target
from overwatch_rl.rollouts.consumer import Consumer, LeasedBatch
from overwatch_rl.rollouts.validation import one
from tests.overwatch_rl.rollouts.driven import SECOND, Batch, Driven
from tests.overwatch_rl.rollouts.serving import ENV, TRAINER, Served, group, served
from tests.overwatch_rl.rollouts.threaded import consuming, in_thread

ROWS = b'"tokens":[[1]],"masks":[[1]],"scores":[1]'
DEEP = b"[" * 70 + b"]" * 70
ODD = [
    b'"\xff"', b'"\xed\xa0\x80"', b'"\\ud800"', b'"\\ud83d\\ude00"', b'"\\u0000"', b"NaN", b"-Infinity",
    b"1e400", b"9" * 19, b"9" * 21, b"-" + b"9" * 19, b"9" * 5000, b"-0", b"0.1e-7", DEEP,
    b"[" * 20 + b"]" * 20, b'{"a":1,"a":[2]}', b'{"\\ud800":1}', b'{"\xff":1}', b"[1,]", b"null", b"",
    b"[[1],[2,3]]", b"true",
]  # fmt: skip
KEYS = [
    "images", "messages", "generation_params", "overrides", "group_overrides", "tokens", "masks", "scores",
    "advantages", "ref_logprobs", "distill_logprobs", "distill_token_ids", "version", "ticket", "env_id",
    "other",
]  # fmt: skip
AROUND = [
    b"%b",
    b"[%b]",
    b"[[%b]]",
    b"[[[%b]]]",
    b'{"a":%b}',
    b'[{"a":%b}]',
    b'[[{"role":"user","content":%b}]]',
]


def bodies() -> list[bytes]:
    """Groups with a key more that holds something odd, which comes before or after the right one."""
    drawn = random.Random(46)  # noqa: S311
    found = [b"{%b,%b}" % (ROWS, b'"images":%b' % odd) for odd in ODD]
    for _ in range(150):
        odd = drawn.choice(AROUND) % drawn.choice(ODD)
        key = b'"%b":%b' % (drawn.choice(KEYS).encode(), odd)
        found.append(b"{%b}" % b",".join(drawn.choice([(ROWS, key), (key, ROWS)])))
    return found


def test_whatever_is_accepted_every_reader_can_read() -> None:
    """Our own client, plain JSON, and a reader whose numbers have 64 bits; what is refused is named."""
    accepted = 0
    with in_thread() as server, consuming(server.url, batch_size=1, max_token_len=0) as trainer:
        for body in bodies():
            status, reply = posted(server.url, body)
            if status != 200:
                assert status == 422, (body, reply)
                assert len(reply["error"]) < 1000
                continue
            accepted += 1
            batch = trainer.try_batch()
            assert isinstance(batch, LeasedBatch), body
            text = json.dumps(batch.groups, allow_nan=False, ensure_ascii=False).encode()
            assert msgspec.msgpack.decode(msgspec.msgpack.encode(msgspec.json.decode(text))) == batch.groups
            assert trainer.acknowledge(batch)
    assert accepted > 20


def posted(url: str, body: bytes) -> tuple[int, Any]:
    """A body as it is, and the answer."""
    line = http.client.HTTPConnection(url.removeprefix("http://"))
    with contextlib.closing(line):
        line.request("POST", "/scored_data", body)
        response = line.getresponse()
        return response.status, json.loads(response.read())


@pytest.mark.parametrize(
    "reply", [b'{"batch": [{"a": "\xff"}]}', b"<html>", gzip.compress(b"{}", mtime=0)[:-4]]
)
def test_a_reply_that_cannot_be_read_is_an_error(reply: bytes) -> None:
    """The trainer does not wait for ever for what will be the same again."""

    class Garbled(http.server.BaseHTTPRequestHandler):
        """Answers everything so."""

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(reply)))
            if reply[:2] == b"\x1f\x8b":
                self.send_header("Content-Encoding", "gzip")
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = http.server.HTTPServer(("127.0.0.1", 0), Garbled)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        with (
            contextlib.closing(Consumer(Target(url=url))) as trainer,
            pytest.raises(CallError, match="cannot be read"),
        ):
            trainer.batch()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize("how", ["release", "expired"])
def test_groups_that_come_back_too_often_are_set_aside(how: str, caplog: pytest.LogCaptureFixture) -> None:
    """Counted, and the next ones are served; what did not arrive counts for nothing."""
    driven = Driven(Limits(max_returns=3))
    driven.trainer(8)
    driven.send(driven.env(), 4)
    for end in ["broken"] * 5 + [how] * 3:
        answer = driven.batch()
        assert isinstance(answer, Batch)
        assert [item.id for item in answer.items] == [1, 2]
        if end == "expired":
            driven.wait(121)
        else:
            driven.do(getattr(queue, end)(driven.state, answer.lease, driven.now))

    assert driven.state.account.expired["returned"].groups == 2
    assert [item.id for item in driven.trained().items] == [3, 4]


def test_groups_set_aside_are_shown(caplog: pytest.LogCaptureFixture) -> None:
    """In the status, and as a line of the log."""

    async def check(server: Served) -> None:
        await server.start()
        await server.post("/scored_data_list", [group(first=1), group(first=2)])
        batch = await server.get("/batch", headers={"Overwatch-Lease": "1"})
        assert (await server.get("/status"))["set_aside"] == 0
        await server.post(f"/lease/{batch['lease']['id']}/release")
        assert (await server.get("/status"))["set_aside"] == 2

    served(check, limits=Limits(max_returns=1))
    assert "set aside" in caplog.text


SIZE = 1 << 22
LARGE = {
    "nan": b'{"tokens":[[' + b"1," * (SIZE // 2) + b'NaN]],"masks":[[1]],"scores":[1]}',
    "number": b'{"tokens":[[' + b"257," * (SIZE // 4) + b'1.5]],"masks":[[1]],"scores":[1]}',
    "scores": b'{"tokens":[[1]],"masks":[[1]],"scores":[' + b"0," * (SIZE // 2) + b"1e999]}",
    "scalars": b'{"masks":[[1]],"scores":[1],"tokens":[' + b"0," * (SIZE // 2) + b"0]}",
    "lists": b'{"masks":[[1]],"scores":[1],"tokens":[' + b"[]," * (SIZE // 3) + b"[]]}",
    "keys": b"{" + b'"a":1,' * (SIZE // 6) + ROWS + b',"tokens":0}',
    "text": b'{"tokens":"' + b"x" * SIZE + b'"}',
    "utf8": b'{"images":"' + b"x" * SIZE + b'\xff",' + ROWS + b"}",
    "deep": b'{"images":' + b"[" * SIZE,
    "key": b'{"' + b"x" * SIZE + b'":NaN,' + ROWS + b"}",
}


@pytest.mark.parametrize("name", sorted(LARGE))
def test_a_large_fault_costs_a_few_times_its_bytes(name: str) -> None:
    """Nothing is built of what is wrong but the numbers of its row, and the message is short."""
    tracemalloc.start()
    try:
        found = one(LARGE[name], 0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.fault is not None
    assert len(str(found.fault)) < 1000
    assert peak < 16 * SIZE


def test_a_large_body_is_looked_at_beside_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one is, others are answered."""
    looking, go_on = threading.Event(), threading.Event()

    def slow(body: bytes, longest: int) -> Any:
        looking.set()
        assert go_on.wait(60)
        return one(body, longest)

    async def check(server: Served) -> None:
        await server.start()
        monkeypatch.setattr(rollouts_server, "one", slow)
        large = asyncio.ensure_future(server.post("/scored_data", group(images="x" * 500_000)))
        await asyncio.to_thread(looking.wait, 60)
        assert (await server.get("/healthz"))["status"] == "ok"
        go_on.set()
        assert (await large)["status"] == "received"

    served(check)


def test_bodies_that_are_not_whole_count_as_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it others are asked to rest, but for what makes room."""

    async def check(server: Served) -> None:
        await server.start()
        await server.post("/scored_data_list", [group(first=1), group(first=2)])
        lease = (await server.get("/batch", headers={"Overwatch-Lease": "1"}))["lease"]["id"]
        room, end, received = server.store.room, asyncio.Event(), asyncio.Event()

        def noted(size: int) -> bool:
            if size > 890_000:
                received.set()
            return room(size)

        async def slowly() -> AsyncIterator[bytes]:
            body = json.dumps(group(images="x" * 900_000)).encode()
            yield body[:-9]
            await end.wait()
            yield body[-9:]

        monkeypatch.setattr(server.store, "room", noted)
        slow = asyncio.ensure_future(server.client.post("/scored_data", data=slowly()))
        await received.wait()
        reply = await server.post("/scored_data", group(images="x" * 400_000), status=429)
        assert (reply["status"], reply["retry_s"]) == ("full", 1.0)
        await server.post(f"/lease/{lease}/ack")
        end.set()
        async with await slow as whole:
            assert whole.status == 200

    served(check, held=1_200_000)


STEPS = [3_600 * SECOND, -86_400 * SECOND]


@pytest.mark.parametrize("step", STEPS)
def test_a_step_of_the_wall_clock_moves_no_deadline(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A living trainer keeps its lease, one that is gone loses it in time; over a restart too."""
    now = time.time_ns
    explicit = {"Overwatch-Lease": "1"}

    def turn() -> None:
        monkeypatch.setattr(time, "time_ns", lambda: now() + step)
        monkeypatch.setattr(time, "time", lambda: (now() + step) / SECOND)

    async def first(server: Served) -> None:
        await server.start(2)
        await server.post("/admit", {"env_id": 0})
        await server.post("/scored_data_list", [group(1, first) for first in range(4)])
        lease = (await server.get("/batch", headers=explicit))["lease"]["id"]
        gone = (await server.get("/batch", headers=explicit))["lease"]["id"]
        await server.post(f"/lease/{gone}/extend", {"seconds": 0.05})
        turn()
        async with asyncio.timeout(60):
            while gone in server.service.state.leases:
                await asyncio.sleep(0.01)
                await server.service.sweep()
        assert lease in server.service.state.leases

    async def second(server: Served) -> None:
        await server.service.sweep()
        (ticket,) = server.service.state.tickets.values()
        left = await server.service.do(lambda _, now: ticket.expires_at - now)
        assert 0 < left <= 60 * SECOND

    served(first, folder=tmp_path)
    served(second, folder=tmp_path)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/register", {**TRAINER, "max_token_len": 1 << 70}),
        ("/register", {**TRAINER, "num_steps": -(1 << 70)}),
        ("/register", {**TRAINER, "save_checkpoint_interval": 1 << 64}),
        ("/register", {**TRAINER, "batch_size": 1 << 21}),
        ("/register", {**TRAINER, "max_staleness": 1 << 62}),
        ("/register-env", {**ENV, "group_size": 1 << 70}),
        ("/admit", {"env_id": 1 << 70}),
        ("/scored_data", group(env_id=1 << 70)),
        ("/scored_data", group(ticket=1 << 70)),
        ("/scored_data", group(version={"number": 1 << 70})),
        ("/version", {"number": 1 << 70}),
        ("/disconnect-env", {"env_id": -(1 << 70)}),
    ],
)
def test_a_number_that_does_not_fit_changes_nothing(path: str, body: object, tmp_path: Path) -> None:
    """It is named before anything is applied, and the log goes on."""

    async def check(server: Served) -> None:
        await server.start()
        state = server.service.state
        before = copy.deepcopy((state.trainer, state.version, state.head.next_id, state.head.next_env))
        assert "error" in await server.post(path, body, status=422)
        assert before == (state.trainer, state.version, state.head.next_id, state.head.next_env)
        assert not state.items
        await server.post("/scored_data", group())

    served(check, folder=tmp_path / "log")


def test_a_key_with_another_body_is_refused(tmp_path: Path) -> None:
    """Also after a restart; the same body gets the same answer."""
    key = {"Idempotency-Key": "k"}

    async def first(server: Served) -> None:
        await server.start()
        assert (await server.post("/scored_data", group(), headers=key))["id"] == 1

    async def second(server: Served) -> None:
        assert (await server.post("/scored_data", group(), headers=key))["id"] == 1
        for path, body in (("/scored_data", group(first=2)), ("/scored_data_list", [group()])):
            reply = await server.post(path, body, status=422, headers=key)
            assert reply["path"] == "Idempotency-Key"
            assert "another body" in reply["error"]
        assert server.service.state.account.accepted.groups == 1

    served(first, folder=tmp_path / "log")
    served(second, folder=tmp_path / "log")
