"""Ceph: each VM has a clone of a snapshot, which its node's kernel maps (RBD).

One monitor and one OSD, on the storage node: as much as the other ways have to serve from.
"""

from bench.peers.peer import Peer, Site
from lab.ceph import Ceph
from lab.deployment import SOURCE_DISK
from lab.node import Node

SNAPSHOT = "rbd/image@base"
FEATURES = "--image-feature=layering"  # the one that every kernel's client has


class Rbd(Peer):
    """Clones, copy-on-write."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._ceph = Ceph(site.storage, site.nodes)

    def serve(self) -> None:
        """Start a cluster and import the image."""
        storage = self.site.storage
        self._ceph.start()
        self._ceph.make_pool("rbd")
        self._ceph.rbd(storage, "import", FEATURES, SOURCE_DISK, "rbd/image")
        self._ceph.rbd(storage, "snap", "create", SNAPSHOT)
        self._ceph.rbd(storage, "snap", "protect", SNAPSHOT)

    def create(self, node: Node) -> str:
        """Clone the snapshot and map the clone."""
        clone = _clone(node)
        self._ceph.rbd(node, "clone", FEATURES, SNAPSHOT, clone)
        return self._ceph.rbd(node, "map", clone)

    def destroy(self, node: Node) -> None:
        """Unmap the clone and remove it."""
        self._ceph.rbd(node, "unmap", _clone(node))
        self._ceph.rbd(node, "rm", "--no-progress", _clone(node))

    def leave(self, node: Node) -> None:
        """Leave nothing: all is in the cluster."""

    def end(self) -> None:
        """Stop the cluster."""
        self._ceph.stop()


def _clone(node: Node) -> str:
    return f"rbd/{node.name}"
