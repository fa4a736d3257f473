"""The ways to boot that are compared, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from planning import distribution, policy, trees
from planning.distribution import Network
from planning.playback import Playback
from planning.trees import Trees


@dataclass(frozen=True)
class Cloud:
    """What boots share.

    :ivar attach: seconds until a host of a tree has the devices that its VM boots from
    """

    network: Network
    trees: Trees
    attach: float


Design = Callable[[Playback, Cloud, int], Playback]
"""Returns P of one of n hosts: an average one of a server or a swarm, the farthest of a tree."""


def _cs_demand(ideal: Playback, cloud: Cloud, hosts: int) -> Playback:
    return policy.demand(ideal, distribution.central(cloud.network, hosts))


def _cs_profile(ideal: Playback, cloud: Cloud, hosts: int) -> Playback:
    return policy.in_order(ideal, distribution.central(cloud.network, hosts))


def _p2p_demand(ideal: Playback, cloud: Cloud, hosts: int) -> Playback:
    wait = distribution.wait_demand(cloud.network, hosts)
    return policy.demand(ideal, distribution.p2p(cloud.network, hosts, wait))


def _p2p_profile(ideal: Playback, cloud: Cloud, hosts: int) -> Playback:
    wait = distribution.wait_profile(cloud.network, hosts)
    return policy.in_order(ideal, distribution.p2p(cloud.network, hosts, wait))


def _trees_demand(ideal: Playback, cloud: Cloud, hosts: int) -> Playback:
    read = policy.demand(ideal, trees.on_demand(cloud.trees, cloud.network))
    return _behind(read, cloud, hosts)


def _trees_profile(ideal: Playback, cloud: Cloud, hosts: int) -> Playback:
    read = policy.in_order(ideal, trees.ahead(cloud.trees, cloud.network))
    return _behind(read, cloud, hosts)


def _behind(curve: Playback, cloud: Cloud, hosts: int) -> Playback:
    return curve.later(cloud.attach + trees.lag(cloud.trees, cloud.network, hosts))


DESIGNS: Mapping[str, Design] = {
    "cs_demand": _cs_demand,
    "cs_profile": _cs_profile,
    "p2p_demand": _p2p_demand,
    "p2p_profile": _p2p_profile,
    "trees_demand": _trees_demand,
    "trees_profile": _trees_profile,
}
"""A server, a swarm with its seed (both VMTorrent's), and VirtMan's trees; without and with
what is fetched ahead."""
