"""How soon VMs that boot at once on nodes without their image are ready, beside other ways to boot.

On a bed of its own: nodes are real kernels, and links are shaped. All peers have the same nodes,
the same image and the same boot: either real guests, or the reads of one that were traced, made
again with the pauses between them, so that many nodes need little processor time.
"""

import itertools
import json
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median, quantiles
from typing import Any

from bench import trace
from bench.peers import BOOT, OTHER, PEERS
from bench.peers.peer import INSIDE, LONGEST, Peer, Site
from bench.peers.virtman import FOREST, Forest, Trees, vm
from bench.report import Progress, Step
from bench.usage import Machine
from lab import Bed, Disk
from lab.deployment import Deployment
from lab.guest import Guest, guest_image
from lab.network import bytes_per_second
from lab.node import Node
from lab.rootfs import TOP

BED = "bench-storm"
PROGRAMS = TOP / "lab/images/peers"
WORKLOADS = ("replay", "boot")
WAITED = 0.01  # seconds: a read that took longer was not answered by memory
LOOK = 1.0  # seconds


def measure(
    nodes: int, link_rate: str | None, peers: Sequence[str], workload: str, progress: Progress
) -> list[dict[str, Any]]:
    """Return one entry of ``runs`` for each peer."""
    with Bed(BED, link_rate, addition=PROGRAMS) as bed:
        storm = _Storm(bed, link_rate, workload)
        storm.start(nodes, progress.step("nodes", nodes + 1))
        storm.learn(progress.step("a first boot, recorded and traced", 2))
        if "foreign" in peers:
            storm.learn_other(progress.step("another workload, recorded", 1))
        return [storm.run(peer, progress.step(peer, 2 * nodes)) for peer in peers]


