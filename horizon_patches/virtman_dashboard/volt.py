"""What is asked of Volt, for a user of the dashboard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import requests
from django.conf import settings as horizon
from django.core.cache import cache
from django.http import HttpRequest
from django.utils.translation import gettext as _
from horizon.exceptions import ServiceCatalogException
from openstack_dashboard.api import base

from virtman_dashboard import conf
from virtman_dashboard.apps import SERVICE

_PAGE = 1000
_FRESH = 15  # seconds for which it is believed that Volt answers, or does not


class VoltError(Exception):
    """Volt did not do what it was asked for.

    :ivar status: what the browser is told
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Volt:
    """Volt's REST API; see the reference there."""

    def __init__(self, endpoint: str, token: str, verify: bool | str, timeout: float) -> None:
        self._endpoint = endpoint.rstrip("/")
        self._timeout = timeout
        self._session = requests.Session()
        self._session.trust_env = False  # an entry of ~/.netrc would replace the token
        self._session.verify = verify
        self._session.headers["Authorization"] = f"Bearer {token}"

    def answers(self) -> bool:
        """Tell whether it is there; what was found out lately is believed."""
        key = f"virtman:{self._endpoint}"
        found = cache.get(key)
        if found is None:
            try:
                found = self._get("/healthz").ok
            except VoltError:
                found = False
            cache.set(key, found, _FRESH)
        return bool(found)

    def images(self) -> list[dict[str, Any]]:
        """Return all images."""
        return list(self._all("images"))

    def hosts(self) -> list[dict[str, Any]]:
        """Return all hosts."""
        return list(self._all("hosts"))

    def events(self, most: int) -> list[dict[str, Any]]:
        """Return the newest events."""
        return list(self._read(f"/v1/events?limit={most}")["events"])

    def trees(self, image: str, etag: str | None) -> tuple[dict[str, Any] | None, str | None]:
        """Return an image's trees and their ETag; None if the ETag is still right."""
        headers = {"If-None-Match": etag} if etag else {}
        answer = self._get(f"/v1/images/{quote(image, safe='')}/trees", headers)
        tag = answer.headers.get("ETag")
        return (None, tag) if answer.status_code == 304 else (_content(answer), tag)

    def _all(self, noun: str) -> Iterator[dict[str, Any]]:
        marker = ""
        while True:
            query = f"?limit={_PAGE}" + (f"&marker={quote(marker, safe='')}" if marker else "")
            page = self._read(f"/v1/{noun}{query}")
            yield from page[noun]
            marker = page["next"]
            if not marker:
                return

    def _read(self, path: str) -> dict[str, Any]:
        return _content(self._get(path))

    def _get(self, path: str, headers: dict[str, str] | None = None) -> requests.Response:
        try:
            return self._session.get(
                self._endpoint + path,
                headers=headers,
                timeout=self._timeout,
                allow_redirects=False,
            )
        except requests.RequestException as err:
            raise VoltError(_("Volt does not answer."), 503) from err


def _content(answer: requests.Response) -> dict[str, Any]:
    """Return what Volt said; a refusal of the token must not look as if Horizon's had ended."""
    try:
        content = answer.json()
        if answer.status_code == 200:
            return dict(content)
        message = content["error"]["message"]
    except (ValueError, TypeError, KeyError) as err:
        raise VoltError(_("Volt gave an answer that makes no sense."), 502) from err
    if answer.status_code in (401, 403):
        raise VoltError(_("Volt does not let you see this: %s") % message, 403)
    raise VoltError(message, 404 if answer.status_code == 404 else 502)


def client(request: HttpRequest) -> Volt:
    """Return Volt for the user of a request; raises VoltError if nobody knows where it is."""
    settings = conf.load()
    try:
        endpoint = settings.endpoint or base.url_for(request, SERVICE)
        token = settings.token() or request.user.token.id
    except ServiceCatalogException as err:
        message = _("Nobody knows where Volt is: neither the setting nor the catalog has it.")
        raise VoltError(message, 503) from err
    except OSError as err:
        raise VoltError(_("The file with Volt's token cannot be read."), 503) from err
    verify: bool | str = not horizon.OPENSTACK_SSL_NO_VERIFY
    if verify:
        verify = settings.cacert or horizon.OPENSTACK_SSL_CACERT or True
    return Volt(endpoint, token, verify, settings.timeout)
