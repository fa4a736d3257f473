"""Ceph: each VM has a clone of a snapshot, which its node's kernel maps (RBD).

One monitor and one OSD, on the storage node: as much as the other ways have to serve from.
"""

import uuid

from bench.peers.peer import FOLDER, LONGEST, Peer, Site
from lab.deployment import SOURCE_DISK
from lab.node import Node
from lab.waiting import wait_until

CONF = "/host/ceph.conf"
SNAPSHOT = "rbd/image@base"
FEATURES = "--image-feature=layering"  # the one that every kernel's client has
SETTINGS = """\
[global]
fsid = {fsid}
mon_host = {address}
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
mon_allow_pool_size_one = true
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_crush_chooseleaf_type = 0
bluestore_block_size = 4294967296
bluestore_cache_autotune = false
bluestore_cache_size = 67108864
mon_data = {folder}/mon
osd_data = {folder}/osd
"""


class Rbd(Peer):
    """Clones, copy-on-write."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._pids: list[int] = []

    def serve(self) -> None:
        """Start a cluster and import the image."""
        storage, fsid = self.site.storage, str(uuid.uuid4())
        conf = SETTINGS.format(fsid=fsid, address=storage.address, folder=FOLDER)
        for node in (storage, *self.site.nodes):
            (node.share / "ceph.conf").write_text(conf)
        storage.run(["mkdir", "-p", f"{FOLDER}/mon", f"{FOLDER}/osd"])
        at = f"[v2:{storage.address}:3300,v1:{storage.address}:6789]"
        monmap = f"{FOLDER}/monmap"
        storage.run(["monmaptool", "--create", "--addv", "a", at, "--fsid", fsid, monmap])
        storage.run(["ceph-mon", "-c", CONF, "--mkfs", "-i", "a", "--monmap", monmap], timeout=300)
        self._spawn("ceph-mon", "-i", "a")
        wait_until(lambda: self._ceph("osd", "ls", check=False), "an answer of Ceph", 120, 1)
        osd = str(uuid.uuid4())
        self._ceph("osd", "new", osd)
        make = ["ceph-osd", "-c", CONF, "-i", "0", "--mkfs", "--osd-uuid", osd]
        storage.run(make, timeout=300)
        self._spawn("ceph-osd", "-i", "0")
        self._ceph("osd", "pool", "create", "rbd", "16")
        self._rbd(storage, "pool", "init", "rbd")
        self._rbd(storage, "import", FEATURES, SOURCE_DISK, "rbd/image")
        self._rbd(storage, "snap", "create", SNAPSHOT)
        self._rbd(storage, "snap", "protect", SNAPSHOT)

    def create(self, node: Node) -> str:
        """Clone the snapshot and map the clone."""
        clone = _clone(node)
        self._rbd(node, "clone", FEATURES, SNAPSHOT, clone)
        return self._rbd(node, "map", clone)

    def destroy(self, node: Node) -> None:
        """Unmap the clone and remove it."""
        self._rbd(node, "unmap", _clone(node))
        self._rbd(node, "rm", "--no-progress", _clone(node))

    def leave(self, node: Node) -> None:
        """Leave nothing: all is in the cluster."""

    def end(self) -> None:
        """Stop the cluster."""
        storage = self.site.storage
        for pid in reversed(self._pids):
            storage.run(["kill", str(pid)], check=False)
            storage.run(["tail", f"--pid={pid}", "-f", "/dev/null"], timeout=120)
        storage.run(["rm", "-rf", FOLDER])

    def _spawn(self, *argv: str) -> None:
        command = [argv[0], "-c", CONF, "-f", *argv[1:]]
        self._pids.append(self.site.storage.spawn(command, log=f"{argv[0]}.log"))

    def _ceph(self, *words: str, check: bool = True) -> bool:
        command = ["ceph", "-c", CONF, "--connect-timeout", "60", *words]
        return self.site.storage.run(command, timeout=120, check=check).status == 0

    def _rbd(self, node: Node, *words: str) -> str:
        done = node.run(["rbd", "-c", CONF, *words], timeout=LONGEST)
        return str(done.stdout.strip())


def _clone(node: Node) -> str:
    return f"rbd/{node.name}"
