"""What an agent asks of Volt, and what it hears; how it is asked is others' business."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from virtman.errors import CoordinatorRefused, CoordinatorUnreachable
from virtman.model.address import Portal, Proof
from virtman.model.hashtree import HashTree
from virtman.model.placement import Placement
from virtman.model.suspended import Suspended

SILENT = "silent"
CORRUPT = "corrupt"
"""What can be wrong with a parent: it does not answer, or it sends wrong bytes."""


class CoordinatorSilent(CoordinatorUnreachable):
    """Volt did not answer in time."""


class PlacementUnknown(CoordinatorRefused):
    """Volt has no place for this host in the image's trees."""


class ImportTaken(CoordinatorRefused):
    """Another importer makes this image."""


class ImportUnknown(CoordinatorRefused):
    """Nobody wants this image, as far as Volt has heard."""


@dataclass(frozen=True)
class Layer:
    """What makes an image a layer: it holds what a VM wrote over another image.

    :ivar parent: name of that image, which may be a layer too
    :ivar disk_size: bytes of the VM's disk
    :ivar suspended: how a VM of it goes on, if it is a suspended image
    :ivar maker: host that made it, and serves it; empty if a storage node does
    """

    parent: str
    disk_size: int
    suspended: Suspended | None = None
    maker: str = ""

    @property
    def project(self) -> str:
        """Whose VMs alone may have what is in it; empty if all may, as without memory."""
        return self.suspended.project if self.suspended else ""


@dataclass(frozen=True)
class Based:
    """On which other images one is based: their names, and how many bytes it has of them."""

    images: tuple[str, ...]
    shared: int


@dataclass(frozen=True)
class ImageInfo:
    """An image as Volt knows it; size in bytes.

    :ivar identity: tells it from an earlier image of the same name
    :ivar tree: by which its content is verified; None if it was registered without one
    :ivar layer: None for an image that stands for itself
    :ivar based: None for an image that is based on none
    """

    name: str
    size: int
    stripes: int
    fanout: int
    identity: str
    tree: HashTree | None = None
    layer: Layer | None = None
    based: Based | None = None

    @property
    def disk_size(self) -> int:
        """Bytes of the disk that a VM begins with."""
        return self.layer.disk_size if self.layer else self.size

    @property
    def has_memory(self) -> bool:
        """Whether it is a suspended image: VMs go on from it, and do not boot."""
        return self.layer is not None and self.layer.suspended is not None

    @property
    def project(self) -> str:
        """Whose VMs alone may have what is in it; empty if all may."""
        return self.layer.project if self.layer else ""

    @property
    def origin(self) -> str:
        """What stays the same as long as the image has the same content.

        An image that is made known again, as to a Volt that lost its database, has it too if its
        root hash is the same; without a hash tree nobody can tell, and it is another.
        """
        return self.tree.root if self.tree else self.identity


@dataclass(frozen=True)
class Shape:
    """What trees an image shall have; None leaves it to Volt."""

    shape: str | None = None
    stripes: int | None = None
    fanout: int | None = None


@dataclass(frozen=True)
class Revision:
    """One revision of a boot profile, as Volt lists them.

    :ivar stored_at: in ISO 8601
    :ivar host: who stored it; None if it was no host
    """

    revision: int
    bytes: int
    stored_at: str
    host: str | None = None


@dataclass(frozen=True)
class ImageReport:
    """What this host has done with an image since it attached it.

    :ivar generation: of the placement in use
    :ivar sent: bytes sent to children
    :ivar hits: reads that the cache could serve
    :ivar misses: reads that it could not
    :ivar ahead: this host fetches ahead of its VMs now
    :ivar copied: bytes of a copy of all of it that are here
    :ivar whole: all of it is here, and it needs no parents
    :ivar complete: the stripes of which all is here
    :ivar declines: a copy cannot be made here now, or was given back a moment ago
    :ivar waits: VMs here wait for what they read, a good part of the time
    """

    generation: int
    sent: int = 0
    hits: int = 0
    misses: int = 0
    ahead: bool = False
    copied: int = 0
    whole: bool = False
    complete: tuple[int, ...] = ()
    declines: bool = False
    waits: bool = False


@dataclass(frozen=True)
class Report:
    """The whole state of this host; network traffic in bytes a second.

    :ivar overloaded: this host asks for no new children
    :ivar disks: how many VMs and snapshots are here, by image: Volt keeps these images for them;
        0 if this host wants the image
    :ivar room: bytes that copies of whole images could still take
    """

    images: Mapping[str, ImageReport]
    received_rate: int = 0
    sent_rate: int = 0
    overloaded: bool = False
    disks: Mapping[str, int] = field(default_factory=dict)
    room: int = 0


@dataclass(frozen=True)
class News:
    """Volt's answer to a heartbeat.

    :ivar interval: seconds until the next heartbeat
    :ivar placements: those that changed since the generations that were sent
    :ivar unknown: images in which Volt has no place for this host
    :ivar shares: bytes/s that this host may fetch ahead, of images to which a cap applies
    :ivar read: images in which this host fetches ahead, and VMs of any host wait for what they read
    """

    interval: float
    placements: tuple[Placement, ...]
    unknown: tuple[str, ...]
    shares: Mapping[str, int] = field(default_factory=dict)
    read: tuple[str, ...] = ()


