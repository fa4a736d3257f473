"""How evenly hosts are loaded if a ring's owners follow their other traffic (ACStor, 5.4.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from statistics import mean, pstdev

from planning.errors import check
from planning.ring import v_nodes
from volt.placement.v_nodes import by_traffic, deal, remap


@dataclass(frozen=True)
class Balance:
    """What hosts carry with the traffic of the ring.

    :ivar cv: standard deviation of all hosts' traffic over its mean (ACStor, equation 2)
    :ivar busiest: the most that a host carries over the mean
    :ivar moved: share of the v-nodes that changed hands, where all hosts had equal parts before
    """

    weights: str
    cv: float
    busiest: float
    moved: float


def traffic(hosts: int, average: float, cv: float, seed: int) -> dict[str, float]:
    """Return traffic of hosts that is none of the ring's, gamma distributed."""
    check(average >= 0, "traffic cannot be less than none")
    check(cv >= 0, "a coefficient of variation cannot be less than 0")
    dice = Random(seed)  # noqa: S311 - no secret
    names = [f"host{one:05}" for one in range(hosts)]
    if not (cv and average):
        return dict.fromkeys(names, average)
    return {name: dice.gammavariate(cv**-2, average * cv**2) for name in names}


def balances(own: Mapping[str, float], asked: float) -> list[Balance]:
    """Return what becomes of traffic with equal parts, by Equation 1, and by what room is left.

    :param own: traffic of each host that is none of the ring's
    :param asked: what the hosts ask of each other, in all, in the same unit
    """
    check(asked > 0, "a ring that nobody asks moves nothing")
    before = v_nodes.even(sorted(own))
    weights = {
        "equal": dict.fromkeys(own, 1.0),
        "inverse": by_traffic(own),
        "room": v_nodes.by_room(own, asked),
    }
    return [_balance(name, own, asked, before, one) for name, one in weights.items()]


def _balance(
    name: str,
    own: Mapping[str, float],
    asked: float,
    before: tuple[str, ...],
    weights: Mapping[str, float],
) -> Balance:
    counts = deal(weights, v_nodes.V_NODES)
    after = remap(before, counts)
    carried = [own[host] + asked * counts[host] / v_nodes.V_NODES for host in own]
    average = mean(carried)
    moved = sum(one != other for one, other in zip(before, after, strict=True))
    return Balance(name, pstdev(carried) / average, max(carried) / average, moved / v_nodes.V_NODES)
