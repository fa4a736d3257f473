"""How soon all nodes have read a cold image, against what their links could carry at best.

On a bed of its own: nodes are real kernels, and links are so slow that they decide. All nodes
read the same bytes at once, through the devices that their VMs boot from.
"""

import re
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

from bench import fio
from bench.content import write_random
from bench.peers.peer import Site
from bench.peers.virtman import SHAPES
from bench.report import Progress
from lab import Bed, Disk
from lab.deployment import Deployment
from lab.errors import LabError, NodeLost
from lab.network import bytes_per_second
from lab.node import Node

BED = "bench-fanout"
PIECE = 256 * 1024  # bytes of a read
READERS = 8  # reads in flight on each node
START = 15  # seconds, and one more a node, within which all are ready to read
LONGEST = 900  # seconds for one node's reads


_READY = re.compile(  # a line of Volt's log
    r"(?P<time>\S+ \S+) .* method=PATCH "
    r"path=/v1/images/(?P<image>\w+)/hosts/(?P<host>\w+) status=200"
)
KILLED = "forest, one killed"
"""The shape of a run in which a parent lost its power half way."""


def measure(
    nodes: int,
    link_rate: str | None,
    shapes: Sequence[str],
    size: int,
    kill: bool,
    progress: Progress,
) -> list[dict[str, Any]]:
    """Return one entry of ``runs`` for each shape; all have the same nodes.

    :param kill: read a forest once more in the end, and kill a node that feeds others half way
    """
    with Bed(BED, link_rate) as bed:
        fanout = _Fanout(bed, link_rate, size)
        step = progress.step("nodes", nodes)
        fanout.start(nodes)
        step.advance(nodes)
        runs = [fanout.read(shape, progress) for shape in shapes]
        return [*runs, fanout.read_while_one_dies(progress)] if kill else runs


