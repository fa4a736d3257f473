"""Whose token it is, as Keystone says."""

import time
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final
from wsgiref.types import StartResponse, WSGIEnvironment

from keystonemiddleware.auth_token import AuthProtocol
from oslo_config import cfg
from webob import Request

from volt.auth.access import Principal
from volt.db.tokens import digest
from volt.errors import KeystoneUnavailable

HOST_ROLE: Final = "host"
READER_ROLE: Final = "reader"
HOST_USER: Final = "virtman-"
KEPT: Final = 32768  # tokens that a worker remembers


class KeystoneTokens:
    """Asks Keystone through its middleware, and remembers the answers.

    A user with role "host" is named ``virtman-<host>`` and speaks for that host. Role "reader"
    counts for the system alone: in a project every member has it, and shall not see the hosts.
    """

    def __init__(self, conf: cfg.ConfigOpts, clock: Callable[[], float] = time.monotonic) -> None:
        # Its own cache in the process is deprecated and has no bounds; the one in memcached needs a
        # library that is not here.
        settings = {"oslo_config_config": conf, "token_cache_time": -1, "memcached_servers": []}
        self._middleware = AuthProtocol(_accept, settings)
        self._kept_for = float(conf.keystone_authtoken.token_cache_time)
        self._clock = clock
        self._kept: dict[str, tuple[float, Principal]] = {}

    def known(self, token: str) -> Principal | None:
        """Return whose token it is, if Keystone said so lately."""
        until, who = self._kept.get(digest(token), (0.0, None))
        return who if self._clock() < until else None

    def ask(self, token: str) -> Principal | None:
        """Ask Keystone; raises KeystoneUnavailable."""
        request = Request.blank("/", headers={"X-Auth-Token": token})
        status = request.get_response(self._middleware).status_int
        if status == 401:
            return None
        if status != 200:
            raise KeystoneUnavailable("Keystone does not answer: try again in a moment")
        who = _principal(request.environ)
        if len(self._kept) >= KEPT:
            self._kept.clear()
        self._kept[digest(token)] = (self._clock() + self._kept_for, who)
        return who


def _accept(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Stand behind the middleware, which has put all that it learned into ``environ``."""
    start_response("200 OK", [])
    return []


def _principal(environ: WSGIEnvironment) -> Principal:
    user = environ["HTTP_X_USER_NAME"]
    roles = tuple(environ.get("HTTP_X_ROLES", "").lower().split(","))
    if environ.get("HTTP_OPENSTACK_SYSTEM_SCOPE") != "all":
        roles = tuple(role for role in roles if role != READER_ROLE)
    host = user.removeprefix(HOST_USER) if user.startswith(HOST_USER) else None
    expires = datetime.fromisoformat(environ["keystone.token_info"]["token"]["expires_at"])
    return Principal(
        f"{user}/{environ['HTTP_X_USER_ID']}",
        roles,
        host if HOST_ROLE in roles else None,
        expires.timestamp(),
    )
