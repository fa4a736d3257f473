"""The node's own API: which request does what, over a Unix socket."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from werkzeug.exceptions import HTTPException
from werkzeug.routing import Map, Rule
from werkzeug.wrappers import Request, Response

from virtman import cached, scrub
from virtman.agent import Agent, Kept, Shown, device_path
from virtman.chains import Store
from virtman.check import KINDS, Check, Difference
from virtman.errors import InvalidRequest, VirtmanError
from virtman.space import volume

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

LOG = logging.getLogger(__name__)

_MAX_BODY = 64 * 1024

ROUTES = (
    ("GET", "/healthz", "health"),
    ("GET", "/v1/instances", "list_instances"),
    ("PUT", "/v1/instances/<vm>", "create"),
    ("GET", "/v1/instances/<vm>", "show"),
    ("PATCH", "/v1/instances/<vm>", "limit"),
    ("DELETE", "/v1/instances/<vm>", "destroy"),
    ("POST", "/v1/instances/<vm>/rollback", "rollback"),
    ("GET", "/v1/snapshots", "list_snapshots"),
    ("PUT", "/v1/snapshots/<snapshot>", "snapshot"),
    ("GET", "/v1/snapshots/<snapshot>", "show_snapshot"),
    ("DELETE", "/v1/snapshots/<snapshot>", "delete_snapshot"),
    ("GET", "/v1/images", "list_images"),
    ("DELETE", "/v1/images/<image>", "drop"),
    ("POST", "/v1/images/<image>/scrub", "scrub"),
    ("GET", "/v1/cached", "list_cached"),
    ("POST", "/v1/cached/attach", "attach"),
    ("POST", "/v1/cached/detach", "detach"),
    ("GET", "/v1/check", "check"),
    ("POST", "/v1/check", "repair"),
)

Answer = tuple[int, Any]


class Api:
    """A WSGI application over one agent."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self._map = Map([Rule(path, methods=[verb], endpoint=name) for verb, path, name in ROUTES])

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        """Answer one request; the one place where errors become HTTP."""
        request = Request(environ)
        request.max_content_length = _MAX_BODY
        try:
            name, arguments = self._map.bind_to_environ(environ).match()
            handler: Callable[..., Answer] = getattr(self, name)
            status, body = handler(request, **arguments)
        except VirtmanError as err:
            status, body = err.status, _error(err.code, str(err))
        except ExceptionGroup as err:
            status, body = _several(err)
        except HTTPException as err:
            status, body = err.code or 500, _error("virtman.request.invalid", str(err.description))
        except Exception as err:
            LOG.exception("%s %s", request.method, request.path)
            status, body = 500, _error("virtman.error", f"{type(err).__name__}: {err}")
        text = "" if body is None else json.dumps(body)
        response = Response(text, status, content_type="application/json")
        return response(environ, start)

    def health(self, request: Request) -> Answer:
        """Say that the agent answers."""
        return 200, {"status": "ok", "host": self.agent.host.name}

    def list_instances(self, request: Request) -> Answer:
        """Return all VMs."""
        return 200, {"instances": [_shown(one) for one in self.agent.list()]}

    def show(self, request: Request, vm: str) -> Answer:
        """Return one VM."""
        return 200, _shown(self.agent.show(vm))

    def create(self, request: Request, vm: str) -> Answer:
        """Give a VM its device; the body names an image or a snapshot."""
        body = _body(request, image=str, snapshot=str, quota=int, store=str)
        if not body.keys() & {"image", "snapshot"}:
            raise InvalidRequest('the body must be {"image": "<name>"} or {"snapshot": "<name>"}')
        self.agent.create(vm, **body)
        return 201, _shown(self.agent.show(vm))

    def limit(self, request: Request, vm: str) -> Answer:
        """Give a VM another quota."""
        body = _body(request, quota=int)
        if not body:
            raise InvalidRequest('the body must be {"quota": <bytes>}')
        self.agent.limit(vm, **body)
        return 200, _shown(self.agent.show(vm))

    def destroy(self, request: Request, vm: str) -> Answer:
        """Take a VM's device away."""
        self.agent.destroy(vm)
        return 204, None

    def rollback(self, request: Request, vm: str) -> Answer:
        """Have a VM begin anew at one of its snapshots."""
        body = _body(request, snapshot=str)
        if not body:
            raise InvalidRequest('the body must be {"snapshot": "<name>"}')
        self.agent.rollback(vm, body["snapshot"])
        return 200, _shown(self.agent.show(vm))

    def list_snapshots(self, request: Request) -> Answer:
        """Return all snapshots, or those of the VM in ``?vm=``."""
        vm = request.args.get("vm")
        found = self.agent.snapshots()
        return 200, {"snapshots": [_kept(one) for one in found if vm in (None, one.snapshot.vm)]}

    def snapshot(self, request: Request, snapshot: str) -> Answer:
        """Keep a VM's data; the body is ``{"vm": name}``."""
        body = _body(request, vm=str)
        if not body:
            raise InvalidRequest('the body must be {"vm": "<name>"}')
        self.agent.snapshot(body["vm"], snapshot)
        return 201, _kept(self.agent.show_snapshot(snapshot))

    def show_snapshot(self, request: Request, snapshot: str) -> Answer:
        """Return one snapshot."""
        return 200, _kept(self.agent.show_snapshot(snapshot))

    def delete_snapshot(self, request: Request, snapshot: str) -> Answer:
        """Forget a snapshot."""
        self.agent.delete_snapshot(snapshot)
        return 204, None

    def list_images(self, request: Request) -> Answer:
        """Return the images that are attached here."""
        images = [
            {
                "image": one.info.name,
                "size": one.info.size,
                "generation": one.generation,
                "parents": [feed.parent.host for feed in one.placement.feeds],
                "instances": sorted(one.users),
                "cache": asdict(one.figures()),
            }
            for one in self.agent.attachments()
            if one.placement is not None
        ]
        return 200, {"images": images}

    def drop(self, request: Request, image: str) -> Answer:
        """Leave an image now."""
        self.agent.drop(image)
        return 204, None

    def scrub(self, request: Request, image: str) -> Answer:
        """Compare the cache with the image's hashes, and drop what is wrong."""
        return 200, asdict(scrub.scrub(self.agent.attached(image)))

    def list_cached(self, request: Request) -> Answer:
        """Return the volumes that have the cache before them."""
        return 200, {"volumes": [_cached(one) for one in self.agent.cached.list()]}

    def attach(self, request: Request) -> Answer:
        """Put the cache before a volume."""
        body = _body(request, device=str, mode=str)
        if "device" not in body:
            raise InvalidRequest('the body must be {"device": "<path>"}')
        mode = body.get("mode", cached.WRITETHROUGH)
        return 201, _cached(self.agent.cached.attach(body["device"], mode))

    def detach(self, request: Request) -> Answer:
        """Give a volume back; 202 while it is being emptied."""
        body = _body(request, device=str)
        if not body:
            raise InvalidRequest('the body must be {"device": "<path>"}')
        left = self.agent.cached.detach(body["device"])
        return (204, None) if left is None else (202, _cached(left))

    def check(self, request: Request) -> Answer:
        """Return what differs between kernel, records and Volt."""
        found = Check(self.agent).look()
        return 200, {"found": _differences(found), "left": _differences(found)}

    def repair(self, request: Request) -> Answer:
        """Mend that."""
        outcome = Check(self.agent).repair()
        return 200, {"found": _differences(outcome.found), "left": _differences(outcome.left)}


