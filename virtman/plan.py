"""What devices an image needs on this node, and what each of them lies on.

Pure: a plan is data. ``stack`` carries it out, in order. The devices, bottom to top::

    path ...            one a parent: its disk from the image's first byte on
    multipath s0 s1     one a stripe; queues I/O while there is no path
    stripe              dm-switch: 1 MiB regions dealt to the stripes in turn
    cache               what was read once stays here
    image               cache first, stripe second: the cache may die, the image does not
    export              1 MiB of zeros, then the image; served to the children
    reader              the image part of the export, for the VMs of this node
    snapshot            one a VM

An export begins with zeros because a child's kernel looks for partitions at the start
of every new disk. It finds none, at once: a child's login never waits for data that
would have to come through the parent's own parents.
"""

from __future__ import annotations

from dataclasses import dataclass

from virtman.errors import InvalidSize
from virtman.naming import Device, iqn

SECTOR = 512
HEADER = 1024 * 1024
"""Bytes of zeros before the image in an export."""


@dataclass(frozen=True)
class Portal:
    """Where an image is served: an iSCSI portal, target and LUN.

    :ivar offset: bytes on the LUN before the image's first byte
    """

    ip: str
    port: int
    iqn: str
    lun: int = 0
    offset: int = 0


@dataclass(frozen=True)
class Parent:
    """A host that feeds this one; the source's name is "source"."""

    host: str
    portal: Portal


@dataclass(frozen=True)
class Feed:
    """Who feeds one stripe: the parent, and who takes over if it dies."""

    parent: Parent
    standby: Parent | None = None

    @property
    def parents(self) -> tuple[Parent, ...]:
        """Parent first, then standby."""
        return (self.parent, self.standby) if self.standby else (self.parent,)


@dataclass(frozen=True)
class Placement:
    """Where Volt has put this host in an image's trees: one feed a stripe."""

    image: str
    size: int
    generation: int
    feeds: tuple[Feed, ...]

    @property
    def sectors(self) -> int:
        """Size of the image in sectors."""
        return sectors(self.size)


@dataclass(frozen=True)
class Step:
    """One device: what makes it, what it is called, how long it is, what it lies on."""

    device: Device
    sectors: int
    below: tuple[Device, ...]


@dataclass(frozen=True)
class Path(Step):
    """A parent's disk; no portal where only the kernel knows it any more."""

    portal: Portal | None


@dataclass(frozen=True)
class Multipath(Step):
    """The paths of one stripe, best first."""


@dataclass(frozen=True)
class Stripe(Step):
    """All stripes, put together."""


@dataclass(frozen=True)
class Cache(Step):
    """A member of the node's cache group."""


@dataclass(frozen=True)
class Image(Step):
    """The stable device that everything above refers to."""


@dataclass(frozen=True)
class Export(Step):
    """The image, served."""

    portal: Portal


@dataclass(frozen=True)
class Reader(Step):
    """The image as the VMs of this node read it."""


@dataclass(frozen=True)
class Snapshot(Step):
    """A VM's own device."""

    store: str


@dataclass(frozen=True)
class Source(Step):
    """A raw file or block device that has all of the image."""

    path: str
    portal: Portal


Plan = tuple[Step, ...]


def sectors(size: int) -> int:
    """Return a size in bytes as sectors.

    :raises InvalidSize: if no block device can have that size
    """
    if size <= 0 or size % SECTOR:
        raise InvalidSize(f"size {size}: must be a positive multiple of {SECTOR} bytes")
    return size // SECTOR


def own_portal(host: str, image: str, ip: str, port: int) -> Portal:
    """Where this host serves an image."""
    return Portal(ip, port, iqn(host, image), 0, HEADER)


def serve(image: str, size: int, portal: Portal) -> Plan:
    """First the image and its export, before there is anything to read.

    The image holds its I/O back until it lies on something, so children may log in
    and read at once; all levels of a tree come up at the same time.
    """
    length = sectors(size)
    top = Image(Device(image, "image"), length, ())
    export = Device(image, "export")
    return (
        top,
        Export(export, length + HEADER // SECTOR, (top.device,), portal),
        Reader(Device(image, "reader"), length, (export,)),
    )


def assemble(image: str, size: int, stripes: int) -> Plan:
    """All that lies below the image, still without a parent, and the image on top of it."""
    length = sectors(size)
    feeds = tuple(Multipath(_stripe(image, index), length, ()) for index in range(stripes))
    stripe = Stripe(Device(image, "stripe"), length, tuple(step.device for step in feeds))
    cache = Cache(Device(image, "cache"), length, (stripe.device,))
    top = Image(Device(image, "image"), length, (cache.device, stripe.device))
    return (*feeds, stripe, cache, top)


def connect(placement: Placement, *, standby: bool = True) -> Plan:
    """The parents' disks, and the stripes over them.

    :param standby: connect those too who only take over; False to be ready sooner
    """
    name, length = placement.image, placement.sectors
    paths: dict[Device, Path] = {}
    fed = []
    for index, feed in enumerate(placement.feeds):
        parents = feed.parents if standby else (feed.parent,)
        devices = tuple(Device(name, "path", parent.host) for parent in parents)
        for device, parent in zip(devices, parents, strict=True):
            paths[device] = Path(device, length, (), parent.portal)
        fed.append(Multipath(_stripe(name, index), length, devices))
    return (*paths.values(), *fed)


def instance(image: str, size: int, vm: str, store: str) -> Plan:
    """A VM's private device over the node's reader of the image."""
    reader = Device(image, "reader")
    return (Snapshot(Device(image, "vm", vm), sectors(size), (reader,), store),)


def _stripe(image: str, index: int) -> Device:
    return Device(image, f"s{index}")
