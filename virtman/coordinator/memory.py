"""Where what Volt said last of images is kept, and in which form."""

from __future__ import annotations

import contextlib
import json
import threading
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from virtman import atomic_file
from virtman.coordinator.interface import Based, ImageInfo, Layer
from virtman.errors import ProfileInvalid
from virtman.model import address, suspended
from virtman.model.hashtree import HashTree
from virtman.model.placement import Feed, Hydration, Parent, Placement
from virtman.model.profile_format import decode


@dataclass(frozen=True)
class Known:
    """An image and this host's place in its trees, as Volt gave them last."""

    info: ImageInfo
    placement: Placement


class Memory:
    """A file an image, one of the upper hashes, and one a boot profile.

    They are for the agent's account only. No name has an underscore, so that separates::

        debian.json  debian.hashes  debian_boot.profile

    :param folder: survives a reboot
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # threads hear of Volt side by side, and two of them may be told of one image
        self._writing = threading.Lock()

    def prepare(self) -> None:
        """Make the folder."""
        atomic_file.prepare(self.folder)

    def get(self, image: str) -> Known | None:
        """Return what is known of an image; None if nothing is."""
        # one that an agent of another version wrote may lack something
        with contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError):
            return _known(json.loads(self._place(image).read_text()))
        return None

    def put(self, known: Known) -> None:
        """Keep this in place of what was known of the image."""
        with self._writing:
            self._put(known)

    def place(self, placement: Placement) -> None:
        """Keep this host's new place in the trees of an image that is known."""
        with self._writing:
            known = self.get(placement.image)
            if known is not None:
                self._put(replace(known, placement=placement))

    def upper(self, image: str) -> bytes | None:
        """Return an image's upper hashes, which tell themselves whether they fit it."""
        with contextlib.suppress(FileNotFoundError):
            return self._hashes(image).read_bytes()
        return None

    def put_upper(self, image: str, hashes: bytes) -> None:
        """Keep an image's upper hashes."""
        with self._writing:
            atomic_file.write(self._hashes(image), hashes)

    def profile(self, image: str, workload: str) -> tuple[bytes, str] | None:
        """Return a boot profile of the image that is known, and its tag; None if none is whole."""
        known, kept = self.get(image), self._kept(image, workload)
        if known is None or known.info.tree is None or kept is None:
            return None
        tag, _, content = kept.partition(b"\n")
        with contextlib.suppress(ProfileInvalid, UnicodeDecodeError):
            if decode(content).identity == known.info.tree.root:
                return content, tag.decode()
        return None

    def put_profile(self, image: str, workload: str, found: tuple[bytes, str] | None) -> None:
        """Keep this boot profile with its tag in place of the one before; None: keep none.

        Nothing is kept of an image that is not known: nobody would remove it.
        """
        with self._writing:
            if found is None or self.get(image) is None:
                self._profile(image, workload).unlink(missing_ok=True)
                return
            content, tag = found
            kept = tag.encode() + b"\n" + content
            if self._kept(image, workload) != kept:
                atomic_file.write(self._profile(image, workload), kept)

    def forget(self, image: str) -> None:
        """Keep nothing of an image any more."""
        with self._writing:
            self._place(image).unlink(missing_ok=True)
            self._hashes(image).unlink(missing_ok=True)
            for profile in self.folder.glob(self._profile(image, "*").name):
                profile.unlink(missing_ok=True)

    def _put(self, known: Known) -> None:
        if self.get(known.info.name) != known:
            text = json.dumps(_form(known))  # has secrets
            atomic_file.write(self._place(known.info.name), text.encode())

    def _place(self, image: str) -> Path:
        return self.folder / f"{image}.json"

    def _hashes(self, image: str) -> Path:
        return self.folder / f"{image}.hashes"

    def _profile(self, image: str, workload: str) -> Path:
        return self.folder / f"{image}_{workload}.profile"

    def _kept(self, image: str, workload: str) -> bytes | None:
        with contextlib.suppress(FileNotFoundError):
            return self._profile(image, workload).read_bytes()
        return None


def _form(known: Known) -> dict[str, Any]:
    place = known.placement
    feeds = [
        {
            "parent": _parent_form(feed.parent),
            "standby": _parent_form(feed.standby) if feed.standby else None,
        }
        for feed in place.feeds
    ]
    about = {"image": place.image, "size": place.size, "generation": place.generation}
    profiles = dict(place.profiles)
    hydrate = asdict(place.hydrate) if place.hydrate else None
    ahead = {"profiles": profiles, "capped": place.capped, "hydrate": hydrate}
    ring = {"owns": None if place.owns is None else sorted(place.owns)}
    placement = {**about, **address.proof_form(place.proof), "feeds": feeds, **ahead, **ring}
    return {"info": asdict(known.info), "placement": placement}


def _parent_form(parent: Parent) -> dict[str, Any]:
    return {"host": parent.host, **address.form(parent.portal, parent.proof)}


def _known(text: Any) -> Known:
    info, place = text["info"], text["placement"]
    tree = HashTree(**info.pop("tree")) if info["tree"] else None
    # an agent that knew no layers kept none
    layer = _layer(info.pop("layer")) if info.get("layer") else None
    based = info.pop("based", None)
    feeds = (Feed(_parent(one["parent"]), one["standby"] and _parent(one["standby"]))
             for one in place["feeds"])  # fmt: skip
    proof = address.parse_proof(place)
    return Known(
        ImageInfo(**{**info, "tree": tree, "layer": layer, "based": based and _based(based)}),
        Placement(
            place["image"],
            place["size"],
            place["generation"],
            proof,
            tuple(feeds),
            # an agent that knew no profiles, or no caps, kept none
            dict(place.get("profiles", {})),
            place.get("capped", False),
            Hydration(**place["hydrate"]) if place.get("hydrate") else None,
            None if place.get("owns") is None else frozenset(place["owns"]),
        ),
    )


def _layer(text: Any) -> Layer:
    saved = text.get("suspended")
    saved = suspended.parse(saved) if saved else None
    return Layer(text["parent"], text["disk_size"], saved, text.get("maker", ""))


def _based(text: Any) -> Based:
    return Based(tuple(text["images"]), text["shared"])


def _parent(text: Any) -> Parent:
    return Parent(text["host"], *address.parse(text))
