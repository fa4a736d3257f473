"""What the REST API says of itself, in OpenAPI 3.1.

Requests are described by the very schemas that check them, answers by the dataclasses that
they are made of.
"""

import re
import types
import typing
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from enum import EnumType
from http import HTTPStatus
from typing import Any, Final

from jsonschema import Draft202012Validator

from volt.api import schemas
from volt.model.objects import (
    Candidate,
    Certificate,
    Event,
    Host,
    Image,
    Listener,
    Placement,
    Trees,
    Verdict,
)

Schema = dict[str, Any]


@dataclass(frozen=True)
class Operation:
    """What a route takes and answers.

    ``answers`` gives the schema of the body by status: None is no body, a text its media type.
    ``errors`` are those of this route alone.
    """

    method: str
    path: str
    summary: str
    answers: Mapping[int, Schema | str | None]
    errors: tuple[int, ...] = ()
    body: Draft202012Validator | None = None
    query: Draft202012Validator | None = None
    is_open: bool = False
    has_etag: bool = False


def _of(kind: Any) -> Schema:
    """Return the schema of a type; dataclasses are referred to by name."""
    arguments = typing.get_args(kind)
    if isinstance(kind, types.UnionType):
        return {"anyOf": [_of(each) for each in arguments]}
    if typing.get_origin(kind) is tuple:
        return {"type": "array", "items": _of(arguments[0])}
    if typing.get_origin(kind) is Mapping:
        return {"type": "object", "additionalProperties": _of(arguments[1])}
    if isinstance(kind, EnumType):
        values: list[Any] = list(kind)
        return {"type": "string", "enum": [each.value for each in values]}
    return _PLAIN.get(kind) or {"$ref": f"#/components/schemas/{kind.__name__}"}


_PLAIN: Final[dict[Any, Schema]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    float: {"type": "number"},
    types.NoneType: {"type": "null"},
    datetime: {"type": "string", "format": "date-time"},
}


def _record(**properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _list(name: str, kind: type) -> Schema:
    return _record(**{name: {"type": "array", "items": _of(kind)}})


def _page(name: str, kind: type) -> Schema:
    following: Schema = {"type": ["string", "null"], "description": "the marker of the next page"}
    return _record(**{name: {"type": "array", "items": _of(kind)}, "next": following})


_IMAGE: Final = "/v1/images/{image}"
_PLACE: Final = "/v1/images/{image}/hosts/{host}"
_HOST: Final = "/v1/hosts/{host}"
_OK: Final = _record(status={"const": "ok"})
_NEWS: Final = _record(
    interval={"type": "number"},
    placements={"type": "array", "items": _of(Placement)},
    unknown={"type": "array", "items": {"type": "string"}},
)

OPERATIONS: Final = (
    Operation("GET", "/", "The status page.", {200: "text/html"}, is_open=True, has_etag=True),
    Operation(
        "GET",
        "/static/{file}",
        "A file of the status page.",
        {200: "*/*"},
        (404,),
        is_open=True,
        has_etag=True,
    ),
    Operation("GET", "/healthz", "Whether Volt serves.", {200: _OK}, is_open=True, has_etag=True),
    Operation("GET", "/metrics", "Numbers for Prometheus.", {200: "text/plain"}, has_etag=True),
    Operation(
        "GET",
        "/v1/openapi.json",
        "This document.",
        {200: {"type": "object"}},
        is_open=True,
        has_etag=True,
    ),
    Operation(
        "POST",
        "/v1/images",
        "Make an image known.",
        {200: _of(Image), 201: _of(Image)},
        (409,),
        body=schemas.IMAGE,
    ),
    Operation(
        "GET",
        "/v1/images",
        "List images by name.",
        {200: _page("images", Image)},
        query=schemas.PAGE,
        has_etag=True,
    ),
    Operation("GET", _IMAGE, "Show an image.", {200: _of(Image)}, (404,), has_etag=True),
    Operation(
        "GET",
        f"{_IMAGE}/hashes",
        "The levels of an image's hash tree above the leaves, the highest first.",
        {200: "application/octet-stream"},
        (404,),
        has_etag=True,
    ),
    Operation("DELETE", _IMAGE, "Forget an image.", {204: None}, (404, 409)),
    Operation(
        "GET",
        f"{_IMAGE}/trees",
        "Show an image's trees.",
        {200: _of(Trees)},
        (404,),
        has_etag=True,
    ),
    Operation(
        "POST", f"{_IMAGE}/chap", "Give an image's hosts another secret.", {204: None}, (404,)
    ),
    Operation(
        "GET",
        f"{_IMAGE}/parents",
        "List whom a host could read from, best first.",
        {200: _list("parents", Candidate)},
        (404,),
        query=schemas.CANDIDATES,
        has_etag=True,
    ),
    Operation("GET", _PLACE, "Show a placement.", {200: _of(Placement)}, (404,), has_etag=True),
    Operation(
        "PUT",
        _PLACE,
        "Join an image's trees.",
        {200: _of(Placement), 201: _of(Placement)},
        (404,),
        body=schemas.JOIN,
    ),
    Operation(
        "PATCH",
        _PLACE,
        "Say that a host is ready or leaves.",
        {200: _of(Placement)},
        (404, 409),
        body=schemas.STATE,
    ),
    Operation("DELETE", _PLACE, "Forget a placement.", {204: None}),
    Operation(
        "POST",
        f"{_PLACE}/reports",
        "Say that a parent does not answer, or sends wrong bytes.",
        {200: _record(verdict={"enum": [verdict.value for verdict in Verdict]})},
        (404, 409),
        body=schemas.REPORT,
    ),
    Operation(
        "GET",
        "/v1/hosts",
        "List hosts by name.",
        {200: _page("hosts", Host)},
        query=schemas.PAGE,
        has_etag=True,
    ),
    Operation("GET", _HOST, "Show a host.", {200: _of(Host)}, (404,), has_etag=True),
    Operation(
        "PATCH",
        _HOST,
        "Drain a host, or end that.",
        {200: _of(Host)},
        (404,),
        body=schemas.DRAIN,
    ),
    Operation(
        "PUT",
        f"{_HOST}/heartbeat",
        "Report a host's state and learn what changed.",
        {200: _NEWS},
        body=schemas.HEARTBEAT,
    ),
    Operation(
        "GET",
        f"{_HOST}/placements",
        "Show a host's placements, once they are others than If-None-Match says.",
        {200: _list("placements", Placement)},
        query=schemas.WAIT,
        has_etag=True,
    ),
    Operation(
        "PUT",
        f"{_HOST}/certificate",
        "Sign a certificate by which a host's agent is known to others.",
        {200: _of(Certificate)},
        body=schemas.CERTIFICATE,
    ),
    Operation(
        "DELETE", f"{_HOST}/certificate", "Have no agent trust a host's any more.", {204: None}
    ),
    Operation(
        "GET",
        f"{_HOST}/listener",
        "Show where a host's agent takes calls of others.",
        {200: _of(Listener)},
        (404,),
        has_etag=True,
    ),
    Operation(
        "GET",
        "/v1/events",
        "List the last events, newest first.",
        {200: _list("events", Event)},
        query=schemas.EVENTS,
        has_etag=True,
    ),
)


_QUERIES: Final = {(each.method, each.path): each.query for each in OPERATIONS}


def query_of(method: str, path: str) -> Draft202012Validator:
    """Return what checks the query of a route, whose path is in the form of ``volt.api.routes``."""
    plain = re.sub(r"<(?:path:)?(\w+)>", r"{\1}", path)
    return _QUERIES[method, plain] or schemas.NO_QUERY


def document(operations: Iterable[Operation] = OPERATIONS) -> Schema:
    """Return the OpenAPI document of these operations."""
    paths: dict[str, Schema] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
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
            "schemas": {kind.__name__: _described(kind) for kind in _kinds()} | {"Error": _ERROR},
            "responses": {"Error": _content("Refused.", {"$ref": "#/components/schemas/Error"})},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "A token of Volt's."}
            },
        },
    }


