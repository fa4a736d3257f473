"""What copies of whole images cost, and layers: seconds, what the source sends, what VMs notice.

On a bed of its own: nodes are real kernels, and links are so slow that they decide. Each run has
an image of its own on the same nodes, so that each begins cold.
"""

import itertools
import json
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

from bench import fio, layers, volume
from bench.content import write_random
from bench.peers.peer import LONGEST, Site
from bench.peers.virtman import SHAPES, vm
from bench.report import Progress, Step
from lab import Bed, Disk
from lab.deployment import Deployment
from lab.errors import CommandFailed
from lab.network import bytes_per_second
from lab.node import Node

BED = "bench-whole"
APART = 5.0  # seconds between two nodes that begin one after the other
READ = 15.0  # seconds for which reads of a VM are looked at
TURNS = 3  # how often they are, beside a capped copy and beside none
HARMLESS = 64  # a copy at one of so many parts of a link: few reads of VMs meet it
STARTED = 3.0  # seconds within which a VM has begun to read
SETTLED = 3.0  # seconds after letting go in which reads may still wait because of it
_INSIDE = ["python3", "-m", "bench.inside_whole"]
_RESERVE = 16  # MiB: copies have room on small nodes
_READS = {
    "sequential 1 MiB": ("--rw=read", "--bs=1M"),
    "random 4 KiB": ("--rw=randread", "--bs=4k"),
}
_ROUNDS = 5
_LET_GO = re.compile(r"image \S+ needs no parents any more, after ([0-9.]+) s")

Reads = Sequence[tuple[float, float]]
Run = dict[str, Any]


@dataclass(frozen=True)
class Also:
    """What is measured beside the usual.

    :ivar rates: bytes a second of copies, beside which a VM reads
    :ivar written: bytes that VMs of a cluster write
    :ivar vms: how many there are in one
    """

    rates: Sequence[int] = ()
    written: Sequence[int] = ()
    vms: Sequence[int] = ()


