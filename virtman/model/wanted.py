"""What an image shall be on this node: all of its devices follow from that."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from virtman.model.address import Portal
from virtman.model.hashtree import HashTree
from virtman.model.pieces import PAGE
from virtman.model.placement import Placement
from virtman.model.sizes import READ_AHEAD


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
    :ivar copy: path of the file that a copy of all of it is in; empty if there is none
    :ivar local: whether it is read from that copy, and from no parent
    :ivar lies_on: name of the image that it lies on, if it is a layer
    :ivar basis: path of the file that tells on which images it is based; empty if it is on none
    :ivar lenders: those of them from which it reads what they have too; none while it is local
    :ivar lends: whether images that are based on it read from it
    :ivar kept: the stripes that the cache keeps; None for all
    :ivar memory: whether memory of VMs is in it, of which each page is wanted for itself
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
    copy: str = ""
    local: bool = False
    lies_on: str = ""
    basis: str = ""
    lenders: tuple[str, ...] = ()
    lends: bool = False
    kept: frozenset[int] | None = None
    memory: bool = False

    @property
    def ahead(self) -> int:
        """Bytes that are read ahead of whoever reads it."""
        return 0 if self.memory else READ_AHEAD

    @property
    def read_ahead(self) -> int:
        """The kernel's setting for that; without any, it does a long read page by page."""
        return max(self.ahead, PAGE)

    @property
    def is_verified(self) -> bool:
        """Tell whether wrong bytes of parents are held back."""
        return self.verify and self.tree is not None
