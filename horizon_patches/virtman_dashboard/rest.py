"""What the browser asks for: views below ``/api/virtman/``."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.views import generic
from openstack_dashboard import policy
from openstack_dashboard.api.rest import urls
from openstack_dashboard.api.rest import utils as rest_utils

from virtman_dashboard import conf, launch, volt

_EVENTS = 30


def _guarded(rule: str) -> Callable[..., Any]:
    """Serve only whom a rule allows, and tell others what Volt refused."""

    def decorate(view: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(view)
        def serve(self: Any, request: HttpRequest, **names: str) -> Any:
            if not conf.load().enabled or not policy.check((("virtman", rule),), request):
                raise rest_utils.AjaxError(403, _("You may not see this."))
            try:
                return view(self, request, **names)
            except volt.VoltError as err:
                raise rest_utils.AjaxError(err.status, str(err)) from err

        return serve

    return decorate


@urls.register
class Launch(generic.View):
    """Whether Launch Instance has VirtMan as a source."""

    url_regex = r"virtman/launch/$"

    @rest_utils.ajax()
    def get(self, request: HttpRequest) -> Any:
        """Return the volume type, or a reason."""
        return launch.offer(request)


@urls.register
class Overview(generic.View):
    """All that is not about one image."""

    url_regex = r"virtman/overview/$"

    @rest_utils.ajax()
    @_guarded("virtman:overview")
    def get(self, request: HttpRequest) -> Any:
        """Return images, hosts and the newest events."""
        source = volt.client(request)
        return {
            "images": source.images(),
            "hosts": source.hosts(),
            "events": source.events(_EVENTS),
        }


@urls.register
class Trees(generic.View):
    """An image's trees."""

    url_regex = r"virtman/images/(?P<image>[a-z0-9][a-z0-9.-]*)/trees/$"

    @rest_utils.ajax()
    @_guarded("virtman:overview")
    def get(self, request: HttpRequest, image: str) -> Any:
        """Return the trees as Volt has them, with its ETag."""
        found, etag = volt.client(request).trees(image, request.headers.get("If-None-Match"))
        answer = HttpResponse(status=304) if found is None else rest_utils.JSONResponse(found)
        if etag:
            answer["ETag"] = etag
        return answer
