"""What VMs cost on a node: processes and seconds of a create, reads layer by layer, memory.

On a bed of its own, with nodes that are real kernels. ``bench.inside`` is what runs in them.
"""

import json
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from bench import fio
from bench.content import write_random
from bench.report import Progress, Step
from lab import Bed, Disk
from lab.deployment import CACHE_DISK, Deployment
from lab.waiting import wait_until

BED = "bench-agent"
IMAGE = "image"
MIB = 1024 * 1024
SIZE = 160 * MIB
SMALL = 4 * MIB
VMS = 5  # of the image, after the first one
ROUNDS = 11
# no block is read twice: the second time a layer would have it in memory
READS = {
    "sequential 1 MiB": ("--rw=read", "--bs=1M", "--iodepth=1"),
    "random 4 KiB, depth 1": ("--rw=randread", "--bs=4k", "--iodepth=1", "--runtime=1"),
    "random 4 KiB, depth 16": ("--rw=randread", "--bs=4k", "--iodepth=16", "--runtime=1"),
}
BASE = "cache device"
LARGE = "large"
LARGE_SIZE = 40 * 1024 * MIB  # sparse
PIECE = 64 * 1024
PIECES, PAUSE = 1_000, 0.02  # of a boot of the large image: reads of a piece, and seconds between
WARM_WITHIN = 300  # seconds
WARMING = 4  # times that the image is read: a cache does not keep all that is read at once
Rates = dict[tuple[str, str], float]
_STEP = re.compile(r"virtman\.stack .*?(virtman_\S+) is up after ([0-9.]+) s")
_LOGIN = re.compile(r"connected to \S+ \(")


def measure(images: int, vms: int, progress: Progress) -> dict[str, Any]:
    """Return figures of a first VM, of more, of reads, and of memory with many images and VMs."""
    with Bed(BED) as bed:
        agent = _Agent(bed)
        step = progress.step("nodes", 3)
        agent.start(step, images)
        first = agent.first()
        return {
            "first": first,
            "second": agent.second(progress.step("second VM", 2)),
            **agent.reads(progress.step("reads", ROUNDS + 2)),
            "memory": agent.memory(images, vms, progress.step("many VMs", images)),
            "recording": agent.recording(progress.step("recording", 3)),
        }


