"""What devices an image needs on this node, and what each of them lies on.

Pure: a plan is data. ``stack`` carries it out, in order. ``image`` has all devices of an image in
the order in which they come up; see there why that is not the order in which they lie on each
other. These are, bottom to top, for an image of two stripes::

    path0 ...   path1 ...     one a parent: its disk, from the image's first byte on
    verity0     verity1       the same, but wrong bytes are errors; see below
       s0          s1         multipath: queues I/O while there is no path
        └─ stripe ─┘          dm-switch: 1 MiB regions dealt to the stripes in turn
           cache              what was read once stays here
           image              cache first, stripe second: the cache may die, the image not
        ┌────┴─────┐
     export0    export1       1 MiB of zeros, then this stripe's regions; served to children
     reader*    reader*       the same regions, for the VMs of this node; see ``READERS``
        └ readers ─┘          dm-switch again: pieces of the image dealt to the readers in turn
          origin              multipath: what every VM of this node starts from
          vm ...              one snapshot a VM

While an image is cold, its VMs read it through the page caches of the exports: a block that
they and children want at once is read from below once, and a read of a few sectors becomes one
of whole blocks. What is warm VMs read from the cache itself: it is the first path of the origin
then, and the readers are the second one. The cache may miss a few sectors then, so below it there
are regions of each stripe, readers of these, and pieces dealt to them, as above it otherwise.

An export begins with zeros because a child's kernel looks for partitions at the start
of every new disk. It finds none, at once: a child's login never waits for data that
would have to come through the parent's own parents.

Each stripe has an export, and so a page cache, of its own, because a page cache reads
ahead. Two hosts may be each other's parent, one in each stripe. Were both stripes read
through one page cache, a read-ahead across the border of two regions would hold the
pages of one stripe locked until the other stripe's part has come, on both hosts at
once: each would wait for the other for ever. In an export, regions of other stripes are
an ``error`` target: a read-ahead into them fails at once, and nobody asks for them.

What an image's blocks must be its hash tree says (``virtman.model.hashtree``), of which a node
has the upper levels in a file. The leaves lie behind the image in the export of the first
stripe, and come the same way::

    leafpath ...              one a parent of stripe 0: the leaves on its disk
    leafverity ...            verified by the upper levels
       leaves                 multipath, as above
     leafcache                buffered reader: fetched once, for the two above it
       │  └── export0         behind the image, for the children
     hashes                   upper levels, then leaves: what verity0, verity1 ... go by

A block that is wrong is thus an error of one path, and read again from the next one; it
never reaches the cache. Leaves come through one tree alone, which has no cycle: to verify
a block, a host waits only for its ancestors in the first stripe.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from virtman.errors import InvalidSize
from virtman.model import address, chain, hashtree
from virtman.model.address import Portal, Proof
from virtman.model.hashtree import HashTree
from virtman.model.naming import Device

SECTOR = 512
BLOCK = 4096
"""Bytes; the cache's block. An image's devices are whole blocks long, padded with zeros."""

HEADER = 1024 * 1024
"""Bytes of zeros before the regions of a stripe."""

REGION = 1024 * 1024
"""Bytes dealt to one stripe at a time; the same on every node, for parents serve no more."""

READERS = 4
"""Readers of a stripe. Each reads one block after another: what one of them asks for at a time
does not keep the line to a parent busy."""

PIECE = 128 * 1024
"""Bytes of a region that one reader reads before the next one takes its turn."""

READ_AHEAD = 64 * 1024
"""Bytes that a reader, and who serves children, asks for before they are wanted."""

SOURCE = "source"
"""What the root of a tree is called where hosts have names."""


@dataclass(frozen=True)
class Parent:
    """A host that feeds this one; the source's name is "source".

    :ivar proof: what to prove to it; None if it asks for nothing
    """

    host: str
    portal: Portal
    proof: Proof | None = None


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

    :ivar proof: what this host's children must prove to it
    """

    image: str
    size: int
    generation: int
    proof: Proof
    feeds: tuple[Feed, ...]

    def parents(self) -> set[str]:
        """Return the hosts that feed this one, without those who only take over."""
        return {feed.parent.host for feed in self.feeds}

    def portals(self) -> Mapping[str, Portal]:
        """Return where each host serves from whom this one reads, or would; by name."""
        parents = (parent for feed in self.feeds for parent in feed.parents)
        return {parent.host: parent.portal for parent in parents}


class Parents(enum.Enum):
    """Which of its parents an image reads from."""

    NONE = "none yet"
    FIRST = "one a stripe, to be ready sooner"
    ALL = "those who take over too"


