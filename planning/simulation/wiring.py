"""Which links there are, and which of them lie between two hosts."""

from __future__ import annotations

import math
from random import Random

from planning.simulation.scenario import Cluster

OUTSIDE = -1
"""The rack of the source: none."""

_CORE, _MACHINE, _PAIRS = 1, 2, 3
_STRAGGLER = 0.1  # of a link


class Wiring:
    """The links of a cluster by number: one without a limit, the core, the machine, and then pairs.

    A pair is what goes up and what goes down: of the source, of each host, and of each rack.

    :ivar capacity: bytes a second of each link
    """

    def __init__(self, cluster: Cluster, dice: Random) -> None:
        left = 1 - cluster.others
        slow = set(dice.sample(range(cluster.hosts), round(cluster.stragglers * cluster.hosts)))
        self._speeds = [
            cluster.link * (_STRAGGLER if host in slow else 1.0) for host in range(cluster.hosts)
        ]
        ends = [cluster.source_link, *self._speeds, *[cluster.uplink] * cluster.racks]
        pairs = [rate * left for rate in ends for _ in "ud"]
        self.capacity = [math.inf, cluster.core * left, cluster.machine, *pairs]
        self._hosts = cluster.hosts

    def speed(self, host: int) -> int:
        """Return the speed of a host's link in bytes a second, whatever others take of it."""
        return int(self._speeds[host])

    def up(self, host: int) -> int:
        """Return the link by which a host sends; that of the source is host -1."""
        return _PAIRS + 2 * (host + 1)

    def down(self, host: int) -> int:
        """Return the link by which a host receives."""
        return self.up(host) + 1

    def between(self, sender: int, receiver: int, racks: tuple[int, int]) -> list[int]:
        """Return the links from one host to another; the source is in no rack."""
        found = [_MACHINE, self.up(sender), self.down(receiver)]
        out_of, into = racks
        if out_of != into:
            found += [_CORE, self.down(self._hosts + into)]
            if out_of != OUTSIDE:
                found.append(self.up(self._hosts + out_of))
        return found
