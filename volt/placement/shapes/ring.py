"""Hosts own stripes, and each reads the others' stripes from their owners (ACStor, 3.3 to 3.6)."""

from collections.abc import Iterable

from volt.errors import ShapeInvalid
from volt.placement import ring
from volt.placement.links import Totals
from volt.placement.rules import Rules
from volt.placement.shapes.topology import Measures, Topology

_MOST_STRIPES = 60  # a host has an export for each; as many hosts as divide it have equal shares
_MOST_HOSTS = 64


class Ring(Topology):
    """The groups that ``volt.placement.ring`` draws.

    A stripe is what ACStor calls a v-node. The fan-out is the number of hosts of a group.
    """

    usual = Measures(stripes=16, fanout=_MOST_HOSTS)

    def check(self, rules: Rules) -> None:
        """Raise ShapeInvalid for no stripes or too many, groups that are none, or other racks."""
        if not 1 <= rules.stripes <= _MOST_STRIPES:
            raise ShapeInvalid(f"a ring has 1 to {_MOST_STRIPES} stripes, not {rules.stripes}")
        if not 2 <= rules.fanout <= _MOST_HOSTS:
            raise ShapeInvalid(
                f"a group of a ring has 2 to {_MOST_HOSTS} hosts, which is its fan-out: "
                f"{rules.fanout} cannot be"
            )
        if rules.foreign_children not in (None, 0):
            raise ShapeInvalid(
                "a host of a ring feeds all hosts of its group: give 0 foreign children, so that "
                "each group is of one rack, or leave them out"
            )

    def empty(self, rules: Rules, totals: Iterable[Totals] | None) -> ring.Ring:
        """Return a ring without hosts."""
        counted = [Totals() for _ in range(rules.stripes)] if totals is None else list(totals)
        return ring.Ring(rules.fanout, rules.foreign_children == 0, counted)