class _Agent:
    def __init__(self, bed: Bed) -> None:
        self._bed = bed
        self._deployment = Deployment(bed)

    def start(self, step: Step, images: int) -> None:
        """Start everything; one node has the image already and feeds the one that is measured."""
        disks = [self._write("image", SIZE), self._write("small", SMALL), self._large()]
        self._storage = self._bed.start_node("storage", "320M", "64M", disks)
        step.advance()
        parent, self._node = self._bed.start_nodes(["node1", "node2"], "768M")
        step.advance(2)
        self._deployment.start_volt()
        self._deployment.add_source(self._storage, IMAGE)
        for number in range(images):
            self._deployment.add_source(self._storage, f"small{number}", disk="/dev/ubdd")
        self._deployment.start_agents([parent, self._node], {"DEFAULT": {"debug": True}})
        self._deployment.create(parent, IMAGE, "vm")

    def _write(self, name: str, size: int) -> Disk:
        file = self._bed.folder / name
        write_random(file, size)
        return Disk(file)

    def _large(self) -> Disk:
        file = self._bed.folder / LARGE
        with open(file, "wb") as into:
            into.truncate(LARGE_SIZE)
        return Disk(file)

    def first(self) -> dict[str, Any]:
        """Create the node's first VM of the image."""
        made = self._inside("create", IMAGE, "vm0")
        log = (self._node.share / "agent.log").read_text()
        steps: dict[str, float] = {}
        for name, seconds in _STEP.findall(log):
            steps[name] = steps.get(name, 0) + float(seconds)
        return {
            "seconds": made["seconds"][0],
            "processes": sum(made["processes"].values()),
            "processes_by_command": made["processes"],
            "logins": len(_LOGIN.findall(log)),
            "seconds_by_step": steps,
        }

    def second(self, step: Step) -> dict[str, Any]:
        """Create more VMs of it, and devices like theirs without VirtMan."""
        made = self._inside("create", IMAGE, *(f"vm{number}" for number in range(1, VMS + 1)))
        step.advance()
        names = [f"bare{number}" for number in range(VMS)]
        like = self._inside("bare", f"/dev/mapper/virtman_{IMAGE}_origin", str(SIZE), *names)
        self._inside("remove", *names)
        step.advance()
        seconds, bare = median(made["seconds"]), median(like["seconds"])
        return {
            "seconds": seconds,
            "bare_seconds": bare,
            "over_bare": seconds / bare,
            "processes": sum(made["processes"].values()) / VMS,
            "bare_processes": sum(like["processes"].values()) / VMS,
        }

    def reads(self, step: Step) -> dict[str, Any]:
        """Read the warm image at each layer, in turns of another order each; return medians.

        Snapshots like a VM's, right over the cache device and over the cache, show what no layer
        of ours can change.
        """
        shown = self._node.run(["virtman", "vm", "show", "--json", "vm0"]).stdout
        device = json.loads(shown)["device"]
        image = f"/dev/mapper/virtman_{IMAGE}_image"
        layers = {
            BASE: CACHE_DISK,
            "snapshot": "/dev/mapper/snapshot",
            "cache": self._below(image),
            "snapshot of cache": "/dev/mapper/snapshot-of-cache",
            "image": image,
            "readers": f"/dev/mapper/virtman_{IMAGE}_readers",
            "VM": device,
        }
        for _ in range(WARMING):
            self._read_all(image)
        step.advance()
        self._wait_warm(layers["cache"])
        self._inside("bare", CACHE_DISK, str(SIZE), "snapshot")
        self._inside("bare", layers["cache"], str(SIZE), "snapshot-of-cache")
        step.advance()
        rounds = []
        for turn in range(ROUNDS):
            # Whoever is read right after the readers' page cache was filled would come off worse.
            order = random.Random(turn).sample(sorted(layers), len(layers))  # noqa: S311
            found = self._read({layer: layers[layer] for layer in order})
            rounds.append({(what, layer): found[what, layer] for what in READS for layer in layers})
            step.advance()
        self._inside("remove", "snapshot", "snapshot-of-cache")
        return {
            "reads": _medians(rounds, lambda rates, what, layer: rates[what, layer]),
            "over_cache_device": _medians(
                rounds, lambda rates, what, layer: rates[what, layer] / rates[what, BASE]
            ),
        }

    def _read_all(self, device: str) -> None:
        self._node.run(["dd", f"if={device}", "of=/dev/null", "bs=1M", "iflag=direct"], timeout=300)

    def _wait_warm(self, cache: str) -> None:
        """Wait until VMs read from the cache."""
        origin = f"/dev/mapper/virtman_{IMAGE}_origin"
        wait_until(lambda: self._below(origin) == cache, "reads from the cache", WARM_WITHIN, 1)

    def recording(self, step: Step) -> dict[str, Any]:
        """Read pieces all over a large image as a boot does, recorded, and others once it is over.

        The image has been attached for the first of them, so that the node has no profile of it.
        """
        self._deployment.add_source(self._storage, LARGE, disk="/dev/ubde")
        self._deployment.kill_agent(self._node)
        self._deployment.start_agent(self._node, {"profile": {"record": 1}})
        step.advance()
        # it writes nothing, and the node's disk is smaller than the image
        command = ["virtman", "create", "--json", "--quota", "16M", LARGE, "vm"]
        device = json.loads(self._node.run(command, timeout=60).stdout)["device"]
        recorded = self._boot(device, 1)
        step.advance()
        self._deployment.wait_profile(LARGE)
        alone = self._boot(device, 2)
        step.advance()
        return {
            "image_bytes": LARGE_SIZE,
            "processor_s_per_s": recorded["processor_s"] / recorded["seconds"],
            "processor_s_per_s_without": alone["processor_s"] / alone["seconds"],
            "boot_over_without": recorded["seconds"] / alone["seconds"],
        }

    def _boot(self, device: str, seed: int) -> dict[str, float]:
        """Return how long a boot took that reads pieces, and of what the agent took meanwhile."""
        dice = random.Random(seed)  # noqa: S311  # no secret
        places = dice.sample(range(LARGE_SIZE // PIECE), PIECES)
        trace = self._node.share / "trace"
        trace.write_text(json.dumps([(PAUSE, place * PIECE, PIECE) for place in places]))
        before = self._inside("processor")
        begin = time.monotonic()
        self._inside("replay", device, "/host/trace")
        seconds = time.monotonic() - begin
        return {"seconds": seconds, "processor_s": self._inside("processor") - before}

    def memory(self, images: int, vms: int, step: Step) -> dict[str, Any]:
        """Create VMs of many images; return the memory of the agent then, and what all took."""
        each = -(-vms // images)
        available = self._available()
        for number in range(images):
            names = [f"small{number}-{one}" for one in range(each)]
            self._inside("create", f"small{number}", *names)
            step.advance()
        return {
            "images": images,
            "vms": images * each,
            **self._inside("memory"),
            "node": available - self._available(),
        }

    def _available(self) -> int:
        """Return the bytes of memory that the node could still give to programs."""
        known = self._node.run(["cat", "/proc/meminfo"]).stdout
        return int(known.split("MemAvailable:")[1].split()[0]) * 1024

    def _below(self, device: str) -> str:
        """Return the device that an image reads first."""
        table = self._node.run(["dmsetup", "table", device]).stdout
        number = re.findall(r"\d+:\d+", table)[0]
        return self._node.run(["realpath", f"/dev/block/{number}"]).stdout.strip()

    def _read(self, layers: Mapping[str, str]) -> Rates:
        """Return bytes a second of each kind of reads, of each layer, with nothing in memory."""
        jobs = [
            (what, layer, [f"--filename={path}", *options])
            for what, options in READS.items()
            for layer, path in layers.items()
        ]
        words = [word for number, (_, _, options) in enumerate(jobs)
                 for word in (f"--name=read{number}", *options)]  # fmt: skip
        report = fio.read(
            self._node, f"--size={SIZE}", "--stonewall",
            "--exec_prerun=sh -c 'echo 3 > /proc/sys/vm/drop_caches'", *words,
        )  # fmt: skip
        return {
            (what, layer): job["read"]["bw_bytes"]
            for (what, layer, _), job in zip(jobs, report["jobs"], strict=True)
        }

    def _inside(self, *words: str) -> Any:
        done = self._node.run(["python3", "-m", "bench.inside", *words], timeout=600)
        return json.loads(done.stdout)


def _medians(
    rounds: Sequence[Rates], figure: Callable[[Rates, str, str], float]
) -> dict[str, dict[str, float]]:
    """Return a figure's median over all rounds, of each kind of reads and each layer."""
    found: dict[str, dict[str, float]] = {}
    for what, layer in rounds[0]:
        found.setdefault(what, {})[layer] = median(figure(one, what, layer) for one in rounds)
    return found
