"""The API over real HTTP: runs, heartbeats, commands, who may, limits, garbage."""

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overwatch_rl.orchestrator import wire
from overwatch_rl.orchestrator.server import HANDLERS, LARGE, SMALL
from tests.overwatch_rl.orchestrator.serving import RUN, TOKENS, Served, Turned, served, serving

KEY = "ab" * 32
ROUTES = [
    (method, path, handler.opt.get("roles", ()))
    for handler in HANDLERS
    for path in handler.paths
    for method in handler.http_methods
]


def named(path: str, run_id: str, command_id: str = "none") -> str:
    """An address with names in the place of its parameters."""
    return path.replace("{run_id:str}", run_id).replace("{command_id:str}", command_id)


async def whole_run(server: Served) -> None:
    """A run from its beginning to its end."""
    made = await server.create(config={"algorithm": "ppo"}, seed_base=7, experiment="e")
    assert (made["state"], made["health"], made["lineage"]) == ("pending", None, None)
    assert await server.beat(step=10, loss=0.5) == {
        "state": "running", "commands_waiting": 0, "interval_s": 5.0,
    }  # fmt: skip
    tuned = await server.post("/tune", {"values": {"learning_rate": 1e-4}}, 201)
    assert (await server.beat(step=20))["commands_waiting"] == 1
    change = {"learning_rate": {"before": 3e-4, "after": 1e-4}}
    done = await server.obey(detail="set", changes=change)
    assert (done["id"], done["status"], done["done"]["changes"]) == (tuned["id"], "done", change)
    await server.post("/pause", {"reason": "lunch"}, 201)
    assert (await server.get())["state"] == "running"
    await server.obey()
    assert (await server.get())["state"] == "paused"
    await server.post("/resume", None, 201)
    await server.obey()
    await server.post("/terminate", None, 201)
    assert (await server.beat(step=30))["state"] == "terminating"
    await server.obey(detail="last checkpoint 000-00000003")
    run = await server.get()
    assert (run["state"], run["health"], run["step"]) == ("terminated", None, 30)
    assert (run["tuned"], run["config"], run["seed_base"]) == (
        {"learning_rate": 1e-4}, {"algorithm": "ppo"}, 7,
    )  # fmt: skip
    moves = (await server.get("/transitions"))["transitions"]
    assert [(move["before"], move["after"]) for move in moves] == [
        ("pending", "running"), ("running", "paused"), ("paused", "running"),
        ("running", "terminating"), ("terminating", "terminated"),
    ]  # fmt: skip
    assert moves[0]["cause"] == "heartbeat"
    assert moves[1]["cause"].startswith("command ")
    trail = [(row["role"], row["action"]) for row in (await server.get("/audit"))["audit"]]
    assert trail == [("local", action) for action in (
        "create", "tune", "acknowledge", "pause", "acknowledge", "resume", "acknowledge", "terminate",
        "acknowledge",
    )]  # fmt: skip
    assert (await server.get("/commands"))["commands"][0]["command"] == {
        "kind": "tune", "values": {"learning_rate": 1e-4},
    }  # fmt: skip


def test_a_run_from_its_beginning_to_its_end() -> None:
    """Created, begun, tuned, paused, resumed, terminated; each move is kept, and who did what."""
    served(whole_run)


async def repeated(server: Served) -> None:
    """Requests that come again."""
    body = {"run_id": "r", "seed_base": 1}
    first = await server.query("POST", "/api/v1/runs", body, 201)
    assert await server.query("POST", "/api/v1/runs", body, 200) == first
    await server.query("POST", "/api/v1/runs", {**body, "seed_base": 2}, 409)
    await server.beat()
    command = {"command": {"kind": "pause"}, "id": "p-1"}
    issued = await server.post("/commands", command, 201)
    assert await server.post("/commands", command, 200) == issued
    assert (await server.post("/pause", None, 200, headers={"Idempotency-Key": "p-1"})) == issued
    for path, other in (("/resume", None), ("/pause", {"reason": "another"})):
        wrong = await server.post(path, other, 422, headers={"Idempotency-Key": "p-1"})
        assert wrong["path"] == "Idempotency-Key"
    wrong = await server.post("/commands", {"command": {"kind": "resume"}, "id": "p-1"}, 409)
    assert wrong["path"] == "id"
    done = await server.obey(detail="once")
    again = await server.post("/commands/p-1/ack", {"outcome": "failed"})
    assert again == done
    artifact = {"kind": "checkpoint", "version": "000-00000001", "uri": "file:///a", "sha256": "0" * 64}
    kept = await server.post("/artifacts", artifact, 201)
    assert await server.post("/artifacts", artifact, 200) == kept
    for changed in ({"uri": "file:///b"}, {"details": {"steps": 1}}):
        await server.post("/artifacts", {**artifact, **changed}, 409)
    assert (await server.get("/artifacts"))["artifacts"] == [{**kept, "mean_return": None}]
    assert (await server.query("PUT", RUN + "/weights-key", {"weights_public_key": KEY}))[
        "weights_public_key"
    ] == KEY
    await server.query("PUT", RUN + "/weights-key", {"weights_public_key": KEY})
    await server.query("PUT", RUN + "/weights-key", {"weights_public_key": "cd" * 32}, 409)


