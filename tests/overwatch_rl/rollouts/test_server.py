"""The server over HTTP: the wire of published clients, and what is new beside it."""

import asyncio
import contextlib
import gzip
import io
import json
import logging
import socket
import struct
from pathlib import Path
from typing import Any

import pytest

from overwatch_rl.rollouts import delivery
from overwatch_rl.rollouts.answers import Limits
from overwatch_rl.rollouts.wire import OPTIONAL
from tests.overwatch_rl.rollouts.serving import ENV, TRAINER, Served, group, served, serving

TOKEN = "a-long-enough-token"  # noqa: S105 of the test
EXPLICIT = {"Overwatch-Lease": "1"}


def firsts(batch: Any) -> list[int]:
    """The first token of each group of a batch, which identifies the group."""
    return [found["tokens"][0][0] for found in batch["batch"]]


def test_before_a_trainer_everything_has_an_answer() -> None:
    """With the values that published clients take for "not yet"."""

    async def check(server: Served) -> None:
        assert (await server.get("/"))["message"]
        assert await server.get("/wandb_info") == {"group": None, "project": None}
        assert await server.get("/info") == {"batch_size": -1, "max_token_len": -1}
        assert (await server.get("/batch"))["status"] == "error"
        assert (await server.get("/batch"))["batch"] == []
        assert (await server.get("/latest_example"))["tokens"] == []
        status = await server.get("/status")
        assert (status["current_step"], status["queue_size"]) == (0, 0)
        assert (await server.post("/register-env", ENV))["status"] == "wait for trainer to start"
        assert (await server.post("/scored_data", group(), 422))["path"] == "env_id"
        assert (await server.post("/scored_data", group(None), 422))["path"] == "env_id"

    served(check)


def test_an_environment_waits_for_the_first_batch() -> None:
    """Registering is answered with `wait` until the trainer asked for a batch, then with a unique name."""

    async def check(server: Served) -> None:
        answer = await server.post("/register", {**TRAINER, "starting_step": 3})
        assert isinstance(answer["uuid"], int)
        assert await server.get("/wandb_info") == {"group": "group", "project": "project"}
        assert await server.get("/info") == {"batch_size": 4, "max_token_len": 8}
        assert (await server.post("/register-env", ENV))["status"] == "wait for trainer to start"
        assert (await server.get("/batch"))["batch"] is None
        first, second = [await server.post("/register-env", ENV) for _ in range(2)]
        assert {name: first[name] for name in first if name not in ("version", "lease_s", "unreachable")} == {
            "status": "success", "env_id": 0, "wandb_name": "math_0", "checkpoint_dir": "/ckpt",
            "starting_step": 3, "checkpoint_interval": 10, "num_steps": 100,
        }  # fmt: skip
        assert (second["env_id"], second["wandb_name"]) == (1, "math_1")

    served(check)


def test_groups_are_served_oldest_first_as_they_were_sent() -> None:
    """Byte for byte with a null for each optional key that was left out; each group once."""

    async def check(server: Served) -> None:
        await server.start()
        for first in (1, 2, 3, 4):
            answer = await server.post("/scored_data", group(first=first, extra={"kept": first}))
            assert answer["status"] == "received"
        assert (await server.get("/latest_example"))["tokens"][0][0] == 4
        batch = await server.get("/batch")
        assert firsts(batch) == [1, 2]
        assert batch["batch"][0] == {
            **dict.fromkeys(OPTIONAL), **group(first=1), "extra": {"kept": 1},
        }  # fmt: skip
        assert [item["redelivered"] for item in batch["items"]] == [False, False]
        assert firsts(await server.get("/batch")) == [3, 4]
        assert (await server.get("/batch"))["batch"] is None
        status = await server.get("/status")
        assert (status["current_step"], status["queue_size"]) == (2, 0)

    served(check)


@pytest.mark.parametrize("is_in_query", [False, True])
def test_an_environment_sees_the_queue_in_groups_of_its_size(is_in_query: bool) -> None:  # noqa: FBT001 a column
    """By a GET with a body, or with the id in the query; what is leased counts until it is used."""

    async def check(server: Served) -> None:
        await server.start(envs=2)
        asks: dict[str, Any] = {"params": {"env_id": 1}} if is_in_query else {"json": {"env_id": 1}}
        for first in (1, 2, 3):
            await server.post("/scored_data", group(0, first=first))
        await server.post("/scored_data", group(1, first=9))
        status = await server.get("/status-env", **asks)
        assert {name: status[name] for name in (
            "current_step", "queue_size", "unallocated_fraction", "self_queue_size", "max_group_size",
            "env_weight",
        )} == {
            "current_step": 0, "queue_size": 4, "unallocated_fraction": 1.0, "self_queue_size": 1,
            "max_group_size": 2, "env_weight": 0.5,
        }  # fmt: skip
        assert (await server.get("/batch"))["batch"] is not None
        assert (await server.get("/status-env", **asks))["queue_size"] == 4
        assert (await server.get("/batch"))["batch"] is not None
        assert (await server.get("/status-env", **asks))["queue_size"] == 2
        unknown = await server.get("/status-env", 422, params={"env_id": 7})
        assert unknown["path"] == "env_id"

    served(check)


