"""What may be said about how the hosts of an image read from each other."""

from dataclasses import dataclass
from enum import StrEnum


class Shape(StrEnum):
    """How the trees of an image look; ``volt.placement.shapes`` has a file for each.

    A *forest* has several stripes; a *tree* is one stripe, as in the VirtMan paper; in a
    *star* the source feeds every host, in a *chain* each host the next. In a *ring* hosts own
    parts of the image, and each reads the others' from them.
    """

    FOREST = "forest"
    TREE = "tree"
    STAR = "star"
    CHAIN = "chain"
    RING = "ring"


@dataclass(frozen=True)
class Rules:
    """A shape and its measures.

    ``foreign_children`` is how many hosts of other racks a host may feed in one stripe, as
    long as another place is left; None is no limit. ``fanout`` of a ring is the hosts of a group.
    """

    shape: Shape
    stripes: int
    fanout: int
    foreign_children: int | None = None
