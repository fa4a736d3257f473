"""What is checked of a request before its handler sees it: who asks, how much, in which words."""

from collections.abc import Mapping

from flask import request
from werkzeug.exceptions import RequestEntityTooLarge

from volt.api import parsing
from volt.api.frequent import RAISED
from volt.api.routes import Route
from volt.auth.access import Access
from volt.model.names import check_name, check_rack


class Checks:
    """Hooks before requests; a route is known by the name of its endpoint.

    What there is no route for passes: the application refuses it.
    """

    def __init__(self, routes: Mapping[str, Route], guard: Access) -> None:
        self._routes = routes
        self._guard = guard

    def admit(self) -> None:
        """Let in who may do this, and not too often; say what went wrong with a frequent one."""
        raised = request.environ.get(RAISED)
        if raised is not None:
            raise raised
        route = self._route()
        if route is not None and route.rule is not None:
            host = (request.view_args or {}).get("host") or request.args.get("host")
            self._guard.admit(route.rule, request.environ, host)

    def read(self) -> None:
        """Read what is asked, if it is no more than may be."""
        route = self._route()
        if route is None:
            return
        for noun, name in (request.view_args or {}).items():
            if noun == "rack":
                check_rack(name)
            else:
                check_name(noun, name)
        # One more: werkzeug cuts a chunked body at this length without a word.
        request.max_content_length = route.largest + 1
        if len(request.get_data()) > route.largest:
            raise RequestEntityTooLarge(f"send at most {route.largest} bytes")
        parsing.parameters(request.args, route.query)

    def _route(self) -> Route | None:
        return self._routes.get(request.endpoint or "")
