"""VMs go on from a suspended image, on the real kernel and QEMU: memory, disk and identity."""

import json
import re
import shutil
import time
from typing import ClassVar

from lab.deployment import SOCKET
from lab.guest import MEMORY, Guest, GuestFailed, guest_image, parse
from lab.rootfs import TOP
from lab.waiting import wait_until
from tests.system.virtman.base import NEWER, report
from tests.system.virtman.test_layers import StorageCase
from virtman.model.profile_format import decode

IMAGE = "gold"
FILE = f"/var/lib/virtman/layers/{IMAGE}.layer"
# Gives a line to a console, and prints the first line with a word that comes then.
SAY = """
import os, socket, stat, sys, tty
console, word, order = sys.argv[1:]
if stat.S_ISSOCK(os.stat(console).st_mode):
    talk = socket.socket(socket.AF_UNIX)
    talk.connect(console)
    console = talk.fileno()
else:
    console = os.open(console, os.O_RDWR | os.O_NOCTTY)
    tty.setraw(console)
os.write(console, order.encode() + b"\\n")
said = b""
while True:
    said += os.read(console, 4096)
    lines = [line for line in said.split(b"\\n")[:-1] if line.startswith(word.encode())]
    if lines:
        print(lines[0].decode())
        break
"""
# Asks QEMU some questions.
ASK = """
import json, sys
sys.path.insert(0, "/opt/src")
from virtman.qemu.qmp import Monitor
with Monitor(sys.argv[1]) as monitor:
    print(json.dumps([monitor.ask(one) for one in sys.argv[2:]]))
"""
# Tells QEMU something, and waits until it has migrated.
TELL = """
import json, sys
sys.path.insert(0, "/opt/src")
from virtman.qemu.qmp import Monitor
with Monitor(sys.argv[1]) as monitor:
    for command, *arguments in json.loads(sys.argv[2]):
        monitor.ask(command, **(arguments[0] if arguments else {}))
    monitor.await_migrated()
"""
# Prints how far the recording of a VM is.
RECORDED = """
import sys
sys.path.insert(0, "/opt/src")
from virtman.api.client import Client
print(Client(sys.argv[1]).recording(sys.argv[2])["state"])
"""
# Stops the QEMU that takes a VM's memory, once it has some, and prints how far the layer is.
HALF_WAY = """
import subprocess, sys, time
sys.path.insert(0, "/opt/src")
from virtman.api.client import Client
from virtman.errors import LayerUnknown
client, found = Client(sys.argv[1]), {"done": 0}
while not found["done"]:
    time.sleep(0.01)
    try:
        found = client.layer(sys.argv[2])
    except LayerUnknown:
        continue
subprocess.run(["pkill", "-STOP", "-f", "[i]ncoming defer"], check=True)
print(found["state"])
"""
# Stops who asks libvirt for the agent while a domain is being saved, and prints his number: the
# domain stands still then, until he goes on.
HOLD = """
import json, os, signal, subprocess, sys, time
import libvirt, libvirt_qemu
domain = libvirt.open("qemu:///system").lookupByName(sys.argv[1])
def status():
    said = libvirt_qemu.qemuMonitorCommand(domain, '{"execute": "query-migrate"}', 0)
    return json.loads(said)["return"].get("status")
while status() not in ("setup", "active", "device"):
    time.sleep(0.01)
asking = subprocess.check_output(["pgrep", "-f", "[v]irtman.qemu.relay"])
os.kill(int(asking), signal.SIGSTOP)
print(int(asking))
"""
# Of a domain like the VM that is booted by hand.
DOMAIN = """
<domain type='qemu'>
  <name>vm1</name>
  <memory unit='MiB'>{memory}</memory>
  <vcpu>1</vcpu>
  <os><type arch='x86_64' machine='pc'>hvm</type></os>
  <features><acpi/></features>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <disk type='block' device='disk'>
      <driver name='qemu' type='raw' cache='none'/>
      <source dev='{device}'/>
      <target dev='vda' bus='virtio'/>
      <serial>vm1</serial>
    </disk>
    <controller type='usb' model='none'/>
    <serial type='unix'>
      <source mode='bind' path='/run/vm1.console'/>
      <log file='/host/vm1.console' append='off'/>
    </serial>
    <channel type='unix'>
      <target type='virtio' name='org.qemu.guest_agent.0'/>
    </channel>
    <memballoon model='none'/>
  </devices>
</domain>
"""
SAVE = "/var/tmp/vm1.save"
CONSOLE = "/run/virtman-guests/c1/serial0"
QEMU_CONF = "/etc/libvirt/qemu.conf"
SHOP = ("--project", "shop")
SUSPEND = ("suspend-image", "--domain", "vm1", "vm1")
AGENT = (
    *("-chardev", "socket,id=agent,path=/run/vm1.agent,server=on,wait=off"),
    *("-device", "virtio-serial-pci"),
    *("-device", "virtserialport,nr=1,name=org.qemu.guest_agent.0,chardev=agent"),
)
# Changes a byte in each chunk of the memory in a layer, or changes it back.
ROT = """
import os, sys
file = os.open(sys.argv[1], os.O_RDWR)
size = os.fstat(file).st_size
for at in range(size - 900 * 65536, size - 8 * 65536, 65536):
    os.pwrite(file, bytes([os.pread(file, 1, at)[0] ^ 255]), at)
os.fsync(file)
"""


