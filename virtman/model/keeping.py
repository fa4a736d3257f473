"""Which stripes of a ring a node keeps in its cache, as its cache may be smaller than the image.

All others of a ring read some stripes from this node. If these had to share the cache with
whatever its own VMs read, they would be missed often, and come from the source again. So where a
cache cannot hold the image, it keeps what the node owns, and of the other stripes as many as there
is room for (private and public cache: ACStor, 3.3). The rest passes it by: what VMs read of that
most stays in the node's page cache.
"""

from __future__ import annotations

_FILLED = 0.9
"""Part of a cache that can be counted on: it has its own tables, and does not fill all buckets."""


def kept(owns: frozenset[int], stripes: int, room: float) -> frozenset[int] | None:
    """Return the stripes that the cache keeps; None for all.

    :param owns: the stripes that others read from here
    :param room: part of the image for which the cache has room
    """
    if room * _FILLED >= 1:
        return None
    more = int(room * _FILLED * stripes) - len(owns)
    others = sorted(set(range(stripes)) - owns)
    return owns.union(others[: max(0, more)])
