"""How a table of routes becomes an API: which request does what, and what an error looks like."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from werkzeug.exceptions import HTTPException
from werkzeug.routing import Map, Rule
from werkzeug.wrappers import Request, Response

from virtman.errors import InvalidRequest, VirtmanError

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

LOG = logging.getLogger(__name__)

Answer = tuple[int, Any]
"""HTTP status and what becomes JSON, or an iterator of the bytes themselves."""


class Rest:
    """A WSGI application; a subclass has a method for each route.

    :cvar routes: HTTP method, path, and name of the method
    :cvar max_body: bytes of a request
    """

    routes: Sequence[tuple[str, str, str]] = ()
    max_body = 64 * 1024

    def __init__(self) -> None:
        self._map = Map(
            [Rule(path, methods=[verb], endpoint=name) for verb, path, name in self.routes]
        )

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        """Answer one request; the one place where errors become HTTP."""
        request = Request(environ)
        request.max_content_length = self.max_body
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
        if isinstance(body, Iterator):
            response = Response(body, status, content_type="application/octet-stream")
        else:
            text = "" if body is None else json.dumps(body)
            response = Response(text, status, content_type="application/json")
        return response(environ, start)


def body_of(request: Request, **kinds: type) -> dict[str, Any]:
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


def _several(group: ExceptionGroup[Exception]) -> Answer:
    """Report what a teardown could not take away: under the first error, with all of them."""
    first = next((one for one in group.exceptions if isinstance(one, VirtmanError)), VirtmanError())
    return first.status, _error(first.code, "; ".join(map(str, group.exceptions)))


def _error(code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}
