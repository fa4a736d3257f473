"""What this host asks of Volt, over its REST API."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote

import requests

from virtman.errors import (
    CoordinatorRefused,
    CoordinatorUnreachable,
    ImageUnknown,
    InvalidRequest,
    PlacementStale,
    VirtmanError,
)
from virtman.plan import SOURCE, Feed, Parent, Placement, Portal


class PlacementUnknown(CoordinatorRefused):
    """Volt has no place for this host in the image's trees."""


_ERRORS: Mapping[str, type[VirtmanError]] = {
    "volt.image.unknown": ImageUnknown,
    "volt.host.unknown": PlacementUnknown,
    "volt.placement.stale": PlacementStale,
}


@dataclass(frozen=True)
class ImageInfo:
    """An image as Volt knows it; size in bytes."""

    name: str
    size: int
    stripes: int
    fanout: int


@dataclass(frozen=True)
class News:
    """Volt's answer to a heartbeat.

    :ivar interval: seconds until the next heartbeat
    :ivar placements: those that changed since the generations that were sent
    :ivar unknown: images in which Volt has no place for this host
    """

    interval: float
    placements: tuple[Placement, ...]
    unknown: tuple[str, ...]


class Coordinator:
    """Volt, seen from one host.

    :param url: where Volt answers
    :param timeout: seconds
    """

    def __init__(self, url: str, host: str, timeout: float) -> None:
        self.url = url.rstrip("/")
        self.host = host
        self.timeout = timeout

    def image(self, name: str) -> ImageInfo:
        """Return what Volt knows of an image.

        :raises ImageUnknown: if it is not registered
        """
        answer = self._call("GET", f"/v1/images/{quote(name, safe='')}")
        return ImageInfo(answer["name"], answer["size"], answer["stripes"], answer["fanout"])

    def register(self, info: ImageInfo, source: Portal) -> None:
        """Make an image known, with the portal that has all of it."""
        self._call("POST", "/v1/images", {**asdict(info), "source": asdict(source)})

    def forget(self, name: str) -> None:
        """Make an image unknown again; one that hosts still use is refused."""
        self._call("DELETE", f"/v1/images/{quote(name, safe='')}")

    def join(self, image: str, portal: Portal) -> Placement:
        """Take a place in an image's trees, serving it on ``portal``; repeatable."""
        return _placement(self._call("PUT", self._own(image), {"portal": asdict(portal)}))

    def placement(self, image: str) -> Placement:
        """Return this host's present place."""
        return _placement(self._call("GET", self._own(image)))

    def ready(self, image: str, generation: int) -> None:
        """Say that the placement of this generation is in use.

        :raises PlacementStale: if there is a newer one
        """
        self._call("PATCH", self._own(image), {"state": "ready", "generation": generation})

    def leave(self, image: str) -> None:
        """Have the children placed elsewhere; this host keeps serving meanwhile.

        Fine if Volt has no place for this host: then it sends nobody here.
        """
        with contextlib.suppress(ImageUnknown, PlacementUnknown):
            self._call("PATCH", self._own(image), {"state": "leaving"})

    def needed(self, image: str) -> bool:
        """Tell whether, after ``leave``, somebody may still read from this host."""
        try:
            return bool(self._call("GET", self._own(image))["needed"])
        except (ImageUnknown, PlacementUnknown):
            return False

    def remove(self, image: str) -> None:
        """Give the place up; repeatable."""
        self._call("DELETE", self._own(image))

    def heartbeat(self, generations: Mapping[str, int]) -> News:
        """Say which placements are in use here and hear what changed."""
        answer = self._call(
            "PUT", f"/v1/hosts/{self.host}/heartbeat", {"images": dict(generations)}
        )
        return News(
            float(answer["interval"]),
            tuple(_placement(item) for item in answer["placements"]),
            tuple(answer["unknown"]),
        )

    def _own(self, image: str) -> str:
        return f"/v1/images/{quote(image, safe='')}/hosts/{self.host}"

    def _call(self, method: str, path: str, body: object = None) -> Any:
        try:
            answer = requests.request(method, self.url + path, json=body, timeout=self.timeout)
        except requests.RequestException as err:
            raise CoordinatorUnreachable(
                f"Volt does not answer at {self.url} ({type(err).__name__}); check that it runs "
                "and that [volt] url is right"
            ) from err
        if answer.ok:
            return _content(answer)
        code, message = _error(answer)
        if code in _ERRORS:
            raise _ERRORS[code](message)
        if answer.status_code == 400:
            raise InvalidRequest(f"{message} ({code})")
        raise CoordinatorRefused(f"Volt, {method} {path}: {message} ({code})")


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
        tuple(
            Feed(_parent(feed["parent"]), _parent(feed["standby"]) if feed["standby"] else None)
            for feed in feeds
        ),
    )


def _parent(answer: Mapping[str, Any]) -> Parent:
    return Parent(answer["host"] or SOURCE, Portal(**answer["portal"]))
