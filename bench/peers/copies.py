"""Ways in which each node has the image copied whole before its VM boots, as nova does.

What travels is qcow2. VMs boot from a raw file, as nova has it unless told otherwise.
"""

import threading
from abc import abstractmethod

from bench.peers.peer import FOLDER, LONGEST, Files, Site
from lab.node import Node
from lab.waiting import wait_until

IMAGE = f"{FOLDER}/image.qcow2"
HTTP = 8080
TRACKER = 6969


class Copy(Files):
    """One way of copying."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._copied: set[str] = set()

    def serve(self) -> None:
        """Make the file that is copied."""
        self.make(IMAGE, "qcow2")

    def create(self, node: Node) -> str:
        """Copy, unless the node has that."""
        if node.name not in self._copied:
            node.run(["mkdir", FOLDER])
            self.fetch(node)
            convert = ["qemu-img", "convert", "-O", "raw", IMAGE, self.disk]
            node.run(convert, timeout=LONGEST)
            self._copied.add(node.name)
        return self.disk

    @abstractmethod
    def fetch(self, node: Node) -> None:
        """Have the file on a node."""

    def leave(self, node: Node) -> None:
        """Remove the copy."""
        self.stop(node)

    def end(self) -> None:
        """Stop what serves."""
        self.stop(self.site.storage)


class Http(Copy):
    """The copy comes from nginx, as Glance sends it.

    :param at_once: how many nodes copy at the same time
    """

    def __init__(self, site: Site, at_once: int) -> None:
        super().__init__(site)
        self._turns = threading.Semaphore(at_once)

    def serve(self) -> None:
        """Start nginx."""
        super().serve()
        self.spawn(self.site.storage, "nginx", "-c", "/etc/nginx/peer.conf", "-g", "daemon off;")

    def fetch(self, node: Node) -> None:
        """Download, when it is the node's turn."""
        url = f"http://{self.site.storage.address}:{HTTP}/{IMAGE.rpartition('/')[2]}"
        curl = ["curl", "--silent", "--show-error", "--fail", "--retry", "5", "--retry-connrefused"]
        with self._turns:
            node.run([*curl, "--output", IMAGE, url], timeout=LONGEST)


class Torrent(Copy):
    """The copy comes by BitTorrent: opentracker, and aria2 on all nodes."""

    def serve(self) -> None:
        """Start a tracker and the first seeder."""
        super().serve()
        storage = self.site.storage
        tracker = f"http://{storage.address}:{TRACKER}/announce"
        storage.run(["mktorrent", "-a", tracker, "-o", "/host/torrent", IMAGE], timeout=LONGEST)
        shown = storage.run(["aria2c", "--show-files", "/host/torrent"]).stdout
        known = next(line for line in shown.splitlines() if line.startswith("Info Hash:"))
        # Debian's tracker serves what it is told to serve, and nothing else
        (storage.share / "torrents").write_text(known.partition(":")[2].strip() + "\n")
        at = ["-i", storage.address, "-p", str(TRACKER), "-P", str(TRACKER)]
        self.spawn(storage, "opentracker", *at, "-w", "/host/torrents")
        self._seed(storage)

    def fetch(self, node: Node) -> None:
        """Join the others."""
        (node.share / "torrent").write_bytes((self.site.storage.share / "torrent").read_bytes())
        done = node.share / "torrent.done"
        done.unlink(missing_ok=True)
        self._seed(node)
        wait_until(done.exists, f"the copy on {node.name}", LONGEST, 0.2)

    def _seed(self, node: Node) -> None:
        """Have aria2 fetch what is missing, and then serve it until the end."""
        self.spawn(
            node, "aria2c", "--dir", FOLDER, "--check-integrity=true", "--seed-ratio=0.0",
            "--enable-dht=false", "--file-allocation=none", "--summary-interval=0",
            "--on-bt-download-complete=/usr/local/bin/torrent-done", "/host/torrent",
        )  # fmt: skip
