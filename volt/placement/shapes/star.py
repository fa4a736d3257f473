"""The source feeds every host: for a few hosts, and to compare with."""

from collections.abc import Iterable

from volt.placement import forest
from volt.placement.links import Totals
from volt.placement.rules import Rules
from volt.placement.shapes.topology import Measures, Topology
from volt.placement.slots import Limits


class Star(Topology):
    """A tree of one level::

    source
    |- a
    |- b
    `- c
    """

    usual = Measures(stripes=1, fanout=0)

    def check(self, rules: Rules) -> None:
        """Raise ShapeInvalid for other measures."""
        self._check_usual(rules)

    def empty(self, rules: Rules, totals: Iterable[Totals] | None) -> forest.Forest:
        """Return a tree in which no host is inner."""
        return forest.Forest(Limits(1, fanout=0, source_slots=None), totals)
