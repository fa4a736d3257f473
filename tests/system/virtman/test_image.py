"""An image on its way through the nodes: the same bytes, fetched once, never written."""

import json
from typing import ClassVar

from lab.errors import CommandFailed
from lab.waiting import wait_until
from tests.system.virtman.base import MIB, DeployedCase, each, sha256

# Stands for dmsetup, which udev asks for the name of a device that it does not find: on a busy node
# the answer takes long.
SLOW = """\
#!/bin/sh
case "$*" in *nameprefixes*) sleep 3;; esac
exec /root/dmsetup "$@"
"""

# Has udev look at a device that has gone while its number is another one's; tells whether that one
# has its node. Signals hold udev back: it ignores messages of `udevadm control` now and then, those
# that come before it has asked for their senders.
GONE = """
import os, subprocess, time
from virtman.privileged import context, dm
context.set_client_mode(False)
def udev(signal):
    subprocess.run(["pkill", "--signal", signal, "--exact", "systemd-udevd"], check=True)
def make(name):
    dm.create(name, [(0, 2048, "error", "")], False)
udev("STOP")
make("virtman_gone")
dm.remove("virtman_gone")
udev("CONT")
time.sleep(1)
make("virtman_next")
try:
    subprocess.run(["udevadm", "settle"], check=True)
    print(os.path.exists("/dev/mapper/virtman_next"))
finally:
    dm.remove("virtman_next")
"""
# Makes a device and removes one, but for what is left to do then: their nodes.
HALF = """
import os
from virtman.privileged import context, dm, libdm
context.set_client_mode(False)
dm.create("virtman_gone", [(0, 2048, "error", "")], False)
with libdm.Task(libdm.Verb.REMOVE, "virtman_gone") as task:
    task.run()
with libdm.Task(libdm.Verb.CREATE, "virtman_half") as task:
    task.targets([(0, 2048, "error", "")])
    task.run()
os._exit(0)  # as if it was killed: the library would still do it
"""
# Has iscsiadm make and delete records of targets at once, which fails without care for others.
RECORDS = """
from concurrent.futures import ThreadPoolExecutor
from virtman.privileged import iscsi
def come_and_go(name):
    for _ in range(20):
        for verb in "new", "delete":
            iscsi._run(*iscsi._where("10.0.0.1", 3260, f"iqn.test:{name}"), "-o", verb)
with ThreadPoolExecutor() as pool:
    list(pool.map(come_and_go, "abc"))
"""
# Disks of this node's own, and whether somebody who has connected to their portal may still log in.
LAYERS = """
import socket, sys, threading
from pathlib import Path
from virtman.model.address import Portal, iqn
from virtman.model.naming import Device
from virtman.model.plan import Source
from virtman.privileged import context
from virtman.stack.transport.iscsi.source import SourceLayer
context.set_client_mode(False)
def layer(image, lun=0):
    file = Path(f"/run/{image}{lun}")
    file.write_bytes(bytes(1 << 20))
    portal = Portal("127.0.0.1", 3260, iqn("node", image), lun)
    return SourceLayer(Source(Device(image, f"disk{lun}"), 2048, (), str(file), portal))
def connected():
    return socket.create_connection(("127.0.0.1", 3260))
def may_log_in(peer):
    peer.settimeout(1)
    try:
        return peer.recv(1) != b""
    except TimeoutError:
        return True
"""
# Serves a target's disks, one after the other, while somebody is about to log in.
SECOND = (
    LAYERS
    + """
layers = [layer("second", 0), layer("second", 1)]
try:
    layers[0].up(())
    with connected() as peer:
        layers[1].up(())
        print(may_log_in(peer), all(one.is_up() for one in layers))
finally:
    for one in layers:
        one.down()
"""
)
# Takes a target away while somebody is about to log in to another one, and hangs up a second later,
# or stays; tells whether that one might log in for that second, and which targets are there then.
GOING = (
    LAYERS
    + """
stays, goes = layer("stays"), layer("goes")
try:
    stays.up(())
    goes.up(())
    with connected() as peer:
        going = threading.Thread(target=goes.down)
        going.start()
        waited = may_log_in(peer)
        if sys.argv[1] == "hangs-up":
            peer.close()
        going.join()
    print(waited, goes.is_up(), stays.is_up())
finally:
    stays.down()
    goes.down()
"""
)
SETTLE = 150  # seconds: by itself, udevadm waits for 120


