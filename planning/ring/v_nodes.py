"""Who owns which part of an image in a ring, and how that follows traffic (ACStor, 3.4 and 3.6).

Hosts own v-nodes, and each region of an image belongs to one of these. The paper has v-nodes at
random points of a circle; here they lie at equal distances, hosts take turns in another order each
time, and regions are dealt to v-nodes in turn. So what a host owns is as much as its v-nodes say,
what is read in order comes from all, and those that come next to a host are all others alike.
How many each host has, and who gives some to whom, Volt's own code says (``volt/placement``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256

V_NODES = 1024
"""Of a ring: with 64 hosts, a host's share is right to a sixteenth."""

ANYWHERE, OWN_RACK = 7, 3
"""From how many switches on a host is too far away to be asked: those of Algorithm 2."""


def by_room(traffic: Mapping[str, float], asked: float) -> dict[str, float]:
    """Return weights of hosts with which all have the same traffic in the end, if that can be.

    :param asked: what all together are asked for; who has more traffic of its own than the others
        come to with that gets nothing
    """
    left = sorted(traffic.values())
    level = 0.0
    for count in range(1, len(left) + 1):
        level = (asked + sum(left[:count])) / count
        if count == len(left) or level <= left[count]:
            break
    return {host: max(level - own, 0.0) for host, own in traffic.items()}


def even(hosts: Sequence[str], total: int = V_NODES) -> tuple[str, ...]:
    """Return owners of all v-nodes, of which hosts have equal parts."""
    found: list[str] = []
    while len(found) < total:
        turn = len(found)
        found += sorted(hosts, key=lambda host: sha256(f"{turn}/{host}".encode()).digest())
    return tuple(found[:total])


def owner(
    owners: Sequence[str], region: int, distance: Callable[[str], int], threshold: int
) -> str:
    """Return whom to ask for a region (Algorithm 1): its owner, or the next that is near enough.

    :param distance: how many switches are between who asks and a host; 0 to itself
    :param threshold: a host as far away as this is not asked
    """
    start = region % len(owners)
    for place in range(start, start + len(owners)):
        found = owners[place % len(owners)]
        if distance(found) < threshold:
            return found
    return owners[start]
