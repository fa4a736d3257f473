"""How soon VMs go on that are resumed from a suspended image, what that sends, and what boots take.

On a bed of its own: one node serves the image of a guest, another one has suspended that guest, and
the others resume it: first without help, and once that is on record by the profile that was made of
it. Beside that, policies of prefetch are replayed on the runs that are recorded.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from statistics import median
from typing import Any

from bench.peers.peer import LONGEST, Site
from bench.report import Progress, Step
from lab import Bed, Disk
from lab.deployment import Deployment
from lab.guest import HOST_MEMORY, MEMORY, Guest, guest_image
from lab.network import bytes_per_second
from lab.node import Node
from lab.rootfs import TOP
from lab.waiting import wait_until
from planning.replay import run as replay
from planning.replay import traces
from planning.replay.line import LINES

BED = "bench-resume"
POLICIES = ("profile", "clusters")

_PROGRAMS = TOP / "lab/images/qemu"
_INSIDE = ["python3", "-m", "bench.inside_resume"]
_BASE, _GOLD = "base", "gold"
_UNHELPED = " unhelped"  # behind a run's name: before there is a profile
_PAGE = 4096
_COUNTED = 3  # clones whose pages are counted, one after the other
_RECORDED = 4  # boots, of which a profile is made: agents' default
_SOON = 2.0  # seconds until all nodes have been told, and are ready to begin

Run = dict[str, Any]


def measure(nodes: int, clones: int, link_rate: str | None, progress: Progress) -> Iterator[Run]:
    """Yield the entries of ``runs``, each as soon as it is measured.

    :param clones: on each node, of those that are resumed at once
    """
    yield from policies(progress)
    with Bed(BED, link_rate, addition=_PROGRAMS) as bed:
        resumed = _Resumed(bed, link_rate, clones)
        resumed.start(nodes, progress.step("nodes", nodes + 2))
        yield resumed.suspend(progress.step("a guest, suspended", 2))
        yield resumed.alone(_UNHELPED, progress.step("two clones, without help", 2))
        yield resumed.at_once(_UNHELPED, progress.step("clones on all nodes, without help", nodes))
        yield resumed.boots(_UNHELPED, progress.step("boots on all nodes, without help", nodes))
        yield resumed.alone("", progress.step("two clones, one after the other", 2))
        yield resumed.at_once("", progress.step("clones on all nodes", nodes))
        yield resumed.boots("", progress.step("boots on all nodes", nodes))
        yield resumed.touch(progress.step("pages counted", _COUNTED))


def policies(progress: Progress) -> Iterator[Run]:
    """Yield what each policy of prefetch does on the runs that are recorded, of each workload."""
    recorded = traces.recorded()
    step = progress.step("policies of prefetch", len(recorded))
    for trace in recorded:
        for line in LINES:
            for name in POLICIES:
                found = replay.average(trace, name, line)
                yield {
                    "run": "policy",
                    "policy": name,
                    "workload": trace.workload,
                    "recorded": len(trace.runs),
                    "link_bits_s": line.rate * 8,
                    "round_trip_s": line.round_trip_s,
                    "miss_rate": found.miss_rate,
                    "fetch_ratio": found.fetch_ratio,
                    "buffering_ratio": found.buffering_ratio,
                    "waited_s": found.waited_s,
                }
        step.advance()


def ratios(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the runs say, as far as they are there; of policies, on the first line."""
    found = {run["run"]: run for run in runs if run["run"] != "policy"}
    said = _of_clones(found, "")
    if unhelped := _of_clones(found, _UNHELPED):
        said["unhelped"] = unhelped
    for run in runs:
        if run["run"] == "policy" and run["link_bits_s"] == LINES[0].rate * 8:
            figures = ("miss_rate", "fetch_ratio", "buffering_ratio", "waited_s")
            of_workloads = said.setdefault("policies", {}).setdefault(run["policy"], {})
            of_workloads[run["workload"]] = {name: run[name] for name in figures}
    return said


