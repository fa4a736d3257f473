"""Ways to boot many VMs from one image."""

from collections.abc import Callable

from bench.peers.ceph import Rbd
from bench.peers.copies import Http, Torrent
from bench.peers.peer import Peer, Site
from bench.peers.remote import Iscsi, Nfs, Paper
from bench.peers.virtman import Forest, Trees

BOOT, OTHER = "boot", "other"  # workloads that were recorded

PEERS: dict[str, Callable[[Site], Peer]] = {
    "virtman": lambda site: Forest(site, BOOT),
    "no-prefetch": lambda site: Forest(site, None),
    "foreign": lambda site: Forest(site, OTHER),
    "tree": lambda site: Trees(site, "tree"),
    "star": lambda site: Trees(site, "star"),
    "chain": lambda site: Trees(site, "chain"),
    "paper": Paper,
    "iscsi": Iscsi,
    "nfs": Nfs,
    "rbd": Rbd,
    "http": lambda site: Http(site, at_once=len(site.nodes)),
    "http-2": lambda site: Http(site, at_once=2),
    "torrent": Torrent,
}
