"""The main job, once: an image, a storage node, N nodes, M virtual machines.

Starts everything, has one boot recorded, boots the VMs from devices that came through the attach
trees, lets each guest check its own disk, says what happened and takes all down again.
"""

import json
import logging
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from lab import kernel
from lab.cluster import Bed
from lab.deployment import VOLT_PORT, Deployment, leftovers
from lab.errors import BedExists, LabError
from lab.guest import HOST_MEMORY, Guest, guest_image
from lab.network import ADDRESS, bytes_per_second
from lab.node import Node
from lab.report import Check, Progress, print_result
from lab.rootfs import ensure_image
from lab.state import Disk

IMAGE = "debian-12"
NODE_MEMORY = 300  # MiB for the kernel, the agent and what it caches
READY_DEADLINE = 600.0
SOURCE_RATIO = 1.5
PROFILES = {"profile": {"record": 1}}


@dataclass
class Result:
    """What a run found; ``as_json`` is the documented form."""

    image: dict[str, Any]
    nodes: list[dict[str, Any]] = field(default_factory=list)
    vms: list[dict[str, Any]] = field(default_factory=list)
    source_sent_bytes: int = 0
    boot_read_bytes: int = 0
    trees: dict[str, Any] = field(default_factory=dict)
    leftovers: list[str] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Tell whether every check held."""
        return bool(self.checks) and all(check.ok for check in self.checks)

    def check(self, name: str, ok: bool, detail: str = "") -> None:
        """Add a check's outcome."""
        self.checks.append(Check(name, ok, detail))

    def as_json(self) -> dict[str, Any]:
        """Return the documented JSON form."""
        return {
            "ok": self.ok,
            **{name: value for name, value in vars(self).items() if name != "checks"},
            "checks": [vars(check) for check in self.checks],
        }


