"""How Volt is asked: over its REST API, once more if need be, and what its errors mean."""

from __future__ import annotations

import base64
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any
from urllib.parse import quote

import requests

from virtman.coordinator.auth import Access
from virtman.coordinator.interface import (
    SILENT,
    Coordinator,
    CoordinatorSilent,
    ImageInfo,
    News,
    Placements,
    PlacementUnknown,
    Report,
    Shape,
)
from virtman.errors import (
    CoordinatorRefused,
    CoordinatorUnreachable,
    Forbidden,
    ImageUnknown,
    InvalidRequest,
    PeerUnknown,
    PlacementStale,
    TooFast,
    Unauthenticated,
    VirtmanError,
)
from virtman.model import address
from virtman.model.address import Portal, Proof
from virtman.model.hashtree import HashTree
from virtman.model.placement import SOURCE, Feed, Parent, Placement

LOG = logging.getLogger(__name__)

_ERRORS: Mapping[str, type[VirtmanError]] = {
    "volt.image.unknown": ImageUnknown,
    "volt.host.unknown": PlacementUnknown,
    "volt.placement.stale": PlacementStale,
    "volt.peer.unknown": PeerUnknown,
}

# What Volt, or a proxy before it, may answer to anything, and what to do then.
_DENIALS: Mapping[int, tuple[type[VirtmanError], str]] = {
    401: (
        Unauthenticated,
        "give this host a token of its own ('volt-manage token create --role host --host NAME') "
        "and name its file in [volt] token_file (for a source: an operator's, --token-file), or "
        "where only Keystone knows hosts, an account in [keystone]",
    ),
    403: (
        Forbidden,
        "the token must be this host's own: check [volt] token_file and [agent] host (for a "
        "source: --token-file must hold an operator's token)",
    ),
    429: (TooFast, "raise [api] rate of Volt if this host really needs more"),
}
_TOO_FAST = 429
_UNCHANGED = 304
_PAUSE = 1.0


