"""What each request body must look like, and how it becomes typed objects."""

import ipaddress
import json
from dataclasses import dataclass
from typing import Any

from jsonschema import Draft202012Validator

from volt.errors import ImageSizeInvalid, RequestInvalid
from volt.names import check_name
from volt.objects import NewImage, Portal, State
from volt.topology import check_shape

SECTOR = 512
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

IMAGE = Draft202012Validator(
    {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "size": {},  # the rule is Volt's own: ImageSizeInvalid states it
            "stripes": {"type": "integer", "minimum": 1, "maximum": 8},
            "fanout": {"type": "integer", "minimum": 1, "maximum": 64},
            "source": _PORTAL,
        },
        "required": ["name", "size", "source"],
        "additionalProperties": False,
    }
)

JOIN = Draft202012Validator(
    {
        "type": "object",
        "properties": {"portal": _PORTAL},
        "required": ["portal"],
        "additionalProperties": False,
    }
)

STATE = Draft202012Validator(
    {
        "type": "object",
        "properties": {
            "state": {"enum": ["ready", "leaving"]},
            "generation": {"type": "integer", "minimum": 0, "maximum": LARGEST},
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
                "additionalProperties": {"type": "integer", "minimum": 0, "maximum": LARGEST},
            }
        },
        "required": ["images"],
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
    return new_image(
        content["name"],
        content["size"],
        int(content.get("stripes", 2)),
        int(content.get("fanout", 2)),
        _portal(content["source"]),
    )


def new_image(name: str, size: Any, stripes: int, fanout: int, source: Portal) -> NewImage:
    """Check what a caller says about an image, from whichever edge it comes."""
    check_name("image", name)
    whole = isinstance(size, int) and not isinstance(size, bool)
    if not whole or not 0 < size <= LARGEST or size % SECTOR:
        raise ImageSizeInvalid(
            f"size {str(size)[:32]} of image {name} is not allowed: "
            f"give the bytes as a positive multiple of {SECTOR}, at most {LARGEST}"
        )
    check_shape(stripes, fanout)
    return NewImage(name, size, stripes, fanout, source)


def join(body: bytes) -> Portal:
    """Parse the body of PUT /v1/images/{image}/hosts/{host}."""
    return _portal(_load(body, JOIN)["portal"])


def state(body: bytes) -> StateChange:
    """Parse the body of PATCH /v1/images/{image}/hosts/{host}."""
    content = _load(body, STATE)
    return StateChange(State(content["state"]), content.get("generation"))


def heartbeat(body: bytes) -> dict[str, int]:
    """Parse the body of PUT /v1/hosts/{host}/heartbeat: the generation known of each image."""
    images: dict[str, int] = _load(body, HEARTBEAT)["images"]
    return {check_name("image", name): generation for name, generation in images.items()}


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
        raise RequestInvalid(f"{place}: {fault.message[:300]}")