@dataclass(frozen=True)
class Wish:
    """An image that this host shall warm; workload is whose profile says what to fetch.

    :ivar generation: by which Volt knows one wish from another
    """

    image: str
    workload: str
    generation: int


@dataclass(frozen=True)
class Placements:
    """All placements of this host, and the tag by which Volt knows whether they changed.

    :ivar wishes: what this host shall warm
    """

    tag: str
    placements: tuple[Placement, ...]
    wishes: tuple[Wish, ...]


@dataclass(frozen=True)
class Import:
    """How far an image is that hosts want and Volt does not know yet; in bytes of one step.

    :ivar state: "wanted" while any importer may begin, else "running" or "failed"
    :ivar importer: who makes it, or did so last; None if nobody has
    :ivar detail: the step, or why it failed
    :ivar waiting: hosts that want it
    """

    image: str
    state: str
    importer: str | None = None
    done: int = 0
    total: int = 0
    detail: str = ""
    waiting: int = 0


class Warming(StrEnum):
    """How far this host is with an image that Volt asked it to warm."""

    FETCHING = "fetching"
    WARM = "warm"
    FAILED = "failed"


@dataclass(frozen=True)
class Warmup:
    """What Volt hears of an image that it asked this host to warm; in bytes.

    :ivar wanted: what its profile names
    :ivar there: of it, what is here
    :ivar detail: why it failed
    """

    state: Warming
    wanted: int = 0
    there: int = 0
    detail: str = ""


class Coordinator(Protocol):
    """Volt, seen from one host.

    Every request may be sent twice with the same outcome as once.

    :ivar url: where Volt answers
    :ivar host: name of this host
    """

    url: str
    host: str

    def image(self, name: str) -> ImageInfo:
        """Return what Volt knows of an image.

        :raises ImageUnknown: if it is not registered
        """

    def importing(self, name: str) -> Import:
        """Return how far an image is that this host said that it wants, and Volt does not know."""

    def upper_hashes(self, name: str) -> bytes:
        """Return the levels of an image's hash tree above the leaves."""

    def basis(self, name: str) -> bytes:
        """Return what an image has in common with those on which it is based."""

    def join(self, image: str, portal: Portal) -> Placement:
        """Take a place in an image's trees, serving it on ``portal``; repeatable."""

    def placement(self, image: str) -> Placement:
        """Return this host's present place."""

    def placements(self, tag: str, wait: float) -> Placements | None:
        """Return all places of this host; None if none has changed for ``wait`` seconds.

        :param tag: of the placements that are known; empty if none are
        """

    def ready(self, image: str, generation: int, stripes: Collection[int] | None = None) -> None:
        """Say that the placement of this generation is in use, perhaps only in some stripes.

        :raises PlacementStale: if there is a newer one
        """

    def report(self, image: str, parent: str, reason: str = SILENT) -> str:
        """Say what is wrong with a parent, or standby; return what Volt makes of it."""

    def leave(self, image: str) -> None:
        """Have the children placed elsewhere; this host keeps serving meanwhile.

        Fine if Volt has no place for this host: then it sends nobody here.
        """

    def needed(self, image: str) -> bool:
        """Tell whether, after ``leave``, somebody may still read from this host."""

    def remove(self, image: str) -> None:
        """Give the place up; repeatable."""

    def holds(self) -> Mapping[str, int]:
        """Return for how many disks of this host Volt keeps which images."""

    def release(self, image: str) -> None:
        """Say that this host has no disk of an image, before a heartbeat does; repeatable."""

    def profile(self, image: str, workload: str) -> tuple[bytes, str] | None:
        """Return the newest boot profile and its tag; None if there is none."""

    def store_profile(self, image: str, workload: str, content: bytes, tag: str | None) -> None:
        """Store a boot profile in place of the one that has this tag; None: of none.

        :raises ProfileStale: if there is another one by now: fetch it, merge, and store that
        """

    def tell_warmup(self, wish: Wish, warmup: Warmup) -> None:
        """Say how far this host is with an image that Volt asked it to warm.

        :raises CoordinatorRefused: if that is not Volt's wish any more
        """

    def heartbeat(self, report: Report) -> News:
        """Tell Volt the state of this host and hear what changed."""

    def keep_layer(
        self,
        name: str,
        size: int,
        layer: Layer,
        source: Portal,
        proof: Proof,
        hashes: tuple[HashTree, bytes],
    ) -> None:
        """Make a layer known that this host has made, and serves; repeatable.

        :param size: bytes of the layer itself
        :param proof: what the source asks for
        :param hashes: its hash tree, and the upper levels of that
        :raises ImageUnknown: if Volt does not know its parent
        """

    def drop_layer(self, name: str, elsewhere: bool = False) -> None:
        """Make a layer unknown that this host has made.

        :param elsewhere: if it is needed, have a host that has all of it stand for this one
        :raises ImageUnknown: if it is so already
        :raises CoordinatorRefused: if it is needed elsewhere, and nobody has all of it
        """

    def certify(self, request: str, listens: tuple[str, int] | None) -> tuple[str, str]:
        """Have a certificate signed; return it and that of the authority.

        :param listens: address and port at which this host listens to others; None if it only asks
        """

    def listener(self, host: str) -> tuple[str, int]:
        """Return address and port at which another host's agent listens.

        :raises PeerUnknown: if Volt knows of none
        """