def test_an_environment_leaves() -> None:
    """Its groups are served still; an unknown one is answered as published clients expect."""

    async def check(server: Served) -> None:
        await server.start(envs=2)
        await server.post("/scored_data_list", [group(0, first=1), group(0, first=2)])
        assert (await server.post("/disconnect-env", {"env_id": 0})) == {"status": "success"}
        assert (await server.post("/disconnect-env", {"env_id": 9}))["status"] == "failure"
        assert firsts(await server.get("/batch")) == [1, 2]

    served(check)


def test_a_wrong_group_costs_its_sender_only() -> None:
    """It is named by its path with 422, and the batch of the others is whole."""

    async def check(server: Served) -> None:
        await server.start(envs=2)
        await server.post("/scored_data", group(0, first=1))
        wrong = await server.post("/scored_data", group(1, scores=[1.0, float("nan")]), 422)
        assert wrong["error"].startswith("scores[1]: NaN is no JSON number")
        assert (wrong["refused"][0]["path"], wrong["refused"][0]["reason"]) == ("scores[1]", "invalid")
        long = group(1, tokens=[[1] * 9, [1]], masks=[[1] * 9, [1]])
        assert (await server.post("/scored_data", long, 422))["refused"][0]["path"] == "tokens[0]"
        large = group(1, tokens=[[1]] * 5, masks=[[1]] * 5, scores=[0] * 5)
        assert (await server.post("/scored_data", large, 422))["refused"][0]["reason"] == "too_large"
        assert (await server.post("/scored_data", group(7), 422))["path"] == "env_id"
        await server.post("/scored_data", group(0, first=2))
        assert firsts(await server.get("/batch")) == [1, 2]
        refused = server.service.state.envs[1].account.refused
        assert {reason: (amount.groups, amount.sequences) for reason, amount in refused.items()} == {
            "invalid": (2, 4), "too_large": (1, 5),
        }  # fmt: skip

    served(check)


def test_the_good_groups_of_a_list_are_queued_and_the_bad_named() -> None:
    """Literals, ragged rows, and a group of another environment than the list's."""

    async def check(server: Served) -> None:
        await server.start(envs=2)
        sent = [
            group(0, first=1), group(0, scores=[float("inf"), 1]), group(0, masks=[[1], [1]]), group(1),
            group(0, first=2),
        ]  # fmt: skip
        answer = await server.post("/scored_data_list", sent, 422)
        assert answer["groups_processed"] == 2
        assert [found is None for found in answer["ids"]] == [False, True, True, True, False]
        assert [(one["index"], one["path"]) for one in answer["refused"]] == [
            (1, "[1].scores[0]"), (2, "[2].masks[0]"), (3, "[3].env_id"),
        ]  # fmt: skip
        assert firsts(await server.get("/batch")) == [1, 2]
        assert (await server.post("/scored_data_list", [], 200))["groups_processed"] == 0
        assert (await server.post("/scored_data_list", {"tokens": []}, 422))["path"] == ""

    served(check)


@pytest.mark.parametrize(
    ("path", "body", "where"),
    [
        ("/register", {**TRAINER, "batch_size": 0}, "batch_size"),
        ("/register", {**TRAINER, "wandb_group": None}, "wandb_group"),
        ("/register-env", {**ENV, "group_size": "4"}, "group_size"),
        ("/register-env", {**ENV, "weight": float("nan")}, "weight"),
        ("/register-env", {**ENV, "min_batch_allocation": 1.5}, "min_batch_allocation"),
        ("/disconnect-env", {}, ""),
        ("/admit", {"env_id": 0, "groups": 0}, "groups"),
        ("/version", {"number": -1}, "number"),
        ("/lease/1/extend", {"seconds": 0}, "seconds"),
        ("/reset", {"confirm": "yes"}, "confirm"),
    ],
)
def test_a_wrong_field_is_named(path: str, body: dict[str, object], where: str) -> None:
    """With 422, in every address that takes a body."""

    async def check(server: Served) -> None:
        answer = await server.post(path, body, 422)
        assert answer["path"] == where
        assert answer["error"]

    served(check)