def test_the_same_request_again_is_the_same_thing() -> None:
    """A run by its id, a command by its id or key, an artifact by kind and version; others are conflicts."""
    served(repeated)


def test_evaluations_are_kept_in_their_order() -> None:
    """With what was posted."""

    async def check(server: Served) -> None:
        await server.create()
        for number, found in enumerate((1.5, -2.0)):
            version = f"000-0000000{number}"
            body = {"version": version, "mean_return": found, "episodes": 10, "details": {"std": 1}}
            await server.post("/evaluations", body, 201)
        rows = (await server.get("/evaluations"))["evaluations"]
        assert [(row["version"], row["mean_return"], row["details"]) for row in rows] == [
            ("000-00000000", 1.5, {"std": 1}), ("000-00000001", -2.0, {"std": 1}),
        ]  # fmt: skip

    served(check)


def test_heartbeats_are_five_seconds_apart() -> None:
    """One too soon has its time; the last words and a new life need not wait."""

    async def check(server: Served) -> None:
        await server.create()
        await server.beat(step=1)
        server.time.go(1.5)
        body = {"run_id": "r", "status": "running", "step": 2}
        async with server.client.post(RUN + "/heartbeat", json=body) as reply:
            assert (reply.status, reply.headers["Retry-After"]) == (429, "4")
            assert "5 s apart or more; send this one in 3.5 s" in (await reply.json())["error"]
        assert (await server.get())["step"] == 1
        await server.beat(after=3.5, step=2)
        await server.beat(after=0.0, step=0, lineage=1)
        await server.beat(after=0.0, step=1, lineage=1, status="completed")
        assert (await server.get())["state"] == "completed"

    served(check)


def test_a_heartbeat_is_of_its_run_and_of_its_size() -> None:
    """32 KiB at most; the id of the path."""

    async def check(server: Served) -> None:
        await server.create()
        wrong = await server.beat(422, run_id="other")
        assert wrong == {"error": "run_id: is 'other' in a heartbeat of 'r'", "path": "run_id"}
        large = await server.beat(413, notes="x" * SMALL)
        assert "more than 32768 bytes" in large["error"]
        for field, value in (
            ("step", -1),
            ("loss", "high"),
            ("step", 2**63),
            ("status", "fine"),
            ("speed", 1),
        ):
            answer = await server.beat(422, **{field: value})
            assert field in answer["error"], answer
        assert (await server.get())["state"] == "pending"

    served(check)


def test_a_learner_that_restarts_is_accepted_and_its_former_life_is_not() -> None:
    """The step may go back with a new lineage; commands of the former life are refused too."""

    async def check(server: Served) -> None:
        await server.create()
        await server.beat(step=100, lineage=2)
        assert "begins the next lineage" in (await server.beat(409, step=40, lineage=2))["error"]
        await server.beat(step=40, lineage=3)
        assert (await server.beat(409, step=120, lineage=2))["path"] == "lineage"
        assert (await server.get("/commands/next?lineage=2", 409))["path"] == "lineage"
        assert await server.get("/commands/next?lineage=3") == {"command": None}

    served(check)


def test_a_command_is_delivered_until_it_is_acknowledged() -> None:
    """One at a time; a learner that died before it acknowledged has it again, flagged."""

    async def check(server: Served) -> None:
        await server.create()
        await server.beat()
        await server.post("/commands", {"command": {"kind": "pause"}, "id": "a"}, 201)
        await server.post("/commands", {"command": {"kind": "resume"}, "id": "b"}, 201)
        for redelivered in (False, True):
            found = (await server.get("/commands/next"))["command"]
            assert (found["id"], found["redelivered"]) == ("a", redelivered)
        assert (
            "command b is queued" in (await server.post("/commands/b/ack", {"outcome": "done"}, 409))["error"]
        )
        await server.post("/commands/a/ack", {"outcome": "done"})
        assert (await server.get("/commands/next"))["command"]["id"] == "b"
        await server.post("/commands/none/ack", {"outcome": "done"}, 404)

    served(check)


