"""How Volt is asked: over its REST API, once more if need be, and what its errors mean."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import requests

from virtman.coordinator.auth import Access
from virtman.coordinator.interface import (
    CoordinatorSilent,
    ImportTaken,
    ImportUnknown,
    PlacementUnknown,
)
from virtman.errors import (
    CoordinatorRefused,
    CoordinatorUnreachable,
    Forbidden,
    ImageInUse,
    ImageUnknown,
    InvalidRequest,
    LayersTooMany,
    PeerUnknown,
    PlacementStale,
    ProfileForeign,
    ProfileInvalid,
    ProfileStale,
    ProfileUnbound,
    ProfileUnknown,
    TooFast,
    Unauthenticated,
    VirtmanError,
)

LOG = logging.getLogger(__name__)

_ERRORS: Mapping[str, type[VirtmanError]] = {
    "volt.image.in_use": ImageInUse,
    "volt.image.unknown": ImageUnknown,
    "volt.layer.depth": LayersTooMany,
    "volt.layer.maker": ImageUnknown,  # among those that this host made
    "volt.host.unknown": PlacementUnknown,
    "volt.import.taken": ImportTaken,
    "volt.import.unknown": ImportUnknown,
    "volt.placement.stale": PlacementStale,
    "volt.peer.unknown": PeerUnknown,
    "volt.profile.foreign": ProfileForeign,
    "volt.profile.invalid": ProfileInvalid,
    "volt.profile.stale": ProfileStale,
    "volt.profile.unbound": ProfileUnbound,
    "volt.profile.unknown": ProfileUnknown,
}

# What Volt, or a proxy before it, may answer to anything, and what to do then.
_DENIALS: Mapping[int, tuple[type[VirtmanError], str]] = {
    401: (
        Unauthenticated,
        "give this host a token of its own ('volt-manage token create --role host --host NAME') "
        "and name its file in [volt] token_file (for a command: an operator's, --token-file), or "
        "where only Keystone knows hosts, an account in [keystone]",
    ),
    403: (
        Forbidden,
        "the token must be this host's own: check [volt] token_file and [agent] host (for a "
        "command: --token-file must hold an operator's token)",
    ),
    429: (TooFast, "raise [api] rate of Volt if this host really needs more"),
}
_TOO_FAST = 429
_PAUSE = 1.0


class Connection:
    """Volt's REST API at a URL.

    :param url: where Volt answers
    :param timeout: seconds
    :param pause: waits for so many seconds
    """

    def __init__(
        self,
        url: str,
        timeout: float,
        access: Access | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.url = url.rstrip("/")
        self.timeout = timeout
        self.access = access or Access()
        self.session = self.access.session()
        self.pause = pause

    def _call(self, method: str, path: str, body: object = None) -> Any:
        return content(self._ask(method, path, json=body))

    def _ask(self, method: str, path: str, **settings: Any) -> requests.Response:
        """Send a request; wait if Volt says that it comes too fast, up to our timeout."""
        patience = self.timeout
        while True:
            answer = self._send(method, path, **settings)
            if answer.status_code < 400:
                return answer
            delay = _retry_after(answer)
            if answer.status_code != _TOO_FAST or delay > patience:
                raise _refusal(answer, method, path)
            LOG.info("Volt wants fewer requests: waiting for %g s", delay)
            patience -= delay
            self.pause(delay)

    def _send(self, method: str, path: str, **settings: Any) -> requests.Response:
        settings = {"timeout": self.timeout, "verify": self.access.trusted, **settings}
        try:
            try:
                return self.session.request(method, self.url + path, **settings)
            except (requests.Timeout, requests.exceptions.SSLError):
                raise
            except requests.ConnectionError:
                # Volt may have ended a connection that was kept, just before we used it.
                return self.session.request(method, self.url + path, **settings)
        except requests.exceptions.SSLError as err:
            raise CoordinatorUnreachable(
                f"Volt at {self.url} cannot be trusted ({_innermost(err)}); name the certificates "
                "that vouch for it in [volt] cafile (for a command: --cafile)"
            ) from err
        except (requests.RequestException, OSError) as err:
            timed_out = isinstance(err, requests.Timeout)
            raise (CoordinatorSilent if timed_out else CoordinatorUnreachable)(
                f"Volt does not answer at {self.url} ({type(err).__name__}); check that it runs "
                "and that [volt] url is right"
            ) from err


def _refusal(answer: requests.Response, method: str, path: str) -> VirtmanError:
    code, message = _error(answer)
    if answer.status_code in _DENIALS:
        kind, remedy = _DENIALS[answer.status_code]
        return kind(f"Volt, {method} {path}: {message} ({code}); {remedy}")
    if code in _ERRORS:
        return _ERRORS[code](message)
    if answer.status_code == 400:
        return InvalidRequest(f"{message} ({code})")
    return CoordinatorRefused(f"Volt, {method} {path}: {message} ({code})")


def _retry_after(answer: requests.Response) -> float:
    """Seconds; a date, which HTTP allows as well, is not what Volt sends."""
    try:
        return max(0.0, float(answer.headers.get("Retry-After", _PAUSE)))
    except ValueError:
        return _PAUSE


def _innermost(err: BaseException) -> str:
    """What the TLS library said, without the layers around it."""
    reason = getattr(err.args[0], "reason", None) if err.args else None
    return str(reason or err)


def content(answer: requests.Response) -> Any:
    """Return what an answer says."""
    try:
        return answer.json() if answer.content else None
    except ValueError as err:
        raise CoordinatorRefused(
            f"what answers at {answer.url} does not speak JSON; check that [volt] url is right"
        ) from err


def _error(answer: requests.Response) -> tuple[str, str]:
    try:
        error = answer.json()["error"]
        return str(error["code"]), str(error["message"])
    except (ValueError, KeyError, TypeError):
        return f"http.{answer.status_code}", answer.reason
