"""Where Volt's own placement hangs hosts, and what of that goes from rack to rack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from volt.placement import shapes
from volt.placement.links import Newcomer
from volt.placement.places import Places
from volt.placement.rules import Rules


@dataclass(frozen=True)
class Host:
    """A host that boots; ``rack`` is None where racks are not told to Volt."""

    name: str
    rack: str | None


def hosts(count: int, racks: int, dice: Random) -> list[Host]:
    """Return as many hosts in each rack, give or take one, in the order in which they join."""
    found = [Host(f"host{one:05}", f"rack{one % racks:04}") for one in range(count)]
    dice.shuffle(found)
    return found


def place(joining: Sequence[Host], rules: Rules) -> Places:
    """Return the places of hosts that joined one after the other."""
    places = shapes.empty(rules)
    for host in joining:
        places.join(Newcomer(host.name, host.rack))
    return places


@dataclass(frozen=True)
class Crossings:
    """Links of all trees that go from rack to rack; the source is in none.

    :ivar into: of the rack that has most
    :ivar out_of: of the rack that has most
    """

    total: int
    into: int
    out_of: int


def crossings(places: Places, joined: Sequence[Host], stripes: int) -> Crossings:
    """Return which links go from rack to rack, with the racks that hosts are really in."""
    racks = {host.name: host.rack for host in joined}
    into, out_of = Counter[str | None](), Counter[str | None]()
    for stripe in range(stripes):
        for node in places.nodes(stripe):
            above = None if node.parent is None else racks[node.parent]
            if node.parent is None or above != racks[node.host]:
                into[racks[node.host]] += 1
            if node.parent is not None and above != racks[node.host]:
                out_of[above] += 1
    return Crossings(into.total(), max(into.values()), max(out_of.values(), default=0))
