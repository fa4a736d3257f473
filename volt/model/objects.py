"""What Volt speaks of: images, portals, placements and trees, as the REST answers show them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from volt.model.basis import NewBasis
from volt.model.suspended import Suspended
from volt.placement.rules import Shape
from volt.transport import Portal, Proof


class State(StrEnum):
    """How far a host is with its place in an image's trees."""

    JOINING = "joining"
    READY = "ready"
    LEAVING = "leaving"


class Reason(StrEnum):
    """What a host says is wrong with its parent."""

    SILENT = "silent"
    CORRUPT = "corrupt"


class Verdict(StrEnum):
    """What Volt makes of a report.

    A silent parent is *dead* or *alive*, or that is *unclear*; that a parent sends wrong bytes
    is *noted*, or it is *drained* because others have said so too.
    """

    DEAD = "dead"
    ALIVE = "alive"
    UNCLEAR = "unclear"
    NOTED = "noted"
    DRAINED = "drained"


class CapKind(StrEnum):
    """What a cap is of."""

    IMAGE = "image"
    RACK = "rack"
    HOST = "host"


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
class Copy:
    """A copy of all of an image that a host has, makes, or shall make.

    ``chosen`` is whether Volt asked this host among others, ``copied`` the bytes that are there.
    ``declines`` is whether the host said that it cannot have one, or shall not.
    """

    host: str
    rack: str | None
    whole: bool
    chosen: bool
    copied: int
    declines: bool


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
class Peer:
    """Whom to read from; host None is the source."""

    host: str | None
    portal: Portal
    chap: Proof | None


@dataclass(frozen=True)
class Feed:
    """From whom a host reads one stripe; whom the source feeds has no standby.

    ``ready`` is false while the parent itself has another parent than before, and may not read from
    that yet: it may read the stripe from this host meanwhile.
    """

    stripe: int
    parent: Peer
    standby: Peer | None
    ready: bool


@dataclass(frozen=True)
class Profiled:
    """A workload, and the newest revision of its profile."""

    workload: str
    revision: int


@dataclass(frozen=True)
class Placement:
    """A host's place in all trees of an image; ``size`` in bytes.

    ``needed`` is false once a leaving host may go: all who are in the trees have said that
    they read from parents who were given to them after it left. ``profiles`` are the image's.
    ``capped`` tells whether a cap applies to what the host fetches ahead in the image, and
    ``hydrate`` when it copies all of it; null is never. In a ring the host ``owns`` some stripes:
    others rely on its having these. Null is no ring.
    """

    image: str
    host: str
    size: int
    state: State
    generation: int
    needed: bool
    chap: Proof
    stripes: tuple[Feed, ...]
    profiles: tuple[Profiled, ...]
    capped: bool
    hydrate: Hydration | None
    owns: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Profile:
    """The newest profile of a workload, and how many bytes it has."""

    workload: str
    revision: int
    bytes: int
    stored_at: datetime


@dataclass(frozen=True)
class Revision:
    """A profile as it was once stored; ``host`` is who did, null if that was no host."""

    revision: int
    bytes: int
    stored_at: datetime
    host: str | None


class Warming(StrEnum):
    """How far a host is with warming an image."""

    ASKED = "asked"
    FETCHING = "fetching"
    WARM = "warm"
    FAILED = "failed"

    @property
    def is_end(self) -> bool:
        """Whether nothing more comes."""
        return self in (Warming.WARM, Warming.FAILED)


@dataclass(frozen=True)
class Wish:
    """An image that a host shall warm for a workload; no other wish has its ``generation``."""

    image: str
    workload: str
    generation: int


@dataclass(frozen=True)
class Warmup:
    """What a host was asked, and how far it says that it is.

    ``wanted`` is the bytes that the workload's profile names, ``there`` those of them that the
    host has. ``detail`` says why it failed. ``attached`` is false once the host has left the
    image: what it had fetched is then no more at hand.
    """

    host: str
    workload: str
    state: Warming
    wanted: int
    there: int
    detail: str
    asked_at: datetime
    attached: bool


@dataclass(frozen=True)
class Chosen:
    """Which hosts are meant: these, or those of a rack; all that Volt knows if neither."""

    hosts: tuple[str, ...] | None = None
    rack: str | None = None


@dataclass(frozen=True)
class Progress:
    """How far a host says that it is with a wish; ``wanted`` and ``there`` in bytes."""

    generation: int
    state: Warming
    wanted: int
    there: int
    detail: str


@dataclass(frozen=True)
class Cap:
    """How many bytes a second may be fetched ahead: in an image, by a rack's hosts, or by a host.

    ``takers`` counts those who fetch ahead now, a host once for each image; ``granted`` is the sum
    of their shares.
    """

    kind: CapKind
    name: str
    rate: int
    takers: int
    granted: int


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


class Importing(StrEnum):
    """How far an image is that hosts wait for."""

    WANTED = "wanted"
    RUNNING = "running"
    FAILED = "failed"


@dataclass(frozen=True)
class Told:
    """What an importer says of an image; ``done`` and ``total`` in bytes of the present step.

    ``detail`` is that step, or why it failed.
    """

    importer: str
    state: Importing
    done: int
    total: int
    detail: str


