"""What a shape must answer.

Another shape is one more file here, whatever its links look like. All that the rest of Volt
takes for granted:

- An image has a number of *stripes*, which divide its regions. In each stripe a host has one
  place: who feeds it (a host, or the source), and whether it is *inner*, which it may be in
  none, one or many stripes. So in a ring each v-node is a stripe: its owner is inner there and
  reads from the source or from a host of another group, and the others of the group from it.
- A host's standby is its parent's parent. It is stored with the place, and told with it.
- The places lie in a database, and a change reads a part of them. Which ones, the shape says
  as picks: hosts of a stripe by what stands in their places, in the order of ``level`` and name.
  What ``level`` orders is the shape's own affair.
- What a change made anew is what ``changed`` and ``moved`` of the places say.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from volt.errors import ShapeInvalid
from volt.placement.links import Totals
from volt.placement.places import Places
from volt.placement.rules import Rules


@dataclass(frozen=True)
class Measures:
    """How many stripes there are, and how many hosts one host feeds in a stripe."""

    stripes: int
    fanout: int


class Topology(ABC):
    """A shape: what may be said about it, and how hosts are placed in it."""

    usual: ClassVar[Measures]
    """What holds where nobody says otherwise."""

    @abstractmethod
    def check(self, rules: Rules) -> None:
        """Raise ShapeInvalid unless every host can be placed by these rules."""

    @abstractmethod
    def empty(self, rules: Rules, totals: Iterable[Totals] | None) -> Places:
        """Return places that hold no host yet, for changes of the whole or of a part.

        ``totals`` has what is counted of all hosts in each stripe; None: there are none.
        """

    def _check_usual(self, rules: Rules) -> None:
        if Measures(rules.stripes, rules.fanout) != self.usual:
            raise ShapeInvalid(f"a {rules.shape} has its own stripes and fan-out: leave them out")
