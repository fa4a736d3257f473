"""What the REST API says of itself, in OpenAPI 3.1.

Requests are described by the very schemas that check them, answers by the dataclasses that
they are made of.
"""

import re
from collections.abc import Iterable
from copy import deepcopy
from http import HTTPStatus
from typing import Final

from volt.api import schemas
from volt.api.answers import Schema, described, record
from volt.api.routes import Route


def document(routes: Iterable[Route]) -> Schema:
    """Return the OpenAPI document of these routes."""
    paths: dict[str, Schema] = {}
    for route in routes:
        path = re.sub(r"<(\w+)>", r"{\1}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, path)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Volt",
            "version": "1",
            "summary": "Places hosts in the attach trees of images.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": described() | {"Error": _ERROR},
            "responses": {"Error": _content("Refused.", {"$ref": "#/components/schemas/Error"})},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "A token of Volt's."}
            },
        },
    }


_ERROR: Final = record(error=record(code={"type": "string"}, message={"type": "string"}))


def _operation(route: Route, path: str) -> Schema:
    is_open = route.rule is None
    found: Schema = {
        "operationId": re.sub("[^a-z]+", "_", f"{route.method}{path}".lower()),
        "summary": route.summary,
        "parameters": list(_parameters(route, path)),
        "responses": {
            str(status): _answer(status, body, route.has_etag)
            for status, body in route.answers.items()
        },
    }
    if route.body is not None:
        found["requestBody"] = {"required": True, "content": _body(route.body)}
    if route.has_etag and route.method == "GET":
        found["responses"]["304"] = {"description": "What If-None-Match names is still so."}
    if is_open:
        found["security"] = []
    refused = {400, *route.errors, *(() if is_open else (401, 403, 429)), 503}
    if route.body is not None:
        refused.add(413)
    for status in sorted(refused):
        found["responses"][str(status)] = {"$ref": "#/components/responses/Error"}
    return found


def _parameters(route: Route, path: str) -> Iterable[Schema]:
    for name in re.findall(r"{(\w+)}", path):
        schema = schemas.RACK if name == "rack" else schemas.NAME
        yield {"name": name, "in": "path", "required": True, "schema": schema}
    query = route.query.content
    for name, schema in query.get("properties", {}).items():
        required = name in query.get("required", ())
        yield {"name": name, "in": "query", "required": required, "schema": schema}
    if route.has_etag:
        for name in ("If-Match", "If-None-Match") if route.method == "PUT" else ("If-None-Match",):
            yield {"name": name, "in": "header", "schema": {"type": "string"}}


def _body(body: schemas.Schema | str) -> Schema:
    """Return a body by its media type; JSON with a schema, and what Volt checks beside it."""
    if isinstance(body, str):
        return {body: {}}
    schema: Schema = deepcopy(dict(body.content))
    own = {"name": schemas.NAME, "size": schemas.SIZE, "parent": schemas.NAME}
    for name, rule in own.items():
        if name in schema["properties"]:
            schema["properties"][name] = rule
    if "images" in schema["properties"]:
        for named in ("images", "disks"):
            schema["properties"][named]["propertyNames"] = schemas.NAME
    return {"application/json": {"schema": schema}}


def _answer(status: int, body: Schema | str | None, has_etag: bool) -> Schema:
    phrase = HTTPStatus(status).phrase
    if body is None:
        return {"description": phrase}
    answer = (
        {"description": phrase, "content": {body: {}}}
        if isinstance(body, str)
        else _content(phrase, body)
    )
    if has_etag:
        answer["headers"] = {"ETag": {"schema": {"type": "string"}}}
    return answer


def _content(description: str, schema: Schema) -> Schema:
    return {"description": description, "content": {"application/json": {"schema": schema}}}
