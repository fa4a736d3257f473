"""What Volt is asked, and what its answers mean: which request is which verb."""

from __future__ import annotations

import base64
import contextlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final
from urllib.parse import quote

import requests

from virtman.coordinator.auth import Access
from virtman.coordinator.connection import Connection, content
from virtman.coordinator.interface import (
    SILENT,
    Based,
    Coordinator,
    ImageInfo,
    Import,
    ImportUnknown,
    Layer,
    News,
    Placements,
    PlacementUnknown,
    Report,
    Revision,
    Shape,
    Warmup,
    Wish,
)
from virtman.errors import CoordinatorRefused, ImageUnknown, ProfileStale, ProfileUnknown
from virtman.model import address, suspended
from virtman.model.address import Portal, Proof
from virtman.model.hashtree import HashTree
from virtman.model.placement import SOURCE, Feed, Hydration, Parent, Placement

UNCHANGED: Final = 304

_DETAIL: Final = 255  # characters that Volt keeps


class VoltClient(Connection, Coordinator):
    """Volt at a URL; for operators too, who make images known.

    :param rack: label of hosts that share a switch; None if that is not known
    :param speed: of this host's link in bytes/s; 0 if that is not known
    """

    def __init__(
        self,
        url: str,
        host: str,
        timeout: float,
        access: Access | None = None,
        rack: str | None = None,
        speed: Callable[[], int] = lambda: 0,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(url, timeout, access, pause)
        self.host = host
        self.rack = rack
        self.speed = speed

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
            _layer(answer.get("layer")),  # a Volt that knows no layers names none
            _based(answer.get("basis")),
        )

    def importing(self, name: str) -> Import:
        """Return how far an image is that this host said that it wants, and Volt does not know."""
        try:
            answer = self._call("GET", _of_import(name))
        except ImportUnknown:  # Volt has not heard of it yet
            return Import(name, "wanted")
        return _import(answer)

    def imports(self) -> Sequence[Import]:
        """Return the images that hosts want and Volt does not know, and those being made."""
        return [_import(one) for one in self._call("GET", "/v1/imports")["imports"]]

    def tell_import(
        self, name: str, importer: str, state: str, done: int = 0, total: int = 0, detail: str = ""
    ) -> None:
        """Say how far an image is that an importer makes, or begins to make.

        :raises ImportTaken: if another one makes it
        :raises CoordinatorRefused: if Volt knows it by now
        """
        body = {"importer": importer, "state": state, "done": done, "total": total}
        self._call("PUT", _of_import(name), body | {"detail": detail[:_DETAIL]})

    def users(self, name: str) -> int:
        """Return how many hosts have an image attached, or need it for their disks.

        A host may count twice.

        :raises ImageUnknown: if it is not registered
        """
        answer = self._call("GET", f"/v1/images/{quote(name, safe='')}")
        return int(answer["hosts"] + answer["holds"])

    def upper_hashes(self, name: str) -> bytes:
        """Return the levels of an image's hash tree above the leaves."""
        return self._ask("GET", f"/v1/images/{quote(name, safe='')}/hashes").content

    def basis(self, name: str) -> bytes:
        """Return what an image has in common with those on which it is based."""
        return self._ask("GET", f"/v1/images/{quote(name, safe='')}/basis").content

    def register(
        self,
        name: str,
        size: int,
        shape: Shape,
        source: Portal,
        proof: Proof | None,
        hashes: tuple[HashTree, bytes] | None = None,
        layer: Layer | None = None,
        basis: bytes | None = None,
    ) -> None:
        """Make an image known, with the portal that has all of it and what that asks for.

        :param hashes: the image's hash tree and its upper levels
        :param layer: what it lies on, if it is a layer
        :param basis: what it has in common with other images; None leaves what Volt knows of that,
            and without bytes it has nothing in common any more
        :raises CoordinatorRefused: if Volt does not know these images, or knows others of the name
        """
        wishes = {key: value for key, value in asdict(shape).items() if value is not None}
        body = _image_form(name, size, source, proof, hashes, layer)
        if basis is not None:
            body["basis"] = base64.b64encode(basis).decode() or None
        self._call("POST", "/v1/images", body | wishes)

    def keep_layer(
        self,
        name: str,
        size: int,
        layer: Layer,
        source: Portal,
        proof: Proof,
        hashes: tuple[HashTree, bytes],
    ) -> None:
        """Make a layer known that this host has made, and serves."""
        body = _image_form(name, size, source, proof, hashes, layer)
        self._call("PUT", self._kept(name), body)

    def drop_layer(self, name: str, elsewhere: bool = False) -> None:
        """Make a layer unknown that this host has made, or have another one stand for this one."""
        self._call("DELETE", self._kept(name) + ("?elsewhere=true" if elsewhere else ""))

    def forget(self, name: str) -> None:
        """Make an image unknown again; one that hosts still use is refused."""
        self._call("DELETE", f"/v1/images/{quote(name, safe='')}")

    def withdraw(self, name: str, forced: bool) -> tuple[bool, str | None]:
        """Have an image's source go; return whether the image stays, and who stands for the source.

        :param forced: although hosts need the image, and none has all of it
        """
        force = "?force=true" if forced else ""
        left = self._call("DELETE", f"/v1/images/{quote(name, safe='')}/source{force}")
        return (True, left["home"]) if left else (False, None)

    def join(self, image: str, portal: Portal) -> Placement:
        """Take a place in an image's trees."""
        body = {"portal": asdict(portal), "rack": self.rack, "speed": self.speed() or None}
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
        if answer.status_code == UNCHANGED:
            return None
        found = content(answer)
        places = tuple(map(_placement, found["placements"]))
        # a Volt that warms no hosts names no wishes
        wishes = tuple(map(_wish, found.get("warmups", ())))
        return Placements(_tag(answer), places, wishes)

    def ready(self, image: str, generation: int, stripes: Collection[int] | None = None) -> None:
        """Say that the placement of this generation is in use, perhaps only in some stripes."""
        body: dict[str, Any] = {"state": "ready", "generation": generation}
        if stripes is not None:
            body["stripes"] = sorted(stripes)
        self._call("PATCH", self._own(image), body)

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

    def holds(self) -> Mapping[str, int]:
        """Return for how many disks of this host Volt keeps which images."""
        answer = self._call("GET", f"/v1/hosts/{self.host}/holds")
        return {one["image"]: one["disks"] for one in answer["holds"]}

    def release(self, image: str) -> None:
        """Say that this host has no disk of an image, before the next heartbeat does."""
        self._call("DELETE", f"/v1/images/{quote(image, safe='')}/holds/{self.host}")

    def profile(self, image: str, workload: str) -> tuple[bytes, str] | None:
        """Return the newest boot profile and its tag; None if there is none."""
        with contextlib.suppress(ProfileUnknown):
            return self.profile_at(image, workload)
        return None

    def store_profile(self, image: str, workload: str, content: bytes, tag: str | None) -> None:
        """Store a boot profile in place of the one that has this tag; None: of none."""
        condition = {"If-None-Match": "*"} if tag is None else {"If-Match": tag}
        headers = {"Content-Type": "application/octet-stream", **condition}
        try:
            self._ask("PUT", _profile(image, workload), data=content, headers=headers)
        except ProfileStale:
            # If-None-Match is refused too if this very request was sent before, and its answer
            # was lost
            if tag is not None or (self.profile(image, workload) or ("",))[0] != content:
                raise

    def profile_at(
        self, image: str, workload: str, revision: int | None = None
    ) -> tuple[bytes, str]:
        """Return a revision of a boot profile and its tag; the newest unless told which.

        :raises ProfileUnknown: if there is none
        """
        params = {} if revision is None else {"revision": str(revision)}
        answer = self._ask("GET", _profile(image, workload), params=params)
        return answer.content, _tag(answer)

    def profiles(self, image: str) -> Mapping[str, Revision]:
        """Return the newest boot profile of each workload of an image."""
        found = self._call("GET", f"/v1/images/{quote(image, safe='')}/profiles")["profiles"]
        return {one["workload"]: _revision(one) for one in found}

    def profile_history(self, image: str, workload: str) -> tuple[Revision, ...]:
        """Return the revisions of a boot profile that Volt keeps, the newest first.

        :raises ProfileUnknown: if there is none
        """
        found = self._call("GET", f"{_profile(image, workload)}/history")["revisions"]
        return tuple(map(_revision, found))

    def remove_profile(self, image: str, workload: str) -> None:
        """Remove all revisions of a boot profile; repeatable."""
        self._call("DELETE", _profile(image, workload))

    def tell_warmup(self, wish: Wish, warmup: Warmup) -> None:
        """Say how far this host is with an image that Volt asked it to warm."""
        body = asdict(warmup) | {"generation": wish.generation, "detail": warmup.detail[:_DETAIL]}
        self._call("PUT", f"/v1/images/{quote(wish.image, safe='')}/warmups/{self.host}", body)

    def heartbeat(self, report: Report) -> News:
        """Tell Volt the state of this host and hear what changed."""
        answer = self._call("PUT", f"/v1/hosts/{self.host}/heartbeat", _form(report))
        return News(
            float(answer["interval"]),
            tuple(_placement(item) for item in answer["placements"]),
            tuple(answer["unknown"]),
            answer.get("shares", {}),
            tuple(answer.get("read", ())),
        )

    def certify(self, request: str, listens: tuple[str, int] | None) -> tuple[str, str]:
        """Have a certificate signed; return it and that of the authority."""
        where = dict(zip(("ip", "port"), listens or (), strict=False))
        body = {"request": request, **where}
        answer = self._call("PUT", f"/v1/hosts/{self.host}/certificate", body)
        return answer["certificate"], answer["authority"]

    def listener(self, host: str) -> tuple[str, int]:
        """Return address and port at which another host's agent listens."""
        answer = self._call("GET", f"/v1/hosts/{quote(host, safe='')}/listener")
        return answer["ip"], answer["port"]

    def _kept(self, layer: str) -> str:
        return f"/v1/images/{quote(layer, safe='')}/makers/{self.host}"

    def _own(self, image: str) -> str:
        return f"/v1/images/{quote(image, safe='')}/hosts/{self.host}"


