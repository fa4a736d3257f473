"""Which token of Keystone's Volt is shown: one that ends soon is followed by another."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import requests
from keystoneauth1 import exceptions, loading
from keystoneauth1.session import Session
from oslo_config import cfg
from requests.auth import AuthBase

from virtman.coordinator.auth import UNAUTHENTICATED, sent_again, trusted
from virtman.errors import CoordinatorUnreachable, Unauthenticated, VirtmanError

_PAUSE = 60.0
"""Seconds for which a token that Volt refuses is not given up again: the next may be no better."""


class Tokens(AuthBase):
    """Shows Volt the token of whoever a session logs in; safe to share between threads.

    keystoneauth gets another one two minutes before it ends. One that was revoked only Volt
    refuses: then it is given up, and the request sent again with another one.
    """

    def __init__(self, session: Session, now: Callable[[], float] = time.monotonic) -> None:
        self.session = session
        self.now = now
        # Guards the time until which no token is given up; held for moments.
        self._lock = threading.Lock()
        self._until = 0.0

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Show it with a request."""
        request.headers["X-Auth-Token"] = self._token()
        request.register_hook("response", self._again)  # type: ignore[no-untyped-call]
        return request

    def _again(self, response: requests.Response, **settings: Any) -> requests.Response:
        if response.status_code != UNAUTHENTICATED or not self._may_give_up():
            return response
        self.session.invalidate()
        return sent_again(response, "X-Auth-Token", self._token(), settings)

    def _may_give_up(self) -> bool:
        with self._lock:
            if self.now() < self._until:
                return False
            self._until = self.now() + _PAUSE
        return True

    def _token(self) -> str:
        try:
            token: str | None = self.session.get_token()
        except exceptions.Unauthorized as err:
            raise Unauthenticated(
                f"Keystone does not let us in: {err}; check name and password of the account"
            ) from err
        except exceptions.ClientException as err:
            raise CoordinatorUnreachable(
                f"Keystone gives no token for Volt: {err}; check that it runs, and auth_url"
            ) from err
        return token or ""


def tokens(conf: cfg.ConfigOpts) -> Tokens:
    """Return what shows Volt the tokens of the account in group ``keystone``.

    :raises VirtmanError: if what it says is not enough
    """
    group = conf.keystone
    if conf.volt.token_file:
        raise VirtmanError("set either [volt] token_file or [keystone] auth_type, not both")
    try:
        loader: Any = loading.get_plugin_loader(group.auth_type)
        conf.register_opts(loading.get_auth_plugin_conf_options(loader), group="keystone")
        account = loader.load_from_options_getter(lambda option: group[option.dest])
    except exceptions.ClientException as err:
        raise VirtmanError(f"group [keystone]: {err}") from err
    return Tokens(Session(account, verify=trusted(group.cafile), timeout=conf.volt.timeout))
