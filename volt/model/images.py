"""Images: what callers say of them, and what Volt knows."""

from dataclasses import dataclass, field, replace
from datetime import datetime

from volt.model.basis import NewBasis
from volt.model.suspended import Suspended
from volt.placement.rules import Shape
from volt.transport import Portal, Proof


@dataclass(frozen=True)
class Layer:
    """What makes an image a layer: it holds what a VM wrote, and means nothing without its parent.

    ``parent`` is the image that the VM began with, ``disk_size`` the bytes of the VM's disk. A host
    that made the layer serves it until it drops it, and is its ``maker``; null for any other
    source. ``suspended`` is null unless it has the VM's memory too.
    """

    parent: str
    disk_size: int
    maker: str | None
    suspended: Suspended | None = None


@dataclass(frozen=True)
class Basis:
    """The images on which one is based, best first, and how many bytes it has in common with them.

    Where one of these is too, what they have in common is read from there.
    """

    images: tuple[str, ...]
    shared: int


@dataclass(frozen=True)
class NewImage:
    """What a caller says about an image; ``size`` in bytes.

    ``foreign_children`` is how many hosts of other racks a host feeds in one tree at most;
    None is no limit. ``root_hash`` and ``salt`` (hex) are those of the image's hash tree, and
    ``upper_hashes`` its levels above the leaves; all None without a tree. ``basis`` says what it
    has in common with others; None is no word about that.
    """

    name: str
    size: int
    shape: Shape
    stripes: int
    fanout: int
    source: Portal
    source_proof: Proof | None = None
    foreign_children: int | None = None
    root_hash: str | None = None
    salt: str | None = None
    layer: Layer | None = None
    # the root hash stands for these
    upper_hashes: bytes | None = field(default=None, repr=False, compare=False)
    basis: NewBasis | None = field(default=None, compare=False)

    def without_secret(self) -> "NewImage":
        """Return the same but for what the source asks of those whom it feeds."""
        return replace(self, source_proof=None)


@dataclass(frozen=True)
class Hydration:
    """When a host copies all of an image: so many seconds after it came, and how fast.

    ``rate`` is in bytes a second; 0 is no limit but those for all that is fetched ahead of VMs.
    """

    after: int
    rate: int


@dataclass(frozen=True)
class CopyPolicy(Hydration):
    """When hosts copy all of an image, and how many of them: None is all that have it."""

    copies: int | None = None


@dataclass(frozen=True)
class Image:
    """An image, and how many hosts have a place in its trees or are leaving one.

    ``holds`` is how many hosts have disks that need it, or want it to make one. ``copies`` is
    how many hosts have all of it, and need no parents, and ``complete`` how many have all of each
    stripe; ``home`` is the one of them that stands for
    the source, null if that serves itself. ``hydrate`` is when hosts copy all of it, and how
    many do; null is never.
    ``layer`` is null for an image that stands for itself, ``basis`` for one that is based on none.
    """

    name: str
    size: int
    shape: Shape
    stripes: int
    fanout: int
    foreign_children: int | None
    source: Portal
    hosts: int
    holds: int
    generation: int
    created_at: datetime
    root_hash: str | None
    salt: str | None
    copies: int
    complete: tuple[int, ...]
    home: str | None
    hydrate: CopyPolicy | None
    layer: Layer | None
    basis: Basis | None


@dataclass(frozen=True)
class Hold:
    """How many disks, VMs and snapshots, a host has of an image; 0 while it waits for the image.

    ``silent`` is the seconds since the host reported, null once it has expired: its disks may be
    there all the same. ``known`` tells whether Volt knows the image.
    """

    image: str
    host: str
    disks: int
    since: datetime
    silent: int | None
    known: bool
