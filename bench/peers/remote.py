"""Ways in which VMs read from others what they need: iSCSI, NFS, and trees as first published."""

import json
from threading import Event

from bench.peers.peer import FOLDER, INSIDE, Files, Peer, Site
from lab.deployment import SOURCE_DISK
from lab.node import Node


class Iscsi(Peer):
    """Each node logs in to the storage node, and the VM has a dm-snapshot over that disk."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self.disks: dict[str, str] = {}

    def serve(self) -> None:
        """Let LIO serve the disk."""
        export(self.site.storage, SOURCE_DISK)

    def create(self, node: Node) -> str:
        """Log in, unless the node has the disk, and make the snapshot."""
        if node.name not in self.disks:
            self.disks[node.name] = self.attach(node)
        disk, name = self.disks[node.name], f"bare-{node.name}"
        size = node.run(["blockdev", "--getsize64", disk]).stdout.strip()
        node.run([*INSIDE, "bare", disk, size, name], timeout=300)
        return f"/dev/mapper/{name}"

    def attach(self, node: Node) -> str:
        """Return the disk of which a node's VMs have snapshots."""
        return login(node, self.site.storage)

    def destroy(self, node: Node) -> None:
        """Remove the snapshot."""
        node.run([*INSIDE, "remove", f"bare-{node.name}"])

    def leave(self, node: Node) -> None:
        """Log out."""
        node.run([*INSIDE, "logout"])

    def end(self) -> None:
        """Serve the disk no more."""
        self.site.storage.run([*INSIDE, "withdraw"])


class Paper(Iscsi):
    """VirtMan as first published (TPDS 2014): one binary tree of iSCSI, and a cache on each node.

    A node serves its cache device itself, so what two children read at once it fetches twice.
    Nothing is fetched ahead, and nothing is verified.
    """

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._serves = {node.name: Event() for node in site.nodes}

    def attach(self, node: Node) -> str:
        """Log in to the parent once that serves, and serve in turn."""
        place = next(n for n, one in enumerate(self.site.nodes) if one is node)
        parent = self.site.nodes[(place - 1) // 2] if place else self.site.storage
        if place and not self._serves[parent.name].wait(timeout=600):
            raise TimeoutError(f"{parent.name} does not serve {node.name}")
        done = node.run([*INSIDE, "cache", login(node, parent)], timeout=300)
        disk, served = json.loads(done.stdout)
        export(node, served)
        self._serves[node.name].set()
        return str(disk)

    def leave(self, node: Node) -> None:
        """Serve no more, drop the cache and log out; all below has left its VM by now."""
        node.run([*INSIDE, "withdraw"])
        node.run([*INSIDE, "uncache"], timeout=300)
        node.run([*INSIDE, "logout"])


class Nfs(Files):
    """All nodes read one raw file on the kernel's NFS server."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._mounted: set[str] = set()

    def serve(self) -> None:
        """Start the server, for NFS 4 only."""
        self.make(self.disk, "raw")
        server = self.site.storage
        server.run(["modprobe", "nfsd"])
        server.run(["mount", "-t", "nfsd", "nfsd", "/proc/fs/nfsd"])
        self.spawn(server, "rpc.mountd", "--foreground", "--no-nfs-version", "3")
        server.run(["exportfs", "-o", "ro,fsid=0,no_root_squash,insecure", f"*:{FOLDER}"])
        server.run(["rpc.nfsd", "--no-nfs-version", "3", "8"])

    def create(self, node: Node) -> str:
        """Mount, unless the node has that."""
        if node.name not in self._mounted:
            node.run(["mkdir", FOLDER])
            node.run(["modprobe", "nfsv4"])
            where = f"{self.site.storage.address}:/"
            node.run(["mount", "-t", "nfs4", "-o", "ro", where, FOLDER], timeout=300)
            self._mounted.add(node.name)
        return self.disk

    def leave(self, node: Node) -> None:
        """Unmount."""
        node.run(["umount", FOLDER])
        self.stop(node)

    def end(self) -> None:
        """Stop the server."""
        server = self.site.storage
        server.run(["rpc.nfsd", "0"])
        server.run(["exportfs", "-ua"])
        server.run(["umount", "/proc/fs/nfsd"])
        self.stop(server)


def export(node: Node, disk: str) -> None:
    """Serve a disk of a node to everybody."""
    node.run([*INSIDE, "serve", disk, node.address], timeout=300)


def login(node: Node, parent: Node) -> str:
    """Log in to what another node serves; return the disk."""
    done = node.run([*INSIDE, "login", parent.address], timeout=300)
    return str(json.loads(done.stdout))