def _of_clones(found: Mapping[str, Mapping[str, Any]], suffix: str) -> dict[str, Any]:
    said: dict[str, Any] = {}
    at_once, alone, boots = (found.get(f"{name}{suffix}") for name in ("at once", "alone", "boots"))
    if at_once and boots:
        said["last_answer_over_boot"] = max(at_once["answered_s"]) / max(boots["ready_s"])
    if alone:
        if "touched" in found:
            one = median(found["touched"]["touched_bytes"])
            said["received_over_touched"] = alone["received_bytes"] / one
        said["second_clone_over_first"] = alone["second_received_bytes"] / alone["received_bytes"]
        said["running_s"] = alone["second_running_s"]
    if at_once:
        said["source_over_union"] = at_once["source_sent_bytes"] / at_once["union_bytes"]
    return said


class _Resumed:
    def __init__(self, bed: Bed, link_rate: str | None, clones: int) -> None:
        self._bed = bed
        self._rate = bytes_per_second(link_rate) if link_rate else 0
        self._clones = clones
        self._deployment = Deployment(bed)

    def start(self, nodes: int, step: Step) -> None:
        """Start everything; what boots on all nodes at once helps the next ones from then on."""
        self._recorded = min(nodes, _RECORDED)
        memory = f"{max(640, 256 + self._clones * HOST_MEMORY)}M"
        self._storage = self._bed.start_node("storage", "512M", "64M", [Disk(guest_image())])
        names = ["maker", *(f"node{number}" for number in range(1, nodes + 1))]
        self._maker, *self._nodes = self._bed.start_nodes(names, memory)
        self._deployment.start_volt()
        self._deployment.start_agents(
            (self._maker, *self._nodes),
            {"profile": {"record": self._recorded}, "image": {"keep_time": 7200}},
        )
        self._deployment.add_source(self._storage, _BASE)
        self._site = Site(self._deployment, self._storage, self._nodes)
        step.advance(nodes + 2)

    def suspend(self, step: Step) -> Run:
        """Boot a guest, have it remember something, and suspend it."""
        maker = self._maker
        guest = Guest(maker, _GOLD, self._deployment.create(maker, _BASE, "vm")["device"])
        console, monitor = f"/run/{_GOLD}.console", f"/run/{_GOLD}.qmp"
        qmp = f"unix:{monitor},server=on,wait=off"
        guest.boot("-device", "vmgenid", "-qmp", qmp, console=console)
        guest.wait(LONGEST)
        maker.run(["chown", "virtman", monitor])
        maker.run([*_INSIDE, "say", console, "remember", "VIRTMAN-MEMORY"], timeout=LONGEST)
        step.advance()
        begun = time.monotonic()
        words = ["virtman", "suspend-image", "vm", _GOLD, "--qmp", monitor, "--json"]
        made = json.loads(maker.run(words, timeout=LONGEST).stdout)
        took = time.monotonic() - begun
        guest.stop()
        self._deployment.destroy(maker, "vm")
        self._deployment.drop(maker, _BASE)
        step.advance()
        return {
            "run": "suspend",
            "suspended_s": took,
            "memory_bytes": MEMORY << 20,
            "layer_bytes": made["length"],
        }

    def touch(self, step: Step) -> Run:
        """Count what clones touch until they answer, one after the other on the node itself."""
        bytes_of = []
        self._deployment.create(self._maker, _GOLD, "held")  # so that the memory is there
        for number in range(_COUNTED):
            words = [*_INSIDE, "touch", _GOLD, f"touch{number}"]
            found = json.loads(self._maker.run(words, timeout=LONGEST).stdout)
            bytes_of.append(_union_bytes([found]))
            self._end(self._maker, [f"touch{number}-1"])
            step.advance()
        self._deployment.destroy(self._maker, "held")
        self._leave(self._maker)
        return {"run": "touched", "touched_bytes": bytes_of}

    def alone(self, suffix: str, step: Step) -> Run:
        """Resume two clones on a cold node while nobody else does."""
        node = self._nodes[0]
        found, received = [], []
        for name in ("first", "second"):
            before = node.received_bytes()
            found += self._resume(node, name, 1, time.time() + _SOON)
            received.append(node.received_bytes() - before)
            self._hold(node)  # what the first one goes on to touch is not the second's
            step.advance()
        self._end(node, ["first-1", "second-1"])
        self._leave(node)
        first, second = found
        return {
            "run": f"alone{suffix}",
            "running_s": first["ran"],
            "qemu_s": first["qemu"],
            "answered_s": first["answered"],
            "received_bytes": received[0],
            "second_running_s": second["ran"],
            "second_qemu_s": second["qemu"],
            "second_answered_s": second["answered"],
            "second_received_bytes": received[1],
        }

    def at_once(self, suffix: str, step: Step) -> Run:
        """Resume clones on all nodes at once, which are cold; afterwards that is on record."""
        before = self._sent()
        moment = time.time() + _SOON

        def resume(node: Node) -> list[dict[str, float]]:
            found = self._resume(node, "vm", self._clones, moment)
            step.advance()
            return found

        clones = [one for found in self._site.each(resume) for one in found]
        self._site.each(self._hold)  # who goes on touches more meanwhile
        touched = self._site.each(self._touched)
        served, made, *others = (now - then for then, now in zip(before, self._sent(), strict=True))
        self._await_recorded(_GOLD)
        names = [f"vm-{number}" for number in range(1, self._clones + 1)]
        self._site.each(lambda node: self._end(node, names))
        self._site.each(self._leave)
        return {
            "run": f"at once{suffix}",
            "nodes": len(self._nodes),
            "clones": len(clones),
            "link_bits_s": self._rate * 8,
            "ran_s": sorted(one["ran"] for one in clones),
            "answered_s": sorted(one["answered"] for one in clones),
            "union_bytes": _union_bytes(touched),
            "source_sent_bytes": served + made,
            "busiest_node_sent_bytes": max(others),
        }

    def boots(self, suffix: str, step: Step) -> Run:
        """Boot as many guests on the same nodes, which are cold; afterwards that is on record."""
        begun = time.monotonic()
        names = [f"boot{number}{suffix.strip()}" for number in range(1, self._clones + 1)]

        def boot(node: Node, name: str) -> float:
            guest = Guest(node, name, self._deployment.create(node, _BASE, name)["device"])
            guest.boot()
            guest.wait(LONGEST)
            ready = time.monotonic() - begun
            guest.stop()
            return ready

        def boot_all(node: Node) -> list[float]:
            with ThreadPoolExecutor(len(names)) as pool:
                ready = list(pool.map(boot, repeat(node), names))
            step.advance()
            return ready

        ready = sorted(one for found in self._site.each(boot_all) for one in found)
        self._await_recorded(_BASE)
        self._site.each(lambda node: self._deployment.destroy(node, *names))
        self._site.each(lambda node: self._deployment.drop(node, _BASE))
        return {"run": f"boots{suffix}", "nodes": len(self._nodes), "ready_s": ready}

    def _await_recorded(self, image: str) -> None:
        """Wait until enough is recorded of an image to help all that boots from it."""
        self._deployment.wait_profile(image, LONGEST, self._recorded)

    def _resume(self, node: Node, vm: str, count: int, moment: float) -> list[dict[str, float]]:
        words = [*_INSIDE, "resume", _GOLD, vm, str(count), str(moment)]
        found: list[dict[str, float]] = json.loads(node.run(words, timeout=LONGEST).stdout)
        return found

    @staticmethod
    def _hold(node: Node) -> None:
        """Have guests that were resumed stand still until their end."""
        node.run(["pkill", "-STOP", "qemu-system"])

    def _touched(self, node: Node) -> dict[str, Any]:
        words = [*_INSIDE, "touched", _GOLD, "vm", str(self._clones)]
        found: dict[str, Any] = json.loads(node.run(words, timeout=LONGEST).stdout)
        return found

    def _end(self, node: Node, vms: Sequence[str]) -> None:
        """End guests that were resumed, and their disks."""
        node.run(["pkill", "-KILL", "qemu-system"])
        gone = ["sh", "-c", "! pgrep qemu-system"]
        wait_until(lambda: node.run(gone, check=False).status == 0, "the end of guests", 30)
        self._deployment.destroy(node, *vms)

    def _leave(self, node: Node) -> None:
        for image in (_GOLD, _BASE):
            self._deployment.drop(node, image)

    def _sent(self) -> list[int]:
        return [node.sent_bytes() for node in (self._storage, self._maker, *self._nodes)]


def _union_bytes(touched: Sequence[Mapping[str, Any]]) -> int:
    """Return how many bytes any VM touched; their disks are the same, so the most of one counts."""
    pages = set[int]().union(*(one["pages"] for one in touched))
    most: int = max(read for one in touched for read in one["disk_bytes"])
    return len(pages) * _PAGE + most
