"""What must hold for an image's trees at any time, checked on what Volt shows of them.

Each check yields faults in words; silence is good. Nothing here knows how Volt
places hosts.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import count
from typing import Any

Json = Mapping[str, Any]


def faults(trees: Json, hosts: Collection[str], closed: Collection[str] = ()) -> Iterator[str]:
    """Check the trees of GET /v1/images/{image}/trees.

    ``hosts`` are those that hold a place, ``closed`` those that must not feed others.
    """
    for tree in trees["trees"]:
        where = f"image {trees['image']}, stripe {tree['stripe']}"
        for fault in _tree_faults(trees, tree["nodes"], set(hosts), set(closed)):
            yield f"{where}: {fault}"
    if trees["stripes"] > 1 and trees["shape"] != "ring":  # there any host feeds any other
        feeding = Counter(
            host
            for tree in trees["trees"]
            for host in {node["parent"] for node in tree["nodes"]} - {None}
        )
        inner = Counter(
            node["host"] for tree in trees["trees"] for node in tree["nodes"] if node["inner"]
        )
        for host in sorted((feeding + inner).keys()):
            if feeding[host] > 1 or inner[host] > 1:
                yield f"image {trees['image']}: {host} is inner in more than one tree"


def placement_faults(
    trees: Json, placements: Iterable[Json], portals: Mapping[str, Json]
) -> Iterator[str]:
    """Check that hosts are told what the trees say; placements as GET of a host's place.

    ``portals`` are what the hosts gave as their own.
    """
    told = {placement["host"]: placement for placement in placements}
    for tree in trees["trees"]:
        parents = {node["host"]: node["parent"] for node in tree["nodes"]}
        for host in parents:
            if host not in told:
                yield f"image {trees['image']}: {host} is in the trees, but has no placement"
                continue
            feed = told[host]["stripes"][tree["stripe"]]
            for fault in _told_faults(feed, parents, host, portals):
                yield f"image {trees['image']}, stripe {tree['stripe']}: {host} {fault}"
    for host, placement in sorted(told.items()):
        if not 0 < placement["generation"] <= trees["generation"]:
            yield f"image {trees['image']}: {host} has generation {placement['generation']}"


def _tree_faults(
    trees: Json, nodes: list[Json], hosts: set[str], closed: set[str]
) -> Iterator[str]:
    parents = {node["host"]: node["parent"] for node in nodes}
    if len(parents) != len(nodes):
        yield "a host stands there twice"
    for host in sorted(parents.keys() ^ hosts):
        yield f"{host} is {'missing' if host in hosts else 'there without a place'}"
    depths = {host: _depth(parents, host) for host in parents}
    for node in nodes:
        depth = depths[node["host"]]
        if depth is None:
            yield f"{node['host']} does not reach the source"
        elif depth != node["depth"]:
            yield f"{node['host']} is said to be at depth {node['depth']}, not {depth}"
    deepest = max((depth for depth in depths.values() if depth is not None), default=0)
    racks = {node.get("rack") for node in nodes}
    if deepest > _bound(trees, len(nodes), len(racks)):
        yield f"depth {deepest} with {len(nodes)} hosts"
    yield from _slot_faults(trees, nodes, closed)


def _slot_faults(trees: Json, nodes: list[Json], closed: set[str]) -> Iterator[str]:
    """Check who feeds how many."""
    if trees["shape"] == "star":
        yield from (f"{n['host']} is not fed by the source" for n in nodes if n["parent"])
        return
    children = Counter(node["parent"] for node in nodes)
    inner = {node["host"] for node in nodes if node["inner"]}
    for host in sorted(children.keys() - {None}):
        if children[host] > trees["fanout"] and trees["shape"] != "ring":
            yield f"{host} feeds {children[host]}"
        if host not in inner:
            yield f"{host} feeds others, but is a leaf"
        if host in closed:
            yield f"{host} feeds others, but must not"
    if trees["shape"] == "ring":  # each group has an owner, which Volt does not show
        return
    spares = children[None] - (trees["fanout"] if trees["stripes"] == 1 else 1)
    free = [host for host in inner - closed if children[host] < trees["fanout"]]
    if spares > 0 and free:
        yield f"the source feeds {children[None]}, though {min(free)} has room"


def _told_faults(
    feed: Json, parents: Mapping[str, str | None], host: str, portals: Mapping[str, Json]
) -> Iterator[str]:
    parent, standby = feed["parent"], feed["standby"]
    if parent["host"] != parents[host]:
        yield f"is told {parent['host']}, but hangs under {parents[host]}"
        return
    if (parent["host"] is None) != (standby is None):
        yield f"has standby {standby} under {parent['host'] or 'the source'}"
    elif standby is not None and standby["host"] not in _ancestors(parents, parent["host"]):
        yield f"has standby {standby['host']}, which is no ancestor of {parent['host']}"
    for peer in (parent, standby):
        if peer is not None and peer["host"] in portals and peer["portal"] != portals[peer["host"]]:
            yield f"is told {peer['portal']} of {peer['host']}"


def _ancestors(parents: Mapping[str, str | None], host: str) -> set[str | None]:
    """Return who feeds the host, directly or not: up to the source, which is None."""
    found: set[str | None] = set()
    above = parents.get(host)
    while above is not None and above not in found:
        found.add(above)
        above = parents.get(above)
    return found | {None}


def _depth(parents: Mapping[str, str | None], host: str) -> int | None:
    """Return the steps to the source; None if the way does not end there."""
    above: str | None = host
    for depth in range(len(parents) + 1):
        if above is None:
            return depth
        above = parents.get(above, host)
    return None


def _bound(trees: Json, hosts: int, racks: int) -> int:
    """Return the greatest depth allowed: ceil(log_f(N)) + 2, and more if there are racks."""
    if trees["shape"] == "star":
        return 1
    if trees["fanout"] == 1:
        return hosts
    if trees["shape"] == "ring":  # an owner feeds two other groups
        return 2 + _levels(2, hosts)
    of_racks = _levels(trees["fanout"], racks) + 1 if racks > 1 else 0
    return 2 + _levels(trees["fanout"], hosts) + of_racks


def _levels(fanout: int, hosts: int) -> int:
    """Return ceil(log_f(N))."""
    return next(power for power in count() if fanout**power >= hosts)
