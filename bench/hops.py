"""What a node that reads, and one that passes on, pays for it: a chain of nodes, fast links.

On a bed of its own, with nodes that are real kernels. The same is then done without VirtMan: each
node logs in to the one above by iSCSI and serves that disk by LIO, so that no layer of ours, no
cache and no hash tree is in between.
"""

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import mean, median
from typing import Any

from bench import fio
from bench.content import write_random
from bench.report import Progress, Step
from bench.usage import seconds
from lab import Bed, Disk
from lab.deployment import SOURCE_DISK, Deployment
from lab.node import Node

BED = "bench-hops"
MIB = 1024 * 1024
DEPTH = 4
IMAGES = 3  # each attached once at every depth
STREAM = 96 * MIB  # read in order, for throughput and processor time
ROUNDS = 3
AREA = 4 * MIB  # of which a round reads blocks at one depth
BLOCKS = 256
DEPTHS = 3  # at which blocks are read
SIZE = STREAM + ROUNDS * DEPTHS * AREA
# What a read of the third node spends at the second: each from one dm device to a lower one.
LAYERS = {
    "link, iSCSI, LIO and its page cache": ("node3 path0_node2", "node2 export0"),
    "cache": ("node2 export0", "node2 s0"),
    "verification": ("node2 s0", "node2 path0_node1"),
}
_MEMORY = ("Slab", "KernelStack", "PageTables", "Percpu", "VmallocUsed")
_NAMES = 'cd /sys/block && for one in dm-*; do echo "$one $(cat $one/dm/name)"; done'


def measure(progress: Progress) -> dict[str, Any]:
    """Return figures of VirtMan, and of bare exports and logins."""
    with Bed(BED) as bed:
        chain = _Chain(bed)
        chain.start(progress.step("nodes", DEPTH + 1))
        found = {
            "attach": chain.attach(progress.step("attach", IMAGES * DEPTH)),
            "image": chain.weigh(),
            "virtman": chain.read(chain.devices, progress.step("reads", ROUNDS * DEPTHS + 1)),
        }
        chain.clear()
        disks = chain.log_in(progress.step("bare logins", DEPTH))
        bare = chain.read(disks, progress.step("bare reads", ROUNDS * DEPTHS + 1))
        return {**found, "bare": bare}


