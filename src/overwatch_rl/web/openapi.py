"""An API as an OpenAPI 3.1 document, from its table of routes and the types of its wire. Pure."""

import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, Protocol

import msgspec

from overwatch import __version__

_TEMPLATE: Final = "#/components/schemas/{name}"


class Route(Protocol):
    """One address."""

    @property
    def method(self) -> str:
        """Of HTTP."""

    @property
    def path(self) -> str:
        """With `{name}` where a value is."""

    @property
    def handler(self) -> Callable[..., Any]:
        """Its docstring and its name are those of the operation."""

    @property
    def replies(self) -> Mapping[int, Any]:
        """Types of the bodies that it answers, by status."""

    @property
    def body(self) -> Any:
        """Type of the request's body, if it has one."""

    @property
    def query(self) -> Sequence[str]:
        """Names of parameters."""

    @property
    def headers(self) -> Sequence[str]:
        """Names of headers that it reads."""


def document(title: str, routes: Sequence[Route], numbers: Collection[str] = ()) -> dict[str, Any]:
    """Return the whole document; `numbers` are parameters that are whole numbers from 0 on."""
    kinds = {
        str(kind): kind
        for route in routes
        for kind in (route.body, *(each for answers in route.replies.values() for each in _each(answers)))
        if kind is not None
    }
    schemas, components = msgspec.json.schema_components(kinds.values(), ref_template=_TEMPLATE)
    by_kind = dict(zip(kinds, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, by_kind, numbers)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": __version__},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"bearer": []}, {}],
    }


def _each(answers: Any) -> tuple[Any, ...]:
    return answers if isinstance(answers, tuple) else (answers,)


def _operation(route: Route, schemas: Mapping[str, Any], numbers: Collection[str]) -> dict[str, Any]:
    roles = " or ".join(getattr(route, "roles", ()))
    operation: dict[str, Any] = {
        "summary": f"{inspect.getdoc(route.handler)}{f' For: {roles}.' if roles else ''}",
        "operationId": route.handler.__name__,
        "responses": {
            str(status): {"description": HTTPStatus(status).phrase, "content": _content(answers, schemas)}
            for status, answers in route.replies.items()
        },
    }
    places = {"path": re.findall(r"{(\w+)}", route.path), "query": route.query, "header": route.headers}
    parameters = [
        {
            "name": name,
            "in": place,
            **({"required": True} if place == "path" else {}),
            "schema": _type(name, numbers),
        }
        for place, names in places.items()
        for name in names
    ]
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        operation["requestBody"] = {"content": _content(route.body, schemas)}
    return operation


def _type(name: str, numbers: Collection[str]) -> dict[str, Any]:
    return {"type": "integer", "minimum": 0} if name in numbers else {"type": "string"}


def _content(answers: Any, schemas: Mapping[str, Any]) -> dict[str, Any]:
    found = [schemas[str(kind)] for kind in _each(answers)]
    return {"application/json": {"schema": found[0] if len(found) == 1 else {"anyOf": found}}}
