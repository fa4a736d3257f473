"""What each request body must look like, and how it becomes typed objects."""

import ipaddress
import json
import re
from dataclasses import dataclass
from typing import Any

from jsonschema import Draft202012Validator

from volt.errors import ImageSizeInvalid, RequestInvalid
from volt.names import check_name
from volt.objects import Chap, ImageReport, NewImage, Portal, Report, State
from volt.topology import DEFAULTS, Rules, Shape

SECTOR = 512
LARGEST_WAIT = 60  # seconds for which an answer may be held back
LARGEST = 2**60  # 1 EiB: far beyond any image, well inside a 64-bit column

_PORTAL = {
    "type": "object",
    "properties": {
        "ip": {"type": "string", "maxLength": 45},
        "port": {"type": "integer", "minimum": 1, "maximum": 65535},
        "iqn": {
            "type": "string",
            "maxLength": 223,
            "pattern": r"^(iqn\.[0-9]{4}-[0-9]{2}\.[A-Za-z0-9._:-]+|(eui|naa)\.[0-9A-Fa-f]+)\Z",
        },
        "lun": {"type": "integer", "minimum": 0, "maximum": 65535},
        "offset": {"type": "integer", "minimum": 0, "maximum": LARGEST, "multipleOf": SECTOR},
    },
    "required": ["ip", "port", "iqn", "lun"],
    "additionalProperties": False,
}

_CHAP = {
    "type": ["object", "null"],
    "properties": {
        "user": {"type": "string", "pattern": r"^[A-Za-z0-9._:@-]{1,64}\Z"},
        "secret": {"type": "string", "pattern": r"^[A-Za-z0-9._:@-]{12,255}\Z"},
    },
    "required": ["user", "secret"],
    "additionalProperties": False,
}

_COUNT = {"type": "integer", "minimum": 0, "maximum": LARGEST}

IMAGE = Draft202012Validator(
    {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "size": {},  # the rule is Volt's own: ImageSizeInvalid states it
            "shape": {"enum": [shape.value for shape in Shape]},
            "stripes": {"type": "integer", "minimum": 1, "maximum": 8},
            "fanout": {"type": "integer", "minimum": 0, "maximum": 64},
            "foreign_children": {"type": ["integer", "null"], "minimum": 0, "maximum": 64},
            "source": _PORTAL,
            "source_chap": _CHAP,
        },
        "required": ["name", "size", "source"],
        "additionalProperties": False,
    }
)

JOIN = Draft202012Validator(
    {
        "type": "object",
        "properties": {
            "portal": _PORTAL,
            "rack": {"type": ["string", "null"], "pattern": r"^[A-Za-z0-9._-]{1,48}\Z"},
        },
        "required": ["portal"],
        "additionalProperties": False,
    }
)

STATE = Draft202012Validator(
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

HEARTBEAT = Draft202012Validator(
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

REPORT = Draft202012Validator(
    {
        "type": "object",
        "properties": {"parent": {"type": "string"}},
        "required": ["parent"],
        "additionalProperties": False,
    }
)


@dataclass(frozen=True)
class StateChange:
    """The state a host says it is in, and the generation of the placement it acts on."""

    state: State
    generation: int | None


def image(body: bytes) -> NewImage:
    """Parse the body of POST /v1/images."""
    content = _load(body, IMAGE)
    chap = content.get("source_chap")
    return new_image(
        content["name"],
        content["size"],
        Shape(content.get("shape", Shape.FOREST)),
        content.get("stripes"),
        content.get("fanout"),
        _portal(content["source"]),
        Chap(**chap) if chap else None,
        content.get("foreign_children"),
    )


def new_image(
    name: str,
    size: Any,
    shape: Shape,
    stripes: int | None,
    fanout: int | None,
    source: Portal,
    source_chap: Chap | None,
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
    usual = DEFAULTS[shape]
    stripes = usual[0] if stripes is None else int(stripes)
    fanout = usual[1] if fanout is None else int(fanout)
    Rules(shape, stripes, fanout, foreign_children).check()
    return NewImage(name, size, shape, stripes, fanout, source, source_chap, foreign_children)


def join(body: bytes) -> tuple[Portal, str | None]:
    """Parse the body of PUT /v1/images/{image}/hosts/{host}: portal and rack."""
    content = _load(body, JOIN)
    return _portal(content["portal"]), content.get("rack")


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


def report(body: bytes) -> str:
    """Parse the body of POST /v1/images/{image}/hosts/{host}/reports: the parent's name."""
    return check_name("host", _load(body, REPORT)["parent"])


def wait(seconds: str | None) -> int:
    """Parse the ``wait`` of a query: for how many seconds an answer may be held back."""
    if seconds is None:
        return 0
    if re.fullmatch("[0-9]{1,2}", seconds) is None or int(seconds) > LARGEST_WAIT:
        raise RequestInvalid(f"wait: {seconds[:32]} is not a whole number from 0 to {LARGEST_WAIT}")
    return int(seconds)


def portal(ip: str, port: int, iqn: str, lun: int, offset: int) -> Portal:
    """Check a portal that did not come as a JSON body."""
    content = {"ip": ip, "port": port, "iqn": iqn, "lun": lun, "offset": offset}
    _check(content, Draft202012Validator(_PORTAL))
    return _portal(content)


def _portal(content: dict[str, Any]) -> Portal:
    try:
        ip = ipaddress.ip_address(content["ip"])
    except ValueError as err:
        raise RequestInvalid(
            f"ip {content['ip']!r} is no address: give an IPv4 or IPv6 address, not a host name"
        ) from err
    return Portal(
        str(ip),
        int(content["port"]),
        content["iqn"],
        int(content["lun"]),
        int(content.get("offset", 0)),
    )


def _load(body: bytes, schema: Draft202012Validator) -> Any:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as err:
        reason = "it is nested too deeply" if isinstance(err, RecursionError) else str(err)[:200]
        raise RequestInvalid(f"the body is not JSON: {reason}") from err
    _check(content, schema)
    return content


def _check(content: Any, schema: Draft202012Validator) -> None:
    fault = next(schema.iter_errors(content), None)
    if fault is not None:
        place = "/".join(str(step)[:64] for step in fault.absolute_path) or "the body"
        message = fault.message[:300]
        if "source_chap" in fault.absolute_path:
            # The usual message shows the value, which is secret here.
            message = f"against rule {fault.validator}: {fault.validator_value}"
        raise RequestInvalid(f"{place}: {message}")