class _Fanout:
    def __init__(self, bed: Bed, link_rate: str | None, size: int) -> None:
        self._bed = bed
        self._deployment = Deployment(bed)
        self._bits = bytes_per_second(link_rate) * 8 if link_rate else 0
        self._size = size

    def start(self, nodes: int) -> None:
        """Start everything but images."""
        file = self._bed.folder / "image"
        write_random(file, self._size)
        self._storage = self._bed.start_node("storage", "256M", "64M", [Disk(file)])
        names = [f"node{number}" for number in range(1, nodes + 1)]
        self._nodes = self._bed.start_nodes(names, "256M")
        self._each = Site(self._deployment, self._storage, self._nodes).each
        self._deployment.start_volt()
        self._deployment.start_agents(self._nodes)

    def read(self, shape: str, progress: Progress) -> dict[str, Any]:
        """Let all nodes read a new image of that shape, and leave it again."""
        step = progress.step(shape, len(self._nodes))
        devices = self._create(shape, shape)
        found = self._span(
            self._nodes, lambda node, start: _read(node, devices[node.name], self._size, start)
        )
        step.advance(len(self._nodes))
        self._each(lambda node: self._deployment.destroy(node, shape))
        self._each(lambda node: self._deployment.drop(node, shape))
        self._deployment.remove_source(self._storage, shape)
        return {"shape": shape, **found}

    def read_while_one_dies(self, progress: Progress) -> dict[str, Any]:
        """Let all nodes read one more forest; the first of a tree loses its power half way.

        Bytes and times are those of the others. The bed is of no more use then.
        """
        step = progress.step(KILLED, len(self._nodes) - 1)
        devices = self._create("killed", "forest")
        before = self._parents("killed")
        (first,) = (host for host, parents in before.items() if parents[0] is None)
        (dying,) = (node for node in self._nodes if node.name == first)
        living = [node for node in self._nodes if node is not dying]
        half_s = self._size * 4 / self._bits

        def read(node: Node, start: float) -> tuple[float, float]:
            span = _read(node, devices[node.name], self._size, start)
            step.advance()
            return span

        def die(start: float) -> float:
            with ThreadPoolExecutor(1) as pool:
                reading = pool.submit(_read, dying, devices[dying.name], self._size, start)
                time.sleep(max(0.0, start + half_s - time.time()))
                died = time.time()
                dying.kill()
                if not isinstance(reading.exception(), NodeLost):
                    raise LabError(f"{dying.name} had read all before it lost its power")
            return died

        with ThreadPoolExecutor(1) as pool:
            deaths = []
            found = self._span(living, read, lambda start: deaths.append(pool.submit(die, start)))
            died = deaths[0].result()
        over, after, ready = time.time(), self._parents("killed"), self._ready("killed")
        moved = [host for host in after if after[host] != before[host]]
        if not moved:
            raise LabError(f"nobody had another parent than {dying.name} before all was read")
        # who tells it earlier may wait for a parent that has to move too
        moved_s = max(ready[one] if ready[one] > died else over for one in moved) - died
        return {"shape": KILLED, **found, "killed_s": half_s, "moved_s": moved_s}

    def _parents(self, image: str) -> dict[str, list[str | None]]:
        """Return who feeds each host, one a tree; None is the source."""
        parents: dict[str, list[str | None]] = defaultdict(list)
        for tree in self._deployment.trees(image)["trees"]:
            for node in tree["nodes"]:
                parents[node["host"]].append(node["parent"])
        return parents

    def _ready(self, image: str) -> dict[str, float]:
        """Return when each node last told Volt that it reads from whom it was given."""
        found = {}
        for line in (self._deployment.folder / "log").read_text().splitlines():
            said = _READY.match(line)
            if said and said["image"] == image:
                found[said["host"]] = datetime.fromisoformat(said["time"]).timestamp()
        return found

    def _create(self, image: str, shape: str) -> dict[str, str]:
        """Make an image known that has a shape, and a VM on each node; return their devices."""
        stripes, fanout = SHAPES[shape]
        self._deployment.add_source(self._storage, image, stripes, fanout, shape=shape)
        made = self._each(lambda node: self._deployment.create(node, image, image)["device"])
        return {node.name: device for node, device in zip(self._nodes, made, strict=True)}

    def _span(
        self,
        nodes: Sequence[Node],
        read: Callable[[Node, float], tuple[float, float]],
        begin: Callable[[float], object] = lambda start: None,
    ) -> dict[str, Any]:
        """Let nodes read at once; return figures.

        :param read: is called with each node and the moment from which it reads
        :param begin: is called with that moment before
        """
        sent = [node.sent_bytes() for node in (self._storage, *nodes)]
        start = time.time() + START + len(self._nodes)
        begin(start)
        with ThreadPoolExecutor(len(nodes)) as pool:
            spans = list(pool.map(lambda node: read(node, start), nodes))
        now = [node.sent_bytes() for node in (self._storage, *nodes)]
        source, *others = (after - before for before, after in zip(sent, now, strict=True))
        begun, ended = zip(*spans, strict=True)
        return {
            "nodes": len(self._nodes),
            "link_bits_s": self._bits,
            "bytes": self._size,
            "limit_s": self._size * 8 / self._bits if self._bits else None,
            "last_s": max(ended) - min(begun),
            "source_sent_bytes": source,
            "busiest_node_sent_bytes": max(others),
        }


def _read(node: Node, device: str, size: int, start: float) -> tuple[float, float]:
    """Read the device's first bytes, from a moment on; return when that began and ended."""
    # fio takes seconds to start where many nodes share a processor
    wait = (
        f"ms=$(({start * 1000:.0f} - $(date +%s%3N))); "
        "sleep $((ms / 1000)).$(printf %03d $((ms % 1000)))"
    )
    report = fio.read(
        node, "--name=read", f"--filename={device}", "--rw=read", f"--bs={PIECE}",
        f"--size={size}", f"--iodepth={READERS}", f"--exec_prerun=sh -c '{wait}'",
        timeout=LONGEST,
    )  # fmt: skip
    ended = report["timestamp_ms"] / 1000  # fio reports at once
    return ended - report["jobs"][0]["read"]["runtime"] / 1000, ended