def test_a_waiting_learner_has_a_command_as_soon_as_it_is_issued() -> None:
    """The request waits at the server; where none comes it ends with its time."""

    async def check(server: Served) -> None:
        await server.create()
        await server.beat()
        waiting = asyncio.ensure_future(server.get("/commands/next?wait_s=30"))
        await asyncio.sleep(0)
        await server.post("/pause", None, 201)
        assert (await asyncio.wait_for(waiting, 20))["command"]["command"]["kind"] == "pause"
        await server.obey()
        assert await server.get("/commands/next?wait_s=0.05") == {"command": None}

    served(check)


def test_a_tune_out_of_bounds_is_refused_and_kept_in_the_trail() -> None:
    """Nothing is queued; the answer names the value and the bounds."""

    async def check(server: Served) -> None:
        await server.create()
        answer = await server.post("/tune", {"values": {"clip": 0.9}}, 422)
        assert answer == {
            "error": "values.clip: is 0.9; use a value in [0.05, 0.3]", "path": "values.clip",
        }  # fmt: skip
        assert (await server.get("/commands"))["commands"] == []
        row = (await server.get("/audit"))["audit"][-1]
        assert (row["action"], row["details"]["error"]) == ("tune refused", answer["error"])

    served(check)


def test_silence_is_health_and_no_state() -> None:
    """Stale after 45 s, unresponsive after 135 s, healthy with the next heartbeat."""

    async def check(server: Served) -> None:
        await server.create()
        await server.beat()
        for after, found in ((44.0, "healthy"), (1.0, "stale"), (90.0, "unresponsive")):
            server.time.go(after)
            run = await server.get("/health")
            assert (run["state"], run["health"]) == ("running", found)
        assert (await server.get("/health"))["silence_s"] == 135.0
        await server.beat()
        assert (await server.get())["health"] == "healthy"

    served(check)


def test_a_wall_clock_that_steps_changes_no_interval() -> None:
    """Back or forth by a day: heartbeats, health and their limits go by the other clock."""

    async def check(server: Served) -> None:
        await server.create()
        await server.beat()
        for days in (-1, 2, -3):
            server.time.wall = server.time.wall.replace(day=15 + days)
            await server.beat(429, after=1.0)
            await server.beat(after=4.0)
            assert (await server.get())["health"] == "healthy"
        server.time.go(50.0)
        assert (await server.get())["health"] == "stale"

    served(check)


def test_runs_are_listed_by_state_and_number() -> None:
    """The newest first."""

    async def check(server: Served) -> None:
        for number in range(3):
            await server.create(f"r{number}")
            server.time.go(1.0)
        found = (await server.query("GET", "/api/v1/runs?limit=2"))["runs"]
        assert [run["run_id"] for run in found] == ["r2", "r1"]
        assert (await server.query("GET", "/api/v1/runs?state=running"))["runs"] == []
        for wrong in ("state=odd", "limit=0", "limit=x", "limit=nan"):
            await server.query("GET", f"/api/v1/runs?{wrong}", None, 422)

    served(check)


def test_what_is_answered_is_there_in_the_next_life(tmp_path: Path) -> None:
    """The same file: state, command in force, heartbeat; a silence counts from the restart."""
    time = Turned()

    async def check() -> None:
        async with serving(tmp_path / "runs.db", time=time) as server:
            await server.create()
            await server.beat(step=5)
            await server.post("/commands", {"command": {"kind": "pause"}, "id": "a"}, 201)
            await server.get("/commands/next")
        time.go(3600.0)
        async with serving(tmp_path / "runs.db", time=time) as server:
            run = await server.get()
            assert (run["state"], run["health"], run["step"], run["commands_waiting"]) == (
                "running", None, 5, 1,
            )  # fmt: skip
            assert (await server.get("/commands/next"))["command"]["redelivered"]
            await server.post("/commands/a/ack", {"outcome": "done"})
            assert (await server.get())["state"] == "paused"
            time.go(45.0)
            assert (await server.get())["health"] == "stale"

    asyncio.run(check())


@pytest.mark.parametrize(
    "wrong",
    [
        {"config": {"seed": 1 << 70}},
        {"config": json.loads("[" * 70 + "]" * 70)},
        {"config": {"a": json.loads("[" * 70 + "]" * 70)}},
        {"experiment": "a\0b"},
        {"seed_base": 1 << 70},
    ],
)
def test_what_not_everyone_can_read_is_refused(wrong: dict[str, object]) -> None:
    """Before it is stored: lists of runs stay readable."""

    async def check(server: Served) -> None:
        assert "error" in await server.query("POST", "/api/v1/runs", {"run_id": "odd", **wrong}, 422)
        assert (await server.query("GET", "/api/v1/runs"))["runs"] == []

    served(check)


