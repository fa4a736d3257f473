"""What each request body and each query must look like: the route table names them."""

from collections.abc import Mapping
from typing import Any

from jsonschema_rs import Draft202012Validator, ValidationError, ValidationErrorKind

from volt.errors import RequestInvalid
from volt.model.hosts import Reason
from volt.model.imports import Importing
from volt.model.names import PATTERN
from volt.model.names import RACK as RACK_PATTERN
from volt.model.profiles import BOOT
from volt.model.warmups import Warming
from volt.placement.rules import Shape
from volt.transport import IP, LARGEST, PORT, PORTAL, SECRET, SECTOR, SOURCE

LARGEST_WAIT = 60  # seconds for which an answer may be held back
_SHOWN = 300  # characters of what is said of a fault


class Schema:
    """What something must look like: a schema, and what checks by it.

    Where a secret is expected, no message shows a value: a secret may be in the wrong place.
    """

    def __init__(self, content: Mapping[str, Any]) -> None:
        self.content = content
        self._mask = "it" if SECRET in content.get("properties", ()) else None
        self._validator = Draft202012Validator(dict(content), mask=self._mask)

    def check(self, given: Any, whole: str = "the body") -> None:
        """Raise RequestInvalid with the first fault, if there is one."""
        try:
            if self._validator.is_valid(given):
                return
            fault = next(self._validator.iter_errors(given))
        except ValueError as err:  # half a surrogate pair, or nested too deeply
            raise RequestInvalid(f"{whole} cannot be read: {err}") from err
        place = "/".join(str(step)[:64] for step in fault.instance_path) or whole
        raise RequestInvalid(f"{place}: {self._message(fault)}")

    def _message(self, fault: ValidationError) -> str:
        text = fault.message
        if isinstance(fault.kind, ValidationErrorKind.Enum):  # its text leaves some out
            shown = self._mask or repr(str(fault.instance)[:64])
            text = f"{shown} is not one of {', '.join(map(str, fault.kind.options))}"
        return text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]} ... {text[-_SHOWN // 2 :]}"


PORTAL_ALONE = Schema(PORTAL)

_HASH = {"type": "string", "pattern": r"^[0-9a-f]{64}$"}

# A rule that has an error code of its own: for names in paths no schema checks it.
NAME = {"type": "string", "pattern": rf"^{PATTERN}$"}
RACK = {"type": "string", "pattern": rf"^{RACK_PATTERN}$"}

_PEM = (
    "-----BEGIN (NEW )?CERTIFICATE REQUEST-----\\s+[A-Za-z0-9+/=][A-Za-z0-9+/=\\s]*"
    "-----END (NEW )?CERTIFICATE REQUEST-----"
)

_STRIPES = 60
_COUNT = {"type": "integer", "minimum": 0, "maximum": LARGEST}


def _text(pattern: str) -> dict[str, str]:
    return {"type": "string", "pattern": f"^{pattern}$"}


def _exact(**properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_FEW = {"type": "integer", "minimum": 1, "maximum": 1024}

# Agents make command lines of QEMU of these: no text has a comma, a space or a line's end.
_SUSPENDED = _exact(
    at=_COUNT,
    state=_COUNT | {"minimum": 1, "maximum": 64 * 1024 * 1024},
    sha256=_HASH,
    hardware=_exact(
        qemu=_text(r"[0-9]{1,3}\.[0-9]{1,3}"),
        accel={"enum": ["kvm", "tcg"]},
        machine=_text(r"pc-(i440fx|q35)-[0-9]{1,3}\.[0-9]{1,3}"),
        cpu=_text(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"),
        features=_HASH,
        sockets=_FEW,
        cores=_FEW,
        threads=_FEW,
        memory=_COUNT | {"minimum": 1},
        block=_text(r"[a-z][a-z0-9_.-]{0,63}"),
        canonical={"type": "boolean"},
        serials={"type": "integer", "minimum": 0, "maximum": 4},
        devices={
            "type": "array",
            "minItems": 1,
            "maxItems": 32,
            "items": _exact(
                driver=_text(r"[A-Za-z][A-Za-z0-9-]{0,31}"),
                address=_text(r"([0-9a-f]{2}\.[0-7])?"),
                serial=_text(r"[A-Za-z0-9_.-]{0,20}"),
                mac=_text(r"(([0-9a-f]{2}:){5}[0-9a-f]{2})?"),
            ),
        },
    ),
    project=_text(r"[A-Za-z0-9_.-]{0,64}"),
)

IMAGE = Schema(
    {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "size": {},  # the rule is Volt's own: ImageSizeInvalid states it
            "shape": {"enum": [shape.value for shape in Shape]},
            "stripes": {"type": "integer", "minimum": 1, "maximum": _STRIPES},
            "fanout": {"type": "integer", "minimum": 0, "maximum": 64},
            "foreign_children": {"type": ["integer", "null"], "minimum": 0, "maximum": 64},
            **SOURCE,
            "root_hash": _HASH,
            "salt": _HASH,
            "upper_hashes": {"type": "string", "contentEncoding": "base64"},
            "basis": {"type": ["string", "null"], "contentEncoding": "base64"},
            "layer": {
                "type": "object",
                "properties": {
                    "parent": NAME,
                    "disk_size": {
                        "type": "integer",
                        "minimum": SECTOR,
                        "maximum": LARGEST,
                        "multipleOf": SECTOR,
                    },
                    "suspended": _SUSPENDED,
                },
                "required": ["parent", "disk_size"],
                "additionalProperties": False,
            },
        },
        "required": ["name", "size", "source"],
        "dependentRequired": {
            "root_hash": ["salt", "upper_hashes"],
            "salt": ["root_hash"],
            "upper_hashes": ["root_hash"],
            "basis": ["root_hash"],
        },
        "additionalProperties": False,
    }
)

JOIN = Schema(
    {
        "type": "object",
        "properties": {
            "portal": PORTAL,
            "rack": RACK | {"type": ["string", "null"]},
            "speed": {"type": ["integer", "null"], "minimum": 1, "maximum": LARGEST},
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
            "stripes": {
                "type": "array",
                "items": {"type": "integer", "minimum": 0, "maximum": _STRIPES - 1},
                "uniqueItems": True,
            },
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
                        "ahead": {"type": "boolean"},
                        "copied": _COUNT,
                        "whole": {"type": "boolean"},
                        "complete": {
                            "type": "array",
                            "items": {"type": "integer", "minimum": 0, "maximum": 59},
                            "maxItems": 60,
                        },
                        "declines": {"type": "boolean"},
                        "waits": {"type": "boolean"},
                    },
                    "required": ["generation"],
                    "additionalProperties": False,
                },
            },
            "received_rate": _COUNT,
            "sent_rate": _COUNT,
            "overloaded": {"type": "boolean"},
            "room": _COUNT,
            "disks": {
                "type": "object",
                "maxProperties": 10_000,
                "additionalProperties": {"type": "integer", "minimum": 0, "maximum": 1_000_000},
            },
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

CHOSEN = Schema(
    {
        "type": "object",
        "properties": {
            "hosts": {
                "type": "array",
                "items": NAME,
                "minItems": 1,
                "maxItems": 10_000,
            },
            "rack": RACK,
            "all": {"const": True},
            "workload": NAME | {"default": BOOT},
        },
        "oneOf": [{"required": [name]} for name in ("hosts", "rack", "all")],
        "additionalProperties": False,
    }
)

HYDRATION = Schema(
    {
        "type": "object",
        "properties": {
            "after": _COUNT | {"maximum": 1_000_000_000},
            "rate": _COUNT,
            "copies": {"anyOf": [_COUNT | {"minimum": 1, "maximum": 10_000}, {"type": "null"}]},
        },
        "required": ["after"],
        "additionalProperties": False,
    }
)

HOME = Schema(
    {
        "type": "object",
        "properties": {"host": {"anyOf": [NAME, {"type": "null"}]}},
        "required": ["host"],
        "additionalProperties": False,
    }
)

PROGRESS = Schema(
    {
        "type": "object",
        "properties": {
            "generation": _COUNT,
            "state": {"enum": [state.value for state in Warming if state != Warming.ASKED]},
            "wanted": _COUNT,
            "there": _COUNT,
            "detail": {"type": "string", "maxLength": 255},
        },
        "required": ["generation", "state", "wanted", "there"],
        "additionalProperties": False,
    }
)

TOLD = Schema(
    {
        "type": "object",
        "properties": {
            "importer": NAME,
            "state": {"enum": [Importing.RUNNING.value, Importing.FAILED.value]},
            "done": _COUNT,
            "total": _COUNT,
            "detail": {"type": "string", "maxLength": 255},
        },
        "required": ["importer", "state"],
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

CAP = Schema(
    {
        "type": "object",
        "properties": {"rate": _COUNT | {"minimum": 1}},
        "required": ["rate"],
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
        "required": ["request"],
        "dependentRequired": {"ip": ["port"], "port": ["ip"]},
        "additionalProperties": False,
    }
)

LIMIT = {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}

PAGE = Schema(
    {
        "type": "object",
        "properties": {
            "limit": LIMIT,
            "marker": NAME,
        },
        "additionalProperties": False,
    }
)

EVENTS = Schema(
    {
        "type": "object",
        "properties": {"limit": LIMIT, "after": _COUNT | {"default": 0}},
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

FORCED = Schema(
    {
        "type": "object",
        "properties": {"force": {"enum": ["true", "false"], "default": "false"}},
        "additionalProperties": False,
    }
)

ELSEWHERE = Schema(
    {
        "type": "object",
        "properties": {"elsewhere": {"enum": ["true", "false"], "default": "false"}},
        "additionalProperties": False,
    }
)

REVISION = Schema(
    {
        "type": "object",
        "properties": {"revision": _COUNT | {"minimum": 1}},
        "additionalProperties": False,
    }
)

FEW = {"type": "integer", "minimum": 1, "maximum": 64, "default": 8}

CANDIDATES = Schema(
    {
        "type": "object",
        "properties": {"host": NAME, "limit": FEW},
        "required": ["host"],
        "additionalProperties": False,
    }
)

HELD = Schema(
    {
        "type": "object",
        "properties": {"image": NAME, "host": NAME},
        "additionalProperties": False,
    }
)

# This rule has an error code of its own: no schema above checks it.
SIZE = {"type": "integer", "minimum": SECTOR, "maximum": LARGEST, "multipleOf": SECTOR}

NO_QUERY = Schema({"type": "object", "additionalProperties": False})
