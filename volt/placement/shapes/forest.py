"""Several stripes, in each of which another part of the hosts feeds the others."""

from collections.abc import Iterable

from volt.errors import ShapeInvalid
from volt.placement import forest
from volt.placement.links import Totals
from volt.placement.rules import Rules
from volt.placement.shapes.topology import Measures, Topology
from volt.placement.slots import Limits

_MOST_STRIPES = 8


class Forest(Topology):
    """The trees that ``volt.placement.forest`` draws; with one stripe it is a tree."""

    usual = Measures(stripes=2, fanout=2)

    def check(self, rules: Rules) -> None:
        """Raise ShapeInvalid where the inner hosts of a stripe cannot feed all others."""
        if rules.stripes < 1 or rules.fanout < rules.stripes:
            raise ShapeInvalid(
                f"{rules.stripes} stripes with fan-out {rules.fanout} cannot carry every host: "
                "take at least one stripe and a fan-out of at least the number of stripes"
            )
        if rules.stripes > _MOST_STRIPES:
            raise ShapeInvalid(
                f"a forest of {rules.stripes} stripes: hosts have an export for each, take up to "
                f"{_MOST_STRIPES}"
            )

    def empty(self, rules: Rules, totals: Iterable[Totals] | None) -> forest.Forest:
        """Return trees of which the source feeds one host each, where there are several."""
        source_slots = 1 if rules.stripes > 1 else rules.fanout
        limits = Limits(rules.stripes, rules.fanout, source_slots, rules.foreign_children)
        return forest.Forest(limits, totals)