@dataclass(frozen=True)
class Wanted:
    """What an image shall be on this node: all of its devices follow from that.

    :ivar portal: where this node serves it
    :ivar upper: path of the file with the upper levels of its hash tree
    :ivar verify: whether what parents send is held against the tree
    :ivar placement: None until Volt has given this node a place
    :ivar warm: whether VMs read from the cache itself
    """

    image: str
    size: int
    stripes: int
    identity: str
    tree: HashTree | None
    portal: Portal
    upper: str
    verify: bool = True
    placement: Placement | None = None
    parents: Parents = Parents.NONE
    warm: bool = False

    @property
    def is_verified(self) -> bool:
        """Tell whether wrong bytes of parents are held back."""
        return self.verify and self.tree is not None


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
    proof: Proof | None = None


@dataclass(frozen=True)
class Verity(Step):
    """What lies below, first of the two devices, verified by the hashes on the second.

    No tree where only the kernel knows it any more.
    """

    tree: HashTree | None


@dataclass(frozen=True)
class Multipath(Step):
    """The paths of one stripe, best first."""


@dataclass(frozen=True)
class Stripe(Step):
    """All stripes, put together: pieces of the image, dealt to what lies below in turn.

    :ivar piece: bytes
    :ivar begins: for each device below, the byte on it where the image begins
    """

    piece: int
    begins: tuple[int, ...]


@dataclass(frozen=True)
class Cache(Step):
    """A member of the node's cache group.

    :ivar mark: tells the image from an earlier one of the same name
    """

    mark: str


@dataclass(frozen=True)
class Image(Step):
    """A stable device for all above to refer to, whatever it lies on; best first."""


@dataclass(frozen=True)
class Void(Step):
    """What there is in place of other stripes' regions: errors."""


@dataclass(frozen=True)
class Regions(Step):
    """One stripe of what lies below, past a header of zeros; on the void elsewhere."""


@dataclass(frozen=True)
class Export(Regions):
    """The same of the image, served.

    :ivar leaves: sectors of leaves behind the image; they are the last device below
    """

    portal: Portal
    leaves: int = 0


@dataclass(frozen=True)
class Admission(Step):
    """No device: what children must prove to log in to an export, and so to all of its target."""

    export: Export
    proof: Proof


@dataclass(frozen=True)
class Reader(Step):
    """A file, or a device, from some byte on, read-only and buffered.

    :ivar path: of what is read
    :ivar offset: bytes
    """

    path: str
    offset: int = 0


@dataclass(frozen=True)
class File(Reader):
    """A file that was made for this device, and goes with it."""


@dataclass(frozen=True)
class Hashes(Step):
    """The upper levels of a hash tree, and its leaves."""

    upper: int


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
    """Where this host serves an image: stripe s is disk s."""
    return address.served_by(host, image, ip, port, HEADER)


def image(wanted: Wanted) -> Plan:
    """All devices of an image, in the order in which they come up.

    First what children log in to: the image holds their I/O back until it lies on something, so
    all levels of a tree come up at the same time. That is all until there is a placement. Then
    comes what lies below, bottom to top. So the image, and the multipath of the leaves, come
    twice: first on nothing, then on what is below.

    VMs may miss a few sectors of the cache only while something below it can fetch these. So the
    origin is put on the cache after that is there, and taken off it before that goes. Paths come
    before both: who swaps a table waits for reads, which may wait for a path.
    """
    served = _served(wanted)
    if wanted.placement is None:
        return served
    export = next(step for step in served if isinstance(step, Export))
    children = Device(wanted.image, "children")
    admission = Admission(children, 0, (export.device,), export, wanted.placement.proof)
    before, after = ((), (_origin(wanted),)) if wanted.warm else ((_origin(wanted),), ())
    hashes = _hashes(wanted) if wanted.is_verified else ()
    feeds = _fed(wanted, wanted.placement)
    return (*served, admission, *hashes, *feeds, *before, *_assembled(wanted), *after)


def remains(wanted: Wanted, voids: Plan, below: Plan, above: Plan) -> Plan:
    """Everything of an image that the kernel may have, bottom to top.

    The voids go last: until then they tell which image all the others belong to. By a device's
    name a new agent finds what is left of an image, which a loop device has not.

    :param voids: that the kernel has, be they of an earlier image
    :param below: paths that it has, below the leaves
    :param above: and above them
    """
    void, *served = _served(wanted)
    if wanted.tree is not None:
        upper, hashes = _hashes(wanted)
        below = (upper, *below, *_leaves(wanted), hashes)
    feeds = tuple(Multipath(_stripe(wanted.image, index), padded(wanted.size), ())
                  for index in range(wanted.stripes))  # fmt: skip
    lower = (*feeds, *_assembled(replace(wanted, warm=True)))
    return (*voids, void, *below, *above, *lower, *served, _origin(wanted))


def is_fed(step: Step) -> bool:
    """Tell whether how a device is depends on parents, whatever was done here."""
    return isinstance(step, Path | Verity) or (isinstance(step, Multipath) and bool(step.below))