class _Chain:
    def __init__(self, bed: Bed) -> None:
        self._bed = bed
        self._deployment = Deployment(bed)
        self.devices: list[str] = []

    def start(self, step: Step) -> None:
        """Start everything, and make the images known, all of the same disk."""
        file = self._bed.folder / "image"
        write_random(file, SIZE)
        self._storage = self._bed.start_node("storage", "512M", "64M", [Disk(file)])
        names = [f"node{number}" for number in range(1, DEPTH + 1)]
        self._nodes = self._bed.start_nodes(names, "768M", "512M")
        step.advance(DEPTH + 1)
        self._deployment.start_volt()
        for number in range(IMAGES):
            self._deployment.add_source(self._storage, f"image{number}", 1, 1, shape="chain")
        self._deployment.start_agents(self._nodes)
        self._idle = self._kernel_memory(self._nodes[1])

    def attach(self, step: Step) -> dict[str, float]:
        """Create a VM of each image at each depth; return medians of seconds, by depth."""
        taken: dict[int, list[float]] = {depth: [] for depth in range(1, DEPTH + 1)}
        for number in range(IMAGES):
            for depth, node in enumerate(self._nodes, 1):
                made = _inside(node, "create", f"image{number}", f"vm{number}")
                taken[depth] += made["seconds"]
                step.advance()
        for node in self._nodes:
            shown = node.run(["virtman", "vm", "show", "--json", "vm0"]).stdout
            self.devices.append(json.loads(shown)["device"])
        return {str(depth): median(took) for depth, took in taken.items()}

    def weigh(self) -> dict[str, float]:
        """Return what an image with one VM is to a node's kernel, inside the chain."""
        node = self._nodes[1]
        counted = {
            name: int(node.run(["sh", "-c", command]).stdout) / IMAGES
            for name, command in (
                ("dm", "dmsetup ls | grep -c ^virtman_image"),
                ("loop", "losetup --noheadings --list | wc -l"),
                ("lun", "ls -d /sys/kernel/config/target/core/*/virtman_* | wc -l"),
            )
        }
        return {
            **counted,
            "kernel_bytes": (self._kernel_memory(node) - self._idle) / IMAGES,
            "agent_pss": _inside(node, "memory")["pss"],
        }

    def read(self, devices: Sequence[str], step: Step) -> dict[str, Any]:
        """Read what nobody has read yet: at the second node in order, then blocks at each depth."""
        cores = [_seconds(node) for node in self._nodes[:2]]
        in_order = ["--rw=read", "--bs=256k", "--iodepth=8", f"--size={STREAM}"]
        rate = self._fio(2, devices, in_order)["bw_bytes"]
        parent, child = (
            (_seconds(node) - before) * 100e6 / STREAM
            for node, before in zip(self._nodes, cores, strict=False)
        )
        step.advance()
        return {
            "bytes_per_s": rate,
            "parent_cpu_s_per_100mb": parent,
            "child_cpu_s_per_100mb": child,
            **self._read_blocks(devices, step),
        }

    def _read_blocks(self, devices: Sequence[str], step: Step) -> dict[str, Any]:
        """Read single blocks at random, each round at each depth elsewhere."""
        found: dict[int, list[dict[str, Any]]] = {depth: [] for depth in range(1, DEPTHS + 1)}
        spent: Counter[str] = Counter()
        offset = STREAM
        for turn in range(ROUNDS):
            for depth in random.Random(turn).sample(sorted(found), DEPTHS):  # noqa: S311
                before = self._spent()
                where = [f"--offset={offset}", f"--size={AREA}", f"--number_ios={BLOCKS}"]
                options = ["--rw=randread", "--bs=4k", "--iodepth=1", *where]
                found[depth].append(self._fio(depth, devices, options)["clat_ns"])
                if depth == DEPTHS:
                    spent.update({key: now - before[key] for key, now in self._spent().items()})
                offset += AREA
                step.advance()
        return {
            "block_ms": {
                str(depth): median(one["percentile"]["50.000000"] for one in clats) / 1e6
                for depth, clats in found.items()
            },
            "block_mean_ms": {
                str(depth): mean(one["mean"] for one in clats) / 1e6
                for depth, clats in found.items()
            },
            "hop_ms": _hop(spent),
        }

    def _spent(self) -> Counter[str]:
        """Return the reads of the first image's devices at each node, and the milliseconds."""
        found: Counter[str] = Counter()
        for node in self._nodes[:DEPTHS]:
            shown = node.run(["sh", "-c", _NAMES]).stdout
            names = dict(line.split(" ") for line in shown.splitlines())
            for line in node.run(["cat", "/proc/diskstats"]).stdout.splitlines():
                _, _, kernel, reads, _, _, ms, *_ = line.split()
                name = names.get(kernel, "").removeprefix("virtman_image0_")
                found[f"{node.name} {name} reads"] += int(reads)
                found[f"{node.name} {name} ms"] += int(ms)
        return found

    def clear(self) -> None:
        """Take VirtMan's devices away."""
        for node in reversed(self._nodes):
            self._deployment.destroy(node, *(f"vm{number}" for number in range(IMAGES)))
            for number in range(IMAGES):
                self._deployment.drop(node, f"image{number}")

    def log_in(self, step: Step) -> list[str]:
        """Serve each node the disk of the one above; return the disks."""
        above, device = self._storage, SOURCE_DISK
        disks = []
        for node in self._nodes:
            _inside(above, "serve", device, above.address)
            device = _inside(node, "login", above.address)
            disks.append(device)
            above = node
            step.advance()
        return disks

    def _fio(self, depth: int, devices: Sequence[str], options: Sequence[str]) -> dict[str, Any]:
        where = f"--filename={devices[depth - 1]}"
        report = fio.read(self._nodes[depth - 1], "--name=read", where, *options)
        found: dict[str, Any] = report["jobs"][0]["read"]
        return found

    def _kernel_memory(self, node: Node) -> int:
        known = node.run(["cat", "/proc/meminfo"]).stdout
        fields = dict(line.split(":", 1) for line in known.splitlines())
        return sum(int(fields[name].split()[0]) * 1024 for name in _MEMORY if name in fields)


def _hop(spent: Mapping[str, int]) -> dict[str, float]:
    """Return what a block spent at each of ``LAYERS``; nothing where VirtMan has no devices."""

    def average(device: str) -> float:
        reads = spent.get(f"{device} reads", 0)
        return spent[f"{device} ms"] / reads if reads else 0.0

    return {layer: average(above) - average(below) for layer, (above, below) in LAYERS.items()}


def _inside(node: Node, *words: str) -> Any:
    return json.loads(node.run(["python3", "-m", "bench.inside", *words], timeout=300).stdout)


def _seconds(node: Node) -> float:
    """Processor seconds of a node's kernel: it is one process of this machine."""
    process = node.record().process
    assert process is not None
    return seconds(process.pid)