def test_bodies_may_be_packed_and_have_a_limit() -> None:
    """Packed in and out; a small body that inflates beyond the limit is refused, and so is no gzip."""

    async def check(server: Served) -> None:
        await server.start()
        stated = group(messages=[[{"role": "user", "content": "x" * 2000}]] * 2)
        body, bomb = gzip.compress(json.dumps(stated).encode()), gzip.compress(bytes(1 << 21))
        packed = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
        for status, data in ((200, body), (200, body), (400, body[:-9]), (413, bomb)):
            async with server.client.post("/scored_data", data=data, headers=packed) as reply:
                assert reply.status == status, await reply.text()
        async with server.client.post("/scored_data", data=io.BytesIO(bytes(1 << 21))) as reply:
            assert reply.status == 413
        async with server.client.post("/scored_data", data=b"", headers={"Content-Encoding": "br"}) as reply:
            assert reply.status == 422
        async with server.client.post("/scored_data", data=b"x", headers={"Content-Encoding": "br"}) as reply:
            assert reply.status == 415
        async with server.client.get("/batch", headers={"Accept-Encoding": "gzip"}) as reply:
            assert reply.headers["Content-Encoding"] == "gzip"
            assert len((await reply.json())["batch"]) == 2
        plain = {"Accept-Encoding": "identity"}
        async with server.client.get("/latest_example", headers=plain) as reply:
            assert "Content-Encoding" not in reply.headers

    served(check)


def test_a_token_is_asked_for() -> None:
    """Everywhere but where it is looked whether the server is well."""

    async def check(server: Served) -> None:
        await server.get("/status")
        other = {"Authorization": "Bearer another-token-of-it"}
        answer = await server.get("/status", 401, headers=other)
        assert "Bearer <token>" in answer["error"]
        await server.post("/scored_data", group(), 401, headers=other)
        assert await server.get("/healthz", headers=other) == {"status": "ok", "error": None}

    served(check, token=TOKEN)


def test_a_repeated_request_with_a_key_is_one_request() -> None:
    """The same ids again, one group in the queue; another key, or none, is another group."""

    async def check(server: Served) -> None:
        await server.start()
        key = {"Idempotency-Key": "one"}
        first = await server.post("/scored_data", group(first=1), headers=key)
        again = await server.post("/scored_data", group(first=1), headers=key)
        assert first == again
        assert (await server.get("/status"))["queue_size"] == 1
        sent = [group(first=2), group(first=3, scores=[float("nan"), 0])]
        lists = [
            await server.post("/scored_data_list", sent, 422, headers={"Idempotency-Key": "two"})
            for _ in range(2)
        ]
        assert lists[0] == lists[1]
        assert (await server.get("/status"))["queue_size"] == 2
        await server.post("/scored_data", group(first=1), headers={"Idempotency-Key": "three"})
        assert (await server.get("/status"))["queue_size"] == 3
        long = await server.post("/scored_data", group(), 422, headers={"Idempotency-Key": "x" * 300})
        assert long["path"] == "Idempotency-Key"

    served(check)


def test_a_wrong_group_uses_its_ticket_up() -> None:
    """No batch waits for what was refused: its permit is free again at once."""

    async def check(server: Served) -> None:
        await server.start(max_staleness=0)
        requested = {"env_id": 0, "groups": 2}
        first, second = (await server.post("/admit", requested))["tickets"]
        assert (await server.post("/admit", requested))["tickets"] == []
        wrong = group(scores=[float("nan"), 0], ticket=first)
        await server.post("/scored_data", wrong, 422)
        await server.post("/scored_data", group(ticket=second))
        assert len((await server.post("/admit", requested))["tickets"]) == 1

    served(check)


def test_a_key_that_is_no_ascii_is_refused_and_nothing_is_queued(tmp_path: Path) -> None:
    """Bytes that are no UTF-8 reach the server as surrogates, which no record can hold."""

    async def check(server: Served) -> None:
        await server.start()
        body = json.dumps(group()).encode()
        for key in ("é".encode("latin-1"), "é".encode()):
            reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
            writer.write(
                b"POST /scored_data HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
                b"Content-Length: %d\r\nIdempotency-Key: %s\r\n\r\n%s" % (len(body), key, body)
            )
            reply = await reader.read()
            writer.close()
            assert b" 422 " in reply.splitlines()[0]
            assert b"is not ASCII; send e.g. a UUID" in reply
        assert (await server.get("/status"))["queue_size"] == 0
        assert (await server.post("/scored_data", group()))["status"] == "received"

    served(check, folder=tmp_path)


