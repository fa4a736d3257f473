"""Which hosts of a ring own which stripes, and who reads them from whom.

Hosts are in *groups* of up to 64. In each group each stripe has one *owner* (ACStor, 3.4): that
host is inner there and reads the stripe from the source, or from its owner in another group. All
others of the group read it from the owner. Six stripes, and groups of four hosts::

    stripe 0                stripe 1          ...   stripe 5
    source                  source                  source
    `- a*                   `- c*                   `- b*
       |- b                    |- a                    |- a
       |- c                    |- b                    |- c
       |- d                    |- d                    |- d
       `- f*                   `- e*                   `- f*
          |- e                    |- f                    |- e
          `- g                    `- g                    `- g

Owners have about as many stripes each. A host that joins takes its share from those who have
most, one that leaves gives each of its own to whoever has fewest; nothing else changes hands.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from volt.errors import HostPlaced
from volt.placement import v_nodes
from volt.placement.links import Links, Newcomer, Node, Totals
from volt.placement.part import Change, Kind, Pick
from volt.placement.places import Places

_EVERYBODY = Pick(Kind(), 2**31 - 1)

_GROUPS_FED = 2
"""Owners of other groups that an owner feeds: so the groups are a tree, too."""

_FAR = 4
"""Hops between hosts of two racks, at least."""


class Circle(Links):
    """One stripe. A level tells the group: 2g + 1 is that of the owner in group g, 2g + 2 others'.

    ``groups`` is where all hosts are, for those who are about to be hung.
    """

    def __init__(self, fanout: int, totals: Totals, groups: Mapping[str, int]) -> None:
        super().__init__(fanout, totals)
        self.owners: dict[int, str] = {}
        """The stripe's owner in each group that has one."""
        self._groups = groups

    def restore(self, node: Node) -> None:
        """Take in a node that hangs already; fine if it is here, or was and has gone."""
        super().restore(node)
        if node.inner:
            self.owners[self._groups[node.host]] = node.host

    def level_below(self, parent: str | None, node: Node, entry: bool) -> int:
        """Return the level of a host, whoever feeds it."""
        return 2 * self._groups[node.host] + (1 if node.inner else 2)

    def own(self, group: int, owner: str | None) -> None:
        """Give the stripe to a host of the group, or to none."""
        before = self.owners.pop(group, None)
        if owner is not None:
            self.owners[group] = owner
        for host in {before, owner} - {None}:
            node = self.nodes[str(host)]
            if node.inner != (host == owner):
                self.set_inner(node, host == owner)
                node.level = self.level_below(node.parent, node, False)

    def regroup(self, host: str) -> None:
        """Note that a host is in another group now."""
        node = self.nodes[host]
        self.unhang(node)
        self.hang(node, node.parent)

    def settle(self, hosts: Iterable[str]) -> None:
        """Have these hosts, and all owners, read from whom they should."""
        wanted = {host: self._parent(host) for host in {*hosts, *self.owners.values()}}
        nodes = [
            self.nodes[host] for host, parent in wanted.items() if self.nodes[host].parent != parent
        ]
        for node in sorted(nodes, key=lambda node: (-self._depth(node), node.host)):
            self.unhang(node)
        # of groups an earlier one feeds a later one, and the owner is first in each
        for node in sorted(nodes, key=lambda node: (node.level, node.host)):
            self.hang(node, wanted[node.host])

    def _parent(self, host: str) -> str | None:
        group = self._groups[host]
        if self.owners.get(group, host) != host:
            return self.owners[group]
        while group > 0:
            group = (group - 1) // _GROUPS_FED
            if group in self.owners:
                return self.owners[group]
        return None

    def _depth(self, node: Node) -> int:
        depth = 0
        while node.parent is not None:
            depth, node = depth + 1, self.nodes[node.parent]
        return depth


