"""What devices an image needs on this node, and what each of them lies on.

Pure: a plan is data. ``stack`` carries it out, in order. The devices, bottom to top,
for an image of two stripes::

    path0 ...   path1 ...     one a parent: its disk, from the image's first byte on
       s0          s1         multipath: queues I/O while there is no path
        └─ stripe ─┘          dm-switch: 1 MiB regions dealt to the stripes in turn
           cache              what was read once stays here
           image              cache first, stripe second: the cache may die, the image not
        ┌────┴─────┐
     export0    export1       1 MiB of zeros, then this stripe's regions; served to children
     reader0    reader1       the same regions, for the VMs of this node
        └─ origin ─┘          dm-switch again: what every VM of this node starts from
          vm ...              one snapshot a VM

An export begins with zeros because a child's kernel looks for partitions at the start
of every new disk. It finds none, at once: a child's login never waits for data that
would have to come through the parent's own parents.

Each stripe has an export, and so a page cache, of its own, because a page cache reads
ahead. Two hosts may be each other's parent, one in each stripe. Were both stripes read
through one page cache, a read-ahead across the border of two regions would hold the
pages of one stripe locked until the other stripe's part has come, on both hosts at
once: each would wait for the other for ever. In an export, regions of other stripes are
an ``error`` target: a read-ahead into them fails at once, and nobody asks for them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from virtman import chains
from virtman.errors import InvalidSize
from virtman.naming import Device, iqn

SECTOR = 512
BLOCK = 4096
"""Bytes; the cache's block. An image's devices are whole blocks long, padded with zeros."""

HEADER = 1024 * 1024
"""Bytes of zeros before the image in an export."""

REGION = 1024 * 1024
"""Bytes dealt to one stripe at a time; the same on every node, for parents serve no more."""

SOURCE = "source"
"""What the root of a tree is called where hosts have names."""


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
class Chap:
    """What an initiator proves to a target that it knows."""

    user: str
    secret: str = field(repr=False)


@dataclass(frozen=True)
class Parent:
    """A host that feeds this one; the source's name is "source".

    :ivar chap: what to prove to it; None if it asks for nothing
    """

    host: str
    portal: Portal
    chap: Chap | None = None


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
    """Where Volt has put this host in an image's trees: one feed a stripe.

    :ivar chap: what this host's children must prove to it
    """

    image: str
    size: int
    generation: int
    chap: Chap
    feeds: tuple[Feed, ...]

    def portals(self) -> Mapping[str, Portal]:
        """Return where each host serves from whom this one reads, or would; by name."""
        parents = (parent for feed in self.feeds for parent in feed.parents)
        return {parent.host: parent.portal for parent in parents}

    def without(self, host: str) -> Placement | None:
        """Return the same with standbys in place of one parent; None if there are none."""
        feeds = [
            feed if feed.parent.host != host else feed.standby and Feed(feed.standby)
            for feed in self.feeds
        ]
        if not all(feeds):
            return None
        return replace(self, feeds=tuple(feed for feed in feeds if feed))


@dataclass(frozen=True)
class Step:
    """One device: what makes it, what it is called, how long it is, what it lies on."""

    device: Device
    sectors: int
    below: tuple[Device, ...]


@dataclass(frozen=True)
class Path(Step):
    """A parent's disk; no portal where only the kernel knows it any more.

    The source's disk may lack the image's padding.
    """

    portal: Portal | None
    chap: Chap | None = None


@dataclass(frozen=True)
class Multipath(Step):
    """The paths of one stripe, best first."""


@dataclass(frozen=True)
class Stripe(Step):
    """All stripes, put together."""


@dataclass(frozen=True)
class Cache(Step):
    """A member of the node's cache group.

    :ivar mark: tells the image from an earlier one of the same name
    """

    mark: str


@dataclass(frozen=True)
class Image(Step):
    """The stable device that everything above refers to."""


@dataclass(frozen=True)
class Void(Step):
    """What an export has in place of other stripes: errors."""


@dataclass(frozen=True)
class Export(Step):
    """One stripe of the image, served; lies on the image, and on the void elsewhere."""

    portal: Portal


@dataclass(frozen=True)
class Reader(Step):
    """One stripe of the image as the VMs of this node read it."""


@dataclass(frozen=True)
class Store(Step):
    """What lies below, and what was written over it; in a file or on a device."""

    path: str
    merging: bool


@dataclass(frozen=True)
class Instance(Step):
    """A VM's own device."""


@dataclass(frozen=True)
class Source(Step):
    """A raw file or block device that has all of the image."""

    path: str
    portal: Portal


