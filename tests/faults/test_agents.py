"""Rows of the fault table: agents that are killed, and many VMs that come and go."""

import hashlib
import json
import os
import time
from typing import ClassVar

from lab.deployment import leftovers
from lab.errors import DeadlinePassed
from lab.waiting import wait_until
from tests.faults.base import PROGRAMS, FaultCase
from tests.system.virtman.base import MIB, DeployedCase, each, report, sha256

STRIDE = int(os.environ.get("VIRTMAN_FAULTS_STRIDE", "1"))
"""Try each n-th step only."""

AGENT = ("python3", f"{PROGRAMS}/stopping.py")
VM = {"vm1": "ready"}
KILLS = 6
AWAY = 20  # seconds

WRITE = ("head -c 2M /dev/zero | tr '\\0' '\\7' | "
         "dd of=/dev/mapper/virtman_image1_vm_vm1 bs=64k iflag=fullblock oflag=direct")  # fmt: skip
"""What VMs write before they go or move."""

# What an agent may hold, and its node's kernel for it; a name and a number a line.
RESOURCES = """
pids=$(pgrep -f "[v]irtman.cmd.agent")
for pid in $pids; do
    rss=$((${rss:-0} + $(awk '/^VmRSS/ {print $2}' /proc/$pid/status)))
    fds=$((${fds:-0} + $(ls /proc/$pid/fd | wc -l)))
    threads=$((${threads:-0} + $(ls /proc/$pid/task | wc -l)))
done
echo KiB $rss
echo descriptors $fds
echo threads $threads
echo dm $(dmsetup ls | wc -l)
echo loop $(ls -d /sys/block/loop*/loop | wc -l)
echo sessions $(ls /sys/class/iscsi_session | wc -l)
echo files $(find /var/lib/virtman -type f | wc -l)
"""


class StopCase(DeployedCase):
    """An agent is killed before each root verb in turn; the next one finds what it left."""

    node_count = 1
    size = 8 * MIB

    def setUp(self):
        super().setUp()
        self.content = self.sha256  # of the VM's device
        for node in self.nodes:
            node.run(["pkill", "-KILL", "-f", "virtman.cmd.agent|stopping.py"])
            self.start(node)

    def start(self, node):
        self.start_agent(node, program=AGENT)

    def stop_everywhere(self, what, node, begin, act, settle):
        """Do the same again and again, with a node's agent dying at another step each time.

        :param begin: what comes before, undisturbed
        :param act: a command in the first node
        :param settle: waits until all goes its way again, and gives everything back
        """
        at, verbs = node.share / "stop-at", []
        for step in range(1, 1000, STRIDE):
            begin()
            at.write_text(str(step))
            pid = self.nodes[0].spawn(["sh", "-c", f"{act} && echo done"], log="act")
            wait_until(lambda pid=pid: not at.exists() or self.has_ended(pid), what, 120, 0.1)
            if undisturbed := at.exists():
                at.unlink()
                after = f"{what}, undisturbed"
                said = (self.nodes[0].share / "act").read_text()
                self.assertTrue(said.endswith("done\n"), said)
            else:
                verbs.append((node.share / "stopped-at").read_text())
                after = f"{what}, killed at step {step}, {verbs[-1]}"
                self.start(node)
            wait_until(lambda pid=pid: self.has_ended(pid), f"{after}: the command", 120, 0.1)
            settle(after)
            self.assert_nothing_left(after)
            if undisturbed:
                break
        report(f"agent of {node.name} killed at {len(verbs)} steps of {what}: nothing lost, "
               "nothing left")  # fmt: skip

    def begin(self):
        """Make a VM's device, and write to it."""
        written = bytes([7]) * 2 * MIB
        self.virtman(self.nodes[0], "create", self.image, "vm1")
        self.nodes[0].run(["sh", "-c", WRITE])
        image = (self.bed.folder / "image").read_bytes()
        self.content = hashlib.sha256(written + image[len(written) :]).hexdigest()

    def give_up(self, node, vm, after):
        """Wait until a node has just this VM; it must have its data. Destroy it."""
        wait_until(lambda: self.listed(node) == {vm: "ready"}, f"{after}: {vm}", 60, 0.5)
        device = f"/dev/mapper/virtman_{self.image}_vm_{vm}"
        self.assertEqual(self.content, sha256(node, device), after)
        self.virtman(node, "destroy", vm)

    def listed(self, node):
        """States of a node's VMs, by name."""
        return states(self.virtman(node, "list", "--json"))

    def has_ended(self, pid):
        return has_ended(self.nodes[0], pid)

    def assert_nothing_left(self, after):
        try:
            wait_until(lambda: all(map(self.is_clean, self.nodes)), "nothing left", 60, 0.5)
        except DeadlinePassed:
            self.fail(f"{after}: {each(self.nodes, leftovers)}")
        self.assertEqual({}, self.deployment.depths(self.image), after)

    def is_clean(self, node):
        self.virtman(node, "image", "drop", self.image, check=False)
        return not leftovers(node)


