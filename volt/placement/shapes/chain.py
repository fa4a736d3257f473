"""Each host feeds the next: the source and every host send the image once."""

from collections.abc import Iterable

from volt.placement import forest
from volt.placement.links import Totals
from volt.placement.rules import Rules
from volt.placement.shapes.topology import Measures, Topology
from volt.placement.slots import Limits


class Chain(Topology):
    """A tree of fan-out 1, which closes up when a host leaves::

    source - a - b - c
    """

    usual = Measures(stripes=1, fanout=1)

    def check(self, rules: Rules) -> None:
        """Raise ShapeInvalid for other measures."""
        self._check_usual(rules)

    def empty(self, rules: Rules, totals: Iterable[Totals] | None) -> forest.Forest:
        """Return a tree in which the source too feeds one host."""
        return forest.Forest(Limits(1, 1, 1, rules.foreign_children), totals)
