"""How what was asked becomes typed objects, once it looks as its schema says."""

import base64
import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from werkzeug.datastructures import Headers
from werkzeug.http import parse_etags

from volt import transport
from volt.api import schemas
from volt.errors import HashesInvalid, ImageSizeInvalid, RequestInvalid
from volt.model import basis, suspended
from volt.model.hosts import ImageReport, Listener, Reason, Report, Wiring
from volt.model.images import CopyPolicy, Layer, NewImage
from volt.model.imports import Importing, Told
from volt.model.names import check_name
from volt.model.placements import State
from volt.model.profiles import BOOT, Condition
from volt.model.warmups import Chosen, Progress, Warming
from volt.placement import shapes
from volt.placement.rules import Rules, Shape
from volt.transport import LARGEST, SECTOR, Portal, Proof

HASHED = 4096  # bytes of a block that is hashed, and of one that holds hashes
FANNED = 128  # hashes in such a block
_NUMBER = re.compile("-?[0-9]{1,19}")


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
    """The state a host says it is in, and on which placement it acts.

    ``stripes`` are those in which it does so far; None if in all.
    """

    state: State
    generation: int | None
    stripes: Collection[int] | None


def image(body: bytes) -> NewImage:
    """Parse the body of POST /v1/images."""
    content = _load(body, schemas.IMAGE)
    new = new_image(
        content["name"],
        content["size"],
        Shape(content.get("shape", Shape.FOREST)),
        content.get("stripes"),
        content.get("fanout"),
        *transport.parse_source(content),
        content.get("foreign_children"),
    )
    if "layer" in content:
        layer = content["layer"]
        saved = suspended.parse(layer["suspended"]) if "suspended" in layer else None
        new = replace(new, layer=Layer(layer["parent"], layer["disk_size"], None, saved))
    if "root_hash" not in content:
        return new
    return replace(
        new,
        root_hash=content["root_hash"],
        salt=content["salt"],
        upper_hashes=_upper_hashes(content["upper_hashes"], new.size),
        basis=_basis(content),
    )


def kept_layer(body: bytes, name: str, maker: str) -> NewImage:
    """Parse the body of PUT /v1/images/{image}/makers/{host}: a layer."""
    new = image(body)
    if new.name != name or new.layer is None:
        raise RequestInvalid(f"the body must be that of layer {name}: a host keeps nothing else")
    return replace(new, layer=replace(new.layer, maker=check_name("host", maker)))


def _basis(content: Mapping[str, Any]) -> basis.NewBasis | None:
    """Return what an image has in common with others; None leaves what it had."""
    if "basis" not in content:
        return None
    return basis.NONE if content["basis"] is None else basis.parse(content["basis"])


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
        # Anything but a number may be a secret in the wrong place.
        shown = f" {str(size)[:32]}" if isinstance(size, (int, float)) else ""
        raise ImageSizeInvalid(
            f"size{shown} of image {name} is not allowed: "
            f"give the bytes as a positive multiple of {SECTOR}, at most {LARGEST}"
        )
    usual = shapes.usual(shape)
    stripes = usual.stripes if stripes is None else int(stripes)
    fanout = usual.fanout if fanout is None else int(fanout)
    shapes.check(Rules(shape, stripes, fanout, foreign_children))
    return NewImage(name, size, shape, stripes, fanout, source, source_proof, foreign_children)


def join(body: bytes) -> tuple[Portal, Wiring]:
    """Parse the body of PUT /v1/images/{image}/hosts/{host}: portal and wiring."""
    content = _load(body, schemas.JOIN)
    wiring = Wiring(content.get("rack"), content.get("speed"))
    return transport.parse(content["portal"]), wiring


def state(body: bytes) -> StateChange:
    """Parse the body of PATCH /v1/images/{image}/hosts/{host}."""
    content = _load(body, schemas.STATE)
    return StateChange(State(content["state"]), content.get("generation"), content.get("stripes"))


def heartbeat(body: bytes) -> Report:
    """Parse the body of PUT /v1/hosts/{host}/heartbeat."""
    content = _load(body, schemas.HEARTBEAT)
    images = {
        check_name("image", name): ImageReport.of(fields)
        for name, fields in content.pop("images").items()
    }
    for name in content.get("disks", ()):
        check_name("image", name)
    return Report(images, **content)


def report(body: bytes) -> tuple[str, Reason]:
    """Parse the body of POST /v1/images/{image}/hosts/{host}/reports: the parent, and why."""
    content = _load(body, schemas.REPORT)
    return check_name("host", content["parent"]), Reason(content.get("reason", Reason.SILENT))