def ratios(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the runs of one number of nodes and one link rate say about each other."""
    by_peer = {run["peer"]: run for run in runs}
    ours, plain = by_peer.get("virtman"), by_peer.get("no-prefetch")
    if ours is None:
        return {}
    workload = ours["workload"]
    found = {
        f"{workload}_last_over_limit": ours["last_s"] / ours["limit_s"],
        f"{workload}_reads_over_limit": ours["reads_s"] / ours["limit_s"],
        f"cold_over_warm_{workload}": ours["last_s"] / ours["warm_last_s"],
        "source_over_set": ours["source_sent_bytes"] / ours["working_set_bytes"],
        "busiest_over_set": ours["busiest_node_sent_bytes"] / ours["working_set_bytes"],
        "fetched_over_used": ours["fetch_ratio"],
        "peers": {
            peer: run["last_s"] / ours["last_s"] for peer, run in by_peer.items() if run != ours
        },
    }
    if plain is not None and ours["stall_max_ms"]:
        found["stall_max_over_none"] = ours["stall_max_ms"] / plain["stall_max_ms"]
    if plain is not None and "foreign" in by_peer:
        found["foreign_profile_over_none"] = by_peer["foreign"]["last_s"] / plain["last_s"]
    return found


class _Storm:
    def __init__(self, bed: Bed, link_rate: str | None, workload: str) -> None:
        self._bed = bed
        self._bytes_per_s = bytes_per_second(link_rate) if link_rate else 0
        self._workload = workload
        self._guests = itertools.count(1)

    def start(self, nodes: int, step: Step) -> None:
        """Start everything, and make the image known."""
        memory = "768M" if self._workload == "boot" else "448M"
        storage = self._bed.start_node("storage", "512M", "4G", [Disk(guest_image())])
        names = [f"node{number}" for number in range(1, nodes + 1)]
        started = self._bed.start_nodes(names, memory)
        deployment = Deployment(self._bed)
        deployment.start_volt()
        self._site = Site(deployment, storage, started)
        Trees(self._site, FOREST).serve()
        step.advance(nodes + 1)

    def learn(self, step: Step) -> None:
        """Have a boot recorded by an agent, and a warm one traced."""
        first = self._site.nodes[0]
        self._site.have_agents(prefetch=True)
        forest = Forest(self._site, BOOT)
        self._guest(first, forest.create(first))
        self._site.deployment.wait_profile(FOREST)
        step.advance()
        forest.destroy(first)
        events = [word for event in trace.EVENTS for word in ("-trace", event)]
        options = ("-msg", "timestamp=on", "-D", "/host/trace", *events)
        self._guest(first, forest.create(first), *options)
        lines = (first.share / "trace").read_text().splitlines()
        self._reads = reads = list(trace.parse(lines))
        self._think = sum(pause for pause, _, _ in reads)
        self._floor = trace.floor(reads, self._bytes_per_s)
        self._set = trace.working_set(reads)
        for node in self._site.nodes:
            (node.share / "trace.json").write_text(json.dumps(reads))
        forest.destroy(first)
        forest.leave(first)
        forest.profile("export", BOOT)
        step.advance()

    def learn_other(self, step: Step) -> None:
        """Have a workload recorded that reads as much as a boot, but nothing of the same."""
        first = self._site.nodes[0]
        self._site.have_agents(prefetch=False)
        forest = Forest(self._site, OTHER)
        device = forest.create(first)
        size = int(first.run(["blockdev", "--getsize64", device]).stdout)
        (first.share / "other.json").write_text(json.dumps(trace.untouched(self._reads, size)))
        record = ["virtman", "profile", "record", vm(first), "--workload", OTHER]
        with ThreadPoolExecutor(1) as pool:
            recorded = pool.submit(first.run, record, timeout=LONGEST)
            first.run([*INSIDE, "replay", device, "/host/other.json"], timeout=LONGEST)
            forest.destroy(first)  # which ends the recording
            recorded.result()
        forest.leave(first)
        forest.profile("export", OTHER)
        step.advance()

    def run(self, name: str, step: Step) -> dict[str, Any]:
        """Let all nodes boot at once, cold and then warm."""
        peer = PEERS[name](self._site)
        peer.serve()
        cold = self._boot_all(peer, step)
        cold["fetch_ratio"] = peer.fetch_ratio()
        self._site.each(peer.destroy)
        warm = self._boot_all(peer, step)
        self._site.each(peer.destroy)
        self._site.each(peer.leave)
        peer.end()
        carried = self._set / self._bytes_per_s if self._bytes_per_s else 0.0
        waits = sorted(1000 * one for one in cold["waits"])
        return {
            "peer": name,
            "workload": self._workload,
            "nodes": len(self._site.nodes),
            "link_bits_s": self._bytes_per_s * 8,
            "working_set_bytes": self._set,
            "limit_s": max(carried, self._think),
            "floor_s": self._floor,
            "attached_s": max(cold["attached"]),
            "first_s": min(cold["ready"]),
            "median_s": median(cold["ready"]),
            "last_s": max(cold["ready"]),
            "reads_s": max(cold["ready"]) - min(cold["attached"]),
            "warm_last_s": max(warm["ready"]),
            "source_sent_bytes": cold["source"],
            "busiest_node_sent_bytes": max(cold["sent"]),
            "fetch_ratio": cold["fetch_ratio"],
            "stalls": len(waits) if self._workload == "replay" else None,
            "stall_p50_ms": median(waits) if waits else None,
            "stall_p99_ms": quantiles(waits, n=100, method="inclusive")[98]
            if len(waits) > 1
            else None,
            "stall_max_ms": waits[-1] if waits else None,
            "ready_s": sorted(cold["ready"]),
            "sent_bytes": sorted(cold["sent"]),
            "received": cold["received"],
            "processors_busy": cold["processors"],
        }

    def _boot_all(self, peer: Peer, step: Step) -> dict[str, Any]:
        """Let each node make a disk and boot from it; times are from when all were asked."""
        nodes = self._site.nodes
        before = [node.sent_bytes() for node in (self._site.storage, *nodes)]
        begin = time.monotonic()

        def boot(node: Node) -> tuple[float, float, list[float]]:
            disk = peer.create(node)
            attached = time.monotonic() - begin
            reads = self._replay(node, disk) if self._workload == "replay" else []
            if self._workload == "boot":
                self._guest(node, disk, keeps=peer.keeps_writes)
            ready = time.monotonic() - begin
            step.advance()
            return attached, ready, reads

        machine = Machine()
        with _Received(nodes, begin) as received:
            booted = self._site.each(boot)
        busy = machine.used()
        now = [node.sent_bytes() for node in (self._site.storage, *nodes)]
        source, *others = (after - earlier for earlier, after in zip(before, now, strict=True))
        return {
            "attached": [attached for attached, _, _ in booted],
            "ready": [ready for _, ready, _ in booted],
            "waits": [one for _, _, reads in booted for one in reads if one > WAITED],
            "source": source,
            "sent": others,
            "received": received.curve,
            "processors": busy,
        }

    def _replay(self, node: Node, disk: str) -> list[float]:
        done = node.run([*INSIDE, "replay", disk, "/host/trace.json"], timeout=LONGEST)
        taken: list[float] = json.loads(done.stdout)
        return taken

    def _guest(self, node: Node, disk: str, *options: str, keeps: bool = True) -> None:
        guest = Guest(node, f"guest{next(self._guests)}", disk, keeps=keeps)
        guest.boot(*options)
        try:
            guest.wait(LONGEST)
        finally:
            guest.stop()


class _Received:
    """Looks now and then how much nodes have received.

    :ivar curve: seconds, and bytes that a node has received by then, on average
    """

    def __init__(self, nodes: Sequence[Node], begin: float) -> None:
        self.curve: list[tuple[float, float]] = []
        self._nodes = nodes
        self._begin = begin
        self._before = self._bytes()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> "_Received":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while True:
            is_last = self._over.wait(LOOK)
            mean = (self._bytes() - self._before) / len(self._nodes)
            self.curve.append((time.monotonic() - self._begin, mean))
            if is_last:
                return

    def _bytes(self) -> int:
        return sum(node.received_bytes() for node in self._nodes)
