"""What answers look like: JSON schemas of the dataclasses that they are made of."""

import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import EnumType
from typing import Any, Final

from volt.model.caps import Cap
from volt.model.copies import Copy
from volt.model.figures import Event
from volt.model.hosts import Certificate, Host, Listener
from volt.model.images import Hold, Image
from volt.model.imports import Import
from volt.model.placements import Candidate, Placement, Trees
from volt.model.profiles import Profile, Revision
from volt.model.warmups import Warmup, Wish

Schema = dict[str, Any]

_PLAIN: Final[dict[Any, Schema]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    float: {"type": "number"},
    types.NoneType: {"type": "null"},
    datetime: {"type": "string", "format": "date-time"},
}


def of(kind: Any) -> Schema:
    """Return the schema of a type; dataclasses are referred to by name."""
    arguments = typing.get_args(kind)
    if isinstance(kind, types.UnionType):
        return {"anyOf": [of(each) for each in arguments]}
    if typing.get_origin(kind) is tuple:
        return {"type": "array", "items": of(arguments[0])}
    if typing.get_origin(kind) is Mapping:
        return {"type": "object", "additionalProperties": of(arguments[1])}
    if isinstance(kind, EnumType):
        values: list[Any] = list(kind)
        return {"type": "string", "enum": [each.value for each in values]}
    return _PLAIN.get(kind) or {"$ref": f"#/components/schemas/{kind.__name__}"}


def record(**properties: Schema) -> Schema:
    """Return the schema of an object that has just these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def all_of(name: str, kind: type) -> Schema:
    """Return the schema of all things of a kind."""
    return record(**{name: {"type": "array", "items": of(kind)}})


def page_of(name: str, kind: type) -> Schema:
    """Return the schema of a page of such things."""
    following: Schema = {"type": ["string", "null"], "description": "the marker of the next page"}
    return record(**{name: {"type": "array", "items": of(kind)}, "next": following})


def described() -> dict[str, Schema]:
    """Return the schemas of the dataclasses that answers are made of, and of those in them."""
    found: list[type] = []
    pending: list[Any] = [
        *(Image, Trees, Candidate, Copy, Placement, Profile, Revision),
        *(Cap, Hold, Import, Host, Event, Certificate, Listener, Warmup, Wish),
    ]
    while pending:
        kind = pending.pop()
        if is_dataclass(kind) and kind not in found:
            found.append(typing.cast(type, kind))
            pending += typing.get_type_hints(kind).values()
        pending += typing.get_args(kind)
    found.sort(key=lambda kind: kind.__name__)
    return {kind.__name__: _described(kind) for kind in found}


def _described(kind: Any) -> Schema:
    hints = typing.get_type_hints(kind)
    schema = record(**{each.name: of(hints[each.name]) for each in fields(kind)})
    return schema | {"description": (kind.__doc__ or "").strip()}
