"""What devices an image needs on this node, and what each of them lies on.

Pure: a plan is data. ``stack`` carries it out, in order. ``image`` has all devices of an image in
the order in which they come up; see there why that is not the order in which they lie on each
other. These are, bottom to top, for an image of two stripes::

    path0 ...   path1 ...     one a parent: its disk, from the image's first byte on
    verity0     verity1       the same, but wrong bytes are errors; see below
       s0          s1         multipath: queues I/O while there is no path
        └─ stripe ─┘          dm-switch: 1 MiB regions dealt to the stripes in turn
           cache              what was read once stays here
          (kept)              dm-switch: of a ring, stripes that pass the cache by; ``keeping``
           image              cache first, stripe second: the cache may die, the image not
        ┌────┴─────┐
     export0    export1       1 MiB of zeros, then this stripe's regions; served to children
     reader*    reader*       the same regions, for the VMs of this node; see ``sizes.READERS``
        └ readers ─┘          dm-switch again: pieces of the image dealt to the readers in turn
          origin              multipath: the image, as VMs read it
           base               zeros behind it: what every VM of this node starts from
          vm ...              one snapshot a VM

A layer is an image like others up to its origin, which holds what a VM wrote over another image.
Its base is the one of that image, with this over it::

    base (of the parent)     origin (of the layer)
              └──────┬──────────┘
                   base               dm-snapshot, read-only
                   vm ...

It is no part of the image's plan: it comes when the first VM does, and the parent with it.

While an image is cold, its VMs read it through the page caches of the exports: a block that
they and children want at once is read from below once, and a read of a few sectors becomes one
of whole blocks. What is warm VMs read from the cache itself: it is the first path of the origin
then, and the readers are the second one. The cache may miss a few sectors then, so below it there
are regions of each stripe, readers of these, and pieces dealt to them, as above it otherwise.

An export begins with zeros because a child's kernel looks for partitions at the start
of every new disk. It finds none, at once: a child's login never waits for data that
would have to come through the parent's own parents.

Where other images on the node have blocks of this one, they come from there: ``lending``.

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

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from virtman.model import chain, feeding, hashtree, lending, local, plan
from virtman.model.naming import Device
from virtman.model.sizes import (
    BLOCK,
    FEW,
    HEADER,
    PIECE,
    READERS,
    REGION,
    SECTOR,
    SPAN,
    padded,
    sectors,
)
from virtman.model.wanted import Wanted


def image(wanted: Wanted) -> plan.Plan:
    """All devices of an image, in the order in which they come up.

    First what children log in to: the image holds their I/O back until it lies on something, so
    all levels of a tree come up at the same time. That is all until there is a placement. Then
    comes what lies below, bottom to top. So the image, and the multipath of the leaves, come
    twice: first on nothing, then on what is below.

    VMs may miss a few sectors of the cache only while something below it can fetch these. So the
    origin is put on the cache after that is there, and taken off it before that goes. Paths come
    before both: who swaps a table waits for reads, which may wait for a path.

    What is read from a local copy has no parents, no cache and no stripes. VMs read it as they read
    what is cold, and so they read what others lend something of (``lending``). So does who reads
    some stripes past the cache: nothing but page caches keeps these.
    """
    if wanted.local or wanted.lenders or wanted.kept is not None:
        wanted = replace(wanted, warm=False)
    return lending.without_queues(wanted, _image(wanted))


def _image(wanted: Wanted) -> plan.Plan:
    served = _served(wanted)
    if wanted.placement is None:
        return served
    export = next(step for step in served if isinstance(step, plan.Export))
    children = Device(wanted.image, "children")
    admission = plan.Admission(children, 0, (export.device,), export, wanted.placement.proof)
    hashes = _hashes(wanted) if wanted.is_verified else ()
    if wanted.local:
        copy = (*local.leaves(wanted), *local.image(wanted))
        lent = lending.lent(wanted, copy[-1].below)
        return (*served, admission, *hashes, *copy, *lent, *_start(wanted))
    before, after = ((), _start(wanted)) if wanted.warm else (_start(wanted), ())
    feeds = feeding.steps(wanted, wanted.placement)
    return (*served, admission, *hashes, *feeds, *before, *_assembled(wanted), *after)


def spent(wanted: Wanted) -> plan.Plan:
    """What an image does not need where it is read from now, but did before; bottom to top.

    Over parents that is its copy; over its copy all between the parents and the image. Paths to
    parents, which only the kernel knows, are not among it.
    """
    mixed = lending.mixed(wanted) if wanted.basis and not wanted.lenders else ()
    if not wanted.local:
        below, above = local.devices(wanted)
        return (*below, *above, *_not_kept(wanted), *mixed)
    *lower, _ = _assembled(replace(wanted, warm=True, kept=wanted.kept or frozenset()))
    return (*feeding.multipaths(wanted), *lower, *mixed)


def remains(wanted: Wanted, voids: plan.Plan, below: plan.Plan, above: plan.Plan) -> plan.Plan:
    """Everything of an image that the kernel may have, bottom to top.

    The voids go last: until then they tell which image all the others belong to. By a device's
    name a new agent finds what is left of an image, which a loop device has not.

    :param voids: that the kernel has, be they of an earlier image
    :param below: paths that it has, below the leaves
    :param above: and above them
    """
    void, *served = _served(wanted)
    under_leaves, copy = local.devices(wanted)
    if wanted.tree is not None:
        upper, hashes = _hashes(wanted)
        below = (upper, *below, *under_leaves, *_leaves(wanted), hashes)
    *lower, image = _assembled(replace(wanted, warm=True, lenders=(), kept=frozenset()))
    lower = [*feeding.multipaths(wanted), *lower, *lending.mixed(wanted), image]
    above = (*above, *copy, *lower, *lending.lent(replace(wanted, lends=True), ()))
    return (*voids, void, *below, *above, *served, *_start(wanted), base(wanted))


def _leaves(wanted: Wanted) -> plan.Plan:
    """The leaves of the hash tree, still without a parent: they hold their I/O back."""
    paths = feeding.leaves(wanted)
    reader = Device(wanted.image, "leafcache")
    return (paths, plan.Reader(reader, paths.sectors, (paths.device,), paths.device.node))


def _hashes(wanted: Wanted) -> plan.Plan:
    """The upper levels of the hash tree, and the whole of it."""
    first, *rest = (blocks * BLOCK // SECTOR for blocks in hashtree.levels(wanted.size))
    file = plan.File(Device(wanted.image, "upper"), sum(rest), (), wanted.upper)
    below = (file.device, Device(wanted.image, "leafcache"))
    hashes = Device(wanted.image, "hashes")
    return (file, plan.Hashes(hashes, sum(rest) + first, below, sum(rest)))


def _served(wanted: Wanted) -> plan.Plan:
    """The image and all that lies on it, before there is anything to read.

    The void comes up before all others and goes after them. Its name says which image of
    this name they belong to.
    """
    length = padded(wanted.size)
    behind = _leaves(wanted) if wanted.tree is not None else ()
    top = plan.Image(Device(wanted.image, "image"), length, ())
    void = _void(wanted)
    exports = []
    for index in range(wanted.stripes):
        last = behind[-1:] if index == 0 else ()
        tail = sum(step.sectors for step in last)
        export = plan.Export(
            Device(wanted.image, f"export{index}"),
            HEADER // SECTOR + length + tail,
            (*_regions(top, void, index, wanted.stripes), *(step.device for step in last)),
            wanted.read_ahead,
            wanted.portal.disk(index),
            tail,
        )
        exports.append(export)
    readers = _dealt("reader", exports, Device(wanted.image, "readers"), length)
    return (void, *behind, top, *exports, *readers)


def _void(wanted: Wanted) -> plan.Void:
    known = mark(wanted.size, wanted.identity)
    return plan.Void(Device(wanted.image, "void", known), padded(wanted.size), ())


def _regions(step: plan.Step, void: plan.Void, stripe: int, stripes: int) -> tuple[Device, ...]:
    """Return what regions lie on in turn: the step where they are the stripe's, else the void."""
    return tuple((step if one == stripe else void).device for one in range(stripes))