class TestStops(StopCase):
    """While a VM's device is made, and given back."""

    name = "faults-stops"

    def test_create(self):
        act = f"virtman create {self.image} vm1"
        self.stop_everywhere("create", self.nodes[0], lambda: None, act, self.settle)

    def test_destroy_and_drop(self):
        act = f"virtman destroy vm1 && virtman image drop {self.image}"
        self.stop_everywhere("destroy and drop", self.nodes[0], self.begin, act, self.settle)

    def settle(self, after):
        """A VM that there still is has its data, and the image behind them."""
        (node,) = self.nodes
        if self.listed(node):
            self.give_up(node, "vm1", after)


class TestCopies(StopCase):
    """While all of an image is copied, and the copy is given back."""

    name = "faults-copies"
    options: ClassVar = {"store": {"reserve": 16}}

    def test_hydrate(self):
        act = f"virtman image hydrate --wait {self.image}"
        self.stop_everywhere("hydrate", self.nodes[0], self.begin, act, self.settle)

    def test_release(self):
        act = f"virtman image release {self.image}"
        self.stop_everywhere("release", self.nodes[0], self.begin_whole, act, self.settle)

    def begin_whole(self):
        self.begin()
        self.hydrate()

    def hydrate(self):
        (node,) = self.nodes
        self.virtman(node, "image", "hydrate", "--wait", self.image, timeout=120)

    def settle(self, after):
        """The copy can be made, or gone on with; it has all of the image. The VM has its data."""
        (node,) = self.nodes
        wait_until(lambda: self.listed(node) == VM, f"{after}: vm1", 60, 0.5)
        self.hydrate()
        self.assertEqual(self.sha256, sha256(node, f"/dev/mapper/virtman_{self.image}_image"))
        self.give_up(node, "vm1", after)
        self.virtman(node, "image", "release", self.image, timeout=120)


class TestLayers(StopCase):
    """While what a VM wrote becomes a layer."""

    name = "faults-layers"

    def test_commit(self):
        act = "virtman commit vm1 vm1.1"
        self.stop_everywhere("commit", self.nodes[0], self.begin, act, self.settle)

    def test_checkpoint(self):
        act = "virtman checkpoint vm1"
        self.stop_everywhere("checkpoint", self.nodes[0], self.begin, act, self.settle)

    def settle(self, after):
        """There is all of a layer, or none; the VM has its data, and nobody else is there."""
        (node,) = self.nodes
        wait_until(lambda: self.is_settled(node), f"{after}: the commit's end", 60, 0.5)
        if self.layers(node):
            device = self.deployment.create(node, "vm1.1", "back")["device"]
            self.assertEqual(self.content, sha256(node, device), after)
            self.virtman(node, "destroy", "back")
            self.deployment.drop(node, "vm1.1")
        self.virtman(node, "checkpoint", "stop", "vm1", check=False)
        self.give_up(node, "vm1", after)
        wait_until(lambda: self.has_removed(node), f"{after}: the layer's end", 60, 0.5)

    def is_settled(self, node):
        return all(one["state"] == "kept" for one in self.layers(node))

    def layers(self, node):
        found = json.loads(self.virtman(node, "layer", "list", "--json").stdout)
        return [one for one in found if one["state"] != "failed"]

    def has_removed(self, node):
        """Remove the layer; Volt may not have heard yet that nobody needs it."""
        self.virtman(node, "layer", "remove", "vm1.1", check=False)
        return not self.layers(node)


