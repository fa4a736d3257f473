"""How soon VMs that boot at once on nodes without their image are ready, beside other ways to boot.

On a bed of its own: nodes are real kernels, and links are shaped. All peers have the same nodes,
the same image and the same boot: either real guests, or the reads of one that were traced, made
again with the pauses between them, so that many nodes need little processor time.
"""

import itertools
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median, quantiles
from typing import Any, TypeVar

from bench.fanout import SHAPES
from bench.report import Progress, Step
from lab import Bed, Disk
from lab.deployment import SOURCE_DISK, Deployment
from lab.guest import Guest, guest_image
from lab.network import bytes_per_second
from lab.node import Node

BED = "bench-storm"
PEERS = ("virtman", "no-prefetch", "foreign", "tree", "star", "chain", "iscsi")
WORKLOADS = ("replay", "boot")
LONGEST = 1800.0  # seconds for a boot
WAITED = 0.01  # seconds: a read that took longer was not answered by memory
LOOK = 1.0  # seconds
BLOCK = 4096
INSIDE = ["python3", "/opt/src/bench/inside.py"]
PIECE = 64 * 1024  # bytes
BEGIN = 5.0  # seconds until a recording that was asked for has begun
_READ = re.compile(r"@(\d+\.\d+):blk_co_preadv .* offset (\d+) bytes (\d+)")
Read = tuple[float, int, int]
"""Seconds after the one before, offset and length in bytes."""
T = TypeVar("T")


def measure(
    nodes: int, link_rate: str | None, peers: Sequence[str], workload: str, progress: Progress
) -> list[dict[str, Any]]:
    """Return one entry of ``runs`` for each peer."""
    with Bed(BED, link_rate) as bed:
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
        self._deployment = Deployment(bed)
        self._bytes_per_s = bytes_per_second(link_rate) if link_rate else 0
        self._workload = workload
        self._names = (f"vm{number}" for number in itertools.count(1))
        self._agents: dict[str, Any] = {}

    def start(self, nodes: int, step: Step) -> None:
        """Start everything but images."""
        memory = "768M" if self._workload == "boot" else "448M"
        self._storage = self._bed.start_node("storage", "512M", "64M", [Disk(guest_image())])
        self._nodes = self._bed.start_nodes([f"node{n}" for n in range(1, nodes + 1)], memory)
        self._deployment.start_volt()
        step.advance(nodes + 1)

    def learn(self, step: Step) -> None:
        """Have a boot recorded by an agent, and a warm one traced."""
        first = self._nodes[0]
        self._serve("forest")
        self._have_agents(prefetch=True)
        device = self._create(first, "forest")
        self._guest(first, device)
        self._deployment.wait_profile("forest")
        step.advance()
        self._destroy(first)
        trace = first.share / "trace"
        options = ("-msg", "timestamp=on", "-D", "/host/trace", "-trace", "blk_co_preadv")
        self._guest(first, self._create(first, "forest"), *options)
        self._reads = reads = list(parse(trace.read_text().splitlines()))
        self._think = sum(pause for pause, _, _ in reads)
        self._floor = floor(reads, self._bytes_per_s)
        self._set = working_set(reads)
        for node in self._nodes:
            (node.share / "trace.json").write_text(json.dumps(reads))
        self._destroy(first)
        self._deployment.drop(first, "forest")
        self._profile("export", "boot")
        step.advance()

    def learn_other(self, step: Step) -> None:
        """Have a workload recorded that reads as much as a boot, but nothing of the same."""
        first = self._nodes[0]
        self._have_agents(prefetch=False)
        device = self._create(first, "forest")
        size = int(first.run(["blockdev", "--getsize64", device]).stdout)
        (first.share / "other.json").write_text(json.dumps(untouched(self._reads, size)))
        record = ["virtman", "profile", "record", self._vm(first), "--workload", "other"]
        with ThreadPoolExecutor(1) as pool:
            recorded = pool.submit(first.run, record, timeout=LONGEST)
            first.run([*INSIDE, "replay", device, "/host/other.json"], timeout=LONGEST)
            self._destroy(first)  # which ends the recording
            recorded.result()
        self._deployment.drop(first, "forest")
        self._profile("export", "other")
        step.advance()

    def run(self, peer: str, step: Step) -> dict[str, Any]:
        """Let all nodes boot at once, cold and then warm."""
        if peer == "iscsi":
            cold, warm = self._bare(step)
        else:
            cold, warm = self._trees(peer, step)
        carried = self._set / self._bytes_per_s if self._bytes_per_s else 0.0
        waits = sorted(1000 * one for one in cold["waits"])
        return {
            "peer": peer,
            "workload": self._workload,
            "nodes": len(self._nodes),
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
        }

    def _trees(self, peer: str, step: Step) -> tuple[dict[str, Any], dict[str, Any]]:
        image = peer if peer in SHAPES else "forest"
        self._have_agents(prefetch=peer in ("virtman", "foreign"))
        if image != "forest":
            self._serve(image)
        if peer == "foreign":
            self._profile("import", "other")
        cold = self._boot_all(lambda node: self._create(node, image), step)
        if peer == "virtman":
            cold["fetch_ratio"] = self._fetch_ratio()
        self._each(self._destroy)
        warm = self._boot_all(lambda node: self._create(node, image), step)
        self._each(self._destroy)
        self._each(lambda node: self._deployment.drop(node, image))
        if peer == "foreign":
            self._profile("import", "boot")
        if image != "forest":
            self._deployment.remove_source(self._storage, image)
        return cold, warm

    def _bare(self, step: Step) -> tuple[dict[str, Any], dict[str, Any]]:
        """All log in to the storage node itself, with an exception store for each VM."""
        self._storage.run([*INSIDE, "serve", SOURCE_DISK, self._storage.address])

        def create(node: Node) -> str:
            disk = json.loads(node.run([*INSIDE, "login", self._storage.address]).stdout)
            return self._overlay(node, disk)

        cold = self._boot_all(create, step)
        # what was read stays in the page cache of whoever opens the disk: a new VM has none
        warm = self._boot_all(lambda node: f"/dev/mapper/{self._vm(node)}", step)
        return cold, warm

    def _overlay(self, node: Node, disk: str) -> str:
        size = int(node.run(["blockdev", "--getsize64", disk]).stdout)
        node.run([*INSIDE, "bare", disk, str(size), self._vm(node)], timeout=300)
        return f"/dev/mapper/{self._vm(node)}"

    def _boot_all(self, create: Callable[[Node], str], step: Step) -> dict[str, Any]:
        """Let each node make a device and boot from it; times are from when all were asked."""
        before = [node.sent_bytes() for node in (self._storage, *self._nodes)]
        begin = time.monotonic()

        def boot(node: Node) -> tuple[float, float, list[float]]:
            device = create(node)
            attached = time.monotonic() - begin
            if self._workload == "replay":
                command = [*INSIDE, "replay", device, "/host/trace.json"]
                reads = json.loads(node.run(command, timeout=LONGEST).stdout)
            else:
                reads = []
                self._guest(node, device)
            ready = time.monotonic() - begin
            step.advance()
            return attached, ready, reads

        with _Received(self._nodes, begin) as received:
            booted = self._each(boot)
        now = [node.sent_bytes() for node in (self._storage, *self._nodes)]
        source, *others = (after - earlier for earlier, after in zip(before, now, strict=True))
        return {
            "attached": [attached for attached, _, _ in booted],
            "ready": [ready for _, ready, _ in booted],
            "waits": [one for _, _, reads in booted for one in reads if one > WAITED],
            "source": source,
            "sent": others,
            "received": received.curve,
            "fetch_ratio": None,
        }

    def _guest(self, node: Node, device: str, *options: str) -> None:
        guest = Guest(node, f"{device.rpartition('/')[2]}-{next(self._names)}", device)
        guest.boot(*options)
        try:
            guest.wait(LONGEST)
        finally:
            guest.stop()

    def _fetch_ratio(self) -> float:
        """Return what nodes fetched ahead, over what VMs read of that."""
        found = self._each(lambda node: self._deployment.ahead(node, "forest"))
        ahead = [one for one in found if one]
        used = sum(one["used"] for one in ahead)
        return sum(one["fetched"] for one in ahead) / used if used else float("inf")

    def _profile(self, verb: str, workload: str) -> None:
        """Keep what was recorded of a workload, or have nodes take that for what boots read."""
        first, source = self._nodes[0], workload if verb == "export" else "boot"
        options = ["--workload", source, *self._deployment.volt_options(first)]
        first.run(["virtman", "profile", verb, "forest", f"/host/{workload}.profile", *options])

    def _serve(self, shape: str) -> None:
        stripes, fanout = SHAPES[shape]
        self._deployment.add_source(self._storage, shape, stripes, fanout, shape=shape)

    def _have_agents(self, *, prefetch: bool) -> None:
        """Have agents that fetch ahead, or do not."""
        wanted = {"profile": {"record": int(prefetch), "prefetch": prefetch}}
        if wanted == self._agents:
            return
        if self._agents:
            self._each(self._deployment.kill_agent)
        self._agents = wanted
        self._deployment.start_agents(self._nodes, wanted)

    def _create(self, node: Node, image: str) -> str:
        return str(self._deployment.create(node, image, self._vm(node))["device"])

    def _destroy(self, node: Node) -> None:
        self._deployment.destroy(node, self._vm(node))

    def _vm(self, node: Node) -> str:
        return f"vm-{node.name}"

    def _each(self, work: Callable[[Node], T]) -> list[T]:
        with ThreadPoolExecutor(len(self._nodes)) as pool:
            return list(pool.map(work, self._nodes))


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


