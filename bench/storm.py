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
from dataclasses import dataclass
from operator import itemgetter
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
from lab.network import bytes_per_second, short
from lab.node import Node
from lab.rootfs import TOP

BED = "bench-storm"
PROGRAMS = TOP / "lab/images/peers"
WORKLOADS = ("replay", "boot")
LONGEST_WAITS = 5
WAITED = 0.01  # seconds: a read that took longer was not answered by memory
LOOK = 1.0  # seconds


@dataclass(frozen=True)
class Setting:
    """What all runs of a bed have in common.

    :ivar link: bytes/s; 0 for no limit
    :ivar working_set: bytes of the blocks that the traced boot reads
    :ivar think_s: seconds that it thinks
    :ivar floor_s: seconds of a boot whose reads come in order over a link of its own
    :ivar profile_covers: share of the blocks that are in the profile of the boot before
    """

    nodes: int
    link: int
    workload: str
    working_set: int
    think_s: float
    floor_s: float
    profile_covers: float


@dataclass(frozen=True)
class Boots:
    """What boots at once took; seconds since all nodes were asked for a VM, one a node.

    :ivar waits: of each read that memory did not answer, in all VMs: the seconds from the VM's
        device to its begin, and those that it took
    :ivar source: bytes that the source sent
    :ivar sent: bytes that each node sent
    :ivar received: seconds, and bytes that a node had received by then, on average
    :ivar processors: of this machine that were busy, on average
    """

    attached: Sequence[float]
    ready: Sequence[float]
    waits: Sequence[tuple[float, float]]
    source: int
    sent: Sequence[int]
    received: Sequence[tuple[float, float]]
    processors: float


def key(nodes: int, link_rate: str) -> str:
    """Return under which name the ratios of a combination are, such as 7x25M."""
    return f"{nodes}x{link_rate if link_rate == 'none' else short(link_rate)}"


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
    """Return what the runs of one number of nodes and one link rate say about each other.

    What only some workloads have, such as their own name, is from each; the rest from the first.
    """
    found: dict[str, Any] = {}
    for workload in dict.fromkeys(run["workload"] for run in runs):
        found = _compared(workload, [run for run in runs if run["workload"] == workload]) | found
    return found


def _compared(workload: str, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    by_peer = {run["peer"]: run for run in runs}
    ours, plain = by_peer.get("virtman"), by_peer.get("no-prefetch")
    if ours is None:
        return {}
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
    if plain is not None and ours["stalls"] is not None:
        longest = plain["stall_max_ms"] or 1000 * WAITED  # if none took longer than that
        found["stall_max_over_none"] = (ours["stall_max_ms"] or 0.0) / longest
    if plain is not None and "foreign" in by_peer:
        found["foreign_profile_over_none"] = by_peer["foreign"]["last_s"] / plain["last_s"]
    return found


def entry(
    peer: str, setting: Setting, cold: Boots, warm: Boots, fetch_ratio: float | None
) -> dict[str, Any]:
    """Return one entry of ``runs``."""
    carried = setting.working_set / setting.link if setting.link else 0.0
    by_length = sorted(cold.waits, key=itemgetter(1))
    waits = [1000 * took for _, took in by_length]
    longest = by_length[: -LONGEST_WAITS - 1 : -1]
    return {
        "peer": peer,
        "workload": setting.workload,
        "nodes": setting.nodes,
        "link_bits_s": setting.link * 8,
        "working_set_bytes": setting.working_set,
        "profile_covers": setting.profile_covers,
        "limit_s": max(carried, setting.think_s),
        "floor_s": setting.floor_s,
        "attached_s": max(cold.attached),
        "first_s": min(cold.ready),
        "median_s": median(cold.ready),
        "last_s": max(cold.ready),
        "reads_s": max(cold.ready) - min(cold.attached),
        "warm_last_s": max(warm.ready),
        "source_sent_bytes": cold.source,
        "busiest_node_sent_bytes": max(cold.sent),
        "fetch_ratio": fetch_ratio,
        "stalls": len(waits) if setting.workload == "replay" else None,
        "stall_p50_ms": median(waits) if waits else None,
        "stall_p99_ms": quantiles(waits, n=100, method="inclusive")[98] if len(waits) > 1 else None,
        "stall_max_ms": waits[-1] if waits else None,
        "longest_waits": [{"begin_s": asked, "ms": 1000 * took} for asked, took in longest],
        "ready_s": sorted(cold.ready),
        "sent_bytes": sorted(cold.sent),
        "received": cold.received,
        "processors_busy": cold.processors,
    }


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
        for node in self._site.nodes:
            (node.share / "trace.json").write_text(json.dumps(reads))
        forest.destroy(first)
        forest.leave(first)
        forest.profile("export", BOOT)
        profile = forest.shown()
        self._setting = Setting(
            len(self._site.nodes),
            self._bytes_per_s,
            self._workload,
            trace.working_set(reads),
            sum(pause for pause, _, _ in reads),
            trace.floor(reads, self._bytes_per_s),
            trace.covered(reads, profile["wanted"], profile["piece_size"]),
        )
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
        fetch_ratio = peer.fetch_ratio()
        self._site.each(peer.destroy)
        warm = self._boot_all(peer, step)
        self._site.each(peer.destroy)
        self._site.each(peer.leave)
        peer.end()
        return entry(name, self._setting, cold, warm, fetch_ratio)

    def _boot_all(self, peer: Peer, step: Step) -> Boots:
        """Let each node make a disk and boot from it; times are from when all were asked."""
        nodes = self._site.nodes
        before = [node.sent_bytes() for node in (self._site.storage, *nodes)]
        begin = time.monotonic()

        def boot(node: Node) -> tuple[float, float, list[tuple[float, float]]]:
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
        return Boots(
            attached=[attached for attached, _, _ in booted],
            ready=[ready for _, ready, _ in booted],
            waits=[one for _, _, reads in booted for one in reads if one[1] > WAITED],
            source=source,
            sent=others,
            received=received.curve,
            processors=busy,
        )

    def _replay(self, node: Node, disk: str) -> list[tuple[float, float]]:
        done = node.run([*INSIDE, "replay", disk, "/host/trace.json"], timeout=LONGEST)
        return [(asked, took) for asked, took in json.loads(done.stdout)]

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