class TestMoves(StopCase):
    """While a VM is copied or moved to another node, the agent of either."""

    name = "faults-moves"
    node_count = 2
    peers = True

    def test_clone_from(self):
        self.stop_clone(self.nodes[0])

    def test_clone_to(self):
        self.stop_clone(self.nodes[1])

    def test_migrate_from(self):
        self.stop_migrate(self.nodes[0])

    def test_migrate_to(self):
        self.stop_migrate(self.nodes[1])

    def stop_clone(self, node):
        act = "virtman clone vm1 --to node2 --as copy"
        self.stop_everywhere("clone", node, self.begin, act, self.settle_clone)

    def stop_migrate(self, node):
        act = "virtman migrate vm1 --to node2"
        self.stop_everywhere("migrate", node, self.begin, act, self.settle_migrate)

    def settle_clone(self, after):
        """The VM is where it was; a copy that there is, is one."""
        source, destination = self.nodes
        self.await_moved(after, [VM, {}], [VM, {"copy": "ready"}])
        self.give_up(source, "vm1", after)
        if self.listed(destination):
            self.give_up(destination, "copy", after)

    def settle_migrate(self, after):
        """One node has the VM, with its data, and the other one has not."""
        self.await_moved(after, [VM, {}], [{}, VM])
        (owner,) = (node for node in self.nodes if self.listed(node))
        self.give_up(owner, "vm1", after)

    def await_moved(self, after, *ends):
        """Wait until nothing moves, and the nodes have the VMs that they may have then.

        What comes from nobody any more goes after half a minute.
        """

        def ended():
            return not self.moving() and [self.listed(node) for node in self.nodes] in ends

        wait_until(ended, f"{after}: the end of the move", 90, 0.5)

    def moving(self):
        moves = json.loads(self.virtman(self.nodes[0], "move", "list", "--json").stdout)
        return [one for one in moves if one["state"] not in ("done", "failed")]


class LoadedCase(FaultCase):
    """One node, where a VM is under load all the time."""

    node_count = 1
    memory = "384M"
    size = 32 * MIB

    def setUp(self):
        super().setUp()
        (self.node,) = self.nodes
        self.device = self.create(self.node, "vm1")

    def listed(self):
        """States of the node's VMs, by name."""
        return states(self.virtman(self.node, "list", "--json"))


class TestTakeover(LoadedCase):
    name = "faults-takeover"

    def test_the_agent_is_killed_while_vms_come_and_go(self):
        act = f"while virtman create {self.image} vm2 && virtman destroy vm2; do :; done"
        row = f"agent killed {KILLS} times, and away for {AWAY} s"
        with self.unseen(row, self.node, self.device, at_most=AWAY / 2):
            for number in range(KILLS):
                pid = self.node.spawn(["sh", "-c", act], log="act")
                time.sleep(1 + number / KILLS)
                self.deployment.kill_agent(self.node)
                wait_until(lambda pid=pid: has_ended(self.node, pid), "the command", 60, 0.1)
                if number == 0:
                    time.sleep(AWAY)
                self.start_agent(self.node)
                self.await_settled()
                self.virtman(self.node, "destroy", "vm2", check=False)
        self.assertEqual(VM, self.listed())

    def await_settled(self):
        """Wait until the new agent has what it found: all of a VM, or nothing."""
        wait_until(lambda: set(self.listed().values()) == {"ready"}, "VMs that are ready", 60, 0.2)


class TestCycles(LoadedCase):
    name = "faults-cycles"

    def cycles(self, count, width):
        done = self.node.run(
            ["python3", f"{PROGRAMS}/cycles.py", self.image, str(count), str(width)],
            timeout=900,
        )
        return json.loads(done.stdout)

    def await_warm(self):
        """Read all of the image, and wait until it has the devices that only warm ones have."""
        self.read_image(self.node)

        def warm():
            (image,) = json.loads(self.virtman(self.node, "image", "list", "--json").stdout)
            return image["warm"]

        wait_until(warm, "a warm image", 180, 1)

    def resources(self):
        lines = self.node.run(["sh", "-c", RESOURCES]).stdout.splitlines()
        return {name: int(number) for name, number in map(str.split, lines)}

    def test_many_at_once(self):
        with self.unseen("50 create/destroy cycles at once", self.node, self.device):
            done = self.cycles(50, 50)
        report(f"50 create/destroy cycles at once: {len(done['errors'])} errors, "
               f"{done['seconds']:.1f} s in all, the longest {done['longest']:.1f} s")  # fmt: skip
        self.assertEqual([], done["errors"])
        self.assertEqual(VM, self.listed())

    def test_many_one_after_another(self):
        row = "300 create/destroy cycles one after another"
        self.await_warm()
        with self.unseen(row, self.node, self.device):
            self.cycles(30, 1)
            before = self.resources()
            done = self.cycles(300, 1)
            after = self.resources()
        self.assertEqual([], done["errors"])
        report(f"{row}: {done['seconds']:.0f} s, before {before}, after {after}")
        grown = {name: after[name] - before[name] for name in before}
        self.assertLess(grown.pop("KiB"), 4096)
        self.assertLess(grown.pop("threads"), 8)  # pools that were not full before
        self.assertLess(grown.pop("descriptors"), 8)
        self.assertEqual({name: 0 for name in grown}, grown)


def states(listed):
    """States of VMs by name, as a command listed them."""
    return {one["vm"]: one["state"] for one in json.loads(listed.stdout)}


def has_ended(node, pid):
    return node.run(["kill", "-0", str(pid)], check=False).status != 0