def chosen(body: bytes) -> tuple[Chosen, str]:
    """Parse the body of POST /v1/images/{image}/warmups: which hosts are meant, and workload."""
    content = _load(body, schemas.CHOSEN)
    hosts = tuple(content["hosts"]) if "hosts" in content else None
    return Chosen(hosts, content.get("rack")), content.get("workload", BOOT)


def told(body: bytes) -> Told:
    """Parse the body of PUT /v1/imports/{image}."""
    content = _load(body, schemas.TOLD)
    return Told(
        content["importer"],
        Importing(content["state"]),
        content.get("done", 0),
        content.get("total", 0),
        content.get("detail", ""),
    )


def progress(body: bytes) -> Progress:
    """Parse the body of PUT /v1/images/{image}/warmups/{host}."""
    content = _load(body, schemas.PROGRESS)
    detail = content.get("detail", "")
    state = Warming(content["state"])
    return Progress(content["generation"], state, content["wanted"], content["there"], detail)


def hydration(body: bytes) -> CopyPolicy:
    """Parse the body of PUT /v1/images/{image}/hydrate."""
    content = _load(body, schemas.HYDRATION)
    return CopyPolicy(int(content["after"]), int(content.get("rate", 0)), content.get("copies"))


def home(body: bytes) -> str | None:
    """Parse the body of PUT /v1/images/{image}/home: a host, or None for the source itself."""
    host = _load(body, schemas.HOME)["host"]
    return None if host is None else check_name("host", host)


def drain(body: bytes) -> bool:
    """Parse the body of PATCH /v1/hosts/{host}."""
    return bool(_load(body, schemas.DRAIN)["draining"])


def cap(body: bytes) -> int:
    """Parse the body of PUT .../cap, of an image, a rack or a host: bytes a second."""
    return int(_load(body, schemas.CAP)["rate"])


def certificate(host: str, body: bytes) -> tuple[str, Listener | None]:
    """Parse the body of PUT /v1/hosts/{host}/certificate: request, and where the host listens."""
    content = _load(body, schemas.CERTIFICATE)
    if "ip" not in content:
        return content["request"], None
    return content["request"], Listener(host, transport.ip(content["ip"]), int(content["port"]))


def page(query: Query) -> Page:
    """Parse which page of a list is wanted."""
    given = parameters(query, schemas.PAGE)
    return Page(given.get("marker", ""), given.get("limit", schemas.LIMIT["default"]))


def events(query: Query) -> tuple[int, int]:
    """Parse the parameters of GET /v1/events: after and limit."""
    given = parameters(query, schemas.EVENTS)
    return given.get("after", 0), given.get("limit", schemas.LIMIT["default"])


def wait(query: Query) -> int:
    """Parse for how many seconds an answer may be held back."""
    return int(parameters(query, schemas.WAIT).get("wait", 0))


def candidates(query: Query) -> tuple[str, int]:
    """Parse the parameters of GET /v1/images/{image}/parents: the asker and the limit."""
    given = parameters(query, schemas.CANDIDATES)
    return given["host"], given.get("limit", schemas.FEW["default"])


def held(query: Query) -> tuple[str | None, str | None]:
    """Parse the parameters of GET /v1/holds: which image's or host's are wanted, if not all."""
    given = parameters(query, schemas.HELD)
    return given.get("image"), given.get("host")


def is_forced(query: Query) -> bool:
    """Parse whether something is to be done although it does harm."""
    return bool(parameters(query, schemas.FORCED).get("force") == "true")


def is_elsewhere(query: Query) -> bool:
    """Parse whether an image shall stay where others have all of it."""
    return bool(parameters(query, schemas.ELSEWHERE).get("elsewhere") == "true")


def revision(query: Query) -> int | None:
    """Parse which revision of a profile is wanted; None is the newest."""
    return parameters(query, schemas.REVISION).get("revision")


def condition(headers: Headers) -> Condition:
    """Parse which profile must be there before another is stored."""
    return Condition(_tags(headers.get("If-Match")), _tags(headers.get("If-None-Match"), weak=True))


def _tags(header: str | None, weak: bool = False) -> frozenset[str] | None:
    if header is None:
        return None
    tags = parse_etags(header)
    return frozenset({"*"} if tags.star_tag else tags.as_set(include_weak=weak))


def parameters(query: Query, schema: schemas.Schema) -> dict[str, Any]:
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
    schemas.PORTAL_ALONE.check(content)
    return transport.parse(content)


def _load(body: bytes, schema: schemas.Schema) -> Any:
    content = _parse(body)
    schema.check(content)
    return content


def _parse(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as err:
        reason = "it is nested too deeply" if isinstance(err, RecursionError) else str(err)[:200]
        raise RequestInvalid(f"the body is not JSON: {reason}") from err
