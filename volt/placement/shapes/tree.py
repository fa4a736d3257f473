"""One stripe, in which the source feeds as many as a host does: as in the VirtMan paper."""

from collections.abc import Iterable

from volt.errors import ShapeInvalid
from volt.placement import forest
from volt.placement.links import Totals
from volt.placement.rules import Rules
from volt.placement.shapes.topology import Measures, Topology
from volt.placement.slots import Limits


class Tree(Topology):
    """A tree as low as its fan-out allows, here 2::

    source
    |- a
    |  |- c
    |  `- d
    `- b
    """

    usual = Measures(stripes=1, fanout=2)

    def check(self, rules: Rules) -> None:
        """Raise ShapeInvalid for more stripes, or none fed."""
        if rules.stripes != 1 or rules.fanout < 1:
            raise ShapeInvalid("a tree has one stripe and a fan-out of at least 1")

    def empty(self, rules: Rules, totals: Iterable[Totals] | None) -> forest.Forest:
        """Return a tree of that fan-out."""
        limits = Limits(1, rules.fanout, rules.fanout, rules.foreign_children)
        return forest.Forest(limits, totals)