@dataclass(frozen=True)
class Import:
    """An image that hosts wait for, or that an importer makes; Volt does not know it yet.

    It is wanted as long as any importer may begin: also if the last one fell silent, or failed a
    while ago. ``done`` and ``total`` are bytes of the step that ``detail`` names, or named last; if
    it failed, that says why. ``waiting`` is how many hosts wait, ``silent`` the seconds since the
    importer said this.
    """

    image: str
    state: Importing
    importer: str | None
    done: int
    total: int
    detail: str
    waiting: int
    silent: int | None


@dataclass(frozen=True)
class Candidate:
    """A host that could feed another in one tree: ``room`` is how many more it may feed."""

    host: str
    stripe: int
    depth: int
    room: int
    rack: str | None
    portal: Portal


@dataclass(frozen=True)
class Node:
    """A host in one tree; parent None is the source, depth 1 is fed by it.

    ``sent`` (bytes), ``hits`` and ``misses`` are what the host last reported of this image,
    in all its trees; ``silent`` is the seconds since then. ``whole`` tells whether it has all of
    the image, and needs no parents.
    """

    host: str
    parent: str | None
    depth: int
    inner: bool
    state: State
    rack: str | None
    sent: int
    hits: int
    misses: int
    draining: bool
    overloaded: bool
    silent: int
    whole: bool


@dataclass(frozen=True)
class Tree:
    """One stripe tree, nearest to the source first."""

    stripe: int
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Trees:
    """All stripe trees of an image; ``generation`` rises with every change of them."""

    image: str
    size: int
    shape: Shape
    stripes: int
    fanout: int
    generation: int
    trees: tuple[Tree, ...]


@dataclass(frozen=True)
class News:
    """What a host that reported its generations does not know yet.

    ``shares`` are the bytes a second that it may fetch ahead, of images to which a cap applies.
    """

    placements: tuple[Placement, ...]
    unknown: tuple[str, ...]
    shares: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ImageReport:
    """What a host has done with an image: bytes sent to children, reads by its cache.

    ``ahead`` tells whether it fetches ahead of its VMs now. ``copied`` is how many bytes of a copy
    of all of it are there, and ``complete`` are the stripes of which the copy has all; the host
    needs no parents once the copy is ``whole``. It ``declines`` to make one that it cannot, or that
    was given back there a moment ago.
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

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "ImageReport":
        """Return the report that JSON says, which knows no tuples."""
        return cls(**{**fields, "complete": tuple(fields.get("complete", ()))})


@dataclass(frozen=True)
class Report:
    """A heartbeat: the whole state of a host; network traffic in bytes a second.

    ``disks`` is how many VMs and snapshots the host has, by image; 0 if it waits for the image.
    ``room`` is the bytes that copies of whole images could still take.
    """

    images: Mapping[str, ImageReport]
    received_rate: int = 0
    sent_rate: int = 0
    overloaded: bool = False
    disks: Mapping[str, int] = field(default_factory=dict)
    room: int = 0


@dataclass(frozen=True)
class Wiring:
    """How a host is connected: the label of its rack, and the speed of its link in bytes/s.

    None is what is not known.
    """

    rack: str | None = None
    speed: int | None = None


@dataclass(frozen=True)
class Host:
    """A host as it last reported; ``silent`` is the seconds since then, as Volt counts.

    ``rack`` and ``speed`` are those of its wiring.
    """

    host: str
    rack: str | None
    speed: int | None
    draining: bool
    silent: int
    report: Report


@dataclass(frozen=True)
class Certificate:
    """A host's certificate, and that of the authority that signed it; both PEM."""

    certificate: str
    authority: str
    expires_at: datetime


@dataclass(frozen=True)
class Listener:
    """Where a host's agent takes calls of others; only over TLS, with a certificate."""

    host: str
    ip: str
    port: int


@dataclass(frozen=True)
class Event:
    """Something that happened; ``id`` rises."""

    id: int
    at: datetime
    kind: str
    image: str | None
    host: str | None
    detail: str


@dataclass(frozen=True)
class Copies:
    """How many hosts have all of an image, and how many have all of each stripe."""

    whole: int
    stripes: tuple[int, ...]


@dataclass(frozen=True)
class Figures:
    """How much there is of everything at this moment, for those who watch Volt.

    ``places`` counts hosts by image and state, ``depths`` gives the deepest host's depth by
    image and stripe (or more, where there are racks), ``generations`` are by image. ``caps`` are
    all that there are. ``holds`` counts, by image, the hosts that need it, and those of them that
    have expired. ``copies`` are those of all of an image, and of each stripe, by image; ``wanted``
    is how many there shall be. ``reads`` are those that caches of hosts answered, and could not,
    as hosts said last, by image. ``sources_gone`` has the images whose source was removed, and
    whether a host stands for it.
    """

    hosts: int
    draining: int
    overloaded: int
    places: Mapping[tuple[str, str], int]
    depths: Mapping[tuple[str, int], int]
    generations: Mapping[str, int]
    caps: Sequence[Cap]
    holds: Mapping[str, tuple[int, int]]
    copies: Mapping[str, Copies]
    wanted: Mapping[str, int]
    reads: Mapping[str, tuple[int, int]]
    sources_gone: Mapping[str, bool]
