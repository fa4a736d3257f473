"""How this host proves to Volt who it is, and how it knows that it speaks to Volt."""

from __future__ import annotations

import logging
import os
import ssl
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import requests
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase

from virtman.errors import TokenUnreadable

LOG = logging.getLogger(__name__)

UNAUTHENTICATED: Final = 401

# Creates, image threads, heartbeat and watcher ask side by side: each keeps its connection.
_CONNECTIONS = 32


@dataclass(frozen=True)
class Access:
    """Files that an operator has put there; an empty path is none.

    :ivar token_file: holds the token that Volt gave out for this host
    :ivar cafile: certificates that vouch for Volt's; the system's if there is none
    :ivar keystone: shows a token of Keystone's, where there is no file
    """

    token_file: str = ""
    cafile: str = ""
    keystone: AuthBase | None = None

    def session(self) -> requests.Session:
        """Return what asks Volt, over connections that are kept; safe to share."""
        session = requests.Session()
        for scheme in ("http://", "https://"):
            session.mount(scheme, HTTPAdapter(pool_maxsize=_CONNECTIONS))
        session.auth = _Bearer(self.token_file) if self.token_file else self.keystone or _nobody
        return session

    @property
    def trusted(self) -> str | bool:
        """Certificates to trust."""
        return trusted(self.cafile)


def trusted(cafile: str) -> str | bool:
    """Return the certificates to trust; not the list that the library brings with it."""
    system = ssl.get_default_verify_paths()
    return cafile or system.cafile or system.capath or True


def sent_again(
    response: requests.Response, header: str, value: str, settings: Mapping[str, Any]
) -> requests.Response:
    """Send a request that was refused once more, with another token; return the answer.

    :param settings: what the hook of the response was given
    """
    response.close()
    request = response.request.copy()
    request.headers[header] = value
    answer: requests.Response = response.connection.send(request, **settings)
    answer.request = request
    return answer


class _Bearer(AuthBase):
    """A token in a file, read for each request: a new one is used at once.

    One that Volt refuses may have ended while it was on its way, as Keystone's do after an hour or
    so. Then the file is read again, and if it has another one by now the request is repeated.
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self._warned = False

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = self._shown()
        request.register_hook("response", self._again)  # type: ignore[no-untyped-call]
        return request

    def _again(self, response: requests.Response, **settings: Any) -> requests.Response:
        if response.status_code != UNAUTHENTICATED:
            return response
        shown = self._shown()
        if shown == response.request.headers["Authorization"]:
            return response
        return sent_again(response, "Authorization", shown, settings)

    def _shown(self) -> str:
        return f"Bearer {self._token()}"

    def _token(self) -> str:
        try:
            with open(self.path, encoding="ascii") as file:
                mode = os.fstat(file.fileno()).st_mode
                token = file.read().strip()
        except (OSError, UnicodeDecodeError) as err:
            reason = err.strerror if isinstance(err, OSError) else "it is not text"
            raise TokenUnreadable(f"token file {self.path}: {reason}; {_REMEDY}") from err
        if not token or not token.isprintable():
            raise TokenUnreadable(f"token file {self.path} does not hold one token; {_REMEDY}")
        if mode & stat.S_IRWXO and not self._warned:
            self._warned = True
            LOG.warning("everybody on this node can read %s: chmod 0600 it", self.path)
        return token


_REMEDY = (
    "write into it what 'volt-manage token create' printed, and let only the account that "
    "uses it read it (mode 0600)"
)


def _nobody(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Send no token, nor any password that the library may find in a .netrc."""
    return request
