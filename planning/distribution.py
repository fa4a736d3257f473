"""At which rate one of n hosts gets pieces from a server, or from a swarm (VMTorrent, 3.2).

A host asks for one piece after another, and waits for each: until its first bit comes, and then
while the link carries it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from planning.errors import check


@dataclass(frozen=True)
class Network:
    """What the links and servers of a cloud do; VMTorrent's figures are in ``EMULAB``.

    :ivar link: bytes a second of each link, each way: r_net
    :ivar round_trip: seconds: RTT
    :ivar service: seconds that a server needs for a request: Q
    :ivar piece: bytes: S
    """

    link: float
    round_trip: float
    service: float
    piece: float

    def __post_init__(self) -> None:
        check(self.link > 0, f"a link of {self.link:g} bytes a second: it must carry some")
        check(self.piece > 0, f"pieces of {self.piece:g} bytes: they must have some")
        check(self.round_trip >= 0, f"a round trip of {self.round_trip:g} seconds: take 0 or more")
        check(self.service >= 0, f"a service time of {self.service:g} seconds: take 0 or more")


EMULAB = Network(link=100e6 / 8, round_trip=5e-4, service=5e-4, piece=16 * 1024)
"""The paper's testbed with 100 Mbit/s (4.3.1)."""

VICCI = Network(link=1e9 / 8, round_trip=5e-5, service=5e-4, piece=16 * 1024)
"""The paper's testbed with 1 Gbit/s (4.3.1)."""


def piece_time(wait: float, piece: float, rate: float) -> float:
    """Return the seconds until a piece is there: t_piece (equations 8 and 10)."""
    return wait + piece / rate


def wait_central(net: Network) -> float:
    """Return W_cs in seconds (equation 14; 4.4.1 has the same for up to 100 hosts)."""
    return net.round_trip + net.service


def wait_demand(net: Network, hosts: int) -> float:
    """Return W_p2p in seconds if hosts fetch on demand (4.4.1).

    All want the same pieces at once, so they have few that others lack.
    """
    return net.round_trip + net.service * hosts


def wait_profile(net: Network, hosts: int) -> float:
    """Return W_p2p in seconds if hosts prefetch at random in a window (equation 15)."""
    return net.round_trip + net.service * math.sqrt(hosts)


def central(net: Network, hosts: int) -> float:
    """Return r in bytes a second if a server feeds all hosts (equations 9 and 13)."""
    check_hosts(hosts)
    return net.piece / piece_time(wait_central(net), net.piece, net.link / hosts)


def swarm(net: Network, wait: float) -> float:
    """Return r_swarm in bytes a second: what hosts get from each other (equation 11)."""
    return net.piece / piece_time(wait, net.piece, net.link)


def p2p(net: Network, hosts: int, wait: float) -> float:
    """Return r in bytes a second from the swarm and the seed (equation 12).

    One host alone has no swarm (footnote 6). The paper does not bound the sum by the host's own
    link, nor is it here.
    """
    from_seed = central(net, hosts)
    return from_seed if hosts == 1 else swarm(net, wait) + from_seed


def check_hosts(hosts: int) -> None:
    """Raise Invalid unless there are some."""
    check(hosts >= 1, f"{hosts} hosts: take at least one")