def _dealt(role: str, stripes: Sequence[plan.Regions], top: Device, length: int) -> plan.Plan:
    """Readers of each stripe, and the pieces of the image dealt to them in turn.

    A reader begins at a block of its own, by which it is known.
    """
    readers: list[plan.Reader] = []
    dealt: list[plan.Reader] = []
    count = READERS if len(stripes) <= FEW else 1
    for index, regions in enumerate(stripes):
        offsets = [HEADER - number * BLOCK for number in range(count)]
        own = [
            plan.Reader(
                Device(top.image, f"{role}{index}", str(number)),
                length + (HEADER - offset) // SECTOR,
                (regions.device,),
                regions.device.node,
                offset,
            )
            for number, offset in enumerate(offsets)
        ]
        readers += own
        dealt += own * (REGION // PIECE // count)
    below = tuple(reader.device for reader in dealt)
    begins = tuple(HEADER - reader.offset for reader in dealt)
    return (*readers, plan.Stripe(top, length, below, PIECE, begins))


def mark(size: int, identity: str) -> str:
    """Return what tells an image from others that had its name; fit to be part of a name."""
    return hashlib.sha256(f"{size} {identity}".encode()).hexdigest()[:16]


def _assembled(wanted: Wanted) -> plan.Plan:
    """What puts the stripes together, the cache, and the image on top of it.

    While VMs read from the cache itself, it may miss a few sectors. dm-verity takes whole blocks
    only, so what is missed is read through a page cache then.
    """
    length = padded(wanted.size)
    feeds = feeding.multipaths(wanted)
    fetch = _fetching(feeds, _void(wanted), wanted.read_ahead) if wanted.warm else _striped(feeds)
    keep = cache(wanted)
    chosen = () if wanted.kept is None else (_kept(wanted, keep),)
    own = ((*chosen, keep)[0].device, *keep.below)
    mixed = lending.mixed(wanted) if wanted.lenders else ()
    best = tuple(step.device for step in mixed[-1:])
    image = plan.Image(Device(wanted.image, "image"), length, (*best, *own))
    return (*fetch, keep, *chosen, *mixed, *lending.lent(wanted, own), image)


def _not_kept(wanted: Wanted) -> plan.Plan:
    """Return what led stripes past the cache, where it keeps all of a ring now."""
    in_ring = wanted.placement is not None and wanted.placement.owns is not None
    return (_kept(wanted, cache(wanted)),) if in_ring and wanted.kept is None else ()


def _kept(wanted: Wanted, keep: plan.Cache) -> plan.Stripe:
    """The stripes that the cache keeps, and the others past it."""
    kept = wanted.kept or ()
    below = tuple(
        keep.device if stripe in kept else keep.below[0] for stripe in range(wanted.stripes)
    )
    top = Device(wanted.image, "kept")
    return plan.Stripe(top, keep.sectors, below, REGION, (0,) * wanted.stripes)


def cache(wanted: Wanted) -> plan.Cache:
    """The image's member of the cache group, over all stripes."""
    below = (Device(wanted.image, "stripe"),)
    known = mark(wanted.size, wanted.identity)
    return plan.Cache(Device(wanted.image, "cache"), padded(wanted.size), below, known)


def _striped(feeds: Sequence[plan.Multipath]) -> plan.Plan:
    below = tuple(step.device for step in feeds)
    top = Device(below[0].image, "stripe")
    return (plan.Stripe(top, feeds[0].sectors, below, REGION, (0,) * len(feeds)),)


def _fetching(feeds: Sequence[plan.Multipath], void: plan.Void, read_ahead: int) -> plan.Plan:
    image, length = void.device.image, void.sectors
    regions = tuple(
        plan.Regions(
            Device(image, f"regions{index}"),
            HEADER // SECTOR + length,
            _regions(feed, void, index, len(feeds)),
            read_ahead,
        )
        for index, feed in enumerate(feeds)
    )
    return (*regions, *_dealt("fetcher", regions, Device(image, "stripe"), length))


def _start(wanted: Wanted) -> plan.Plan:
    """What every VM of this node starts from, or of a layer what lies over that of its parent."""
    readers = Device(wanted.image, "readers")
    below = (Device(wanted.image, "cache"), readers) if wanted.warm else (readers,)
    origin = plan.Image(Device(wanted.image, "origin"), padded(wanted.size), below)
    return (origin,) if wanted.lies_on else (origin, base(wanted))


def base(wanted: Wanted) -> plan.Step:
    """The image and zeros behind it, or a layer over its parent's base."""
    device, origin = Device(wanted.image, "base"), Device(wanted.image, "origin")
    if wanted.lies_on:
        return plan.Over(device, sectors(SPAN), (Device(wanted.lies_on, "base"), origin))
    # not from the end of the last block on: a source may have more there
    return plan.Base(device, sectors(SPAN), (origin,), sectors(wanted.size))


def instance(vm: chain.Instance, stores: Sequence[chain.Store]) -> plan.Plan:
    """A VM's private device: its stores, the first one on the base."""
    return (*(store(one) for one in stores), device(vm))


def device(vm: chain.Instance) -> plan.Instance:
    """What a VM boots from, on its last store."""
    last = Device(vm.image, "store", vm.store)
    return plan.Instance(Device(vm.image, "vm", vm.vm), sectors(vm.size), (last,))


def store(one: chain.Store) -> plan.Store:
    """An exception store over what it lies on.

    All devices below a VM's own are longer than any VM's: one that grows changes none of them.
    """
    lower = Device(one.image, "store", one.lower) if one.lower else Device(one.image, "base")
    device = Device(one.image, "store", one.name)
    return plan.Store(device, sectors(SPAN), (lower,), one.path, one.merging, one.size)