def _leaves(wanted: Wanted) -> Plan:
    """The leaves of the hash tree, still without a parent: they hold their I/O back."""
    length = hashtree.leaves(wanted.size) // SECTOR
    paths = Multipath(Device(wanted.image, "leaves"), length, ())
    reader = Device(wanted.image, "leafcache")
    return (paths, Reader(reader, length, (paths.device,), paths.device.node))


def _hashes(wanted: Wanted) -> Plan:
    """The upper levels of the hash tree, and the whole of it."""
    first, *rest = (blocks * BLOCK // SECTOR for blocks in hashtree.levels(wanted.size))
    file = File(Device(wanted.image, "upper"), sum(rest), (), wanted.upper)
    below = (file.device, Device(wanted.image, "leafcache"))
    hashes = Device(wanted.image, "hashes")
    return (file, Hashes(hashes, sum(rest) + first, below, sum(rest)))


def _served(wanted: Wanted) -> Plan:
    """The image and all that lies on it, before there is anything to read.

    The void comes up before all others and goes after them. Its name says which image of
    this name they belong to.
    """
    length = padded(wanted.size)
    behind = _leaves(wanted) if wanted.tree is not None else ()
    top = Image(Device(wanted.image, "image"), length, ())
    void = _void(wanted)
    exports = []
    for index in range(wanted.stripes):
        last = behind[-1:] if index == 0 else ()
        tail = sum(step.sectors for step in last)
        export = Export(
            Device(wanted.image, f"export{index}"),
            HEADER // SECTOR + length + tail,
            (*_regions(top, void, index, wanted.stripes), *(step.device for step in last)),
            wanted.portal.disk(index),
            tail,
        )
        exports.append(export)
    readers = _dealt("reader", exports, Device(wanted.image, "readers"), length)
    return (void, *behind, top, *exports, *readers)


def _void(wanted: Wanted) -> Void:
    known = mark(wanted.size, wanted.identity)
    return Void(Device(wanted.image, "void", known), padded(wanted.size), ())


def _regions(step: Step, void: Void, stripe: int, stripes: int) -> tuple[Device, ...]:
    """Return what regions lie on in turn: the step where they are the stripe's, else the void."""
    return tuple((step if one == stripe else void).device for one in range(stripes))


def _dealt(role: str, stripes: Sequence[Regions], top: Device, length: int) -> Plan:
    """Readers of each stripe, and the pieces of the image dealt to them in turn.

    A reader begins at a block of its own, by which it is known.
    """
    readers: list[Reader] = []
    dealt: list[Reader] = []
    for index, regions in enumerate(stripes):
        offsets = [HEADER - number * BLOCK for number in range(READERS)]
        own = [
            Reader(
                Device(top.image, f"{role}{index}", str(number)),
                length + (HEADER - offset) // SECTOR,
                (regions.device,),
                regions.device.node,
                offset,
            )
            for number, offset in enumerate(offsets)
        ]
        readers += own
        dealt += own * (REGION // PIECE // READERS)
    below = tuple(reader.device for reader in dealt)
    begins = tuple(HEADER - reader.offset for reader in dealt)
    return (*readers, Stripe(top, length, below, PIECE, begins))


def mark(size: int, identity: str) -> str:
    """Return what tells an image from others that had its name; fit to be part of a name."""
    return hashlib.sha256(f"{size} {identity}".encode()).hexdigest()[:16]


def _assembled(wanted: Wanted) -> Plan:
    """What puts the stripes together, the cache, and the image on top of it.

    While VMs read from the cache itself, it may miss a few sectors. dm-verity takes whole blocks
    only, so what is missed is read through a page cache then.
    """
    length = padded(wanted.size)
    feeds = tuple(Multipath(_stripe(wanted.image, index), length, ())
                  for index in range(wanted.stripes))  # fmt: skip
    fetch = _fetching(feeds, _void(wanted)) if wanted.warm else _striped(feeds)
    keep = cache(wanted)
    image = Device(wanted.image, "image")
    return (*fetch, keep, Image(image, length, (keep.device, *keep.below)))


def cache(wanted: Wanted) -> Cache:
    """The image's member of the cache group, over all stripes."""
    below = (Device(wanted.image, "stripe"),)
    known = mark(wanted.size, wanted.identity)
    return Cache(Device(wanted.image, "cache"), padded(wanted.size), below, known)


def _striped(feeds: Sequence[Multipath]) -> Plan:
    below = tuple(step.device for step in feeds)
    top = Device(below[0].image, "stripe")
    return (Stripe(top, feeds[0].sectors, below, REGION, (0,) * len(feeds)),)


def _fetching(feeds: Sequence[Multipath], void: Void) -> Plan:
    image, length = void.device.image, void.sectors
    regions = tuple(
        Regions(
            Device(image, f"regions{index}"),
            HEADER // SECTOR + length,
            _regions(feed, void, index, len(feeds)),
        )
        for index, feed in enumerate(feeds)
    )
    return (*regions, *_dealt("fetcher", regions, Device(image, "stripe"), length))


def _origin(wanted: Wanted) -> Image:
    """What every VM of this node starts from."""
    readers = Device(wanted.image, "readers")
    below = (Device(wanted.image, "cache"), readers) if wanted.warm else (readers,)
    return Image(Device(wanted.image, "origin"), padded(wanted.size), below)


def _fed(wanted: Wanted, placement: Placement) -> Plan:
    """The parents' disks, and the multipaths over them: that of the leaves, and the stripes."""
    name, length, tree = wanted.image, padded(wanted.size), wanted.tree
    chosen = [_chosen(feed, wanted.parents) for feed in placement.feeds]
    steps: list[Step] = []
    if tree is not None and wanted.parents is not Parents.NONE:
        behind = hashtree.leaves(wanted.size) // SECTOR
        steps += _paths(
            Multipath(Device(name, "leaves"), behind, ()),
            ("leafpath", "leafverity"),
            [(parent, _serving_leaves(parent, length)) for parent in chosen[0]],
            (tree, Device(name, "upper")) if wanted.verify else None,
        )
    for index, parents in enumerate(chosen):
        steps += _paths(
            Multipath(_stripe(name, index), length, ()),
            (f"path{index}", f"verity{index}"),
            [(parent, _serving(parent, index)) for parent in parents],
            (tree, Device(name, "hashes")) if tree is not None and wanted.verify else None,
        )
    return tuple(steps)


def _chosen(feed: Feed, parents: Parents) -> tuple[Parent, ...]:
    match parents:
        case Parents.NONE:
            return ()
        case Parents.FIRST:
            return (feed.parent,)
        case Parents.ALL:
            return feed.parents


def _paths(
    top: Multipath,
    roles: tuple[str, str],
    parents: list[tuple[Parent, Portal]],
    by: tuple[HashTree, Device] | None,
) -> list[Step]:
    """Return a multipath's paths, verified by a tree on a device if there is one, and itself."""
    image = top.device.image
    paths: list[Step] = [
        Path(Device(image, roles[0], parent.host), top.sectors, (), portal, parent.proof)
        for parent, portal in parents
    ]
    ends = paths
    if by is not None:
        tree, hashing = by
        ends = [
            Verity(
                Device(image, roles[1], path.device.argument),
                top.sectors,
                (path.device, hashing),
                tree,
            )
            for path in paths
        ]
        paths = [*paths, *ends]
    return [*paths, replace(top, below=tuple(step.device for step in ends))]


def found(devices: Iterable[Device]) -> tuple[Plan, Plan]:
    """Return what the kernel has of parents: below the leaves, and above them; each in order."""
    kinds = {"leafpath": Path, "leafverity": Verity, "path": Path, "verity": Verity}
    have = {kind: [one for one in devices if one.role.rstrip("0123456789") == kind]
            for kind in kinds}  # fmt: skip
    steps = {
        kind: tuple(make(device, 0, (), None) for device in have[kind])
        for kind, make in kinds.items()
    }
    return (
        (*steps["leafpath"], *steps["leafverity"]),
        (*steps["path"], *steps["verity"]),
    )


def instance(vm: chain.Instance, stores: Sequence[chain.Store]) -> Plan:
    """A VM's private device: its stores, the first one on the origin."""
    return (*(store(one) for one in stores), device(vm))


def device(vm: chain.Instance) -> Instance:
    """What a VM boots from, on its last store."""
    last = Device(vm.image, "store", vm.store)
    return Instance(Device(vm.image, "vm", vm.vm), sectors(vm.size), (last,))


def store(one: chain.Store) -> Store:
    """An exception store over what it lies on."""
    lower = Device(one.image, "store", one.lower) if one.lower else Device(one.image, "origin")
    device = Device(one.image, "store", one.name)
    return Store(device, sectors(one.size), (lower,), one.path, one.merging)


def _serving(parent: Parent, stripe: int) -> Portal:
    """Where a parent serves a stripe; the source has all of them on one disk."""
    if parent.host == SOURCE:
        return parent.portal
    return parent.portal.disk(stripe)


def _serving_leaves(parent: Parent, length: int) -> Portal:
    """Where a parent serves the leaves: behind the image; the source on a disk of their own."""
    portal = parent.portal
    if parent.host == SOURCE:
        return replace(portal.disk(1), offset=0)
    return replace(portal, offset=portal.offset + length * SECTOR)


def _stripe(image: str, index: int) -> Device:
    return Device(image, f"s{index}")
