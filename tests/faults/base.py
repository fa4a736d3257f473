"""What the rows of the fault table have in common: a VM under load, and what it saw."""

import json
import math
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from lab.waiting import wait_until
from tests.system.virtman.base import MIB, DeployedCase, each, report

SSD = "/dev/mapper/ssd"
BEHIND = "/dev/ubdb"
SSD_SECTORS = 1024 * MIB // 512
WRITTEN = 8  # MiB at the start of a VM's device that fio writes and verifies
PROGRAMS = "/opt/src/tests/faults"  # as a node sees this folder
RATE = 40  # reads a second of the rest
CALM = 3.0  # seconds without anything slow: steady again


@dataclass(frozen=True)
class Seen:
    """What a VM saw of a fault.

    :ivar errors: reads and writes that failed, and blocks that were wrong
    :ivar longest: seconds of its longest read or write
    :ivar steady: seconds from the fault to the end of the last slow read
    :ivar reads: how many blocks were compared with the image
    """

    errors: int
    longest: float
    steady: float
    reads: int


class Load:
    """fio writes and verifies the start of a VM's device, a reader compares the rest."""

    def __init__(self, node, device, content, size, rate):
        self.node, self._boot = node, node.record().process
        name = device.rpartition("/")[2]
        self.stop_file, self.log, self.fio = (
            node.share / f"{name}.{suffix}" for suffix in ("stop", "reads", "fio")
        )
        for file in (self.stop_file, self.log, self.fio):
            file.unlink(missing_ok=True)
        (node.share / "content").unlink(missing_ok=True)
        (node.share / "content").hardlink_to(content)
        self._reader = node.spawn(
            ["python3", f"{PROGRAMS}/reader.py", device, "/host/content", str(WRITTEN),
             str(size // MIB), str(rate), f"/host/{self.stop_file.name}"],
            log=self.log.name,
        )  # fmt: skip
        # each block is verified soon after it was written, past all caches
        self._fio = node.spawn(
            ["fio", "--name=load", f"--filename={device}", "--rw=randwrite", "--bs=4k",
             f"--size={WRITTEN}M", "--direct=1", "--ioengine=libaio", "--iodepth=2",
             "--rate_iops=40", "--verify=crc32c", "--verify_backlog=64",
             "--continue_on_error=all", "--output-format=json", "--time_based",
             "--runtime=3600"],
            log=self.fio.name,
        )  # fmt: skip
        self.began = time.time()

    def lines(self):
        """What the reader said so far: words, each with when it began and how long it took."""
        text = self.log.read_text() if self.log.exists() else ""
        found = [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]
        return [(word, float(begin), float(took)) for word, begin, took in found]

    def await_steady(self, since, deadline=60):
        """Wait until there was nothing slow for a while."""

        def calm():
            lines = self.lines()
            slow = [begin + took for word, begin, took in lines if word != "well"]
            last = max([begin for _, begin, _ in lines], default=0.0)
            return last > max([since, *slow]) + CALM

        wait_until(calm, f"steady reads (see {self.log})", deadline, 0.2)

    def end(self):
        """End the load, whatever became of it."""
        if self.node.alive() and self.node.record().process == self._boot:
            self.node.run(["kill", "-KILL", str(self._reader), str(self._fio)], check=False)

    def stop(self, fault):
        """End the load; return what it saw.

        :param fault: when that was; seconds since 1970
        """
        self.stop_file.touch()
        self.node.run(["kill", "-INT", str(self._fio)])
        for pid in (self._reader, self._fio):
            self.node.run(["tail", f"--pid={pid}", "-f", "/dev/null"], timeout=120)
        *lines, (last, reads, longest) = self.lines()
        assert last == "reads", lines[-3:]
        text = self.fio.read_text()
        (job,) = json.loads(text[text.index("{") : text.rindex("}") + 1])["jobs"]
        slowest = max(job[kind]["clat_ns"]["max"] for kind in ("read", "write")) / 1e9
        ends = [begin + took - fault for word, begin, took in lines if word != "well"]
        return Seen(
            job["total_err"] + sum(word in ("error", "wrong") for word, _, _ in lines),
            max(longest, slowest),
            max([0.0, *ends]),
            int(reads),
        )


class FaultCase(DeployedCase):
    """Nodes whose cache devices can be made slow or broken; a test leaves nodes that run."""

    size = 96 * MIB
    paths_may_fail = True
    options: ClassVar = {"cache": {"devices": SSD}}

    def setUp(self):
        super().setUp()
        each(self.nodes, self.make_ssd)
        self.addCleanup(lambda: self.revive(*(one for one in self.nodes if not one.alive())))

    def make_ssd(self, node):
        """Make the cache device of a node, if it is not there."""
        if node.run(["test", "-e", SSD], check=False).status:
            node.run(["dmsetup", "create", "ssd"], input=f"0 {SSD_SECTORS} linear {BEHIND} 0")

    def set_ssd(self, node, table):
        """Swap what a cache device is, under load."""
        node.run(["dmsetup", "reload", "ssd", "--table", table])
        node.run(["dmsetup", "suspend", "--noflush", "ssd"])
        node.run(["dmsetup", "resume", "ssd"])

    def load(self, node, device, rate=RATE, size=None):
        """Put a VM's device under load, or the beginning of it, and let that settle."""
        load = Load(node, device, self.bed.folder / "image", size or self.size, rate)
        self.addCleanup(load.end)
        load.await_steady(load.began)
        return load

    @contextmanager
    def unseen(self, row, node, device, deadline=60, at_most=math.inf, **settings):
        """A row: what is done meanwhile, from this moment on, a VM under load must not see.

        :param row: how it is called where its figures are noted
        :param deadline: seconds until the device is steady again, from the end of what is done
        :param at_most: seconds that a read or write may take
        :param settings: of the load
        """
        load, fault = self.load(node, device, **settings), time.time()
        yield fault
        load.await_steady(fault, deadline)
        seen = load.stop(fault)
        report(
            f"{row}: {seen.errors} errors, longest pause {seen.longest:.1f} s, steady after "
            f"{seen.steady:.1f} s, {seen.reads} blocks compared"
        )
        self.assertEqual(0, seen.errors)
        self.assertLess(seen.longest, at_most)

    def pass_time(self, since, seconds):
        """Wait until it is so many seconds after a moment."""
        wait_until(lambda: time.time() - since > seconds, "time going by", seconds + 5)

    def read_image(self, node):
        """Read all of the image past the page cache, so that it is in the cache device."""
        node.run(["dd", f"if=/dev/mapper/virtman_{self.image}_image", "of=/dev/null", "bs=1M",
                  "iflag=direct"], timeout=300)  # fmt: skip

    def revive(self, *nodes):
        """Have nodes run again after a power cut, with their agents and VMs."""
        for node in nodes:
            if not node.alive():
                node.boot()
        each(nodes, self._revive)

    def _revive(self, node):
        node.wait_up()
        self.make_ssd(node)
        self.start_agent(node)
        for where, vm in self.created:
            if where is node:
                wait_until(lambda vm=vm: self.show(node, vm)["state"] == "ready", vm, 90, 0.5)

    def show(self, node, vm):
        return json.loads(self.virtman(node, "vm", "show", "--json", vm).stdout)

    def place(self, node):
        return self.deployment.ask("GET", f"/v1/images/{self.image}/hosts/{node.name}")

    def parents(self, node):
        """Names of those who feed a node; empty for the source."""
        return [feed["parent"]["host"] for feed in self.place(node)["stripes"]]

    def await_ready(self, *nodes):
        """Wait until nodes have places and use them."""
        wait_until(
            lambda: all(self._is_ready(node) for node in nodes), "all in their places", 90, 0.5
        )

    def _is_ready(self, node):
        return (node.name in self.deployment.depths(self.image)
                and self.place(node)["state"] == "ready")  # fmt: skip