@pytest.mark.parametrize("settings", [{"limits": Limits(max_queued_batches=1)}, {"held": 1000}])
def test_a_full_queue_asks_to_come_again(settings: dict[str, Any]) -> None:
    """429 with Retry-After and the queue's size; nothing of the request is queued until there is room."""

    async def check(server: Served) -> None:
        await server.start()
        await server.post("/scored_data_list", [group(first=1), group(first=2)])
        before = (await server.get("/status"))["queue_size"]
        async with server.client.post("/scored_data_list", json=[group(first=3)] * 2) as reply:
            assert reply.status == 429
            assert reply.headers["Retry-After"] == "1"
            answer = await reply.json()
        assert (answer["status"], answer["queue_size"], answer["queued_sequences"]) == ("full", before, 4)
        assert (await server.get("/status"))["queue_size"] == before
        assert firsts(await server.get("/batch")) == [1, 2]
        assert (await server.get("/batch"))["batch"] is None
        await server.post("/scored_data_list", [group(first=3)] * 2)

    served(check, **settings)


def test_an_explicit_lease_is_kept_until_it_is_acknowledged() -> None:
    """Two trainers have two leases; one is given back and comes again, flagged; the other is used."""

    async def check(server: Served) -> None:
        await server.start()
        await server.post("/scored_data_list", [group(first=first) for first in (1, 2, 3, 4)])
        one, two = [await server.get("/batch", headers=EXPLICIT) for _ in range(2)]
        assert (firsts(one), firsts(two)) == ([1, 2], [3, 4])
        longer = await server.post(f"/lease/{one['lease']['id']}/extend", {"seconds": 500})
        assert 400 < longer["expires_in_s"] <= 500
        assert (await server.post(f"/lease/{one['lease']['id']}/release"))["ended"] == "released"
        acknowledged = [await server.post(f"/lease/{two['lease']['id']}/ack") for _ in range(2)]
        assert acknowledged[0] == acknowledged[1]
        assert acknowledged[0]["ended"] == "acknowledged"
        again = await server.get("/batch", headers=EXPLICIT)
        assert firsts(again) == [1, 2]
        assert [item["redelivered"] for item in again["items"]] == [True, True]
        assert (await server.post("/lease/999/ack", None, 404))["path"] == "id"

    served(check)


async def requested(server: Served, reads: int) -> socket.socket:
    """The connection of a trainer that asks for a batch and reads so many bytes of it."""
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.setblocking(False)
    loop = asyncio.get_running_loop()
    host, port = server.url.removeprefix("http://").split(":")
    await loop.sock_connect(line, (host, int(port)))
    await loop.sock_sendall(line, b"GET /batch HTTP/1.1\r\nHost: localhost\r\n\r\n")
    while reads > 0:
        reads -= len(await loop.sock_recv(line, reads))
    return line