class VoltClient(Coordinator):
    """Volt at a URL; for operators too, who make images known.

    :param url: where Volt answers
    :param timeout: seconds
    :param rack: label of hosts that share a switch; None if that is not known
    :param pause: waits for so many seconds
    """

    def __init__(
        self,
        url: str,
        host: str,
        timeout: float,
        access: Access | None = None,
        rack: str | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.url = url.rstrip("/")
        self.host = host
        self.timeout = timeout
        self.access = access or Access()
        self.rack = rack
        self.session = self.access.session()
        self.pause = pause

    def image(self, name: str) -> ImageInfo:
        """Return what Volt knows of an image."""
        answer = self._call("GET", f"/v1/images/{quote(name, safe='')}")
        root = answer["root_hash"]
        return ImageInfo(
            answer["name"],
            answer["size"],
            answer["stripes"],
            answer["fanout"],
            answer["created_at"],
            HashTree(root, answer["salt"]) if root else None,
        )

    def upper_hashes(self, name: str) -> bytes:
        """Return the levels of an image's hash tree above the leaves."""
        return self._ask("GET", f"/v1/images/{quote(name, safe='')}/hashes").content

    def register(
        self,
        name: str,
        size: int,
        shape: Shape,
        source: Portal,
        proof: Proof | None,
        hashes: tuple[HashTree, bytes] | None = None,
    ) -> None:
        """Make an image known, with the portal that has all of it and what that asks for.

        :param hashes: the image's hash tree and its upper levels
        """
        wishes = {key: value for key, value in asdict(shape).items() if value is not None}
        body = {"name": name, "size": size, **address.source_form(source, proof), **wishes}
        if hashes is not None:
            tree, upper = hashes
            body |= {"root_hash": tree.root, "salt": tree.salt}
            body["upper_hashes"] = base64.b64encode(upper).decode()
        self._call("POST", "/v1/images", body)

    def forget(self, name: str) -> None:
        """Make an image unknown again; one that hosts still use is refused."""
        self._call("DELETE", f"/v1/images/{quote(name, safe='')}")

    def join(self, image: str, portal: Portal) -> Placement:
        """Take a place in an image's trees."""
        body = {"portal": asdict(portal), "rack": self.rack}
        return _placement(self._call("PUT", self._own(image), body))

    def placement(self, image: str) -> Placement:
        """Return this host's present place."""
        return _placement(self._call("GET", self._own(image)))

    def placements(self, tag: str, wait: float) -> Placements | None:
        """Return all places of this host; None if none has changed for ``wait`` seconds."""
        answer = self._ask(
            "GET",
            f"/v1/hosts/{self.host}/placements",
            headers={"If-None-Match": tag} if tag else {},
            params={"wait": f"{wait:g}"},
            timeout=wait + self.timeout,
        )
        if answer.status_code == _UNCHANGED:
            return None
        if not answer.headers.get("ETag"):
            raise CoordinatorRefused(f"what answers at {answer.url} sends no ETag")
        found = _content(answer)["placements"]
        return Placements(answer.headers["ETag"], tuple(map(_placement, found)))

    def ready(self, image: str, generation: int) -> None:
        """Say that the placement of this generation is in use."""
        self._call("PATCH", self._own(image), {"state": "ready", "generation": generation})

    def report(self, image: str, parent: str, reason: str = SILENT) -> str:
        """Say what is wrong with a parent, or standby; return what Volt makes of it."""
        body = {"parent": parent, "reason": reason}
        answer = self._call("POST", f"{self._own(image)}/reports", body)
        return str(answer["verdict"])

    def leave(self, image: str) -> None:
        """Have the children placed elsewhere; this host keeps serving meanwhile."""
        with contextlib.suppress(ImageUnknown, PlacementUnknown):
            self._call("PATCH", self._own(image), {"state": "leaving"})

    def needed(self, image: str) -> bool:
        """Tell whether, after ``leave``, somebody may still read from this host."""
        try:
            return bool(self._call("GET", self._own(image))["needed"])
        except (ImageUnknown, PlacementUnknown):
            return False

    def remove(self, image: str) -> None:
        """Give the place up."""
        self._call("DELETE", self._own(image))

    def heartbeat(self, report: Report) -> News:
        """Tell Volt the state of this host and hear what changed."""
        answer = self._call("PUT", f"/v1/hosts/{self.host}/heartbeat", asdict(report))
        return News(
            float(answer["interval"]),
            tuple(_placement(item) for item in answer["placements"]),
            tuple(answer["unknown"]),
        )

    def certify(self, request: str, ip: str, port: int) -> tuple[str, str]:
        """Have a certificate signed; return it and that of the authority."""
        body = {"request": request, "ip": ip, "port": port}
        answer = self._call("PUT", f"/v1/hosts/{self.host}/certificate", body)
        return answer["certificate"], answer["authority"]

    def listener(self, host: str) -> tuple[str, int]:
        """Return address and port at which another host's agent listens."""
        answer = self._call("GET", f"/v1/hosts/{quote(host, safe='')}/listener")
        return answer["ip"], answer["port"]

    def _own(self, image: str) -> str:
        return f"/v1/images/{quote(image, safe='')}/hosts/{self.host}"

    def _call(self, method: str, path: str, body: object = None) -> Any:
        return _content(self._ask(method, path, json=body))

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
                "that vouch for it in [volt] cafile (for a source: --cafile)"
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


def _content(answer: requests.Response) -> Any:
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


def _placement(answer: Mapping[str, Any]) -> Placement:
    feeds = sorted(answer["stripes"], key=lambda feed: int(feed["stripe"]))
    return Placement(
        answer["image"],
        answer["size"],
        answer["generation"],
        address.parse_proof(answer),
        tuple(
            Feed(_parent(feed["parent"]), _parent(feed["standby"]) if feed["standby"] else None)
            for feed in feeds
        ),
    )


def _parent(answer: Mapping[str, Any]) -> Parent:
    return Parent(answer["host"] or SOURCE, *address.parse(answer))
