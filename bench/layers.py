"""What layers cost: bytes and seconds of commits and checkpoints, and boots of committed VMs.

A boot reads the first quarter of the disk in order, and thinks in between. All that is written are
random bytes, which nothing can make fewer.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench.peers.peer import LONGEST, Site
from lab.node import Node
from lab.waiting import wait_until

BOOT = 15.0  # seconds that a guest thinks in all while it boots
OWN = 64  # of so many pieces of a boot a VM has written one
_INSIDE = ["python3", "-m", "bench.inside_whole"]
_TAKEN = "/var/tmp/layers"  # noqa: S108 - on a storage node of the bench's own
_CHUNK = 65536

Run = dict[str, Any]


def commit(site: Site, device: str, vm: str, size: int, rate: int) -> Run:
    """Have all of a disk written, and committed; the layer goes to the storage node meanwhile.

    Then it is checkpointed, and again after one percent of it has changed.

    :param device: of a VM on the first node
    :param size: bytes of the disk
    :param rate: bytes a second of a link
    """
    first, storage = site.nodes[0], site.storage
    _inside(first, "write", device, str(size // _CHUNK), "1")
    storage.run(["mkdir", "-p", _TAKEN])
    begun = time.time()
    with ThreadPoolExecutor(1) as pool:
        making = pool.submit(_committed, first, vm, "all")
        wait_until(lambda: _makes(first, "all"), "the beginning of the commit", LONGEST, 0.1)
        storage.run(site.deployment.taking(storage, "all", _TAKEN, first), timeout=LONGEST)
        taken = time.time()
        layer, kept = making.result()
    _remove(first, "all")
    site.deployment.remove_source(storage, "all")
    storage.run(["rm", f"{_TAKEN}/all.layer"])
    whole = _virtman(first, "checkpoint", "--json", vm)
    _inside(first, "write", device, str(size // _CHUNK // 100), "1")
    changed = _virtman(first, "checkpoint", "--json", vm)
    first.run(["virtman", "checkpoint", "stop", vm])
    for made in (changed, whole):
        _remove(first, made["layer"])
    return {
        "run": "commit",
        "written_bytes": size,
        "layer_bytes": layer["length"],
        "limit_s": size / rate,
        "committed_s": kept - begun,
        "taken_s": taken - begun,
        "checkpoint_bytes": whole["length"],
        "changed_bytes": changed["length"],
    }


def boots(site: Site, image: str, size: int) -> Run:
    """Boot a VM on each node, commit all of them, and boot each anew on the next node.

    The image is in the caches of all nodes before. A VM writes over some of what a boot reads.
    """
    count = size // 4 // _CHUNK
    warmed = site.each(lambda node: _boot(node, image, f"warm-{node.name}", count, 0.0))
    firsts = site.each(lambda node: _boot(node, image, f"first-{node.name}", count, BOOT))
    for node, made in zip(site.nodes, firsts, strict=True):
        _inside(node, "write", made["device"], str(count // OWN), str(OWN))
    site.each(lambda node: _virtman(node, "commit", "--json", f"first-{node.name}", node.name))
    before = dict(zip(site.nodes, (*site.nodes[1:], site.nodes[0]), strict=True))
    again = site.each(
        lambda node: _boot(node, before[node].name, f"again-{node.name}", count, BOOT)
    )
    for node in site.nodes:
        vms = [f"{when}-{node.name}" for when in ("warm", "first", "again")]
        site.deployment.destroy(node, *vms)
        site.deployment.drop(node, before[node].name)
    site.each(lambda node: _remove(node, node.name))
    return {
        "run": "boots",
        "read_bytes": count * _CHUNK,
        "own_bytes": count // OWN * _CHUNK,
        "cold_s": [one["seconds"] for one in warmed],
        "first_created_s": [one["created"] for one in firsts],
        "first_s": [one["seconds"] for one in firsts],
        "second_created_s": [one["created"] for one in again],
        "second_s": [one["seconds"] for one in again],
    }


def cluster(site: Site, image: str, size: int, written: int, vms: int) -> Run:
    """Have VMs, each on a node of its own, boot, write and boot anew elsewhere (Skilfish, 5.3).

    All do each step at once, and it takes as long as the last one does. ``fetch_s`` is until the
    nodes have all of the image; ``fetch_own_s`` is that of the VMs' layers, on the next nodes.

    :param written: bytes that each VM writes
    :param vms: how many there are, not more than nodes
    """
    nodes = list(site.nodes[:vms])
    after = [site.nodes[(at + 1) % len(site.nodes)] for at in range(vms)]
    count = size // 4 // _CHUNK
    booted, boot_s = _at_once(nodes, lambda node: _boot(node, image, _first(node), count, 0.0))
    _, fetch_s = _at_once(nodes, lambda node: _inside(node, "copy", image, "0", "0"))
    _at_once(after, lambda node: _inside(node, "copy", image, "0", "0"))
    for node, made in zip(nodes, booted, strict=True):
        _inside(node, "write", made["device"], str(written // _CHUNK), "1")
    layers, commit_s = _at_once(
        nodes, lambda node: _virtman(node, "commit", "--json", _first(node), _layer(node))
    )
    made_on = dict(zip(after, nodes, strict=True))
    _, again_s = _at_once(
        after, lambda node: _boot(node, _layer(made_on[node]), f"again-{node.name}", count, 0.0)
    )
    _, fetch_own_s = _at_once(
        after, lambda node: _inside(node, "copy", _layer(made_on[node]), "0", "0")
    )
    for node in after:
        site.deployment.destroy(node, f"again-{node.name}")
        _release(node, _layer(made_on[node]))
    for node in nodes:
        site.deployment.destroy(node, _first(node))
        _remove(node, _layer(node))
    return {
        "run": f"{vms} VMs, {written} bytes",
        "vms": vms,
        "written_bytes": written,
        "layer_bytes": max(one["length"] for one in layers),
        "boot_s": boot_s,
        "fetch_s": fetch_s,
        "commit_s": commit_s,
        "again_s": again_s,
        "fetch_own_s": fetch_own_s,
    }


def _first(node: Node) -> str:
    return f"first-{node.name}"


def _layer(node: Node) -> str:
    return f"own-{node.name}"


def _at_once(nodes: Sequence[Node], work: Callable[[Node], Any]) -> tuple[list[Any], float]:
    """Do something on these nodes at once; return what came of it, and the seconds it took."""
    begun = time.monotonic()
    with ThreadPoolExecutor(len(nodes)) as pool:
        done = list(pool.map(work, nodes))
    return done, time.monotonic() - begun


def ratios(commit: Mapping[str, Any], boots: Mapping[str, Any]) -> dict[str, float]:
    """Return what these runs say."""
    return {
        "commit_over_link": commit["taken_s"] / commit["limit_s"],
        "checkpoint_over_all": commit["changed_bytes"] / commit["checkpoint_bytes"],
        "second_boot_over_first": max(boots["second_s"]) / max(boots["first_s"]),
    }


def _boot(node: Node, image: str, vm: str, pieces: int, thought: float) -> dict[str, Any]:
    found: dict[str, Any] = _inside(node, "boot", image, vm, str(pieces), str(thought))
    return found


def _release(node: Node, image: str) -> None:
    for verb in ("release", "drop"):
        node.run(["virtman", "image", verb, image], timeout=LONGEST)


def _remove(node: Node, layer: str) -> None:
    """Remove a layer, once Volt has heard that no host needs it."""
    words = ["virtman", "layer", "remove", layer]
    wait_until(
        lambda: node.run(words, check=False, timeout=LONGEST).status == 0, "a layer going", 60, 0.5
    )


def _committed(node: Node, vm: str, name: str) -> tuple[dict[str, Any], float]:
    """Commit a VM; return what is told of the layer, and when it was kept."""
    return _virtman(node, "commit", "--json", vm, name), time.time()


def _makes(node: Node, layer: str) -> bool:
    found = json.loads(node.run(["virtman", "layer", "list", "--json"]).stdout)
    return any(one["layer"] == layer for one in found)


def _virtman(node: Node, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(node.run(["virtman", *words], timeout=LONGEST).stdout)
    return found


def _inside(node: Node, *words: str) -> Any:
    return json.loads(node.run([*_INSIDE, *words], timeout=LONGEST).stdout)