def parse(lines: Sequence[str]) -> Iterator[Read]:
    """Yield the reads of a guest, from what QEMU traced."""
    last: float | None = None
    for line in lines:
        if match := _READ.search(line):
            now = float(match[1])
            yield now - (now if last is None else last), int(match[2]), int(match[3])
            last = now


def working_set(reads: Sequence[Read]) -> int:
    """Return the bytes that are read at least once, in whole blocks."""
    return len(_touched(reads, BLOCK)) * BLOCK


def floor(reads: Sequence[Read], bytes_per_s: int) -> float:
    """Return the seconds of a boot that has a link of its own, on which its reads come in order.

    Each read waits until all up to it has come. What comes last is often followed by a pause.
    """
    now, there = 0.0, set[int]()
    for read in reads:
        there |= _touched([read], BLOCK)
        come = len(there) * BLOCK / bytes_per_s if bytes_per_s else 0.0
        now = max(now + read[0], come)
    return now


def untouched(reads: Sequence[Read], size: int) -> list[Read]:
    """Return reads of as many bytes, but of none of the same pieces; in order, without pauses.

    :param size: bytes of the image; there may be fewer pieces left
    """
    touched = _touched(reads, PIECE)
    free = (number for number in range(size // PIECE) if number not in touched)
    taken = itertools.islice(free, working_set(reads) // PIECE)
    pauses = itertools.chain([BEGIN], itertools.repeat(0.0))
    return [(pause, number * PIECE, PIECE) for pause, number in zip(pauses, taken, strict=False)]


def _touched(reads: Sequence[Read], size: int) -> set[int]:
    """Return the numbers of all blocks of a size of which something is read."""
    found: set[int] = set()
    for _, offset, length in reads:
        found.update(range(offset // size, -(-(offset + length) // size)))
    return found
