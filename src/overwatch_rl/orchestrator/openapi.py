"""The API as an OpenAPI 3.1 document, from the table of routes and the types of the wire. Pure."""

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from overwatch import __version__
from overwatch_rl.orchestrator.api import Route

_TEMPLATE: Final = "#/components/schemas/{name}"
_WORDS: Final = {
    200: "Done", 201: "Made", 404: "Unknown", 409: "Against what is known", 413: "Too large",
    422: "A field is wrong", 429: "Too soon: send again after Retry-After", 503: "The store cannot be used",
}  # fmt: skip


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """The whole document."""
    found = {str(kind): kind for route in routes for kind in (route.body, *route.replies.values()) if kind}
    schemas, components = msgspec.json.schema_components(found.values(), ref_template=_TEMPLATE)
    by_kind = dict(zip(found, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, by_kind)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Overwatch orchestrator API", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"bearer": []}, {}],
    }


def _operation(route: Route, schemas: Mapping[str, Any]) -> dict[str, Any]:
    owner = f" For: {', '.join(route.roles)}." if route.roles else ""
    made: dict[str, Any] = {
        "summary": f"{inspect.getdoc(route.handler)}{owner}",
        "operationId": route.handler.__name__,
        "responses": {
            str(status): {"description": _WORDS[status], "content": _content(schemas[str(kind)])}
            for status, kind in route.replies.items()
        },
    }
    if parameters := _parameters(route):
        made["parameters"] = parameters
    if route.body is not None:
        made["requestBody"] = {"content": _content(schemas[str(route.body)])}
    return made


def _content(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _parameters(route: Route) -> list[dict[str, Any]]:
    text = {"type": "string"}
    named = re.findall(r"{(\w+)}", route.path)
    path = [{"name": name, "in": "path", "required": True, "schema": text} for name in named]
    query = [{"name": name, "in": "query", "schema": text} for name in route.query]
    headers = [{"name": name, "in": "header", "schema": text} for name in route.headers]
    return path + query + headers
