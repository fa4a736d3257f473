"""Through which devices an image reads from its parents: paths, verified, and multipaths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from virtman.model import hashtree, plan
from virtman.model.address import Portal
from virtman.model.hashtree import HashTree
from virtman.model.naming import Device
from virtman.model.placement import SOURCE, Feed, Parent, Placement
from virtman.model.sizes import SECTOR, padded
from virtman.model.wanted import Parents, Wanted


def steps(wanted: Wanted, placement: Placement) -> plan.Plan:
    """The parents' disks, and the multipaths over them: that of the leaves, and the stripes."""
    name, length, tree = wanted.image, padded(wanted.size), wanted.tree
    chosen = [_chosen(feed, wanted.parents) for feed in placement.feeds]
    found: list[plan.Step] = []
    if tree is not None and wanted.parents is not Parents.NONE:
        found += _paths(
            leaves(wanted),
            ("leafpath", "leafverity"),
            [(parent, _serving_leaves(parent, length)) for parent in chosen[0]],
            (tree, Device(name, "upper")) if wanted.verify else None,
        )
    for index, parents in enumerate(chosen):
        found += _paths(
            _multipath(wanted, index),
            (f"path{index}", f"verity{index}"),
            [(parent, _serving(parent, index)) for parent in parents],
            (tree, Device(name, "hashes")) if tree is not None and wanted.verify else None,
        )
    return tuple(found)


def multipaths(wanted: Wanted) -> tuple[plan.Multipath, ...]:
    """The multipath of each stripe, still without a parent: it holds its I/O back."""
    return tuple(_multipath(wanted, index) for index in range(wanted.stripes))


def leaves(wanted: Wanted) -> plan.Multipath:
    """The multipath of the leaves of the hash tree, still without a parent.

    They are read through a page cache. Its read-ahead is like that of the image's own: disks' usual
    one would fetch the hashes of 32 MiB at a time.
    """
    length = hashtree.leaves(wanted.size) // SECTOR
    top = Device(wanted.image, "leaves")
    return plan.Multipath(top, length, (), read_ahead=wanted.read_ahead)


def paths(placement: Placement) -> Mapping[Device, Portal]:
    """Return the paths that an image shall have to all parents, and where each is served."""
    stripes = [(f"path{index}", feed) for index, feed in enumerate(placement.feeds)]
    return {
        Device(placement.image, role, parent.host): parent.portal
        for role, feed in (("leafpath", placement.feeds[0]), *stripes)
        for parent in feed.parents
    }


def is_fed(step: plan.Step) -> bool:
    """Tell whether how a device is depends on parents, whatever was done here."""
    return isinstance(step, plan.Path | plan.Verity) or (
        isinstance(step, plan.Multipath) and bool(step.below)
    )


def found(devices: Iterable[Device]) -> tuple[plan.Plan, plan.Plan]:
    """Return what the kernel has of parents: below the leaves, and above them; each in order."""
    kinds = {
        "leafpath": plan.Path,
        "leafverity": plan.Verity,
        "path": plan.Path,
        "verity": plan.Verity,
    }
    have = {kind: [one for one in devices if one.role.rstrip("0123456789") == kind]
            for kind in kinds}  # fmt: skip
    made = {
        kind: tuple(make(device, 0, (), None) for device in have[kind])
        for kind, make in kinds.items()
    }
    return (
        (*made["leafpath"], *made["leafverity"]),
        (*made["path"], *made["verity"]),
    )


def _chosen(feed: Feed, parents: Parents) -> tuple[Parent, ...]:
    match parents:
        case Parents.NONE:
            return ()
        case Parents.FIRST:
            return (feed.parent,)
        case Parents.ALL:
            return feed.parents


def _paths(
    top: plan.Multipath,
    roles: tuple[str, str],
    parents: list[tuple[Parent, Portal]],
    by: tuple[HashTree, Device] | None,
) -> list[plan.Step]:
    """Return a multipath's paths, verified by a tree on a device if there is one, and itself."""
    image = top.device.image
    paths: list[plan.Step] = [
        plan.Path(Device(image, roles[0], parent.host), top.sectors, (), portal, parent.proof)
        for parent, portal in parents
    ]
    ends = paths
    if by is not None:
        tree, hashing = by
        ends = [
            plan.Verity(
                Device(image, roles[1], path.device.argument),
                top.sectors,
                (path.device, hashing),
                tree,
            )
            for path in paths
        ]
        paths = [*paths, *ends]
    return [*paths, replace(top, below=tuple(step.device for step in ends))]


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


def _multipath(wanted: Wanted, index: int) -> plan.Multipath:
    return plan.Multipath(Device(wanted.image, f"s{index}"), padded(wanted.size), ())