@pytest.mark.parametrize("role", ["operator", "learner", "reader", None])
def test_each_address_is_for_its_roles(role: str | None) -> None:
    """Every route with every token; none without one, but for the probe."""

    async def check(server: Served) -> None:
        headers = {} if role is None else {"Authorization": f"Bearer {TOKENS[role]}"}
        for method, path, roles in ROUTES:
            async with server.client.request(method, named(path, "none"), headers=headers) as reply:
                if not roles:
                    assert reply.status == 200
                elif role is None:
                    assert (reply.status, reply.headers["WWW-Authenticate"][:6]) == (401, "Bearer")
                elif role in roles:
                    assert reply.status in (200, 404, 422), (path, await reply.text())
                else:
                    text = await reply.text()
                    assert reply.status == 403
                    assert f"for the token of {' or '.join(roles)}, this is {role}'s" in text

    served(check, tokens=TOKENS)


def test_what_is_not_served_names_what_is() -> None:
    """404 and 405 name the way."""

    async def check(server: Served) -> None:
        assert (
            "GET /openapi.json describes" in (await server.query("GET", "/api/v2/runs", None, 404))["error"]
        )
        assert "use GET, POST" in (await server.query("DELETE", "/api/v1/runs", None, 405))["error"]
        assert "there is no run 'r'" in (await server.get(status=404))["error"]
        assert "there is no run" in (await server.query("GET", "/api/v1/runs/%ED%A0%80", None, 404))["error"]
        assert (await server.query("GET", "/healthz"))["status"] == "ok"

    served(check)


def test_guessed_tokens_are_slowed_down() -> None:
    """By this peer, whichever address it asks; a right token comes in all the same."""

    async def check(server: Served) -> None:
        for number in range(5):
            headers = {"Authorization": f"Bearer wrong-{number}"}
            await server.query("GET", f"/api/v1/{number}", None, 401, headers=headers)
        again = {"Authorization": "Bearer wrong-5"}
        assert "too many wrong tokens" in (await server.get(status=429, headers=again))["error"]
        await server.get(status=404, headers={"Authorization": f"Bearer {TOKENS['reader']}"})

    served(check, tokens=TOKENS)


def test_answers_are_as_the_document_describes_them() -> None:
    """Every address with its method; the bodies of a run and of what became of a command."""

    async def check(server: Served) -> None:
        document = await server.query("GET", "/openapi.json")
        found = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
        assert found == {(method, path.replace(":str}", "}")) for method, path, _ in ROUTES}
        made = await server.create()
        await server.beat()
        for name, answer in (
            ("RunRecord", made),
            ("RunRecord", await server.get()),
            ("CommandRecord", await server.post("/pause", None, 201)),
            ("Heartbeat", {"run_id": "r", "status": "running", "step": 1}),
        ):
            schema = {**document["components"]["schemas"][name], "components": document["components"]}
            jsonschema.validate(answer, schema)
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate({}, schema)

    served(check)


JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
FIELDS = sorted(
    {
        name
        for kind in vars(wire).values()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
        for name in kind.__struct_fields__
    }
    | {"kind", "values", "learning_rate", "outcome", "changes"}
)
BODIES = (
    st.binary(max_size=200)
    | JSON.map(lambda value: json.dumps(value).encode())
    | st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=6).map(lambda value: json.dumps(value).encode())
)
PATHS = st.text(st.characters(codec="utf-8", exclude_characters="/?#"), min_size=1, max_size=12)


@settings(max_examples=25, deadline=None)
@given(requests=st.lists(st.tuples(st.sampled_from(ROUTES), BODIES, PATHS, st.booleans()), max_size=40))
def test_garbage_is_never_an_error_of_the_server(requests: list[Any]) -> None:
    """Any body to any address is answered with 2xx or 4xx and a reason; the server goes on."""

    async def check(server: Served) -> None:
        await server.create()
        for (method, path, _), body, name, is_known in requests:
            where = named(path, "r" if is_known else name, name)
            async with server.client.request(method, where, data=body) as reply:
                answer = await reply.json()
                assert reply.status < 500, (path, body, answer)
                assert reply.status < 400 or answer["error"]
        assert (await server.get())["run_id"] == "r"

    served(check)


def test_a_config_has_room_and_a_limit() -> None:
    """1 MiB."""

    async def check(server: Served) -> None:
        for run_id, size, code in (("r", LARGE - 1000, 201), ("s", LARGE, 413)):
            body = json.dumps({"run_id": run_id, "config": {"notes": "x" * size}}).encode()
            async with server.client.post("/api/v1/runs", data=io.BytesIO(body)) as reply:
                assert reply.status == code, await reply.text()

    served(check)
