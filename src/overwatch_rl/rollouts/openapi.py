"""The API as an OpenAPI 3.1 document, from the table of routes and the types of the wire. Pure."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from overwatch import __version__
from overwatch_rl.rollouts.handlers import Route

_TEMPLATE: Final = "#/components/schemas/{name}"
_WORDS: Final = {
    200: "Done", 400: "No gzip stream", 401: "No token", 403: "Not from there", 404: "Unknown",
    405: "Not this way", 409: "Against what is known", 413: "Too large", 422: "A field is wrong",
    429: "Full: send again after Retry-After", 503: "The database cannot be written",
}  # fmt: skip


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """The whole document."""
    kinds = _kinds(routes)
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_TEMPLATE)
    by_kind = dict(zip(map(str, kinds), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, by_kind)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Overwatch rollouts API", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"bearer": []}, {}],
    }


def _kinds(routes: Sequence[Route]) -> list[Any]:
    """Every type that a route takes or answers, each once."""
    found: dict[str, Any] = {}
    for route in routes:
        answered = [kind for kinds in route.replies.values() for kind in kinds]
        for kind in (route.body, *answered):
            if kind is not None:
                found[str(kind)] = kind
    return list(found.values())


def _operation(route: Route, schemas: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "summary": inspect.getdoc(route.handler),
        "operationId": route.handler.__name__,
        "responses": {
            str(status): {"description": _WORDS[status], "content": _content(kinds, schemas)}
            for status, kinds in route.replies.items()
        },
    }
    if parameters := _parameters(route):
        made["parameters"] = parameters
    if route.body is not None:
        made["requestBody"] = {"content": _content((route.body,), schemas)}
    return made


def _content(kinds: Sequence[Any], schemas: Mapping[str, Any]) -> dict[str, Any]:
    found = [schemas[str(kind)] for kind in kinds]
    return {"application/json": {"schema": found[0] if len(found) == 1 else {"anyOf": found}}}


def _parameters(route: Route) -> list[dict[str, Any]]:
    number = {"type": "integer", "minimum": 0}
    path = [{"name": "id", "in": "path", "required": True, "schema": number}] if "{id}" in route.path else []
    query = [{"name": name, "in": "query", "schema": number} for name in route.query]
    headers = [{"name": name, "in": "header", "schema": {"type": "string"}} for name in route.headers]
    return path + query + headers
