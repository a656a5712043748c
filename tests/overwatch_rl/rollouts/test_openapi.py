"""The document of the API: every address, and the types that are really answered."""

import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from overwatch_rl.rollouts.handlers import ROUTES, Handlers, Route
from overwatch_rl.web.openapi import document
from tests.overwatch_rl.rollouts.serving import ENV, TRAINER, Served, group, served

DOCUMENT = document("Overwatch rollouts API", ROUTES)


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
    """With its method, its words, and a schema for each status; none that is not served."""
    found = {(method.upper(), path) for path, item in DOCUMENT["paths"].items() for method in item}

    assert found == {(route.method, route.path) for route in ROUTES}
    for route in ROUTES:
        operation = DOCUMENT["paths"][route.path][route.method.lower()]
        assert operation["summary"]
        assert set(operation["responses"]) == {str(status) for status in route.replies}


def test_every_handler_has_an_address() -> None:
    """A handler that no row of the table names would never be called."""
    named = {route.handler.__name__ for route in ROUTES}
    public = {name for name in vars(Handlers) if not name.startswith("_")}

    assert public <= named


def test_every_reference_leads_somewhere() -> None:
    """Each schema that is referred to is there."""
    schemas = DOCUMENT["components"]["schemas"]

    assert {found.rpartition("/")[2] for found in references(DOCUMENT)} <= schemas.keys()
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_what_a_path_names_is_a_parameter() -> None:
    """A number in the path, queries and headers by name."""
    for path, item in DOCUMENT["paths"].items():
        for operation in item.values():
            named = {one["name"] for one in operation.get("parameters", ()) if one["in"] == "path"}
            assert named == set(re.findall(r"{(\w+)}", path))


def conforms(route: Route, status: int, reply: object) -> None:
    """Fails where an answer is not what the document states."""
    schema = DOCUMENT["paths"][route.path][route.method.lower()]["responses"][str(status)]
    whole = {**schema["content"]["application/json"]["schema"], "components": DOCUMENT["components"]}
    jsonschema.validate(reply, whole)


REQUESTS: tuple[tuple[str, str, object], ...] = (
    ("GET", "/", None),
    ("GET", "/batch", None),
    ("POST", "/register-env", ENV),
    ("POST", "/register", {}),
    ("POST", "/register", TRAINER),
    ("GET", "/batch", None),
    ("POST", "/register-env", ENV),
    ("GET", "/wandb_info", None),
    ("GET", "/info", None),
    ("GET", "/latest_example", None),
    ("POST", "/admit", {"env_id": 0, "groups": 2}),
    ("POST", "/admit", {"env_id": 7}),
    ("POST", "/scored_data", group()),
    ("POST", "/scored_data", group(scores=[1])),
    ("POST", "/scored_data", group(7)),
    ("POST", "/scored_data_list", [group(), group()]),
    ("POST", "/scored_data_list", [group(), group(scores=[1])]),
    ("GET", "/latest_example", None),
    ("GET", "/status", None),
    ("GET", "/status-env", {"env_id": 0}),
    ("GET", "/status-env", {"env_id": 7}),
    ("GET", "/batch", None),
    ("POST", "/version", {"number": 3}),
    ("POST", "/version", {"number": 2}),
    ("POST", "/disconnect-env", {"env_id": 0}),
    ("POST", "/disconnect-env", {"env_id": 7}),
    ("GET", "/reset_data", None),
    ("GET", "/healthz", None),
    ("GET", "/openapi.json", None),
    ("POST", "/reset", {}),
    ("POST", "/reset", {"confirm": "discard everything"}),
)


def test_answers_are_what_it_states() -> None:
    """One of each kind, right and wrong, in an order in which each can be."""
    routes = {(route.method, route.path): route for route in ROUTES}

    async def check(server: Served) -> None:
        for method, path, body in REQUESTS:
            async with server.client.request(method, path, json=body) as reply:
                conforms(routes[method, path], reply.status, await reply.json())
            if path == "/admit":
                async with server.client.get("/batch", headers={"Overwatch-Lease": "1"}) as reply:
                    conforms(routes["GET", "/batch"], reply.status, await reply.json())
        lease = routes["POST", "/lease/{id}/ack"]
        async with server.client.post("/lease/9/ack") as reply:
            conforms(lease, reply.status, await reply.json())

    served(check)
    assert {(method, path) for method, path, _ in REQUESTS} >= {
        key for key, route in routes.items() if "{" not in route.path
    }


def test_another_answer_would_be_noticed() -> None:
    """The check can fail."""
    routes = {route.path: route for route in ROUTES}

    with pytest.raises(jsonschema.ValidationError):
        conforms(routes["/info"], 200, {"batch_size": "many", "max_token_len": 8})
