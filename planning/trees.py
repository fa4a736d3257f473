"""How deep VirtMan's trees are, and at which rate their hosts get pieces.

These are not the paper's: VMTorrent has no trees. What they take for granted is that all hosts
want the same at about the same time, and that a piece crosses each link of a tree once.
"""

from __future__ import annotations

from dataclasses import dataclass

from planning.distribution import Network, check_hosts, piece_time, wait_central
from planning.errors import check


@dataclass(frozen=True)
class Trees:
    """A forest by its measures, and what is in flight in it.

    :ivar stripes: trees over the same hosts; with one, the source feeds as many as a host does
    :ivar fanout: hosts that a host feeds in the one tree in which it feeds any
    :ivar window: pieces that a host fetches ahead at once, in each stripe
    """

    stripes: int = 2
    fanout: int = 2
    window: int = 2

    def __post_init__(self) -> None:
        check(self.stripes >= 1, f"{self.stripes} stripes: take at least one")
        check(
            self.fanout >= self.stripes,
            f"{self.stripes} stripes with a fan-out of {self.fanout} cannot feed every host: take "
            "a fan-out of at least the number of stripes",
        )
        check(self.window >= 1, f"a window of {self.window} pieces: take at least one")


def depth(trees: Trees, hosts: int) -> int:
    """Return how many links are between the source and the farthest host.

    In each tree, one host of so many as there are stripes is inner. Inner hosts fill level after
    level, and leaves the slots that are left, the nearest first.
    """
    check_hosts(hosts)
    inner = -(-hosts // trees.stripes)
    width = 1 if trees.stripes > 1 else trees.fanout
    slots = width
    level = 1
    while slots < inner:
        width *= trees.fanout
        slots += width
        level += 1
    return level if hosts <= slots else level + 1


def capacity(trees: Trees, net: Network) -> float:
    """Return the bytes a second that links let each host have, at most.

    An inner host sends its stripe, one part in k of the image, to f others over one link. It
    receives all k stripes over another.
    """
    return net.link * min(1.0, trees.stripes / trees.fanout)


def on_demand(trees: Trees, net: Network) -> float:
    """Return r in bytes a second if hosts read when VMs want: like equation 9.

    A host waits for one hop only: those above it wanted the piece before.
    """
    return net.piece / piece_time(wait_central(net), net.piece, capacity(trees, net))


def ahead(trees: Trees, net: Network) -> float:
    """Return r in bytes a second if hosts fetch ahead, a window of pieces in each stripe.

    While some pieces are waited for, the link carries others.
    """
    in_flight = trees.window * trees.stripes
    return min(capacity(trees, net), in_flight * on_demand(trees, net))


def lag(trees: Trees, net: Network, hosts: int) -> float:
    """Return the seconds by which the farthest host is behind those that the source feeds.

    A host passes on no part of a piece before it has all of it.
    """
    hop = piece_time(wait_central(net), net.piece, capacity(trees, net))
    return (depth(trees, hosts) - 1) * hop