def _cached(found: cached.Shown) -> dict[str, Any]:
    volume = found.volume
    return {
        "volume": volume.path,
        "device": volume.device,
        "size": volume.size,
        "mode": volume.mode,
        "state": found.state,
        "dirty": found.dirty,
        "cache": asdict(found.figures),
    }


def _differences(found: Iterable[Difference]) -> list[dict[str, str]]:
    return [
        {"code": one.code, "what": one.what, "meaning": KINDS[one.code][0],
         "repair": KINDS[one.code][1]}
        for one in found
    ]  # fmt: skip


def _body(request: Request, **kinds: type) -> dict[str, Any]:
    """Return a request's body, an object that has no other keys and kinds than these."""
    try:
        body = json.loads(request.get_data())
    except ValueError as err:
        raise InvalidRequest(f"the body is not JSON: {err}") from err
    if not isinstance(body, Mapping):
        raise InvalidRequest("the body must be an object")
    for key, value in body.items():
        # True is an int for Python
        if key not in kinds or type(value) is not kinds[key]:
            known = ", ".join(f"{name} ({kind.__name__})" for name, kind in kinds.items())
            raise InvalidRequest(f"the body has {key}: {value!r}; it can have {known}")
        if isinstance(value, int) and value < 0:
            raise InvalidRequest(f"{key} {value}: must not be negative")
    return dict(body)


def _shown(found: Shown) -> dict[str, Any]:
    vm = found.instance
    return {
        "vm": vm.vm,
        "image": vm.image,
        "device": device_path(vm),
        "size": vm.size,
        "state": found.state,
        "taken": found.taken,
        "quota": vm.quota,
        "stores": [_store(one) for one in found.chain],
        "snapshots": list(found.snapshots),
    }


def _kept(found: Kept) -> dict[str, Any]:
    return {
        "snapshot": found.snapshot.name,
        "vm": found.snapshot.vm,
        "image": found.snapshot.image,
        "size": found.snapshot.size,
        "created_at": timestamp(found.snapshot.created_at),
        "stores": [_store(one) for one in found.chain],
    }


def _store(store: Store) -> dict[str, Any]:
    allocated = volume(store).allocated()
    return {"path": store.path, "allocated": allocated, "merging": store.merging}


def timestamp(seconds: float) -> str:
    """Return a moment in the form of RFC 3339."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _several(group: ExceptionGroup[Exception]) -> Answer:
    """Report what a teardown could not take away: under the first error, with all of them."""
    first = next((one for one in group.exceptions if isinstance(one, VirtmanError)), VirtmanError())
    return first.status, _error(first.code, "; ".join(map(str, group.exceptions)))


def _error(code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}