def test_a_batch_whose_connection_broke_is_delivered_again(caplog: pytest.LogCaptureFixture) -> None:
    """A trainer that cannot acknowledge got a part of it: the groups come again, and state it."""

    async def check(server: Served) -> None:
        await server.start(batch_size=24)
        for _ in range(12):
            await server.post("/scored_data", group(images="x" * 900_000))
        line = await requested(server, 1000)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        line.close()
        again = await server.get("/batch")
        assert [item["redelivered"] for item in again["items"]] == [True] * 12
        assert (await server.get("/batch"))["batch"] is None
        assert server.service.state.account.acknowledged.groups == 12

    served(check)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_trainer_that_reads_no_more_loses_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection whose other end takes nothing for long is given up; the next request gets the batch."""
    monkeypatch.setattr(delivery, "SILENT_S", 0.5)

    async def check(server: Served) -> None:
        await server.start(batch_size=24)
        for _ in range(12):
            await server.post("/scored_data", group(images="x" * 900_000))
        with contextlib.closing(await requested(server, 1000)):
            again = await server.get("/batch")
        assert [item["redelivered"] for item in again["items"]] == [True] * 12

    served(check)


def test_a_sender_that_leaves_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """In the middle of its body: nothing is queued, nothing is logged as a fault, others go on."""

    async def check(server: Served) -> None:
        await server.start()
        host, port = server.url.removeprefix("http://").split(":")
        _, line = await asyncio.open_connection(host, int(port))
        line.write(b"POST /scored_data HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500\r\n\r\n{")
        await line.drain()
        await server.get("/status")
        line.transport.abort()
        await server.post("/scored_data", group(first=1))
        assert (await server.get("/status"))["queue_size"] == 1

    served(check)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_trainer_that_registers_again_gets_its_last_batch_again() -> None:
    """It died before it used the batch; what it had used before stays used."""

    async def check(server: Served) -> None:
        await server.start()
        await server.post("/scored_data_list", [group(first=first) for first in (1, 2, 3, 4)])
        assert firsts(await server.get("/batch")) == [1, 2]
        assert firsts(await server.get("/batch")) == [3, 4]
        await server.post("/register", TRAINER)
        again = await server.get("/batch")
        assert firsts(again) == [3, 4]
        assert [item["redelivered"] for item in again["items"]] == [True, True]

    served(check)


def test_versions_are_stated_and_bound_ages() -> None:
    """By POST or with the request of a batch; a stated version that is too old is refused, and states it."""

    async def check(server: Served) -> None:
        await server.start(max_staleness=1)
        moved = await server.post("/version", {"number": 5})
        assert moved["version"] == {"lineage": 0, "number": 5}
        assert (await server.post("/version", {"number": 4}, 409))["path"] == "number"
        stale = await server.post("/scored_data", group(version={"number": 3}), 422)
        assert (stale["refused"][0]["reason"], stale["refused"][0]["path"]) == ("stale", "version")
        await server.post("/scored_data", group(first=1, version={"number": 5}))
        await server.post("/scored_data", group(first=2))
        batch = await server.get("/batch", params={"version": 6})
        shown = [(item["version"]["number"], item["version_source"], item["age"]) for item in batch["items"]]
        assert shown == [(5, "stated", 1), (0, "assumed", 6)]
        assert batch["version"] == {"lineage": 0, "number": 6}
        assert (await server.get("/batch", 422, params={"version": "x"}))["path"] == "version"

    served(check)


def test_tickets_are_permissions_to_generate() -> None:
    """As many as are free; a group names the one that it was made under."""

    async def check(server: Served) -> None:
        await server.start(max_staleness=0)
        tickets = await server.post("/admit", {"env_id": 0, "groups": 5})
        assert len(tickets["tickets"]) == 2
        assert tickets["expires_in_s"] > 50
        more = await server.post("/admit", {"env_id": 0})
        assert (more["tickets"], more["expires_in_s"]) == ([], None)
        for ticket in tickets["tickets"]:
            await server.post("/scored_data", group(ticket=ticket))
        batch = await server.get("/batch")
        assert [item["version_source"] for item in batch["items"]] == ["stated", "stated"]
        assert (await server.post("/admit", {"env_id": 7}, 422))["path"] == "env_id"

    served(check)


def test_a_reset_is_guarded() -> None:
    """A GET of the old address erases nothing and states how; the new one wants the words."""

    async def check(server: Served) -> None:
        await server.start()
        await server.post("/scored_data", group())
        old = await server.get("/reset_data", 405)
        assert 'POST /reset with {"confirm": "discard everything"}' in old["error"]
        assert (await server.get("/status"))["queue_size"] == 1
        await server.post("/reset", {"confirm": "discard everything"})
        assert (await server.get("/status"))["queue_size"] == 0
        assert (await server.get("/batch"))["status"] == "error"

    served(check)


def test_what_is_not_there_is_answered() -> None:
    """Another address, another method: with what there is."""

    async def check(server: Served) -> None:
        assert "/openapi.json" in (await server.get("/nothing", 404))["error"]
        assert "use POST" in (await server.get("/scored_data", 405))["error"]
        async with server.client.head("/batch") as reply:
            assert reply.status == 405

    served(check)


def test_everything_survives_a_restart(tmp_path: Path) -> None:
    """Registrations, queued groups, and what is leased to a trainer that did not come back."""

    async def check() -> None:
        async with serving(tmp_path) as server:
            await server.start()
            await server.post("/scored_data_list", [group(first=first) for first in (1, 2, 3, 4)])
            lease = (await server.get("/batch", headers=EXPLICIT))["lease"]["id"]
        async with serving(tmp_path) as server:
            assert (await server.get("/latest_example"))["tokens"][0][0] == 4
            assert (await server.get("/status-env", params={"env_id": 0}))["queue_size"] == 4
            await server.post("/scored_data_list", [group(first=5), group(first=6)])
            assert (await server.post(f"/lease/{lease}/ack"))["ended"] == "acknowledged"
            assert [firsts(await server.get("/batch")) for _ in range(2)] == [[3, 4], [5, 6]]

    asyncio.run(check())
