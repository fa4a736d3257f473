"""What images that share blocks save: bytes, cache, seconds of boots, and what it costs to know.

On a bed of its own, whose storage node serves two versions of a Debian server and small images made
of random bytes. A node has the earlier version in its cache when it reads, or boots, the later one.
"""

import hashlib
import itertools
import json
import random
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.peers.peer import INSIDE, LONGEST
from bench.report import Progress, Step
from bench.trace import BLOCK, Read
from lab import Bed, Disk
from lab.deployment import Deployment
from lab.errors import BuildFailed
from lab.guest import Guest
from lab.node import Node
from lab.rootfs import TOP

BED = "bench-content"
VERSIONS = TOP / "lab/images/versions/build"
OLD, *NEW = ("old", "updated", "rebuilt")
FAMILY = 10  # images of one base
OWN = 0.05  # of its blocks an image of the family has for itself
MANY = 20  # images with as many runs as there may be
RUNS = 10_000
_SMALL = 48 << 20  # bytes of an image of the family
_RUN = 16  # blocks of its own side by side
_SCATTERED = 128 << 20  # bytes of an image with many runs
_AT_ONCE = 1 << 20  # bytes of a read
_PASSES = 8  # until a cache has all that it takes of an image
_KEPT = 0.002  # of an image: if less than that came in a pass, the cache has it
_CALLS = 30

Run = dict[str, Any]
Digests = Sequence[bytes | None]
"""Of each block of 4 KiB; None for one that is all zeros."""


def measure(link_rate: str | None, progress: Progress) -> Iterator[Run]:
    """Yield the entries of ``runs``, each as soon as it is measured."""
    folder = _versions()
    disks = {name: folder / f"{name}.img" for name in (OLD, *NEW)}
    with Bed(BED, link_rate) as bed:
        sharing = _Sharing(bed, disks)
        sharing.start(progress.step("nodes", 3))
        for name in NEW:
            yield sharing.read(name, progress.step(f"all of {name}", 2))
        yield sharing.boot(progress.step("boots", 2))
        yield sharing.family(progress.step("images of one base", FAMILY))
        yield sharing.rows(progress.step("images with many runs", 2 * MANY))


