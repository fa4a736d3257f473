"""How many v-nodes each host of a ring owns, and which (ACStor, 3.4 and 3.6).

In a ring of Volt a v-node is a stripe of an image. The paper has v-nodes at random points of a
circle, so shares are even only on average. Here each host has as many as it shall have, right to
one, and a hash tells only which (consistent hashing with bounded loads: Mirrokni, Thorup and
Zadimoghaddam, SODA 2018).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256

_LEAST = 0.05
_BUSY = 0.8


def by_traffic(traffic: Mapping[str, float]) -> dict[str, float]:
    """Return weights of hosts: the more traffic of its own, the less (Equation 1).

    The paper's factor, 1.67, says how many v-nodes there are in all, which is fixed here. A host of
    less than a twentieth of the mean counts as one of a twentieth: it has a link no larger than
    others.
    """
    total = sum(traffic.values())
    if not total:
        return dict.fromkeys(traffic, 1.0)
    least = _LEAST * total / len(traffic)
    return {host: total / max(own, least) for host, own in traffic.items()}


def threshold(levels: Sequence[Sequence[float]]) -> int:
    """Return from how many hops on hosts are too far from each other to read there (Algorithm 2).

    That is so once more than half of the switches of a level are busy. Two hosts at one switch of
    the lowest level are 2 hops from each other, at one of the next level 4.

    :param levels: what switches carry, as a share of what they can; the lowest level first. A level
        of which nothing is known is empty
    """
    for level, loads in enumerate(levels):
        if 2 * sum(load > _BUSY for load in loads) > len(loads):
            return 2 * level + 1
    return 2 * len(levels) + 1


def deal(weights: Mapping[str, float], total: int) -> dict[str, int]:
    """Return how many v-nodes each host has, by weights that are not all 0; these add up to all.

    None has one more or one less than its weight is worth.
    """
    per_weight = total / sum(weights.values())
    exact = {host: weight * per_weight for host, weight in weights.items()}
    counts = {host: int(one) for host, one in exact.items()}
    lacking = total - sum(counts.values())
    nearest = sorted(exact, key=lambda host: (counts[host] - exact[host], host))
    for host in nearest[:lacking]:
        counts[host] += 1
    return counts


def remap(owners: Sequence[str], counts: Mapping[str, int]) -> tuple[str, ...]:
    """Return the owners of all v-nodes, so that each host has as many as it shall have.

    No more change hands than have to. The paper has who gives one choose whose cache is most like
    its own (3.6). Here who lacks most gets it: stripes of an image have nothing in common.

    :param owners: of all v-nodes; hosts without a count have left
    """
    surplus = Counter(owners)
    surplus.subtract(counts)
    lacking = {host: -more for host, more in surplus.items() if more < 0}
    found = list(owners)
    for place, owner in enumerate(owners):
        if surplus[owner] > 0:
            taker = max(sorted(lacking), key=lambda host: lacking[host])
            found[place] = taker
            surplus[owner] -= 1
            lacking[taker] -= 1
            if not lacking[taker]:
                del lacking[taker]
    return tuple(found)


def give_way(owners: Sequence[str], giver: str, counts: Mapping[str, int]) -> tuple[str, ...]:
    """Return the owners when one host gives what it has too many of to those who lack most.

    It keeps one. What others have too many of stays: each change costs its group some cache.

    :param counts: how many v-nodes each host shall have
    """
    wanted = Counter(owners)
    while wanted[giver] > max(1, counts.get(giver, 0)):
        taker = max(sorted(counts), key=lambda host: counts[host] - wanted[host])
        if counts[taker] <= wanted[taker]:
            break
        wanted[giver] -= 1
        wanted[taker] += 1
    return remap(owners, wanted)


def hand_out(owners: Sequence[str | None], takers: Collection[str]) -> tuple[str | None, ...]:
    """Return the owners when each v-node that nobody owns is given to one of the takers.

    Who has fewest gets the next one; of several, who the v-node's hash is nearest to.
    """
    found = list(owners)
    owned = Counter(owners)
    for v_node, owner in enumerate(owners):
        if owner is None and takers:
            taker = min(takers, key=lambda host: (owned[host], _distance(v_node, host)))
            found[v_node] = taker
            owned[taker] += 1
    return tuple(found)


def hand_over(owners: Sequence[str | None], newcomer: str, hosts: int) -> tuple[str | None, ...]:
    """Return the owners when a newcomer takes its share, from those who have most of all.

    It takes no more than one of so many hosts has on average, rounded up, and of nobody who would
    then have less than the newcomer.
    """
    found = list(owners)
    most = -(-len(owners) // hosts)
    owned = Counter(owner for owner in owners if owner is not None)
    while owned and owned[newcomer] < most:
        giver = min(owned, key=lambda host: (-owned[host], host))
        if owned[giver] - owned[newcomer] < 2:
            break
        given = min(
            (one for one, owner in enumerate(found) if owner == giver),
            key=lambda v_node: _distance(v_node, newcomer),
        )
        found[given] = newcomer
        owned[giver] -= 1
        owned[newcomer] += 1
    return tuple(found)


def _distance(v_node: int, host: str) -> bytes:
    return sha256(f"{v_node}/{host}".encode()).digest()
