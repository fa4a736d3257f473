"""What a source sends to nodes whose caches are smaller than the image: a ring, and two trees.

Nodes read an image of random bytes again and again, each at random, when their caches are warm.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench.content import write_random
from bench.peers.peer import INSIDE, LONGEST
from bench.report import Progress, Step
from lab import Bed, Disk
from lab.deployment import Deployment
from lab.node import Node

BED = "bench-ring"
NODES = 7
CACHED = 0.25  # of the image, by each node
_SIZE = 192 << 20
_PIECE = 64 << 10
_READ = {"trees": ("forest", 2, 2), "ring": ("ring", 16, 64)}

Run = dict[str, Any]


def measure(link_rate: str | None, progress: Progress) -> Iterator[Run]:
    """Yield the entries of ``runs``, each as soon as it is measured."""
    step = progress.step("re-reads", 3 * len(_READ))
    for number, design in enumerate(_READ):
        with Bed(f"{BED}{number}", link_rate) as bed:  # so caches are empty
            yield _reread(bed, design, step)


def ratios(runs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return what the runs say, as far as they are there."""
    sent = {run["design"]: run["source_bytes"] for run in runs if run["run"] == "re-reads"}
    if sent.keys() != _READ.keys():
        return {}
    return {"ring_source_over_trees": sent["ring"] / sent["trees"]}


def _reread(bed: Bed, design: str, step: Step) -> Run:
    file = bed.folder / "image"
    write_random(file, _SIZE)
    deployment = Deployment(bed)
    storage = bed.start_node("storage", "512M", "64M", [Disk(file, readonly=True)])
    names = [f"node{number}" for number in range(1, NODES + 1)]
    cache = f"{int(CACHED * _SIZE) + (1 << 20) >> 10}K"  # what the cache group leaves out
    nodes = bed.start_nodes(names, "320M", cache)
    deployment.start_volt()
    shape, stripes, fanout = _READ[design]
    deployment.add_source(storage, "image1", stripes, fanout, shape=shape)
    deployment.start_agents(nodes, {"profile": {"prefetch": False}})
    step.advance()

    def read(node: Node, turn: str) -> float:
        device = f"/dev/mapper/virtman_image1_vm_vm-{node.name}"
        words = ["reread", device, "image1", str(_SIZE // _PIECE), f"{node.name} {turn}"]
        return float(node.run([*INSIDE, *words], timeout=LONGEST).stdout)

    with ThreadPoolExecutor(NODES) as pool:
        list(pool.map(lambda node: deployment.create(node, "image1", f"vm-{node.name}"), nodes))
        list(pool.map(lambda node: read(node, "warm"), nodes))
        step.advance()
        before = [node.sent_bytes() for node in (storage, *nodes)]
        seconds = list(pool.map(lambda node: read(node, "again"), nodes))
    sent = [node.sent_bytes() - was for node, was in zip((storage, *nodes), before, strict=True)]
    step.advance()
    return {
        "run": "re-reads",
        "design": design,
        "nodes": NODES,
        "bytes": _SIZE,
        "cached": CACHED,
        "read_bytes": NODES * _SIZE,
        "source_bytes": sent[0],
        "sent_bytes": sum(sent),
        "busiest_bytes": max(sent[1:]),
        "slowest_s": max(seconds),
    }
