"""Who feeds this host in the trees of an image, and where it serves the image itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from virtman.model import address
from virtman.model.address import Portal, Proof
from virtman.model.sizes import HEADER

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
    """Who feeds one stripe: the parent, and who takes over if it dies.

    :ivar ready: false while the parent itself is given another one, and may still read the stripe
        from this host
    """

    parent: Parent
    standby: Parent | None = None
    ready: bool = True

    @property
    def parents(self) -> tuple[Parent, ...]:
        """Parent first, then standby."""
        return (self.parent, self.standby) if self.standby else (self.parent,)


@dataclass(frozen=True)
class Hydration:
    """When this host copies all of an image: seconds after it came, and at how many bytes/s.

    A rate of 0 is no limit but those for all that is fetched ahead of VMs.
    """

    after: int
    rate: int


@dataclass(frozen=True)
class Placement:
    """Where Volt has put this host in an image's trees: one feed a stripe.

    :ivar proof: what this host's children must prove to it
    :ivar profiles: newest revision of the boot profile of each workload; this, and the next, may
        change without the generation
    :ivar capped: whether Volt caps what this host fetches ahead of VMs
    :ivar hydrate: when this host shall copy all of the image; None for never
    :ivar owns: the stripes that all others of a ring read from here; None if there is no ring
    """

    image: str
    size: int
    generation: int
    proof: Proof
    feeds: tuple[Feed, ...]
    profiles: Mapping[str, int] = field(default_factory=dict, hash=False)  # a dict has no hash
    capped: bool = False
    hydrate: Hydration | None = None
    owns: frozenset[int] | None = None

    def early(
        self, before: Placement | None, works: Callable[[Parent], bool]
    ) -> Mapping[int, Feed]:
        """Return in which stripes it is too early to follow this placement, and what to keep.

        There the new parent is not ready, and one of before still works. Both hosts would wait for
        each other if one read from the other before that one has turned away from it. So a
        stripe's hosts follow a change from the source downwards.

        :param before: as which this host reads now, if it does
        """
        kept = {}
        pairs = zip(before.feeds, self.feeds, strict=True) if before else ()
        for stripe, (old, new) in enumerate(pairs):
            if not new.ready and new.parent.host != old.parent.host:
                well = [parent for parent in old.parents if works(parent)]
                if well:
                    kept[stripe] = Feed(well[0], next(iter(well[1:]), None))
        return kept

    def but(self, kept: Mapping[int, Feed]) -> Placement:
        """Return this placement with other feeds in some stripes."""
        feeds = (kept.get(stripe, feed) for stripe, feed in enumerate(self.feeds))
        return replace(self, feeds=tuple(feeds))

    def parents(self) -> set[str]:
        """Return the hosts that feed this one, without those who only take over."""
        return {feed.parent.host for feed in self.feeds}

    def portals(self) -> Mapping[str, Portal]:
        """Return where each host serves from whom this one reads, or would; by name."""
        parents = (parent for feed in self.feeds for parent in feed.parents)
        return {parent.host: parent.portal for parent in parents}


def own_portal(host: str, image: str, ip: str, port: int) -> Portal:
    """Where this host serves an image: stripe s is disk s."""
    return address.served_by(host, image, ip, port, HEADER)