class Demo:
    """One run on one bed."""

    def __init__(self, bed: Bed, progress: Progress, nodes: int, vms: int):
        self.bed = bed
        self.deployment = Deployment(bed)
        self.progress = progress
        self.node_names = [f"node{number}" for number in range(1, nodes + 1)]
        self.vm_names = [f"vm{number}" for number in range(1, vms + 1)]
        self.guests: dict[str, Guest] = {}

    def up(self, disk: Path) -> None:
        """Start the nodes, Volt, the source and the agents."""
        names = self.node_names
        each = NODE_MEMORY + HOST_MEMORY * -(-len(self.vm_names) // len(names))
        with self.progress.step(f"starting a storage node and {len(names)} nodes"):
            self.storage = self.bed.start_node("storage", f"{NODE_MEMORY}M", "64M", [Disk(disk)])
            self.nodes = self.bed.start_nodes(names, f"{each}M")
        with self.progress.step("starting Volt and the image's source"):
            self.deployment.start_volt()
            self.deployment.add_source(self.storage, IMAGE)
        first, *others = self.nodes
        with self.progress.step(f"starting the agents; {first.name} records what a boot reads"):
            works = [
                lambda: self._record(first),
                lambda: self.deployment.start_agents(others, PROFILES),
            ]
            _each(works, lambda work: work())

    def _record(self, node: Node) -> None:
        """Boot a VM, so that Volt has a profile; then the node is without the image again."""
        self.deployment.start_agent(node, PROFILES)
        made = self.deployment.create(node, IMAGE, "first")
        guest = Guest(node, "first", made["device"])
        guest.boot()
        try:
            guest.wait(READY_DEADLINE)
            self.deployment.wait_profile(IMAGE)
        finally:
            guest.stop()
        self.deployment.destroy(node, "first")
        self.deployment.drop(node, IMAGE)

    def run(self, result: Result) -> None:
        """Create and boot all VMs at once and wait until each guest is ready."""
        before = self.storage.sent_bytes()
        begin = time.monotonic()
        homes = [self.nodes[index % len(self.nodes)] for index in range(len(self.vm_names))]
        with self.progress.step(f"booting {len(homes)} VMs"):
            jobs = list(zip(homes, self.vm_names, strict=True))
            result.vms = _each(jobs, lambda job: self._vm(*job, begin))
        result.source_sent_bytes = self.storage.sent_bytes() - before
        result.boot_read_bytes = max(vm["read_bytes"] for vm in result.vms)
        result.trees = self.deployment.trees(IMAGE)
        depths = self.deployment.depths(IMAGE)
        for node in self.nodes:
            mine = [vm["attach_s"] for vm in result.vms if vm["node"] == node.name]
            if mine:
                result.nodes.append(
                    {
                        "name": node.name,
                        "depth": depths.get(node.name, []),
                        "attach_s": min(mine),
                        "ahead": self.deployment.ahead(node, IMAGE),
                    }
                )
        self._judge(result)

    def _vm(self, node: Node, name: str, begin: float) -> dict[str, Any]:
        """One VM from nothing to its guest's word; times are seconds since ``begin``."""
        self.progress.vm(name, node.name, "attaching")
        try:
            made = self.deployment.create(node, IMAGE, name)
            attach = time.monotonic() - begin
            self.progress.vm(name, node.name, "booting")
            guest = self.guests[name] = Guest(node, name, made["device"])
            guest.boot()
            report, _ = guest.wait(READY_DEADLINE)
            ready = time.monotonic() - begin
            read = guest.read_bytes()
        except LabError as err:
            self.progress.vm(name, node.name, "failed")
            logging.getLogger(__name__).error("%s on %s: %s", name, node.name, err)
            return {"name": name, "node": node.name, "attach_s": 0.0, "ready_s": 0.0,
                    "read_bytes": 0, "ok": False, "report": {"error": str(err)}}  # fmt: skip
        self.progress.vm(name, node.name, f"ready after {ready:.1f} s")
        return {"name": name, "node": node.name, "attach_s": round(attach, 2),
                "ready_s": round(ready, 2), "read_bytes": read,
                "ok": report.ok and report.fields.get("name") == name,
                "report": report.fields}  # fmt: skip

    def _judge(self, result: Result) -> None:
        bad = [vm["name"] for vm in result.vms if not vm["ok"]]
        result.check("every guest found its disk right", not bad, ", ".join(bad))
        private = [vm["report"].get("private_sha256") for vm in result.vms if vm["ok"]]
        result.check("every guest wrote data of its own", len(private) == len(set(private)))
        ratio = result.source_sent_bytes / max(1, result.boot_read_bytes)
        result.check(
            f"the source sent at most {SOURCE_RATIO}x what one boot reads",
            ratio <= SOURCE_RATIO,
            f"{ratio:.2f}x",
        )
        faults = [
            f"{node.name}: {line}"
            for node in (self.storage, *self.nodes)
            for line in node.kernel_faults()
        ]
        result.check("no kernel complained", not faults, "; ".join(faults[:3]))

    def down(self, result: Result) -> None:
        """Give every device back through VirtMan and look into the nodes for what is left."""
        with self.progress.step("giving everything back"):
            _each(list(self.guests.values()), lambda guest: guest.stop())
            _each(self.nodes, self._clear)
            self.deployment.remove_source(self.storage, IMAGE)
            for node in (self.storage, *self.nodes):
                result.leftovers += leftovers(node)

    def _clear(self, node: Node) -> None:
        mine = [vm for vm, guest in self.guests.items() if guest.node.name == node.name]
        self.deployment.destroy(node, *mine)
        self.deployment.drop(node, IMAGE)

    def keep(self, progress: Progress, port: int) -> None:
        """Say how to look around a cluster that stays up."""
        self.bed.forward(port, (ADDRESS, VOLT_PORT))
        lab, name = "tools/lab.sh", self.bed.name
        progress.say(
            f"the cluster stays up; look around:\n"
            f'  curl -s -H "Authorization: Bearer $(cat {self.deployment.operator_token})" '
            f"http://127.0.0.1:{port}/v1/images/{IMAGE}/trees\n"
            f"  {lab} status --name {name}\n"
            f"  {lab} exec --name {name} node1 -- virtman list\n"
            f"  {lab} exec --name {name} node1 -- dmsetup table\n"
            f"  {lab} down --name {name}        ends it"
        )


def _each(things: list[Any], work: Callable[[Any], Any]) -> list[Any]:
    """Do the same to all at once; return what came of each, in order.

    An interrupt is not kept waiting: what was begun ends with the bed.
    """
    pool = ThreadPoolExecutor(max(1, len(things)))
    try:
        return list(pool.map(work, things))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def run(bed: Bed, demo: Demo, disk: Path, result: Result, keep: bool) -> None:
    """Run the demo on a new bed; unless kept, the bed is down afterwards.

    Raises BedExists if there is one of this name.
    """
    kept = False
    try:
        bed.up()
        demo.up(disk)
        demo.run(result)
        if keep:
            kept = True
            demo.keep(demo.progress, VOLT_PORT)
        else:
            demo.down(result)
    except BedExists:
        kept = True  # it is somebody else's
        raise
    except LabError as err:
        result.check("the run came to its end", False, str(err))
    finally:
        if not kept:
            with demo.progress.step("taking the bed down"):
                result.leftovers += bed.down()
            result.check("nothing is left", not result.leftovers, "; ".join(result.leftovers))


def _rate(context: click.Context, parameter: click.Parameter, value: str) -> str | None:
    if value == "none":
        return None
    try:
        bytes_per_second(value)
    except LabError as err:
        raise click.BadParameter(str(err)) from err
    return value


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--nodes", default=3, show_default=True, type=click.IntRange(1, 64))
@click.option("--vms", default=4, show_default=True, type=click.IntRange(1, 256))
@click.option("--link-rate", default="100mbit", show_default=True, callback=_rate,
              help='Of each node, both ways; "none" for no limit.')  # fmt: skip
@click.option("--keep", is_flag=True, help="Leave the cluster up and say how to look around.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path),
              help="Write the result to this file.")  # fmt: skip
@click.option("--name", default="demo", show_default=True, help="Of the bed.")
def main(nodes: int, vms: int, link_rate: str | None, keep: bool, json_file: Path | None,
         name: str) -> None:  # fmt: skip
    """Boot VMS virtual machines on NODES nodes from one image, through VirtMan."""
    progress = Progress()
    # the builds say themselves how far they are
    progress.say("preparing the images (built once)")
    disk = guest_image()
    ensure_image(kernel.chosen().modules)
    result = Result(json.loads((disk.parent / "guest.json").read_text()))
    bed = Bed(name, link_rate)
    # ended from outside, it takes the bed down just as when interrupted
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        run(bed, Demo(bed, progress, nodes, vms), disk, result, keep)
    except LabError as err:
        raise click.ClickException(str(err)) from err
    if json_file is not None:
        json_file.write_text(json.dumps(result.as_json(), indent=2) + "\n")
    print_result(Console(highlight=False), result.as_json())
    sys.exit(0 if result.ok else 1)


if __name__ == "__main__":
    main()
