"""What system tests of VirtMan stand on: a bed with Volt, a storage node and agents."""

import contextlib
import hashlib
import json
import os
import random
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import testtools
from fixtures import EnvironmentVariable
from testtools.content import text_content

from lab import Bed, Disk, kernel
from lab.deployment import Deployment, leftovers
from lab.errors import NodeLost
from lab.waiting import wait_until
from tests.system import places

MIB = 1024 * 1024
NEWER = "forky"
"""The release of Debian whose kernel nodes have in classes of many nodes, of guests, or of layers.

So all tests together meet an older kernel and a newer one, in which system calls cost half as much.
"""
LINES = 60  # of each log, in what a test that failed says


def write_image(path, size, gpt):
    """Write an incompressible image, perhaps with a partition table; return its SHA-256."""
    path.write_bytes(random.Random(1).randbytes(size))
    if gpt:
        layout = "label: gpt\nstart=2048\n"
        subprocess.run(["sfdisk", "--quiet", path], input=layout, text=True, check=True)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def kernel_of(release):
    """Have a bed's nodes run the kernel of a release, unless who runs the tests wants another."""
    return EnvironmentVariable(kernel.VARIABLE, os.environ.get(kernel.VARIABLE, release))


class DeployedCase(testtools.TestCase):
    """One deployment for all tests of a class; each test gives back what it took."""

    name = "virtman"
    node_count = 2
    memory = "256M"
    size = 32 * MIB
    kind = "forest"
    shape = (2, 2)  # stripes, fan-out
    options: ClassVar = {}
    image = "image1"
    gpt = False
    link_rate = None
    paths_may_fail = False
    peers = False  # whether agents listen to each other
    addition = None  # recipe of what nodes have more
    release = ""  # of Debian, whose kernel nodes have; this machine's

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.enterClassContext(places.taken(cls.node_count + 1))
        cls.said = {}
        cls.bed = Bed(
            f"test-{cls.name}-{os.getpid()}", cls.link_rate, addition=cls.addition, poisoned=True
        )
        with kernel_of(cls.release):
            cls.bed.up()
        cls.addClassCleanup(cls.bed.down)
        file = cls.bed.folder / "image"
        cls.sha256 = cls.write_image(file)
        cls.deployment = Deployment(cls.bed)
        names = [f"node{number}" for number in range(1, cls.node_count + 1)]
        cls.storage, cls.nodes, _ = at_once(
            lambda: cls.bed.start_node("storage", "256M", "64M", [Disk(file)]),
            lambda: cls.bed.start_nodes(names, cls.memory),
            cls.deployment.start_volt,
        )
        at_once(
            lambda: cls.deployment.add_source(cls.storage, cls.image, *cls.shape, shape=cls.kind),
            cls.start_agents,
        )

    @classmethod
    def start_agents(cls):
        each(cls.nodes, cls.start_agent)

    @classmethod
    def start_agent(cls, node, **settings):
        peers = {"peers": {"ip": node.address}} if cls.peers else {}
        cls.deployment.start_agent(node, {**cls.options, **peers}, **settings)

    @classmethod
    def restart_agent(cls, node):
        """Kill a node's agent, and start the next one."""
        cls.deployment.kill_agent(node)
        cls.start_agent(node)

    @classmethod
    def write_image(cls, file):
        """Write what all VMs begin with; return its SHA-256."""
        return write_image(file, cls.size, cls.gpt)

    def setUp(self):
        super().setUp()
        self.created = []
        self.addCleanup(self.give_back)
        self.addOnException(lambda error: self._show_logs())

    def _show_logs(self):
        """Have the newest lines of the logs in what a test that failed says."""
        logs = {node.name: node.share / "agent.log" for node in self.nodes}
        for name, log in {"volt": self.deployment.folder / "log", **logs}.items():
            if log.exists():
                lines = log.read_text(errors="replace").splitlines()[-LINES:]
                self.addDetail(f"log of {name}", text_content("\n".join(lines)))
        for node in (*self.nodes, self.storage):
            with contextlib.suppress(NodeLost):
                if waits := node.waiting_tasks():
                    self.addDetail(f"what waits in the kernel of {node.name}", text_content(waits))

    def give_back(self):
        """Destroy what the test made; nothing may be left on any node."""
        alive = [node for node in self.nodes if node.alive()]
        failed = {node.name: self.failed_reads(node) for node in alive}
        if not self.paths_may_fail:
            self.assertEqual({}, {name: found for name, found in failed.items() if found})
        each(alive, self._clear)
        self.created = [(node, vm) for node, vm in self.created if node not in alive]
        for node in (*alive, self.storage):
            self.assertEqual([], node.kernel_faults())
        for node in alive:
            self.assertEqual([], leftovers(node))

    def failed_reads(self, node):
        """Paths that do not work, and what the kernel said of reads since this was asked last.

        So what a test did whose paths may fail is no fault of the next one, on the same nodes.
        """
        status = node.run(["dmsetup", "status", "--target", "multipath"], check=False).stdout
        log = node.kernel_log().splitlines()
        said = [line for line in log if "fd_do_rw() returned" in line or "Failing path" in line]
        before = self.said.get(node.name, [])
        self.said[node.name] = said
        is_same_kernel = said[: len(before)] == before
        return [
            *(line for line in status.splitlines() if re.search(r"\d+:\d+ F \d", line)),
            *(said[len(before) :] if is_same_kernel else said),
        ]

    def _clear(self, node):
        mine = [vm for where, vm in self.created if where is node]
        self.deployment.destroy(node, *mine)
        self.deployment.drop(node, self.image)

    @contextlib.contextmanager
    def agent_held(self, node):
        """Have a node's agent do nothing meanwhile, while its kernel goes on."""
        node.run(["pkill", "-STOP", "-f", "virtman.cmd.agent"])
        try:
            yield
        finally:
            node.run(["pkill", "-CONT", "-f", "virtman.cmd.agent"])

    def await_takeover(self, node, *vms):
        """Wait until an agent that has just started knows the VMs of the one before."""

        def known():
            images = json.loads(self.virtman(node, "image", "list", "--json").stdout)
            return {vm for one in images for vm in one["instances"]}

        wait_until(lambda: set(vms) <= known(), "the new agent knowing its VMs", 30, 0.5)

    def reads_all(self, node, device):
        """Tell whether all of a device can be read."""
        command = ["dd", f"if={device}", "of=/dev/null", "bs=1M", "iflag=direct"]
        return node.run(command, timeout=120, check=False).status == 0

    def create(self, node, vm):
        made = self.deployment.create(node, self.image, vm)
        self.created.append((node, vm))
        return made["device"]

    def has_vm(self, node, vm):
        found = json.loads(self.virtman(node, "list", "--json").stdout)
        return any(one["vm"] == vm and one["state"] == "ready" for one in found)

    def destroy(self, node, vm):
        self.deployment.destroy(node, vm)
        self.created.remove((node, vm))

    def virtman(self, node, *words, **settings):
        return node.run(["virtman", *words], **settings)

    def refused(self, node, *words):
        """Run a command that must fail; return its one line of error."""
        before = self.state(node)
        done = self.virtman(node, *words, check=False)
        self.assertEqual(1, done.status, done.stderr)
        self.assertEqual(1, len(done.stderr.strip().splitlines()), done.stderr)
        self.assertEqual(before, self.state(node))
        return done.stderr.strip()

    def state(self, node):
        """What must not change when a request is refused: kernel, records and trees."""
        return (
            sorted(leftovers(node)),
            json.loads(self.virtman(node, "list", "--json").stdout),
            self.images(),
            self.places(),
        )

    def images(self):
        """What Volt knows of the images, but for what counts changes that were undone too."""
        images = self.deployment.ask("GET", "/v1/images")["images"]
        return [{name: one[name] for name in one if name != "generation"} for one in images]

    def events(self):
        """What Volt noted: kind, host, and what else there is to say."""
        events = self.deployment.ask("GET", "/v1/events")["events"]
        return [(one["kind"], one["host"], one["detail"]) for one in events]

    def places(self):
        """Who hangs where in the image's trees."""
        return [
            [(one["host"], one["parent"], one["state"]) for one in tree["nodes"]]
            for tree in self.deployment.trees(self.image)["trees"]
        ]


def at_once(*works):
    """Do several things at once; return what came of each, in order."""
    return each(works, lambda work: work())


def each(things, work):
    """Do the same to all at once; return what came of each, in order."""
    things = list(things)
    with ThreadPoolExecutor(max(1, len(things))) as pool:
        return list(pool.map(work, things))


def sha256(node, device):
    """Checksum of a whole device, read in the node."""
    return node.run(["sha256sum", device], timeout=300).stdout.split()[0]


def report(text):
    """Note a figure; tools/test.sh shows them all at the end."""
    file = os.environ.get("VIRTMAN_FIGURES")
    if file:
        with open(file, "a", encoding="utf-8") as figures:
            figures.write(f"{text}\n")
    else:
        print(text)
