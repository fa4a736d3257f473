"""The node's own API: which request does what, over a Unix socket."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from werkzeug.exceptions import HTTPException
from werkzeug.routing import Map, Rule
from werkzeug.wrappers import Request, Response

from virtman import naming, scrub
from virtman.agent import Agent, device_path
from virtman.errors import InvalidRequest, VirtmanError
from virtman.record import Instance

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

LOG = logging.getLogger(__name__)

_MAX_BODY = 64 * 1024

ROUTES = (
    ("GET", "/healthz", "health"),
    ("GET", "/v1/instances", "list_instances"),
    ("PUT", "/v1/instances/<vm>", "create"),
    ("GET", "/v1/instances/<vm>", "show"),
    ("DELETE", "/v1/instances/<vm>", "destroy"),
    ("GET", "/v1/images", "list_images"),
    ("DELETE", "/v1/images/<image>", "drop"),
    ("POST", "/v1/images/<image>/scrub", "scrub"),
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
        return 200, _shown(self.agent.records.get(naming.check("VM", vm)))

    def create(self, request: Request, vm: str) -> Answer:
        """Give a VM its device; the body is ``{"image": name}``."""
        try:
            body = json.loads(request.get_data())
        except ValueError as err:
            raise InvalidRequest(f"the body is not JSON: {err}") from err
        image = body.get("image") if isinstance(body, Mapping) else None
        if not isinstance(image, str):
            raise InvalidRequest('the body must be {"image": "<name>"}')
        return 201, _shown(self.agent.create(vm, image))

    def destroy(self, request: Request, vm: str) -> Answer:
        """Take a VM's device away."""
        self.agent.destroy(vm)
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


def _shown(instance: Instance) -> dict[str, Any]:
    return {
        "vm": instance.vm,
        "image": instance.image,
        "device": device_path(instance),
        "size": instance.size,
        "store": instance.store,
    }


def _several(group: ExceptionGroup[Exception]) -> Answer:
    """Report what a teardown could not take away: under the first error, with all of them."""
    first = next((one for one in group.exceptions if isinstance(one, VirtmanError)), VirtmanError())
    return first.status, _error(first.code, "; ".join(map(str, group.exceptions)))


def _error(code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}