def ratios(runs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return what the runs say, as far as they are there."""
    found = {run["run"]: run for run in runs}
    said = {}
    for name, ratio in (("updated", "inplace"), ("rebuilt", "rebuilt")):
        if run := found.get(name):
            said[f"{ratio}_bytes_over_delta"] = run["received_bytes"] / run["delta_bytes"]
    if run := found.get("boot"):
        said["boot_v2_on_v1_over_v2"] = run["on_old_s"] / run["on_itself_s"]
    if run := found.get("family"):
        said["cache_over_unique"] = run["cached_bytes"] / run["unique_bytes"]
    if run := found.get("rows"):
        said["table_load_s"] = run["table_load_s"]
        said["list_over_without"] = run["list_s"] / run["list_without_s"]
    return said


def delta(old: Digests, new: Digests) -> int:
    """Return how many bytes of a version are nowhere in an earlier one."""
    there = {None, *old}
    return sum(one not in there for one in new) * BLOCK


def reads(disk: Digests) -> Iterator[Read]:
    """Yield reads of all that is not zeros, one after the other."""
    begin = 0
    for used, group in itertools.groupby(disk, lambda one: one is not None):
        end = begin + sum(1 for _ in group) * BLOCK
        if used:
            for at in range(begin, end, _AT_ONCE):
                yield 0.0, at, min(_AT_ONCE, end - at)
        begin = end


def _digests(blocks: Iterable[bytes]) -> list[bytes | None]:
    return [hashlib.sha256(one).digest() if any(one) else None for one in blocks]


def _of_file(file: Path) -> list[bytes | None]:
    with file.open("rb") as disk:
        return _digests(iter(lambda: disk.read(BLOCK), b""))


def _versions() -> Path:
    """Return the folder of the versions, built first if the cache lacks them."""
    made = subprocess.run([VERSIONS], stdout=subprocess.PIPE, text=True, check=False)
    if made.returncode:
        raise BuildFailed("the versions of a server could not be built")
    return Path(made.stdout.strip())


class _Sharing:
    """Two nodes with agents, and a storage node; ``_disks`` are the versions that it serves."""

    def __init__(self, bed: Bed, files: Mapping[str, Path]) -> None:
        self._bed = bed
        self._files = files
        self._deployment = Deployment(bed)
        self._disks: dict[str, Digests] = {}
        self._reads: dict[str, list[Read]] = {}
        self._vms = 0

    def start(self, step: Step) -> None:
        """Start everything, with all versions."""
        shown = [Disk(file, readonly=True) for file in self._files.values()]
        self._storage = self._bed.start_node("storage", "512M", "64M", shown)
        names = ("reader", "booter")
        self._reader, self._booter = self._bed.start_nodes(names, "1G", "16G")
        self._deployment.start_volt()
        self._deployment.start_agents(
            (self._reader, self._booter),
            {"profile": {"record": 0, "prefetch": False}, "image": {"keep_time": 7200}},
        )
        for letter, (name, file) in zip("cde", self._files.items(), strict=True):
            self._add(name, f"/dev/ubd{letter}", *(["--based-on", OLD] if name != OLD else []))
            self._disks[name] = _of_file(file)
            self._reads[name] = list(reads(self._disks[name]))
        step.advance(3)

    def read(self, name: str, step: Step) -> Run:
        """Have a node that has all of the earlier version in its cache read all of this one."""
        node = self._reader
        self._settle(node, OLD, self._create(node, OLD))
        step.advance()
        device = self._create(node, name)
        fetched = {one: self._fetched(node, one) for one in (OLD, name)}
        before = node.received_bytes()
        self._read(node, device, name)
        received = node.received_bytes() - before
        lent, own = (self._fetched(node, one) - then for one, then in fetched.items())
        step.advance()
        return {
            "run": name,
            "bytes": sum(length for _, _, length in self._reads[name]),
            "delta_bytes": delta(self._disks[OLD], self._disks[name]),
            "received_bytes": received,
            "own_stripe_bytes": own,
            "old_stripe_bytes": lent,
        }

    def boot(self, step: Step) -> Run:
        """Boot the later version where only the earlier one is cached, and once more.

        No memory has anything of what VMs read, both times.
        """
        node = self._booter
        device = self._create(node, OLD)
        self._settle(node, OLD, device)
        self._boot_guest(OLD, device)  # has what emulates guests in memory
        run: Run = {"run": "boot"}
        for where in ("on_old", "on_itself"):
            node.run(["sh", "-c", "blockdev --flushbufs /dev/mapper/virtman_*_export*"])
            before, begun = node.received_bytes(), time.monotonic()
            device = self._create(node, NEW[0])
            run[f"{where}_created_s"] = time.monotonic() - begun
            run[f"{where}_s"] = self._boot_guest(where, device)
            run[f"{where}_received_bytes"] = node.received_bytes() - before
            self._deployment.destroy(node, f"vm{self._vms}")
            step.advance()
        return run

    def _boot_guest(self, name: str, device: str) -> float:
        """Boot a guest and end it; return the seconds until it was ready."""
        begun = time.monotonic()
        guest = Guest(self._booter, name, device)
        guest.boot()
        guest.wait(LONGEST)
        took = time.monotonic() - begun
        guest.stop()
        return took

    def family(self, step: Step) -> Run:
        """Have a node read images that are one base but for a few blocks each."""
        node, dice = self._reader, random.Random(1)  # noqa: S311 - no secret
        base = [dice.randbytes(BLOCK) for _ in range(_SMALL // BLOCK)]
        unique, cached = set[bytes | None](), 0
        for number in range(FAMILY):
            name = f"family{number}"
            blocks = list(base)
            own = int(OWN * len(base)) // _RUN if number else 0
            for begin in dice.sample(range(0, len(base), _RUN), own):
                blocks[begin : begin + _RUN] = (dice.randbytes(BLOCK) for _ in range(_RUN))
            unique.update(_digests(blocks))
            based_on = ["--based-on", "family0"] if number else []
            self._add(name, self._write(name, blocks), *based_on)
            self._reads[name] = list(reads(_digests(blocks)))
            device = self._create(node, name)
            cached -= self._fetched(node, name)
            self._settle(node, name, device)
            cached += self._fetched(node, name)
            step.advance()
        return {
            "run": "family",
            "images": FAMILY,
            "bytes": FAMILY * _SMALL,
            "unique_bytes": len(unique) * BLOCK,
            "cached_bytes": cached,
        }

    def rows(self, step: Step) -> Run:
        """Have a node with images that are all runs; ask it for its images, with and without."""
        node, dice = self._booter, random.Random(2)  # noqa: S311 - no secret
        blocks = [dice.randbytes(BLOCK) for _ in range(_SCATTERED // BLOCK)]
        self._add("base", self._write("base", blocks))
        blocks[: 3 * RUNS : 3] = (dice.randbytes(BLOCK) for _ in range(RUNS))
        file = self._write("scattered", blocks)
        self._create(node, "base")
        listed, memory = {}, {}
        for kind in ("plain", "many"):
            before = self._memory(node)
            based_on = ["--based-on", "base", "--runs", str(RUNS)] if kind == "many" else []
            for number in range(MANY):
                self._add(f"{kind}{number}", file, *based_on)
                self._create(node, f"{kind}{number}")
                step.advance()
            memory[kind] = self._memory(node) - before
            asked = node.run([*INSIDE, "images", str(_CALLS)])
            listed[kind] = median(json.loads(asked.stdout))
            if kind == "plain":
                self._forget(node, MANY)
        table = node.run(["dmsetup", "table", "virtman_many0_mixture"]).stdout
        begun = time.monotonic()
        node.run(["dmsetup", "create", "--readonly", "--noudevsync", "again"], input=table)
        loaded = time.monotonic() - begun
        node.run(["dmsetup", "remove", "--retry", "again"])
        return {
            "run": "rows",
            "images": MANY,
            "rows": table.count("\n"),
            "table_load_s": loaded,
            "agent_bytes_an_image": (memory["many"] - memory["plain"]) / MANY,
            "list_s": listed["many"],
            "list_without_s": listed["plain"],
        }

    def _forget(self, node: Node, count: int) -> None:
        """Have a node leave the images of its last VMs."""
        vms = [f"vm{number}" for number in range(self._vms - count + 1, self._vms + 1)]
        self._deployment.destroy(node, *vms)
        for number in range(count):
            self._deployment.drop(node, f"plain{number}")

    def _write(self, name: str, blocks: Iterable[bytes]) -> str:
        """Have a file on the storage node; return its path."""
        (self._storage.share / name).write_bytes(b"".join(blocks))
        file = f"/var/tmp/{name}"  # noqa: S108 - a node is nobody else's
        self._storage.run(["mv", f"/host/{name}", file], timeout=LONGEST)
        return file

    def _add(self, name: str, disk: str, *options: str) -> None:
        self._deployment.add_source(self._storage, name, disk=disk, options=options)

    def _create(self, node: Node, name: str) -> str:
        """Return the device of one more VM."""
        self._vms += 1
        return str(self._deployment.create(node, name, f"vm{self._vms}")["device"])

    def _settle(self, node: Node, name: str, device: str) -> None:
        """Read all of an image, again and again until its cache takes nothing more to speak of."""
        size = sum(length for _, _, length in self._reads[name])
        for _ in range(_PASSES):
            before = self._fetched(node, name)
            self._read(node, device, name)
            if self._fetched(node, name) - before < _KEPT * size:
                return

    def _read(self, node: Node, device: str, name: str) -> None:
        """Have a node read all that is not zeros of an image, with nothing in its page cache."""
        file = node.share / f"{name}.reads"
        if not file.exists():
            file.write_text(json.dumps(self._reads[name]))
        node.drop_caches()
        node.run([*INSIDE, "replay", device, f"/host/{file.name}"], timeout=LONGEST)

    def _fetched(self, node: Node, name: str) -> int:
        """Return how many bytes a node has read of an image from below its cache."""
        return node.read_bytes(f"/dev/mapper/virtman_{name}_stripe")

    def _memory(self, node: Node) -> int:
        """Return the bytes of memory that an agent's processes have."""
        return int(json.loads(node.run([*INSIDE, "memory"]).stdout)["pss"])
