"""Which hosts copy all of an image, so that there are as many whole copies as are wanted."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass


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
class Copies:
    """How many hosts have all of an image, and how many have all of each stripe."""

    whole: int
    stripes: tuple[int, ...]


@dataclass(frozen=True)
class Keeper:
    """A host of an image, as one that may have a copy of all of it.

    ``whole`` tells whether it has one, ``chosen`` whether it was asked to, and ``declines`` whether
    it said that it cannot, or shall not. ``begun`` is whether a part of a copy is there, ``fits``
    whether there is space for all of it. ``feeds`` is whether it may feed others, ``traffic`` the
    bytes a second of its link.
    """

    host: str
    rack: str | None
    whole: bool
    chosen: bool
    declines: bool = False
    begun: bool = False
    fits: bool = True
    feeds: bool = True
    traffic: int = 0

    @property
    def counts(self) -> bool:
        """Whether it has a copy, or will have one."""
        return self.whole or (self.chosen and not self.declines)


def lacks(hosts: Collection[Keeper], copies: int) -> bool:
    """Tell whether others have to be chosen."""
    return sum(one.counts for one in hosts) < copies or any(
        one.chosen and not one.counts for one in hosts
    )


def choose(hosts: Collection[Keeper], copies: int) -> frozenset[str]:
    """Return who is chosen from now on: whoever is and goes on, and others if these lack.

    A host that has begun is best, then one with space that may feed others, in the rack with the
    fewest copies, with the least traffic. No host that declines is chosen.

    :param hosts: all that have a place in the image's trees
    :param copies: how many whole ones there shall be
    """
    counted = [one for one in hosts if one.counts]
    chosen = {one.host for one in counted if one.chosen}
    racks = Counter(one.rack for one in counted)
    free = [one for one in hosts if not one.counts and not one.declines]

    def order(one: Keeper) -> tuple[bool, bool, bool, int, int, str]:
        return not one.begun, not one.fits, not one.feeds, racks[one.rack], one.traffic, one.host

    for _ in range(min(copies - len(counted), len(free))):
        best = min(free, key=order)
        free.remove(best)
        racks[best.rack] += 1
        chosen.add(best.host)
    return frozenset(chosen)