_ERROR: Final = _record(error=_record(code={"type": "string"}, message={"type": "string"}))


def _operation(operation: Operation) -> Schema:
    described: Schema = {
        "operationId": re.sub("[^a-z]+", "_", f"{operation.method}{operation.path}".lower()),
        "summary": operation.summary,
        "parameters": list(_parameters(operation)),
        "responses": {
            str(status): _answer(status, body, operation.has_etag)
            for status, body in operation.answers.items()
        },
    }
    if operation.body is not None:
        described["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": _body(operation.body)}},
        }
    if operation.has_etag:
        described["responses"]["304"] = {"description": "What If-None-Match names is still so."}
    if operation.is_open:
        described["security"] = []
    refused = {400, *operation.errors, *(() if operation.is_open else (401, 403, 429)), 503}
    if operation.body is not None:
        refused.add(413)
    for status in sorted(refused):
        described["responses"][str(status)] = {"$ref": "#/components/responses/Error"}
    return described


def _parameters(operation: Operation) -> Iterable[Schema]:
    for name in re.findall(r"{(\w+)}", operation.path):
        yield {"name": name, "in": "path", "required": True, "schema": _portable(schemas.NAME)}
    query: Any = {} if operation.query is None else operation.query.schema
    for name, schema in _properties(operation.query).items():
        required = name in query.get("required", ())
        yield {"name": name, "in": "query", "required": required, "schema": schema}
    if operation.has_etag:
        yield {"name": "If-None-Match", "in": "header", "schema": {"type": "string"}}


def _body(checker: Draft202012Validator) -> Schema:
    """Return a body's schema with what Volt checks beside it."""
    schema: Schema = _portable(checker.schema)
    own = {"name": schemas.NAME, "size": schemas.SIZE, "parent": schemas.NAME}
    for name, rule in own.items():
        if name in schema["properties"]:
            schema["properties"][name] = _portable(rule)
    if "images" in schema["properties"]:
        schema["properties"]["images"]["propertyNames"] = _portable(schemas.NAME)
    return schema


def _properties(query: Draft202012Validator | None) -> Schema:
    return {} if query is None else typing.cast(Schema, _portable(query.schema)["properties"])


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


def _kinds() -> list[type]:
    """Return the dataclasses that answers are made of, and those in them."""
    found: list[type] = []
    pending: list[Any] = [Image, Trees, Candidate, Placement, Host, Event, Certificate, Listener]
    while pending:
        kind = pending.pop()
        if is_dataclass(kind) and kind not in found:
            found.append(typing.cast(type, kind))
            pending += typing.get_type_hints(kind).values()
        pending += typing.get_args(kind)
    return sorted(found, key=lambda kind: kind.__name__)


def _described(kind: type) -> Schema:
    hints = typing.get_type_hints(kind)
    schema = _record(**{each.name: _of(hints[each.name]) for each in fields(kind)})
    return schema | {"description": (kind.__doc__ or "").strip()}


def _portable(schema: Any) -> Any:
    r"""Return a schema with patterns that end as ECMA's do: ``$`` for Python's ``\Z``."""
    if isinstance(schema, list):
        return [_portable(each) for each in schema]
    if not isinstance(schema, dict):
        return deepcopy(schema)
    return {
        key: value.replace(r"\Z", "$") if key == "pattern" else _portable(value)
        for key, value in schema.items()
    }
