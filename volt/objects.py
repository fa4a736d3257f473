"""What Volt speaks of: images, portals, placements and trees, as the REST answers show them."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class State(StrEnum):
    """How far a host is with its place in an image's trees."""

    JOINING = "joining"
    READY = "ready"
    LEAVING = "leaving"


@dataclass(frozen=True)
class Portal:
    """Where an image can be read: an iSCSI LUN, and the byte of it where the image starts."""

    ip: str
    port: int
    iqn: str
    lun: int
    offset: int = 0


@dataclass(frozen=True)
class NewImage:
    """What a caller says about an image; ``size`` in bytes."""

    name: str
    size: int
    stripes: int
    fanout: int
    source: Portal


@dataclass(frozen=True)
class Image:
    """An image and the number of hosts that hold a place or are leaving one."""

    name: str
    size: int
    stripes: int
    fanout: int
    source: Portal
    hosts: int
    created_at: datetime


@dataclass(frozen=True)
class Peer:
    """Whom to read from; host None is the source."""

    host: str | None
    portal: Portal


@dataclass(frozen=True)
class Feed:
    """From whom a host reads one stripe; whom the source feeds has no standby."""

    stripe: int
    parent: Peer
    standby: Peer | None


@dataclass(frozen=True)
class Placement:
    """A host's place in all trees of an image; ``size`` in bytes.

    ``needed`` is false once a leaving host may go: all who are in the trees have said that
    they read from parents who were given to them after it left.
    """

    image: str
    host: str
    size: int
    state: State
    generation: int
    needed: bool
    stripes: tuple[Feed, ...]


@dataclass(frozen=True)
class Node:
    """A host in one tree; parent None is the source, depth 1 is fed by it."""

    host: str
    parent: str | None
    depth: int
    inner: bool
    state: State


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
    stripes: int
    fanout: int
    generation: int
    trees: tuple[Tree, ...]


@dataclass(frozen=True)
class News:
    """What a host that reported its generations does not know yet."""

    placements: tuple[Placement, ...]
    unknown: tuple[str, ...]