class SuspendedCase(StorageCase):
    """A VM that is booted by hand, to be suspended."""

    release = NEWER
    addition = TOP / "lab/images/qemu"
    memory = "640M"
    options: ClassVar = {"image": {"keep_time": 600}}

    @classmethod
    def write_image(cls, file):
        shutil.copy(guest_image(), file)

    def setUp(self):
        super().setUp()
        self.addCleanup(self.end_guests)
        device = self.create(self.first, "vm1")
        self.boot(self.first, device)
        self.sum = self.say(self.first, "/run/vm1.console", "VIRTMAN-MEMORY", "remember")
        self.sum = self.sum.rpartition("sum=")[2]
        self.say(self.first, "/run/vm1.console", "VIRTMAN-WORD", "write before")

    def end_guests(self):
        for node in self.nodes:
            if node.alive():
                node.run(["pkill", "-KILL", "qemu-system"], check=False)
                wait_until(
                    lambda node=node: node.run(["pgrep", "qemu-system"], check=False).status,
                    "the end of the guests",
                    20,
                )
                node.run(["rm", "-rf", "/run/virtman-guests"])

    def boot(self, node, device):
        self.guest = Guest(node, "vm1", device)
        self.boot_as_before("-device", "vmgenid")
        self.guest.wait(120)

    def say(self, node, console, word, order):
        done = node.run(["python3", "-c", SAY, console, word, order], check=False, timeout=160)
        if done.status:
            raise GuestFailed(f"{console} does not answer {order!r}: {done.stderr}")
        return done.stdout.strip()

    def qemu(self, node, vm, *questions):
        path = f"/run/virtman-guests/{vm}/qmp"
        return json.loads(node.run(["python3", "-c", ASK, path, *questions]).stdout)

    def suspend(self, node, vm, name=IMAGE, qmp="/run/vm1.qmp", *more):
        words = ["suspend-image", vm, name, "--qmp", qmp, "--json", *more]
        return json.loads(self.virtman(node, *words, timeout=120).stdout)

    def resume(self, node, vm, image=IMAGE, *words):
        done = self.virtman(node, "resume", image, vm, "--json", *words, timeout=120)
        self.created.append((node, vm))
        return json.loads(done.stdout)

    def assert_goes_on(self, node, vm, word="before", console=""):
        own = "/run/vm1.console" if vm == "vm1" else f"/run/virtman-guests/{vm}/serial0"
        console = console or own
        said = self.say(node, console, "VIRTMAN-MEMORY", f"recall {vm}")
        self.assertEqual(f"VIRTMAN-MEMORY ok sum={self.sum} {vm}", said)
        said = self.say(node, console, "VIRTMAN-WORD", "read")
        self.assertEqual(f"VIRTMAN-WORD {word}", said)

    def assert_only_for_shop(self, image):
        for words in ([], ["--project", "other"]):
            refused = self.virtman(self.first, "resume", image, "x1", *words, check=False)
            self.assertIn("virtman.suspended.project", refused.stderr)

    def boot_as_before(self, *options):
        """Start a QEMU on the disk of vm1 like the one before, with these devices."""
        (self.first.share / "vm1.console").unlink(missing_ok=True)
        self.first.run(["rm", "-f", "/run/vm1.qmp"])  # one that was killed left it
        self.guest.boot("-qmp", "unix:/run/vm1.qmp,server=on,wait=off", *options,
                        console="/run/vm1.console")  # fmt: skip
        wait_until(lambda: self.first.run(["test", "-S", "/run/vm1.qmp"], check=False).status == 0,
                   "its monitor", 30, 0.2)  # fmt: skip
        self.first.run(["chown", "virtman", "/run/vm1.qmp"])

    def suspend_resumed(self, node, vm, name):
        """Suspend a VM that was resumed; its QEMU must not wait for each page of the memory."""
        (pid,) = node.run(["pgrep", "-f", f"name {vm}"]).stdout.split()
        asked = ["ps", "-o", "maj_flt=", "-p", pid]
        before = int(node.run(asked).stdout)
        self.suspend(node, vm, name, f"/run/virtman-guests/{vm}/qmp")
        waited, pages = int(node.run(asked).stdout) - before, MEMORY << 8
        report(f"of {pages} pages QEMU waited for {waited} as {vm} was suspended")
        self.assertLess(waited, pages // 16)

    def give_up(self):
        """Begin to suspend vm1, and want it no more half way: it goes on, and nothing is left."""
        words = ["virtman", "suspend-image", "vm1", IMAGE, "--qmp", "/run/vm1.qmp"]
        begun = self.first.spawn(words, log="suspend")
        half_way = self.first.run(["python3", "-c", HALF_WAY, SOCKET, IMAGE], timeout=60)
        self.assertEqual("saving\n", half_way.stdout)
        self.virtman(self.first, "layer", "remove", IMAGE)
        self.first.run(["tail", f"--pid={begun}", "-f", "/dev/null"], timeout=60)
        self.assertEqual([], json.loads(self.virtman(self.first, "layer", "list", "--json").stdout))
        self.assertEqual("", self.first.run(["ls", "/var/lib/virtman/layers"]).stdout)
        self.assert_goes_on(self.first, "vm1")

    def is_settled(self):
        found = json.loads(self.virtman(self.first, "layer", "list", "--json").stdout)
        return all(one["state"] in ("kept", "failed") for one in found)


class TestSuspended(SuspendedCase):
    name = "suspended"

    def test_vms_go_on_from_one_image_on_two_nodes(self):
        begin = time.monotonic()
        made = self.suspend(self.first, "vm1", IMAGE, "/run/vm1.qmp", *SHOP)
        report(f"suspended in {time.monotonic() - begin:.1f} s: {made['length']} bytes")
        self.assert_goes_on(self.first, "vm1")
        self.say(self.first, "/run/vm1.console", "VIRTMAN-WORD", "write after")
        kept = self.deployment.ask("GET", f"/v1/images/{IMAGE}")["layer"]["suspended"]
        self.assertEqual(MEMORY << 20, kept["hardware"]["memory"])
        self.assertLess(made["length"], MEMORY << 20)
        self.assert_only_for_shop(IMAGE)
        seen = []
        for node, vm in ((self.first, "c1"), (self.second, "c2"), (self.second, "c3")):
            before = node.received_bytes()
            told = self.resume(node, vm, IMAGE, *SHOP)
            self.assert_goes_on(node, vm)
            received = node.received_bytes() - before
            report(f"{vm} on {node.name} went on in {told['seconds']} s, received {received}")
            seen.append((vm, received))
        self.assertLess(seen[2][1], seen[1][1] / 5)
        self.assertEqual("VIRTMAN-DISK ok c2", self.say(
            self.second, "/run/virtman-guests/c2/serial0", "VIRTMAN-DISK", "check c2"))  # fmt: skip
        questions = ("query-uuid", "query-vm-generation-id", "query-status")
        two, three = (self.qemu(self.second, vm, *questions) for vm in ("c2", "c3"))
        self.assertEqual("running", two[2]["status"])
        self.assertNotEqual(two[0], three[0])
        self.assertNotEqual(two[1], three[1])
        who = self.second.run(["ps", "-o", "user:20=", "-C", "qemu-system-x86"]).stdout.split()
        self.assertEqual(["virtman-guest"] * 2, who)
        self.assertEqual("", self.second.run(["ls", "/dev/virtman"]).stdout)
        # its own suspended image has its own memory and disk
        self.say(self.second, "/run/virtman-guests/c2/serial0", "VIRTMAN-WORD", "write own")
        self.suspend_resumed(self.second, "c2", "silver")
        self.assert_goes_on(self.second, "c2", "own")
        self.first.run(["sh", "-c", "modprobe tun && ip tuntap add t1 mode tap"])
        self.assert_only_for_shop("silver")
        told = self.resume(self.first, "d1", "silver", "--tap", "t1", *SHOP)
        self.assert_goes_on(self.first, "d1", "own")
        # its kernel takes a moment to find it
        wait_until(lambda: "0x020000" in self.cards(self.first, "d1"), "the card", 60, 1)
        self.assertRegex(told["mac"], "^52:54:00:(..:){2}..$")
        # who has all of it outlives the source
        self.addCleanup(self.virtman, self.second, "image", "release", IMAGE)
        begin = time.monotonic()
        self.virtman(self.second, "image", "hydrate", "--wait", IMAGE, timeout=120)
        report(f"all of {IMAGE} came in {time.monotonic() - begin:.1f} s")
        self.first.kill()
        self.assert_goes_on(self.second, "c2", "own")
        self.assert_goes_on(self.second, "c3")
        self.first.boot()
        self.first.wait_up()
        self.start_agent(self.first)
        wait_until(lambda: self.has_vm(self.first, "vm1"), "vm1 being back", 90, 0.5)
        # a file of it is one too
        self.virtman(self.second, "layer", "export", "silver", "/var/tmp/silver", timeout=120)
        self.virtman(self.second, "layer", "import", "/var/tmp/silver", "bronze", timeout=120)
        self.resume(self.second, "e1", "bronze", *SHOP)
        self.assert_goes_on(self.second, "e1", "own")

    def test_what_two_of_one_guest_have_in_common_comes_once(self):
        self.suspend(self.first, "vm1")
        self.say(self.first, "/run/vm1.console", "VIRTMAN-WORD", "write after")
        self.suspend(self.first, "vm1", "silver")
        for image in (IMAGE, "silver"):
            said = self.storage.run(self.taking(image), timeout=120).stdout
        self.assertRegex(said, f"based on .*{IMAGE}")
        received = []
        for image, vm, word in ((IMAGE, "c1", "before"), ("silver", "c2", "after")):
            before = self.second.received_bytes()
            self.resume(self.second, vm, image)
            self.assert_goes_on(self.second, vm, word)
            received.append(self.second.received_bytes() - before)
        report(f"VMs of two suspended images of one guest received {received} bytes")
        self.assertLess(received[1], received[0] / 3)
        self.end_guests()
        for vm in ("c1", "c2"):
            self.destroy(self.second, vm)
        wait_until(lambda: self.has_dropped(self.second), "images going", 60, 0.5)
        for image in ("silver", IMAGE):
            self.virtman(self.first, "layer", "remove", image)
            self.deployment.remove_source(self.storage, image)

    def test_whoever_is_killed_or_lies_no_vm_goes_on_wrong(self):
        self.give_up()
        outcomes = []
        for delay in (3, 8, 14):
            words = ["virtman", "suspend-image", "vm1", IMAGE, "--qmp", "/run/vm1.qmp"]
            begun = self.first.spawn(words, log="suspend")
            time.sleep(delay)
            self.restart_agent(self.first)
            self.first.run(["tail", f"--pid={begun}", "-f", "/dev/null"], timeout=60)
            wait_until(self.is_settled, "the end of it", 60, 0.5)
            self.assert_goes_on(self.first, "vm1")
            self.assertEqual("", self.first.run(["pgrep", "setpriv"], check=False).stdout)
            outcomes.append(bool(self.made(self.first)))
            if outcomes[-1]:
                break
            self.assertEqual("", self.first.run(["ls", "/var/lib/virtman/layers"]).stdout)
        report(f"suspended images after kills of the agent, ever later: {outcomes}")
        if not outcomes[-1]:
            self.suspend(self.first, "vm1")
        self.first.run(["python3", "-c", ROT, FILE])
        begun = self.second.spawn(["virtman", "resume", IMAGE, "c1"], log="resume")
        wait_until(self.has_wrong_bytes, "wrong bytes being seen", 90, 0.5)
        self.first.run(["python3", "-c", ROT, FILE])
        self.second.run(["tail", f"--pid={begun}", "-f", "/dev/null"], timeout=120)
        self.created.append((self.second, "c1"))
        self.assert_goes_on(self.second, "c1")
        words = ["resume", IMAGE, "k", "--count", "2"]
        begun = self.second.spawn(["virtman", *words], log="resume")
        time.sleep(4)
        self.second.run(["kill", "-KILL", str(begun)], check=False)
        self.created += [(self.second, "k-1"), (self.second, "k-2")]
        for _ in range(2):
            told = self.virtman(self.second, *words, timeout=120).stdout
            self.assertEqual(["k-1", "k-2"], sorted(re.findall("^k-[12]", told, re.MULTILINE)))
        self.assertEqual(2, told.count("runs already"))
        self.assert_goes_on(self.second, "k-1")
        self.assert_goes_on(self.second, "k-2")

    def test_a_vm_stands_still_until_enough_is_there(self):
        self.suspend(self.first, "vm1")
        self.addCleanup(self.restart_agent, self.second)
        slow = {**self.options, "profile": {"record": 0, "rate": 1}}  # MiB/s
        self.patch(type(self), "options", slow)
        self.restart_agent(self.second)
        buffer = ["--buffer", "--workload", "answer"]
        words = ["resume", IMAGE, "c0", *buffer]
        refused = self.virtman(self.second, *words, check=False, timeout=120)
        self.assertIn("virtman.profile.unknown", refused.stderr)
        self.deployment.create(self.second, IMAGE, "c1")
        # c1 shall read faster than what comes ahead of c2: all is on this node, and not in memory
        self.resume(self.second, "before")
        self.assert_goes_on(self.second, "before")
        self.end_guests()
        self.destroy(self.second, "before")
        self.second.drop_caches()
        words = ["virtman", "profile", "record", "c1", "--workload", "answer"]
        self.second.spawn(words, log="record")
        wait_until(lambda: self.is_recorded("c1"), "the recording", 30, 0.5)
        self.resume(self.second, "c1")
        self.assert_goes_on(self.second, "c1")
        self.end_guests()
        self.destroy(self.second, "c1")  # which ends the recording
        path = f"/v1/images/{IMAGE}/profiles/answer"
        wait_until(lambda: self.deployment.request("GET", path).ok, "the profile", 60, 1)
        recorded = decode(self.deployment.request("GET", path).content)
        report(f"c1 read {recorded.total} pieces of {recorded.piece_size} bytes")
        # pages, and no more than it touched: 14 MB
        self.assertEqual(4096, recorded.piece_size)
        self.assertLess(recorded.total * recorded.piece_size, 24 << 20)
        wait_until(lambda: self.has_dropped(self.second), "images going", 60, 0.5)
        # who is killed meanwhile has left it standing still, and it is started anew
        begun = self.second.spawn(["virtman", "resume", IMAGE, "c2", *buffer], log="resume")
        wait_until(lambda: self.is_still("c2"), "c2 standing still", 60, 0.1)
        self.second.run(["kill", "-KILL", str(begun)])
        told = self.resume(self.second, "c2", IMAGE, *buffer)
        ahead = self.deployment.ahead(self.second, IMAGE)
        report(f"c2 stood still for {told['buffered_s']:.1f} of {told['seconds']:.1f} s, {ahead}")
        self.assertGreater(told["buffered_s"], 0.3)
        self.assert_goes_on(self.second, "c2")

    def test_a_save_made_elsewhere_becomes_one_and_runs_nowhere_before(self):
        mapped = {"capability": "mapped-ram", "state": True}
        save = (
            ["stop"],
            ["migrate-set-capabilities", {"capabilities": [mapped]}],
            ["migrate", {"uri": f"file:{SAVE}"}],
        )
        self.first.run(["python3", "-c", TELL, "/run/vm1.qmp", json.dumps(save)], timeout=120)
        self.guest.stop()
        self.first.run(["chmod", "644", SAVE])
        words = ["suspend-image", "vm1", IMAGE, "--qmp", "/run/vm1.qmp", "--saved", SAVE]
        self.boot_as_before("-S")  # it has other devices
        refused = self.virtman(self.first, *words, check=False, timeout=120)
        self.assertIn("virtman.qemu.failed", refused.stderr)
        self.guest.stop()
        self.boot_as_before("-incoming", "defer", "-device", "vmgenid")
        self.virtman(self.first, *words, timeout=120)
        self.guest.stop()
        self.resume(self.second, "c1")
        self.assert_goes_on(self.second, "c1")

    def test_sessions_are_seen_by_the_guest_agent(self):
        self.guest.stop()
        self.boot_as_before("-device", "vmgenid", *AGENT)
        self.guest.wait(120)
        self.say(self.first, "/run/vm1.console", "VIRTMAN-MEMORY", "remember")
        self.say(self.first, "/run/vm1.console", "VIRTMAN-AGENT status=0", "agent")
        self.say(self.first, "/run/vm1.console", "VIRTMAN-SESSION alice", "login alice")
        wait_until(self.is_agent_there, "the guest agent", 60, 0.5)
        words = ["suspend-image", "vm1", IMAGE, "--qmp", "/run/vm1.qmp"]
        refused = self.virtman(self.first, *words, check=False)
        self.assertIn("virtman.suspended.sessions", refused.stderr)
        self.assertIn("Permission denied", refused.stderr)
        self.first.run(["chown", "virtman", "/run/vm1.agent"])
        refused = self.virtman(self.first, *words, check=False)
        self.assertIn("sessions of alice", refused.stderr)
        self.say(self.first, "/run/vm1.console", "VIRTMAN-SESSION none", "logout")
        self.virtman(self.first, *words, timeout=120)
        # whoever is resumed has its agent too, and can be suspended itself
        self.resume(self.second, "c1")
        self.say(self.second, CONSOLE, "VIRTMAN-SESSION bob", "login bob")
        words = ["suspend-image", "c1", "silver", "--qmp", "/run/virtman-guests/c1/qmp"]
        refused = self.virtman(self.second, *words, check=False)
        self.assertIn("sessions of bob", refused.stderr)
        self.virtman(self.second, *words, "--force", timeout=120)

    def is_agent_there(self):
        words = ["python3", "-c", ASK, "/run/vm1.qmp", "query-chardev"]
        (found,) = json.loads(self.first.run(words).stdout)
        return any(one["label"] == "agent" and one["frontend-open"] for one in found)

    def is_recorded(self, vm):
        """Tell whether the agent records what a VM reads."""
        found = self.second.run(["python3", "-c", RECORDED, SOCKET, vm], check=False)
        return found.stdout.strip() == "recording"

    def is_still(self, vm):
        """Tell whether a VM has all of its state, and stands still."""
        file = self.second.share / "resume"
        self.assertNotIn("virtman.", file.read_text() if file.exists() else "")
        there = self.second.run(["pgrep", "-f", f"name {vm}"], check=False)
        ahead = self.deployment.ahead(self.second, IMAGE)
        return bool(there.stdout and ahead and ahead["fetched"])

    def cards(self, node, vm):
        """Return the classes of the network cards that a guest has."""
        console = f"/run/virtman-guests/{vm}/serial0"
        return self.say(node, console, "VIRTMAN-CARDS", "cards now")

    def has_wrong_bytes(self):
        status = self.second.run(["dmsetup", "status", "--target", "verity"]).stdout
        return any(IMAGE in line and " verity C" in line for line in status.splitlines())


class TestDomains(SuspendedCase):
    name = "domains"

    def test_a_domain_of_libvirt_goes_on_whoever_is_killed(self):
        self.boot_domain()
        refused = self.virtman(self.first, *SUSPEND, IMAGE, check=False)
        self.assertIn("sessions of alice", refused.stderr)
        self.say(self.first, "/run/vm1.console", "VIRTMAN-SESSION none", "logout")
        made = json.loads(self.virtman(self.first, *SUSPEND, IMAGE, "--json", timeout=120).stdout)
        self.assertGreater(made["length"], 0)
        self.assert_domain_goes_on()
        self.resume(self.second, "c1")
        self.assert_goes_on(self.second, "c1")
        for victim in ("command", "agent"):
            begun = self.first.spawn(["virtman", *SUSPEND, "silver"], log="suspend")
            asking = self.first.run(["python3", "-c", HOLD, "vm1"], timeout=60).stdout.strip()
            wait_until(self.is_still_at_libvirt, "the domain standing still", 60, 0.2)
            if victim == "command":
                self.first.run(["kill", "-KILL", str(begun)])
            else:
                self.deployment.kill_agent(self.first)
            self.first.run(["kill", "-CONT", asking])
            if victim == "agent":
                self.start_agent(self.first)
            self.first.run(["tail", f"--pid={begun}", "-f", "/dev/null"], timeout=60)
            wait_until(self.is_settled, "the end of it", 60, 0.5)
            self.assert_domain_goes_on()
            self.virtman(self.first, "layer", "remove", "silver", check=False)
        words = ["suspend-image", "vm1", "other", "--domain", "other"]
        refused = self.virtman(self.first, *words, check=False)
        self.assertIn("other", refused.stderr)

    def test_libvirt_has_vms_go_on_that_are_started_again_whoever_is_killed(self):
        self.suspend(self.first, "vm1", IMAGE, "/run/vm1.qmp", *SHOP)
        refused = self.virtman(self.first, "resume", IMAGE, "c", "--libvirt", *SHOP, check=False)
        self.assertIn("libvirt at qemu:///system", refused.stderr)
        self.start_libvirt()
        words = ["resume", IMAGE, "c", "--count", "2", "--libvirt", *SHOP]
        begun = self.first.spawn(["virtman", *words], log="resume")
        wait_until(self.is_one_made, "a domain that waits for its state", 60, 0.02)
        self.first.run(["kill", "-KILL", str(begun)], check=False)
        self.created += [(self.first, "c-1"), (self.first, "c-2")]
        for count in (0, 2):
            told = self.virtman(self.first, *words, timeout=120).stdout
            report(f"domains of libvirt: {told.splitlines()}")
            self.assertEqual(["c-1", "c-2"], sorted(re.findall("^c-[12]", told, re.MULTILINE)))
            self.assertGreaterEqual(told.count("runs already"), count)
        consoles = {vm: self.virsh("ttyconsole", vm).stdout.strip() for vm in ("c-1", "c-2")}
        for vm, console in consoles.items():
            self.assertEqual("running", self.virsh("domstate", vm).stdout.strip())
            self.assert_goes_on(self.first, vm, console=console)
            done = self.say(self.first, console, "VIRTMAN-DISK", f"check {vm}")
            self.assertEqual(f"VIRTMAN-DISK ok {vm}", done)
        found = [self.virsh("dumpxml", vm).stdout for vm in consoles]
        for what in ("uuid", "genid"):
            self.assertEqual(2, len({re.search(f"<{what}>(.*)</{what}>", one)[1] for one in found}))
        who = self.first.run(["ps", "-o", "user:20=", "-C", "qemu-system-x86"]).stdout.split()
        self.assertEqual(["libvirt-qemu"] * 2, sorted(who)[:2])
        self.assertEqual("", self.first.run(["ls", "/dev/virtman"]).stdout)
        # what it is suspended to has its project, and VMs of it need no libvirt
        self.say(self.first, consoles["c-1"], "VIRTMAN-WORD", "write own")
        words = ["suspend-image", "c-1", "silver", "--domain", "c-1"]
        self.virtman(self.first, *words, timeout=120)
        self.assert_only_for_shop("silver")
        self.resume(self.second, "d1", "silver", *SHOP)
        self.assert_goes_on(self.second, "d1", "own")
        # a card of its own is libvirt's too
        refused = self.virtman(self.first, "resume", IMAGE, "c3", "--libvirt", "--tap", "t0", *SHOP,
                               check=False, timeout=120)  # fmt: skip
        self.assertIn("no TAP interface t0", refused.stderr)
        self.assertNotIn("c3", self.virsh("list", "--name").stdout.split())
        self.first.run(["sh", "-c", "modprobe tun && ip tuntap add t2 mode tap"])
        self.addCleanup(self.first.run, ["ip", "link", "delete", "t2"])
        told = self.resume(self.first, "c3", IMAGE, "--libvirt", "--tap", "t2", *SHOP)
        self.assertIn(told["mac"], self.virsh("domiflist", "c3").stdout)
        # a libvirt that keeps the memory from QEMU says so, and nothing is left
        self.stop_libvirt()
        self.addCleanup(self.first.run, ["mv", f"{QEMU_CONF}.kept", QEMU_CONF])
        self.first.run(["sed", "-i.kept", "s,/dev/virtman/memory,/dev/null,", QEMU_CONF])
        self.start_libvirt()
        refused = self.virtman(self.first, "resume", IMAGE, "c4", "--libvirt", *SHOP, check=False,
                               timeout=120)  # fmt: skip
        self.assertIn("cgroup_device_acl", refused.stderr)
        self.assertFalse(self.has_vm(self.first, "c4"))
        self.assertNotIn("c4", self.virsh("list", "--name").stdout.split())

    def is_one_made(self):
        return "paused" in self.virsh("list").stdout

    def boot_domain(self):
        """Have libvirt run the VM instead."""
        self.end_guests()
        self.start_libvirt()
        text = DOMAIN.format(memory=MEMORY, device=self.guest.device)
        (self.first.share / "domain.xml").write_text(text)
        self.first.run(["rm", "-f", "/run/vm1.console", "/host/vm1.console"])
        done = self.virsh("create", "/host/domain.xml")
        self.assertEqual(0, done.status, done.stderr)
        wait_until(lambda: parse(self.guest.console), "the guest", 120, 0.5)
        said = self.say(self.first, "/run/vm1.console", "VIRTMAN-MEMORY", "remember")
        self.sum = said.rpartition("sum=")[2]
        self.say(self.first, "/run/vm1.console", "VIRTMAN-WORD", "write before")
        self.say(self.first, "/run/vm1.console", "VIRTMAN-AGENT status=0", "agent")
        self.say(self.first, "/run/vm1.console", "VIRTMAN-SESSION alice", "login alice")
        ping = ("qemu-agent-command", "vm1", '{"execute": "guest-ping"}')
        wait_until(lambda: self.virsh(*ping).status == 0, "the guest agent", 60, 0.5)

    def start_libvirt(self):
        for daemon in ("virtlogd", "libvirtd"):
            self.first.spawn([daemon], log=daemon)
            self.addCleanup(self.first.run, ["pkill", "-x", daemon], check=False)
        wait_until(lambda: self.virsh("version").status == 0, "libvirt", 60, 0.5)

    def stop_libvirt(self):
        """Stop libvirt; its domains run on."""
        self.first.run(["pkill", "-x", "libvirtd"])
        there = ["pgrep", "-x", "libvirtd"]
        wait_until(lambda: self.first.run(there, check=False).status, "its end", 20, 0.2)

    def virsh(self, *words):
        return self.first.run(["virsh", "-q", *words], check=False)

    def is_still_at_libvirt(self):
        return self.virsh("domstate", "vm1").stdout.strip() == "paused"

    def assert_domain_goes_on(self):
        self.assert_goes_on(self.first, "vm1")
        self.assertEqual("running", self.virsh("domstate", "vm1").stdout.strip())
        asking = ["pgrep", "-f", "virtman.qemu.relay"]
        wait_until(lambda: self.first.run(asking, check=False).status, "nobody asking it", 30, 0.2)
        self.assertEqual("", self.first.run(["find", "/run", "-name", "virtman-domain-*"]).stdout)
