"""Where hosts hang in the trees of images, as they are told, and as operators see it."""

from dataclasses import dataclass
from enum import StrEnum

from volt.model.images import Hydration
from volt.model.profiles import Profiled
from volt.placement.rules import Shape
from volt.transport import Portal, Proof


class State(StrEnum):
    """How far a host is with its place in an image's trees."""

    JOINING = "joining"
    READY = "ready"
    LEAVING = "leaving"


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