def _image_form(
    name: str,
    size: int,
    source: Portal,
    proof: Proof | None,
    hashes: tuple[HashTree, bytes] | None,
    layer: Layer | None,
) -> dict[str, Any]:
    body = {"name": name, "size": size, **address.source_form(source, proof)}
    if hashes is not None:
        tree, upper = hashes
        body |= {"root_hash": tree.root, "salt": tree.salt}
        body["upper_hashes"] = base64.b64encode(upper).decode()
    if layer is not None:
        body["layer"] = {"parent": layer.parent, "disk_size": layer.disk_size}
        if layer.suspended is not None:
            body["layer"]["suspended"] = asdict(layer.suspended)
    return body


def _layer(answer: Mapping[str, Any] | None) -> Layer | None:
    if not answer:
        return None
    saved = answer.get("suspended")
    saved = suspended.parse(saved) if saved else None
    return Layer(answer["parent"], answer["disk_size"], saved, answer["maker"] or "")


def _based(answer: Mapping[str, Any] | None) -> Based | None:
    return Based(tuple(answer["images"]), answer["shared"]) if answer else None


def _of_import(image: str) -> str:
    return f"/v1/imports/{quote(image, safe='')}"


def _import(answer: Mapping[str, Any]) -> Import:
    told = ("image", "state", "importer", "done", "total", "detail", "waiting")
    return Import(*(answer[key] for key in told))


