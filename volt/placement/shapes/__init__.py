"""Which shapes there are: one file each, and one entry here and in ``rules.Shape``."""

from collections.abc import Iterable, Mapping

from volt.placement.links import Totals
from volt.placement.places import Places
from volt.placement.rules import Rules, Shape
from volt.placement.shapes import chain, forest, ring, star, tree
from volt.placement.shapes.topology import Measures, Topology

_SHAPES: Mapping[Shape, Topology] = {
    Shape.FOREST: forest.Forest(),
    Shape.TREE: tree.Tree(),
    Shape.STAR: star.Star(),
    Shape.CHAIN: chain.Chain(),
    Shape.RING: ring.Ring(),
}


def usual(shape: Shape) -> Measures:
    """Return the stripes and fan-out of a shape where nobody says otherwise."""
    return _SHAPES[shape].usual


def check(rules: Rules) -> None:
    """Raise ShapeInvalid unless such trees carry every host."""
    _SHAPES[rules.shape].check(rules)


def empty(rules: Rules, totals: Iterable[Totals] | None = None) -> Places:
    """Return the places of an image so far: none here, but counted in ``totals``."""
    return _SHAPES[rules.shape].empty(rules, totals)
