"""The document of the API: every address, and the types that are really answered."""

import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from overwatch_rl.orchestrator.api import ROUTES, Api, Route
from overwatch_rl.orchestrator.wire import PREFIX
from overwatch_rl.web.openapi import document
from tests.overwatch_rl.orchestrator.serving import Served, served

DOCUMENT = document("Overwatch orchestrator API", ROUTES)


def references(value: Any) -> Iterator[str]:
    """Every name of a schema that a document refers to."""
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def test_every_address_is_in_it() -> None:
    """With its method, its words, its roles, and a schema for each status; none that is not served."""
    found = {(method.upper(), path) for path, item in DOCUMENT["paths"].items() for method in item}

    assert found == {(route.method, route.path) for route in ROUTES}
    for route in ROUTES:
        operation = DOCUMENT["paths"][route.path][route.method.lower()]
        assert all(role in operation["summary"] for role in route.roles)
        assert set(operation["responses"]) == {str(status) for status in route.replies}
        named = {one["name"] for one in operation.get("parameters", ()) if one["in"] == "path"}
        assert named == set(re.findall(r"{(\w+)}", route.path))


def test_every_handler_has_an_address() -> None:
    """A handler that no row of the table names would never be called."""
    assert {route.handler.__name__ for route in ROUTES} == {
        name for name in vars(Api) if not name.startswith("_")
    }


def test_every_reference_leads_somewhere() -> None:
    """Each schema that is referred to is there, and is one."""
    schemas = DOCUMENT["components"]["schemas"]

    assert {found.rpartition("/")[2] for found in references(DOCUMENT)} <= schemas.keys()
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)


def conforms(route: Route, status: int, reply: object) -> None:
    """Fails where an answer is not what the document states."""
    schema = DOCUMENT["paths"][route.path][route.method.lower()]["responses"][str(status)]
    whole = {**schema["content"]["application/json"]["schema"], "components": DOCUMENT["components"]}
    jsonschema.validate(reply, whole)


R = f"{PREFIX}/runs/r"
BEAT = {"run_id": "r", "status": "running", "step": 1}
ARTIFACT = {"kind": "checkpoint", "version": "000-00000001", "uri": "file:///a"}
EVALUATION = {"version": "000-00000001", "mean_return": 1.0, "episodes": 1}
REQUESTS: tuple[tuple[str, str, object], ...] = (
    ("POST", f"{PREFIX}/runs", {"run_id": "r"}),
    ("POST", f"{PREFIX}/runs", {"run_id": "r"}),
    ("POST", f"{PREFIX}/runs", {"run_id": "r", "seed_base": 1}),
    ("POST", f"{PREFIX}/runs", {"run_id": "r", "seed_base": -1}),
    ("GET", f"{PREFIX}/runs", None),
    ("GET", f"{PREFIX}/runs?state=x", None),
    ("POST", f"{R}/heartbeat", BEAT),
    ("POST", f"{R}/heartbeat", BEAT),
    ("POST", f"{R}/heartbeat", {**BEAT, "step": 0}),
    ("POST", f"{PREFIX}/runs/x/heartbeat", {**BEAT, "run_id": "x"}),
    ("GET", R, None),
    ("GET", f"{PREFIX}/runs/x", None),
    ("POST", f"{R}/tune", {"values": {"clip": 0.1}}),
    ("POST", f"{R}/tune", {"values": {"clip": 9}}),
    ("POST", f"{R}/commands", {"command": {"kind": "pause"}, "id": "p"}),
    ("POST", f"{R}/commands", {"command": {"kind": "resume"}, "id": "p"}),
    ("GET", f"{R}/commands/next", None),
    ("GET", f"{R}/commands", None),
    ("POST", f"{R}/commands/p/ack", {"outcome": "done"}),
    ("POST", f"{R}/commands/none/ack", {"outcome": "done"}),
    ("POST", f"{R}/pause", None),
    ("POST", f"{R}/resume", {"reason": "x"}),
    ("POST", f"{R}/artifacts", ARTIFACT),
    ("POST", f"{R}/artifacts", ARTIFACT),
    ("GET", f"{R}/artifacts", None),
    ("POST", f"{R}/evaluations", EVALUATION),
    ("GET", f"{R}/evaluations", None),
    ("PUT", f"{R}/weights-key", {"weights_public_key": "ab" * 32}),
    ("GET", f"{R}/health", None),
    ("POST", f"{R}/terminate", None),
    ("POST", f"{R}/pause", None),
    ("GET", f"{R}/transitions", None),
    ("GET", f"{R}/audit", None),
    ("GET", "/healthz", None),
    ("GET", "/openapi.json", None),
)


def _route(method: str, path: str) -> Route:
    """The row that answers."""
    fitting = [
        route
        for route in ROUTES
        if route.method == method and re.fullmatch(re.sub(r"{\w+}", "[^/]+", route.path), path)
    ]
    return fitting[0]


def test_answers_are_what_it_states() -> None:
    """One of each kind, right and wrong, in an order in which each can be."""
    called: set[str] = set()

    async def check(server: Served) -> None:
        for method, path, body in REQUESTS:
            route = _route(method, path.partition("?")[0])
            called.add(f"{route.method} {route.path}")
            async with server.client.request(method, path, json=body) as reply:
                conforms(route, reply.status, await reply.json())

    served(check)
    assert called == {f"{route.method} {route.path}" for route in ROUTES}


def test_another_answer_would_be_noticed() -> None:
    """The check can fail."""
    with pytest.raises(jsonschema.ValidationError):
        conforms(_route("GET", f"{R}/health"), 200, {"state": "asleep", "health": None})