def measure(nodes: int, link_rate: str, size: int, also: Also, progress: Progress) -> Iterator[Run]:
    """Yield the entries of ``runs``, each as soon as it is measured; all have the same nodes."""
    with Bed(BED, link_rate) as bed:
        whole = _Whole(bed, link_rate, size)
        whole.start(nodes, progress.step("nodes", nodes))
        yield whole.copy_all("at once", 0.0, progress.step("all at once", nodes))
        yield whole.copy_all("apart", APART, progress.step("one after the other", nodes))
        yield from whole.in_turns(
            {"no copy": None, "capped": whole.rate // HARMLESS},
            progress.step("a VM reads, capped and alone", TURNS),
        )
        for name, rate in (("uncapped", 0), *((f"at {rate}", rate) for rate in also.rates)):
            yield whole.beside(name, rate, progress.step(f"a VM reads, {name}", 1))
        yield whole.let_go("letting go", progress.step("letting go", 2))
        yield whole.commit("commit", progress.step("commit and checkpoints", 1))
        yield whole.boot("boots", progress.step("boots of layers", 1))
        for vms, written in itertools.product(also.vms, also.written):
            step = progress.step(f"{vms} VMs write {written} bytes", 1)
            yield whole.cluster(vms, written, step)


def ratios(runs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return what the runs of one bed say about each other; nothing before all are there."""
    found = {run["run"]: run for run in runs}
    if "boots" not in found:
        return {}
    at_once, none, ended = found["at once"], found["no copy"], found["letting go"]
    return {
        "all_at_once_last_over_limit": at_once["last_s"] / at_once["limit_s"],
        "source_over_image": at_once["source_sent_bytes"] / at_once["bytes"],
        "source_over_image_staggered": found["apart"]["source_sent_bytes"] / at_once["bytes"],
        "p95_capped_over_none": found["capped"]["p95_ms"] / none["p95_ms"],
        "p95_uncapped_over_none": found["uncapped"]["p95_ms"] / none["p95_ms"],
        "pause_own_s": ended["pause_own_s"],
        "pause_others_s": ended["pause_others_s"],
        "reads_over_disk": _over_disk(ended["reads"]),
        "reads_over_volume": _over_disk(ended["volume_reads"]),
        **layers.ratios(found["commit"], found["boots"]),
    }


class _Whole:
    """A source, and nodes with agents that fetch nothing but what they are asked for.

    :ivar rate: bytes a second of a link
    """

    def __init__(self, bed: Bed, link_rate: str, size: int) -> None:
        self._bed = bed
        self._deployment = Deployment(bed)
        self.rate = int(bytes_per_second(link_rate))
        self._size = size

    def start(self, nodes: int, step: Step) -> None:
        """Start everything but images."""
        file = self._bed.folder / "image"
        write_random(file, self._size)
        self._storage = self._bed.start_node("storage", "256M", "64M", [Disk(file)])
        names = [f"node{number}" for number in range(1, nodes + 1)]
        self._nodes = self._bed.start_nodes(names, "256M")
        self._site = Site(self._deployment, self._storage, self._nodes)
        self._deployment.start_volt()
        self._site.each(
            lambda node: self._deployment.start_agent(
                node,
                {
                    "profile": {"record": 0, "prefetch": False},
                    "store": {"reserve": _RESERVE},
                    "peers": {"ip": node.address},
                },
            )
        )
        step.advance(nodes)

    def copy_all(self, name: str, apart: float, step: Step) -> Run:
        """Have all nodes copy a cold image, side by side or one after the other."""
        with self._image(name) as (image, _):
            before = self._sent()
            start = time.time() + apart + len(self._nodes)
            starts = {node.name: start + apart * at for at, node in enumerate(self._nodes)}
            found = self._site.each(lambda node: _copy(node, image, starts[node.name], 0))
            step.advance(len(found))
            source, *others = (now - then for then, now in zip(before, self._sent(), strict=True))
        return {
            "run": name,
            "nodes": len(self._nodes),
            "link_bits_s": self.rate * 8,
            "bytes": self._size,
            "limit_s": self._size / self.rate,
            "copied_s": sorted(one["copied"] - one["begun"] for one in found),
            "last_s": max(one["copied"] for one in found) - min(one["begun"] for one in found),
            "last_whole_s": max(one["whole"] for one in found) - min(one["begun"] for one in found),
            "source_sent_bytes": source,
            "busiest_node_sent_bytes": max(others),
        }

    def in_turns(self, rates: Mapping[str, int | None], step: Step) -> Iterator[Run]:
        """Have a VM read blocks that are cold at first, beside copies at each rate, in turns.

        These take longer than the reads are looked at.

        :param rates: by the names of runs: bytes a second of copies, 0 for no limit; None for none
        """
        took: dict[str, list[float]] = {name: [] for name in rates}
        for _ in range(TURNS):
            for name, rate in rates.items():
                with self._image(name) as (image, devices):
                    took[name] += _took(*self._read_beside(image, devices, rate))
            step.advance()
        for name, rate in rates.items():
            yield _seen(name, rate, None, took[name])

    def beside(self, name: str, rate: int, step: Step) -> Run:
        """Have a VM read beside copies, and then these made while nobody reads.

        :param rate: bytes a second of a copy, 0 for no limit
        """
        with self._image(name) as (image, devices):
            begun, reads = self._read_beside(image, devices, rate)
            found = self._site.each(lambda node: _copy(node, image, 0.0, rate))
            step.advance()
        return _seen(name, rate, found[-1]["copied"] - begun, _took(begun, reads))

    def _read_beside(
        self, image: str, devices: Mapping[str, str], rate: int | None
    ) -> tuple[float, Reads]:
        """Have a VM of the last node read for a while, beside copies that nobody looks at.

        :returns: when these began, and the reads
        """
        last = self._nodes[-1]
        with _reading(last, devices[last.name]) as end:
            time.sleep(STARTED)
            if rate is not None:
                words = ["virtman", "image", "hydrate", image, "--rate", str(rate)]
                self._site.each(lambda node: node.run(words))
            begun = time.time()
            time.sleep(READ)
            return begun, end()

    def let_go(self, name: str, step: Step) -> Run:
        """Have one node let go of its parents while VMs read there and below it; read its copy."""
        with self._image(name) as (image, devices):
            whole, below = self._family(image)
            with (
                _reading(whole, devices[whole.name]) as end_own,
                _reading(below, devices[below.name]) as end_others,
            ):
                time.sleep(STARTED)
                ended = _copy(whole, image, 0.0, 0)["whole"]
                time.sleep(SETTLED)
                reads = end_own(), end_others()
            log = (whole.share / "agent.log").read_text()
            took = float(_LET_GO.findall(log)[-1])
            own, others = (_longest(one, ended - took - 1, ended + SETTLED) for one in reads)
            step.advance()
            places = {
                "disk": f"/var/lib/virtman/whole/{image}.copy",
                "image": f"/dev/mapper/virtman_{image}_image",
                "VM": devices[whole.name],
            }
            found = _compared(whole, places, self._size)
            with volume.limited(whole, places["disk"]) as within:
                slow = _compared(whole, places, self._size, within)
            step.advance()
        return {
            "run": name,
            "let_go_s": took,
            "pause_own_s": own,
            "pause_others_s": others,
            "reads": found,
            "volume_reads": slow,
        }

    def commit(self, name: str, step: Step) -> Run:
        """Have all of a VM's disk committed, and checkpointed."""
        first = self._nodes[0]
        with self._image(name) as (_, devices):
            run = layers.commit(self._site, devices[first.name], vm(first), self._size, self.rate)
        step.advance()
        return run

    def boot(self, name: str, step: Step) -> Run:
        """Have VMs boot, and boot again from what was committed."""
        with self._image(name) as (image, _):
            run = layers.boots(self._site, image, self._size)
        step.advance()
        return run

    def cluster(self, vms: int, written: int, step: Step) -> Run:
        """Have VMs boot, write, and boot anew from what they committed, on cold nodes."""
        with self._image(f"cluster-{vms}-{written}") as (image, _):
            run = layers.cluster(self._site, image, self._size, written, vms)
        step.advance()
        return run

    def _family(self, image: str) -> tuple[Node, Node]:
        """Return a node that feeds another, and that other."""
        named = {node.name: node for node in self._nodes}
        for tree in self._deployment.trees(image)["trees"]:
            for one in tree["nodes"]:
                if one["parent"] is not None:
                    return named[one["parent"]], named[one["host"]]
        raise ValueError("a bed of one node: nobody feeds another")

    @contextmanager
    def _image(self, name: str) -> Iterator[tuple[str, dict[str, str]]]:
        """Have an image that all nodes have a VM of; yield its name, and the VMs' devices."""
        image = name.replace(" ", "-")
        stripes, fanout = SHAPES["forest"]
        self._deployment.add_source(self._storage, image, stripes, fanout)
        made = self._site.each(lambda node: self._deployment.create(node, image, vm(node)))
        yield image, {node.name: one["device"] for node, one in zip(self._nodes, made, strict=True)}
        self._site.each(lambda node: self._deployment.destroy(node, vm(node)))
        self._site.each(lambda node: self._leave(node, image))
        self._deployment.remove_source(self._storage, image)

    def _leave(self, node: Node, image: str) -> None:
        release = ["virtman", "image", "release", image]
        done = node.run(release, check=False, timeout=LONGEST)
        if done.status and "virtman.copy.unknown" not in done.stderr:
            raise CommandFailed(node.name, release, done.status, done.stdout, done.stderr)
        self._deployment.drop(node, image)

    def _sent(self) -> list[int]:
        return [node.sent_bytes() for node in (self._storage, *self._nodes)]


def _copy(node: Node, image: str, start: float, rate: int) -> dict[str, float]:
    words = ["copy", image, str(start), str(rate)]
    done = node.run([*_INSIDE, *words], timeout=LONGEST)
    moments: dict[str, float] = json.loads(done.stdout)
    return moments


@contextmanager
def _reading(node: Node, device: str) -> Iterator[Callable[[], Reads]]:
    """Let a node read a device at random; yield what ends that.

    It returns when each read began, and how many seconds it took.
    """
    stop = node.share / "stop"
    stop.unlink(missing_ok=True)
    words = [*_INSIDE, "read", device, "/host/stop", "1"]
    with ThreadPoolExecutor(1) as pool:
        reads = pool.submit(lambda: node.run(words, timeout=LONGEST).stdout)

        def end() -> Reads:
            stop.touch()
            found: Reads = json.loads(reads.result())
            return found

        try:
            yield end
        finally:
            stop.touch()


def _took(begun: float, reads: Reads) -> list[float]:
    """Return what the reads took that began in the first seconds of the copies."""
    return [seconds for when, seconds in reads if begun <= when < begun + READ]


def _seen(name: str, rate: int | None, fetched: float | None, took: Sequence[float]) -> Run:
    about = {"run": name, "rate": rate, "fetched_s": fetched}
    return about | {"reads": len(took)} | _times(took)


def _times(seconds: Sequence[float]) -> dict[str, float]:
    hundredths = quantiles([1000 * one for one in seconds], n=100, method="inclusive")
    return {"p50_ms": hundredths[49], "p95_ms": hundredths[94], "max_ms": 1000 * max(seconds)}


def _longest(reads: Reads, since: float, until: float) -> float:
    """Return the longest read that was under way in that time."""
    return max(took for when, took in reads if when < until and when + took > since)


def _over_disk(reads: Mapping[str, Mapping[str, float]]) -> float:
    """Return what the image gives of what the disk does, of that kind of which it gives less."""
    return min(one["image"] / one["disk"] for one in reads.values())


def _compared(
    node: Node, places: Mapping[str, str], size: int, within: Sequence[str] = ()
) -> dict[str, dict[str, float]]:
    """Return bytes a second of each kind of reads at each place: medians of rounds in turns."""
    rounds: list[dict[tuple[str, str], float]] = []
    for turn in range(_ROUNDS):
        order = random.Random(turn).sample(sorted(places), len(places))  # noqa: S311  # no secret
        jobs = [(what, place) for what in _READS for place in order]
        words = [
            word
            for what, place in jobs
            for word in (f"--name={place}", f"--filename={places[place]}", *_READS[what])
        ]
        report = fio.read(
            node, f"--size={size}", "--stonewall", "--iodepth=1", "--runtime=2",
            "--exec_prerun=sh -c 'echo 3 > /proc/sys/vm/drop_caches'", *words, within=within,
        )  # fmt: skip
        rates = [job["read"]["bw_bytes"] for job in report["jobs"]]
        rounds.append(dict(zip(jobs, rates, strict=True)))
    return {
        what: {place: median(one[what, place] for one in rounds) for place in places}
        for what in _READS
    }
