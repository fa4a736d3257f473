"""Which of the stored places a change reads, as those who decide say it and a store answers it.

No change reads all hosts. A shape says as *picks* which hosts it chooses among: so many of a
kind in each stripe, the nearest to the root or the lowest. ``Places.take`` makes a part of
them, and takes in more when a change turns out to be about another rack. ``volt.db.forests`` is
the store that Volt has; the tests have one in memory.
"""

from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from volt.placement.links import Node


@dataclass(frozen=True)
class Kind:
    """Which hosts of a stripe, nearest to the root first or lowest first; names come second."""

    inner: bool | None = None
    """Whether they may feed others in this stripe; None: either."""
    open: bool = False
    """Only those that may be given another child."""
    entry: bool = False
    """Only entries of racks."""
    root: bool = False
    """Only roots of racks."""
    stray: bool | None = None
    """Whether they are leaves that hosts of another rack feed; None: either."""
    mixed: bool = False
    """Only those that feed hosts of other racks."""
    fast: bool = False
    """Only those whose link has the speed that the pick names, or more."""
    of_rack: bool = False
    """Only those of the rack that the pick names."""
    lowest: bool = False
    """Whether the farthest from the root come first."""
    in_full: bool = False
    """Whether a part has their places in all stripes and their children too."""


Key = TypeVar("Key", bound=Hashable)

LEAVES = Kind(inner=False)
OPEN = Kind(open=True)
LOWEST = Kind(inner=True, lowest=True, in_full=True)
ROOTS = Kind(inner=True, root=True)
ENTRIES = Kind(inner=True, entry=True, lowest=True)
LOWEST_ENTRIES = Kind(inner=True, entry=True, lowest=True, in_full=True)
OPEN_OF_RACK = Kind(open=True, of_rack=True)
MIXED_OF_RACK = Kind(inner=True, mixed=True, of_rack=True, in_full=True)
LEAVES_OF_RACK = Kind(inner=False, stray=False, of_rack=True)
STRAYS_OF_RACK = Kind(inner=False, stray=True, of_rack=True)
ENTRIES_OF_RACK = Kind(inner=True, stray=False, entry=True, of_rack=True, in_full=True)
ROOTS_OF_RACK = Kind(inner=True, stray=False, root=True, of_rack=True)
LOWEST_OF_RACK = Kind(inner=True, stray=False, of_rack=True, lowest=True, in_full=True)


LOWEST_FAST_OF_RACK = Kind(
    inner=True, stray=False, fast=True, of_rack=True, lowest=True, in_full=True
)


@dataclass(frozen=True)
class Pick:
    """So many hosts of a kind, in each stripe; of those of unknown racks where ``rack`` is None.

    ``speed`` is in bytes/s, for kinds that ask for one.
    """

    kind: Kind
    count: int
    rack: str | None = None
    speed: int = 0


@dataclass(frozen=True)
class Change:
    """How much is about to change.

    ``hosts`` have a place that it is about. ``joins`` newcomers get one; ``racks`` tells how many
    of them are of which rack, where that is known. ``others`` counts hosts that leave, or feed
    more or fewer than before; a newcomer that must not feed is one too.
    """

    hosts: Collection[str] = ()
    racks: Mapping[str, int] = field(default_factory=dict)
    joins: int = 0
    others: int = 0


Place = tuple[int, Node]
"""A stripe, and a host in it."""


Found = tuple[Place, Kind | None]
"""A place that was read, and of which kind it was picked, if it was."""


class Ask(NamedTuple):
    """Which stored places are wanted next.

    Those that are picked, in each stripe, and who feeds them there; the places of the hosts
    ``around`` in all stripes, those of their children, and perhaps of who feeds them; and the
    places ``of`` hosts in all stripes.
    """

    picks: Sequence[Pick] = ()
    around: Collection[str] = ()
    of: Collection[str] = ()


Reading = Generator[Ask, Iterable[Found], None]
"""What takes in stored places: it asks for some, and is sent these."""


class Stored(Protocol):
    """All places of an image, wherever they are kept."""

    def read(self, ask: Ask) -> Iterable[Found]:
        """Return what is asked for; some of it perhaps twice."""


def read(reading: Reading, stored: Stored) -> None:
    """Let a reading take in what it asks for."""
    read_all({"": reading}, lambda asks: {key: stored.read(ask) for key, ask in asks.items()})


def read_all(
    readings: Mapping[Key, Reading],
    answer: Callable[[Mapping[Key, Ask]], Mapping[Key, Iterable[Found]]],
) -> None:
    """Let readings go on side by side: what they ask for next is answered together."""
    found: Mapping[Key, Iterable[Found] | None] = dict.fromkeys(readings)  # they have yet to begin
    while asks := {key: ask for key in found if (ask := _next(readings[key], found[key]))}:
        found = answer(asks)


def _next(reading: Reading, found: Iterable[Found] | None) -> Ask | None:
    try:
        return next(reading) if found is None else reading.send(found)
    except StopIteration:
        return None