class Ring(Places):
    """All groups of an image."""

    def __init__(self, most: int, in_rack: bool, totals: Sequence[Totals]) -> None:
        """Start without hosts, in groups of up to so many; ``in_rack`` keeps each to one rack."""
        self._most = most
        self._in_rack = in_rack
        self._groups: dict[str, int] = {}
        self._members: dict[int, set[str]] = defaultdict(set)
        self._circles = [Circle(most, one, self._groups) for one in totals]
        super().__init__(self._circles)

    def picks(self, change: Change) -> list[Pick]:
        """Return everybody: a change is about all stripes, and all hosts of a group."""
        return [_EVERYBODY]

    def restore(self, stripe: int, node: Node) -> None:
        """Take in a host that has its place in that stripe; fine if it is here already."""
        self._put(node.host, (node.level - 1) // 2)
        super().restore(stripe, node)

    def join(self, newcomer: Newcomer) -> None:
        """Place a host; raises HostPlaced if it has a place."""
        host = newcomer.host
        if host in self._groups:
            raise HostPlaced(f"host {host} already has a place; let it leave first")
        self._put(host, self._group_for(newcomer.rack))
        for circle in self._circles:
            node = Node(host, newcomer.rack, None, 1, inner=False)
            node.accepting, node.speed = newcomer.feeds, newcomer.speed
            circle.hang(node, None)
        self._take_share(host)
        self._settle(host)

    def leave(self, host: str) -> None:
        """Remove a host; raises HostUnknown if it has no place."""
        self.drain(host)
        for circle in self._circles:
            circle.unhang(circle.nodes[host])
            circle.forget(host)
        group = self._groups.pop(host)
        self._members[group].discard(host)
        if not self._members[group]:
            del self._members[group]

    def drain(self, host: str) -> None:
        """Make a host own no stripe any more; raises HostUnknown if it has no place."""
        self.overload(host)
        group = self._groups[host]
        owners = [None if owner == host else owner for owner in self._owners(group)]
        self._own(group, v_nodes.hand_out(owners, self._takers(group)))
        self._settle(host)

    def overload(self, host: str) -> None:
        """Give a host no more stripes; raises HostUnknown if it has no place."""
        self._accept(host, False)

    def relieve(self, host: str) -> None:
        """Let a host own its share of the stripes, after ``drain``, or more, after ``overload``.

        One that still owns some gets no others for that: with these it would be overloaded again.
        Raises HostUnknown if it has no place.
        """
        self._accept(host, True)
        self._take_share(host)
        self._settle(host)

    def follow(self, host: str, traffic: Mapping[str, float], uplinks: Sequence[float]) -> bool:
        """Let a host give stripes to others, if its traffic is too much (ACStor, Equation 1).

        The traffic is all that a host has, so what it owns is in it, too: ACStor leaves that out.
        Of those whose traffic is not known, nobody gives or takes.

        Where most uplinks are busy, its group is parted by racks first: then no request crosses one
        any more (Algorithm 1).
        """
        self._check_placed(host)
        is_parted = v_nodes.threshold([(), uplinks]) <= _FAR and self._part(self._groups[host])
        return self._share(host, traffic) or is_parted

    def _share(self, host: str, traffic: Mapping[str, float]) -> bool:
        """Let a host give stripes to those of its group with less traffic, if there are any."""
        group = self._groups[host]
        known = {one: traffic[one] for one in {host, *self._takers(group)} if one in traffic}
        owners = [owner for owner in self._owners(group) if owner is not None]
        if host not in known or len(owners) < len(self._circles):
            return False
        counts = v_nodes.deal(v_nodes.by_traffic(known), len(self._circles))
        found = v_nodes.give_way(owners, host, counts)
        self._own(group, found)
        self._settle(host)
        return list(found) != owners

    def parents_for(self, host: str, rack: str | None, stripe: int) -> list[Node]:
        """Return who could be given the host as a child: the stripe's owner in its group."""
        group = self._groups[host] if host in self._groups else self._group_for(rack)
        owner = self._circles[stripe].owners.get(group, host)
        return [] if owner == host else [self.node(owner, stripe)]

    def _part(self, group: int) -> bool:
        """Give each rack of a group a group of its own; who owned a stripe still does.

        :returns: whether it was of several racks
        """
        racks: dict[str | None, list[str]] = defaultdict(list)
        for host in sorted(self._members[group]):
            racks[self.node(host, 0).rack].append(host)
        owners = self._owners(group)
        self._own(group, [None] * len(owners))
        _, *others = parts = sorted(racks.values(), key=len, reverse=True)
        for hosts in others:
            new = self._free_group()
            for host in hosts:
                self._members[group].discard(host)
                self._put(host, new)
                for circle in self._circles:
                    circle.regroup(host)
        for hosts in parts:
            kept = [owner if owner in hosts else None for owner in owners]
            mine = self._groups[hosts[0]]
            self._own(mine, v_nodes.hand_out(kept, self._takers(mine)))
        for hosts in parts:
            self._settle(hosts[0])
        return bool(others)

    def _free_group(self) -> int:
        return next(one for one in range(len(self._members) + 1) if one not in self._members)

    def _group_for(self, rack: str | None) -> int:
        """Return the group that a host of a rack joins: the one with most of that rack."""
        here: dict[int, int] = {}
        for group, members in self._members.items():
            of_rack = sum(self.node(host, 0).rack == rack for host in members)
            is_fit = not self._in_rack or of_rack == len(members)
            if is_fit and len(members) < self._most:
                here[group] = of_rack
        if here:
            return min(here, key=lambda group: (-here[group], group))
        return self._free_group()

    def _put(self, host: str, group: int) -> None:
        self._groups[host] = group
        self._members[group].add(host)

    def _takers(self, group: int) -> list[str]:
        return sorted(host for host in self._members[group] if self.node(host, 0).accepting)

    def _owners(self, group: int) -> list[str | None]:
        return [circle.owners.get(group) for circle in self._circles]

    def _own(self, group: int, owners: Iterable[str | None]) -> None:
        for circle, owner in zip(self._circles, owners, strict=True):
            circle.own(group, owner)

    def _take_share(self, host: str) -> None:
        """Let a host own as many stripes as others do, if it may own any and has none."""
        group = self._groups[host]
        takers = self._takers(group)
        if host in takers:
            before = self._owners(group)
            owners = v_nodes.hand_out(before, takers)
            if host not in before:
                owners = v_nodes.hand_over(owners, host, len(takers))
            self._own(group, owners)

    def _accept(self, host: str, accepting: bool) -> None:
        self._check_placed(host)
        for circle in self._circles:
            circle.accept(circle.nodes[host], accepting)

    def _settle(self, host: str) -> None:
        """Have all of the host's group read from whom they should, and what depends on it."""
        for circle in self._circles:
            groups = {self._groups[host], *(self._members.keys() - circle.owners.keys())}
            circle.settle(one for group in groups for one in self._members[group])