class TestImage(DeployedCase):
    name = "image"
    node_count = 2
    memory = "320M"  # six commands run at once

    def test_two_vms_on_a_node_differ_in_what_they_write_and_share_what_they_read(self):
        node = self.nodes[0]
        one, two = self.create(node, "vm1"), self.create(node, "vm2")
        self.assertEqual(self.sha256, sha256(node, one))
        fetched = node.read_bytes("/dev/mapper/virtman_image1_stripe")
        self.assertEqual(self.sha256, sha256(node, two))
        self.assertEqual(fetched, node.read_bytes("/dev/mapper/virtman_image1_stripe"))
        # bcache and dm-snapshot may ask for a little twice, the network for all of it once
        self.assertLess(fetched, self.size * 1.1)

        for device, text in ((one, "first"), (two, "second")):
            node.run(
                ["dd", f"of={device}", "bs=512", "seek=7", "conv=fsync"], input=text.ljust(512)
            )
        read = [
            node.run(["dd", f"if={device}", "bs=512", "skip=7", "count=1"]).stdout.strip()
            for device in (one, two)
        ]
        self.assertEqual(["first", "second"], read)
        self.assertEqual(self.sha256, sha256(node, "/dev/mapper/virtman_image1_image"))

    def test_a_child_cannot_write_to_its_parents_lun(self):
        parent, child = self.nodes
        self.create(parent, "vm1")
        self.create(child, "vm2")
        sessions = child.run(["iscsiadm", "-m", "session"]).stdout
        self.assertIn(":node1:image1", sessions)
        disks = child.run(["sh", "-c", "ls /sys/block | grep ^sd"]).stdout.split()
        for disk in disks:
            # by this the udev rules know it, and keep others from probing it
            model = child.run(["cat", f"/sys/block/{disk}/device/model"]).stdout
            self.assertTrue(model.startswith("virtman_"), model)
            self.assertEqual("1", child.run(["cat", f"/sys/block/{disk}/ro"]).stdout.strip())
            child.run(["blockdev", "--setrw", f"/dev/{disk}"], check=False)
            # straight to the target, whatever the child's kernel thinks of the disk
            write = ["sg_dd", "if=/dev/zero", f"of=/dev/{disk}", "bs=512", "count=8", "blk_sgio=1"]
            self.assertRaises(CommandFailed, child.run, write)
        for node in self.nodes:
            self.assertEqual(self.sha256, sha256(node, "/dev/mapper/virtman_image1_image"))

    def test_simultaneous_creates_bring_the_image_up_once(self):
        node = self.nodes[0]
        names = [f"vm{number}" for number in range(6)]
        devices = each(names, lambda vm: self.create(node, vm))
        self.assertEqual(6, len(set(devices)))
        log = (node.share / "agent.log").read_text()
        self.assertEqual(1, log.count("image image1 is up") - self.ups_before)

    def setUp(self):
        super().setUp()
        log = self.nodes[0].share / "agent.log"
        self.ups_before = log.read_text().count("image image1 is up")

    def test_a_node_that_leaves_moves_its_children_first_and_they_see_nothing_of_it(self):
        parent, child = self.nodes
        self.create(parent, "vm1")
        device = self.create(child, "vm2")
        self.assertIn("node1", self.parents(child))
        self.destroy(parent, "vm1")
        pid = child.spawn(["sha256sum", device], log="sum")
        self.virtman(parent, "image", "drop", "image1")
        self.assertEqual([], [one for one in self.parents(child) if one == "node1"])
        child.run(["tail", f"--pid={pid}", "-f", "/dev/null"])
        self.assertEqual(self.sha256, (child.share / "sum").read_text().split()[0])

    def test_a_late_event_of_a_device_that_has_gone_takes_the_node_of_no_other(self):
        node = self.nodes[0]
        node.run(["cp", "/sbin/dmsetup", "/root/dmsetup"])
        node.run(["install", "/proc/self/fd/0", "/root/slow"], input=SLOW)
        # else those of the devices of the test before are slow too, and they are many
        node.run(["udevadm", "settle"])
        node.run(["mount", "--bind", "/root/slow", "/sbin/dmsetup"])
        try:
            done = node.run(["python3", "-c", GONE], cwd="/opt/src", timeout=SETTLE)
        finally:
            node.run(["umount", "/sbin/dmsetup"])
        self.assertEqual("True", done.stdout.strip())

    def test_an_agent_makes_and_removes_the_nodes_that_one_left_to_do_as_it_died(self):
        node = self.nodes[0]
        node.run(["python3", "-c", HALF], cwd="/opt/src")
        self.assertEqual((False, True), self.nodes_of(node))
        self.restart_agent(node)
        self.assertEqual((True, False), self.nodes_of(node))
        node.run(["dmsetup", "remove", "--noudevsync", "virtman_half"])

    def test_devices_that_an_agent_left_without_a_table_as_it_died_are_made_anew(self):
        node = self.nodes[0]
        for role in ("s1", "image", "export0", "base"):
            node.run(["dmsetup", "create", "--notable", "--noudevsync", f"virtman_image1_{role}"])
        self.assertEqual(self.sha256, sha256(node, self.create(node, "vm1")))

    def test_targets_that_come_and_go_at_once_are_in_nobodys_way(self):
        before = self.nodes[0].run(["ls", "/etc/iscsi/nodes"]).stdout
        self.nodes[0].run(["python3", "-c", RECORDS], cwd="/opt/src", timeout=120)
        self.assertEqual(before, self.nodes[0].run(["ls", "/etc/iscsi/nodes"]).stdout)

    def test_a_targets_second_disk_ends_nobodys_login(self):
        done = self.nodes[0].run(["python3", "-c", SECOND], cwd="/opt/src")
        self.assertEqual("True True", done.stdout.strip())

    def test_a_target_that_goes_waits_for_who_logs_in_but_not_for_ever(self):
        for peer in "hangs-up", "stays":
            done = self.nodes[0].run(["python3", "-c", GOING, peer], cwd="/opt/src")
            self.assertEqual("True False True", done.stdout.strip(), peer)

    def nodes_of(self, node):
        """Tell whether the half-made device has a node, and the half-removed one."""
        found = node.run(["ls", "/dev/mapper"]).stdout.split()
        return "virtman_half" in found, "virtman_gone" in found

    def parents(self, node):
        (found,) = json.loads(self.virtman(node, "image", "list", "--json").stdout)
        return found["parents"]

    def test_destroy_leaves_nothing(self):
        for node in self.nodes:
            self.create(node, f"on-{node.name}")
        # give_back() destroys, drops, and looks into kernels and folders


class TestKeepTime(DeployedCase):
    name = "keep"
    node_count = 1
    size = 8 * MIB
    options: ClassVar = {"image": {"keep_time": 4}}

    def test_an_image_is_kept_for_the_next_vm_and_then_left(self):
        (node,) = self.nodes
        self.create(node, "vm1")
        self.destroy(node, "vm1")
        self.assertEqual(["node1"], list(self.deployment.depths(self.image)))
        sessions = node.run(["iscsiadm", "-m", "session"]).stdout
        self.create(node, "vm2")
        self.assertEqual(sessions, node.run(["iscsiadm", "-m", "session"]).stdout)
        self.destroy(node, "vm2")
        self.wait_until_left(node)

    def wait_until_left(self, node):
        wait_until(lambda: not self.deployment.depths(self.image), "the image being left", 30)
        wait_until(
            lambda: self.virtman(node, "image", "list", "--json").stdout.strip() == "[]",
            "the end of leaving",
            30,
        )
