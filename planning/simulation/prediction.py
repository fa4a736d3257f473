"""What the paper's design and ours would do on sites that nobody here has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from planning.simulation.agreement import MBIT, TREE
from planning.simulation.run import Result
from planning.simulation.scenario import Boot, Cluster, Design, Scenario

GBIT = 1000 * MBIT

DESIGNS: Mapping[str, Design] = {
    "paper": Design(TREE, ahead=False, knows_racks=False, attach_s=10.0, cascades=True),
    "ours": Design(),
    "racks-not-told": Design(knows_racks=False),
}
"""The VirtMan paper's tree, in which a host is attached after its parent and nothing is fetched
ahead; and ours, with and without Volt knowing the racks."""

_SMALL = Cluster(100, GBIT, racks=4, uplink=GBIT)
_LARGE = Cluster(1000, 25 * GBIT, racks=25, uplink=250 * GBIT)
_BOOT = Boot(320e6, 23.0, vms=10)

SITES: Mapping[str, Scenario] = {
    "small": Scenario(_SMALL, _BOOT),
    "large": Scenario(_LARGE, _BOOT),
    "deaths": Scenario(_LARGE, _BOOT, deaths=0.1),
    "slow-source": Scenario(replace(_LARGE, source=GBIT), _BOOT),
    "large-set": Scenario(_LARGE, replace(_BOOT, working_set=2e9)),
}
"""100 servers in four racks, whose uplinks carry no more than one server's link; 1,000 servers in
25 racks, 4:1 oversubscribed. Ten VMs each, with the boot that Figure 5 of the paper fits."""


@dataclass(frozen=True)
class Planned:
    """A run that is to be made."""

    site: str
    design: str
    scenario: Scenario


def planned(sites: Iterable[str]) -> list[Planned]:
    """Return each design on each of these sites."""
    return [
        Planned(site, name, replace(SITES[site], design=design))
        for site in sites
        for name, design in DESIGNS.items()
    ]


def figures(result: Result) -> dict[str, Any]:
    """Return what came of a run, as it is written."""
    scenario = result.scenario
    cluster, size = scenario.cluster, scenario.boot.working_set
    return {
        "hosts": cluster.hosts,
        "vms": cluster.hosts * scenario.boot.vms,
        "link_bits_s": cluster.link * 8,
        "source_bits_s": cluster.source_link * 8,
        "working_set_bytes": size,
        "deaths": result.dead,
        "first_s": result.first_s,
        "median_s": result.median_s,
        "last_s": result.last_s,
        "limit_s": scenario.limit_s,
        "last_over_limit": result.last_s / scenario.limit_s,
        "source_over_set": result.source_sent / size,
        "busiest_over_set": result.busiest_sent / size,
        "uplink_over_set": max(result.into_racks) / size,
        "waits": result.waits,
        "longest_wait_s": result.longest_wait_s,
    }