Plan = tuple[Step, ...]


def padded(size: int) -> int:
    """Return the length of an image's devices, in sectors."""
    sectors(size)
    return -(-size // BLOCK) * BLOCK // SECTOR


def sectors(size: int) -> int:
    """Return a size in bytes as sectors.

    :raises InvalidSize: if no block device can have that size
    """
    if size <= 0 or size % SECTOR:
        raise InvalidSize(f"size {size}: must be a positive multiple of {SECTOR} bytes")
    return size // SECTOR


def own_portal(host: str, image: str, ip: str, port: int) -> Portal:
    """Where this host serves an image: stripe s is LUN s."""
    return Portal(ip, port, iqn(host, image), 0, HEADER)


def serve(image: str, size: int, portal: Portal, stripes: int, identity: str) -> Plan:
    """First the image and all that lies on it, before there is anything to read.

    The image holds its I/O back until it lies on something, so children may log in
    and read at once; all levels of a tree come up at the same time.

    The void comes up before all others and goes after them. Its name says which image of
    this name they belong to.
    """
    length = padded(size)
    top = Image(Device(image, "image"), length, ())
    void = Void(Device(image, "void", mark(size, identity)), length, ())
    steps: list[Step] = [void, top]
    readers = []
    for index in range(stripes):
        regions = tuple(top.device if one == index else void.device for one in range(stripes))
        served = replace(portal, lun=portal.lun + index)
        export = Export(Device(image, f"export{index}"), length + HEADER // SECTOR, regions, served)
        reader = Reader(Device(image, f"reader{index}"), length, (export.device,))
        steps += [export, reader]
        readers.append(reader.device)
    return (*steps, Stripe(origin(image), length, tuple(readers)))


def mark(size: int, identity: str) -> str:
    """Return what tells an image from others that had its name; fit to be part of a name."""
    return hashlib.sha256(f"{size} {identity}".encode()).hexdigest()[:16]


def assemble(image: str, size: int, stripes: int, identity: str) -> Plan:
    """All that lies below the image, still without a parent, and the image on top of it."""
    length = padded(size)
    feeds = tuple(Multipath(_stripe(image, index), length, ()) for index in range(stripes))
    stripe = Stripe(Device(image, "stripe"), length, tuple(step.device for step in feeds))
    cache = Cache(Device(image, "cache"), length, (stripe.device,), mark(size, identity))
    top = Image(Device(image, "image"), length, (cache.device, stripe.device))
    return (*feeds, stripe, cache, top)


def connect(placement: Placement, *, standby: bool = True) -> Plan:
    """The parents' disks, and the stripes over them.

    :param standby: connect those too who only take over; False to be ready sooner
    """
    name, length = placement.image, padded(placement.size)
    paths: list[Path] = []
    fed: list[Multipath] = []
    for index, feed in enumerate(placement.feeds):
        parents = feed.parents if standby else (feed.parent,)
        mine = [
            Path(
                Device(name, f"path{index}", parent.host),
                length,
                (),
                _serving(parent, index),
                parent.chap,
            )
            for parent in parents
        ]
        paths += mine
        fed.append(Multipath(_stripe(name, index), length, tuple(path.device for path in mine)))
    return (*paths, *fed)


def instance(vm: chains.Instance, chain: Sequence[chains.Store]) -> Plan:
    """A VM's private device: its stores, the first one on the node's reader of the image."""
    return (*(store(one) for one in chain), device(vm))


def device(vm: chains.Instance) -> Instance:
    """What a VM boots from, on its last store."""
    last = Device(vm.image, "store", vm.store)
    return Instance(Device(vm.image, "vm", vm.vm), sectors(vm.size), (last,))


def store(one: chains.Store) -> Store:
    """An exception store over what it lies on."""
    lower = Device(one.image, "store", one.lower) if one.lower else origin(one.image)
    device = Device(one.image, "store", one.name)
    return Store(device, sectors(one.size), (lower,), one.path, one.merging)


def origin(image: str) -> Device:
    """What every VM of this node starts from."""
    return Device(image, "origin")


def is_path(device: Device) -> bool:
    """Tell whether a device is a parent's disk."""
    return device.role.startswith("path")


def _serving(parent: Parent, stripe: int) -> Portal:
    """Where a parent serves a stripe; the source has all of them in one LUN."""
    if parent.host == SOURCE:
        return parent.portal
    return replace(parent.portal, lun=parent.portal.lun + stripe)


def _stripe(image: str, index: int) -> Device:
    return Device(image, f"s{index}")