def _profile(image: str, workload: str) -> str:
    return f"/v1/images/{quote(image, safe='')}/profiles/{quote(workload, safe='')}"


def _wish(answer: Mapping[str, Any]) -> Wish:
    return Wish(answer["image"], answer["workload"], answer["generation"])


def _revision(answer: Mapping[str, Any]) -> Revision:
    return Revision(answer["revision"], answer["bytes"], answer["stored_at"], answer.get("host"))


def _tag(answer: requests.Response) -> str:
    """Return the tag by which Volt knows later what it answered."""
    tag = answer.headers.get("ETag")
    if not tag:
        raise CoordinatorRefused(f"what answers at {answer.url} sends no ETag")
    return tag


def _form(report: Report) -> dict[str, Any]:
    """Return a heartbeat; an older Volt takes it, as long as there is nothing new to say."""
    form = asdict(report)
    for image in form["images"].values():
        for name in ("ahead", "copied", "whole", "complete", "declines", "waits"):
            if not image[name]:
                del image[name]
    if not form["room"]:
        del form["room"]
    return form


def _placement(answer: Mapping[str, Any]) -> Placement:
    feeds = sorted(answer["stripes"], key=lambda feed: int(feed["stripe"]))
    return Placement(
        answer["image"],
        answer["size"],
        answer["generation"],
        address.parse_proof(answer),
        tuple(map(_feed, feeds)),
        # a Volt that knows no profiles, or no caps, names none
        {one["workload"]: one["revision"] for one in answer.get("profiles", ())},
        answer.get("capped", False),
        Hydration(**answer["hydrate"]) if answer.get("hydrate") else None,
        frozenset(answer["owns"]) if answer.get("owns") is not None else None,
    )


def _feed(answer: Mapping[str, Any]) -> Feed:
    standby = _parent(answer["standby"]) if answer["standby"] else None
    # a Volt that does not say so knows of no order
    return Feed(_parent(answer["parent"]), standby, answer.get("ready", True))


def _parent(answer: Mapping[str, Any]) -> Parent:
    return Parent(answer["host"] or SOURCE, *address.parse(answer))
