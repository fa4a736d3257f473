"""What each request body must look like, and how it becomes typed objects."""

import base64
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from jsonschema_rs import Draft202012Validator, ValidationError, ValidationErrorKind

from volt import transport
from volt.errors import HashesInvalid, ImageSizeInvalid, RequestInvalid
from volt.model.names import PATTERN, check_name
from volt.model.objects import ImageReport, NewImage, Reason, Report, State
from volt.placement import shapes
from volt.placement.rules import Rules, Shape
from volt.transport import IP, LARGEST, PORT, PORTAL, SECRET, SECTOR, SOURCE, Portal, Proof

HASHED = 4096  # bytes of a block that is hashed, and of one that holds hashes
FANNED = 128  # hashes in such a block
LARGEST_WAIT = 60  # seconds for which an answer may be held back
_NUMBER = re.compile("-?[0-9]{1,19}")
_SHOWN = 300  # characters of what is said of a fault


class Schema:
    """What something must look like: a schema, and what checks by it."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self.content = content
        self._validator = Draft202012Validator(dict(content))

    def check(self, given: Any, whole: str = "the body") -> None:
        """Raise RequestInvalid with the first fault, if there is one."""
        try:
            if self._validator.is_valid(given):
                return
            fault = next(self._validator.iter_errors(given))
        except ValueError as err:  # half a surrogate pair, or nested too deeply
            raise RequestInvalid(f"{whole} cannot be read: {err}") from err
        place = "/".join(str(step)[:64] for step in fault.instance_path) or whole
        raise RequestInvalid(f"{place}: {self._message(fault, given)}")

    def _message(self, fault: ValidationError, given: Any) -> str:
        text = fault.message
        if SECRET in fault.instance_path:  # a secret, which must not be shown
            masked = Draft202012Validator(dict(self.content), mask="it")
            text = next(masked.iter_errors(given)).message
        elif isinstance(fault.kind, ValidationErrorKind.Enum):  # its text leaves some out
            known = ", ".join(map(str, fault.kind.options))
            text = f"{str(fault.instance)[:64]!r} is not one of {known}"
        return text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]} ... {text[-_SHOWN // 2 :]}"


_PORTAL_ALONE = Schema(PORTAL)

_HASH = {"type": "string", "pattern": r"^[0-9a-f]{64}$"}

# A rule that has an error code of its own: for names in paths no schema checks it.
NAME = {"type": "string", "pattern": rf"^{PATTERN}$"}

_PEM = (
    "-----BEGIN (NEW )?CERTIFICATE REQUEST-----\\s+[A-Za-z0-9+/=][A-Za-z0-9+/=\\s]*"
    "-----END (NEW )?CERTIFICATE REQUEST-----"
)

_COUNT = {"type": "integer", "minimum": 0, "maximum": LARGEST}

IMAGE = Schema(
    {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "size": {},  # the rule is Volt's own: ImageSizeInvalid states it
            "shape": {"enum": [shape.value for shape in Shape]},
            "stripes": {"type": "integer", "minimum": 1, "maximum": 8},
            "fanout": {"type": "integer", "minimum": 0, "maximum": 64},
            "foreign_children": {"type": ["integer", "null"], "minimum": 0, "maximum": 64},
            **SOURCE,
            "root_hash": _HASH,
            "salt": _HASH,
            "upper_hashes": {"type": "string", "contentEncoding": "base64"},
        },
        "required": ["name", "size", "source"],
        "dependentRequired": {
            "root_hash": ["salt", "upper_hashes"],
            "salt": ["root_hash"],
            "upper_hashes": ["root_hash"],
        },
        "additionalProperties": False,
    }
)

JOIN = Schema(
    {
        "type": "object",
        "properties": {
            "portal": PORTAL,
            "rack": {"type": ["string", "null"], "pattern": r"^[A-Za-z0-9._-]{1,48}$"},
        },
        "required": ["portal"],
        "additionalProperties": False,
    }
)

STATE = Schema(
    {
        "type": "object",
        "properties": {
            "state": {"enum": ["ready", "leaving"]},
            "generation": _COUNT,
        },
        "required": ["state"],
        "if": {"properties": {"state": {"const": "ready"}}},
        "then": {"required": ["generation"]},
        "additionalProperties": False,
    }
)

HEARTBEAT = Schema(
    {
        "type": "object",
        "properties": {
            "images": {
                "type": "object",
                "maxProperties": 10_000,
                "additionalProperties": {
                    "type": "object",
                    "properties": {
                        "generation": _COUNT,
                        "sent": _COUNT,
                        "hits": _COUNT,
                        "misses": _COUNT,
                    },
                    "required": ["generation"],
                    "additionalProperties": False,
                },
            },
            "received_rate": _COUNT,
            "sent_rate": _COUNT,
            "overloaded": {"type": "boolean"},
        },
        "required": ["images"],
        "additionalProperties": False,
    }
)

REPORT = Schema(
    {
        "type": "object",
        "properties": {
            "parent": {"type": "string"},
            "reason": {"enum": [reason.value for reason in Reason], "default": Reason.SILENT},
        },
        "required": ["parent"],
        "additionalProperties": False,
    }
)

DRAIN = Schema(
    {
        "type": "object",
        "properties": {"draining": {"type": "boolean"}},
        "required": ["draining"],
        "additionalProperties": False,
    }
)

CERTIFICATE = Schema(
    {
        "type": "object",
        "properties": {
            "request": {"type": "string", "maxLength": 8192, "pattern": _PEM},
            "ip": IP,
            "port": PORT,
        },
        "required": ["request", "ip", "port"],
        "additionalProperties": False,
    }
)

_LIMIT = {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}

PAGE = Schema(
    {
        "type": "object",
        "properties": {
            "limit": _LIMIT,
            "marker": NAME,
        },
        "additionalProperties": False,
    }
)

EVENTS = Schema(
    {
        "type": "object",
        "properties": {"limit": _LIMIT, "after": _COUNT | {"default": 0}},
        "additionalProperties": False,
    }
)

WAIT = Schema(
    {
        "type": "object",
        "properties": {
            "wait": {"type": "integer", "minimum": 0, "maximum": LARGEST_WAIT, "default": 0}
        },
        "additionalProperties": False,
    }
)

_FEW = {"type": "integer", "minimum": 1, "maximum": 64, "default": 8}

CANDIDATES = Schema(
    {
        "type": "object",
        "properties": {"host": NAME, "limit": _FEW},
        "required": ["host"],
        "additionalProperties": False,
    }
)

# This rule has an error code of its own: no schema above checks it.
SIZE = {"type": "integer", "minimum": SECTOR, "maximum": LARGEST, "multipleOf": SECTOR}

NO_QUERY = Schema({"type": "object", "additionalProperties": False})


class Query(Protocol):
    """The parameters of a URL; a name may come more than once."""

    def __len__(self) -> int:
        """Return how many names there are."""

    def lists(self) -> Iterable[tuple[str, list[str]]]:
        """Return each name with its values."""


@dataclass(frozen=True)
class Page:
    """Up to ``limit`` things, from the one after ``marker`` on."""

    marker: str
    limit: int


@dataclass(frozen=True)
class StateChange:
    """The state a host says it is in, and the generation of the placement it acts on."""

    state: State
    generation: int | None


def image(body: bytes) -> NewImage:
    """Parse the body of POST /v1/images."""
    content = _load(body, IMAGE)
    new = new_image(
        content["name"],
        content["size"],
        Shape(content.get("shape", Shape.FOREST)),
        content.get("stripes"),
        content.get("fanout"),
        *transport.parse_source(content),
        content.get("foreign_children"),
    )
    if "root_hash" not in content:
        return new
    return replace(
        new,
        root_hash=content["root_hash"],
        salt=content["salt"],
        upper_hashes=_upper_hashes(content["upper_hashes"], new.size),
    )


def _upper_hashes(text: str, size: int) -> bytes:
    """Return the hashes above the leaves of an image of that size, as dm-verity has them."""
    try:
        hashes = base64.b64decode(text, validate=True)
    except ValueError as err:
        raise HashesInvalid(f"upper_hashes are not base64: {err}") from err
    level = -(-size // HASHED)  # blocks
    expected = -HASHED * -(-level // FANNED)  # without the leaves
    while level > 1:
        level = -(-level // FANNED)
        expected += level * HASHED
    expected = max(0, expected)
    if not 0 < len(hashes) == expected:
        raise HashesInvalid(
            f"upper_hashes have {len(hashes)} bytes, those of {size} bytes in blocks of {HASHED} "
            f"have {expected}: send all levels above the leaves, and none for an image that has "
            "no such levels"
        )
    return hashes


def new_image(
    name: str,
    size: Any,
    shape: Shape,
    stripes: int | None,
    fanout: int | None,
    source: Portal,
    source_proof: Proof | None,
    foreign_children: int | None,
) -> NewImage:
    """Check what a caller says about an image, from whichever edge it comes."""
    check_name("image", name)
    whole = isinstance(size, int) and not isinstance(size, bool)
    if not whole or not 0 < size <= LARGEST or size % SECTOR:
        raise ImageSizeInvalid(
            f"size {str(size)[:32]} of image {name} is not allowed: "
            f"give the bytes as a positive multiple of {SECTOR}, at most {LARGEST}"
        )
    usual = shapes.usual(shape)
    stripes = usual.stripes if stripes is None else int(stripes)
    fanout = usual.fanout if fanout is None else int(fanout)
    shapes.check(Rules(shape, stripes, fanout, foreign_children))
    return NewImage(name, size, shape, stripes, fanout, source, source_proof, foreign_children)


def join(body: bytes) -> tuple[Portal, str | None]:
    """Parse the body of PUT /v1/images/{image}/hosts/{host}: portal and rack."""
    content = _load(body, JOIN)
    return transport.parse(content["portal"]), content.get("rack")


def state(body: bytes) -> StateChange:
    """Parse the body of PATCH /v1/images/{image}/hosts/{host}."""
    content = _load(body, STATE)
    return StateChange(State(content["state"]), content.get("generation"))


def heartbeat(body: bytes) -> Report:
    """Parse the body of PUT /v1/hosts/{host}/heartbeat."""
    content = _load(body, HEARTBEAT)
    images = {
        check_name("image", name): ImageReport(**fields)
        for name, fields in content.pop("images").items()
    }
    return Report(images, **content)


def report(body: bytes) -> tuple[str, Reason]:
    """Parse the body of POST /v1/images/{image}/hosts/{host}/reports: the parent, and why."""
    content = _load(body, REPORT)
    return check_name("host", content["parent"]), Reason(content.get("reason", Reason.SILENT))


def drain(body: bytes) -> bool:
    """Parse the body of PATCH /v1/hosts/{host}."""
    return bool(_load(body, DRAIN)["draining"])


def certificate(body: bytes) -> tuple[str, str, int]:
    """Parse the body of PUT /v1/hosts/{host}/certificate: request, address and port."""
    content = _load(body, CERTIFICATE)
    return content["request"], transport.ip(content["ip"]), int(content["port"])


def page(query: Query) -> Page:
    """Parse which page of a list is wanted."""
    given = parameters(query, PAGE)
    return Page(given.get("marker", ""), given.get("limit", _LIMIT["default"]))


def events(query: Query) -> tuple[int, int]:
    """Parse the parameters of GET /v1/events: after and limit."""
    given = parameters(query, EVENTS)
    return given.get("after", 0), given.get("limit", _LIMIT["default"])


def wait(query: Query) -> int:
    """Parse for how many seconds an answer may be held back."""
    return int(parameters(query, WAIT).get("wait", 0))


def candidates(query: Query) -> tuple[str, int]:
    """Parse the parameters of GET /v1/images/{image}/parents: the asker and the limit."""
    given = parameters(query, CANDIDATES)
    return given["host"], given.get("limit", _FEW["default"])


def parameters(query: Query, schema: Schema) -> dict[str, Any]:
    """Return the parameters, numbers as such, if they are what the schema says."""
    given: dict[str, Any] = {}
    content = schema.content
    if not query and not content.get("required"):
        return given
    kinds = content.get("properties", {})
    for name, values in query.lists():
        if len(values) > 1:
            raise RequestInvalid(f"parameter {name[:64]!r} is given more than once")
        is_number = kinds.get(name, {}).get("type") == "integer" and _NUMBER.fullmatch(values[0])
        given[name] = int(values[0]) if is_number else values[0]
    schema.check(given, "the query")
    return given


def portal(content: dict[str, Any]) -> Portal:
    """Check a portal that did not come as a JSON body."""
    _PORTAL_ALONE.check(content)
    return transport.parse(content)


def _load(body: bytes, schema: Schema) -> Any:
    content = _parse(body)
    schema.check(content)
    return content


def _parse(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as err:
        reason = "it is nested too deeply" if isinstance(err, RecursionError) else str(err)[:200]
        raise RequestInvalid(f"the body is not JSON: {reason}") from err
