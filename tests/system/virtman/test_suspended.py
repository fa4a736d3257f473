"""VMs go on from a suspended image, on the real kernel and QEMU: memory, disk and identity."""

import json
import shutil
import time
from typing import ClassVar

from lab.guest import GuestFailed, guest_image
from lab.rootfs import TOP
from lab.waiting import wait_until
from tests.system.virtman.base import report
from tests.system.virtman.test_layers import LayerCase

IMAGE = "gold"
FILE = f"/var/lib/virtman/layers/{IMAGE}.layer"
MEMORY = 96  # MiB
# Gives a line to a console, and prints the first line with a word that comes then.
SAY = """
import socket, sys, time
console, word, order = sys.argv[1:]
talk = socket.socket(socket.AF_UNIX)
talk.connect(console)
talk.settimeout(150)
talk.sendall(order.encode() + b"\\n")
said = b""
while True:
    said += talk.recv(4096)
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
# Changes a byte in each chunk of the memory in a layer, or changes it back.
ROT = """
import os, sys
file = os.open(sys.argv[1], os.O_RDWR)
size = os.fstat(file).st_size
for at in range(size - 900 * 65536, size - 8 * 65536, 65536):
    os.pwrite(file, bytes([os.pread(file, 1, at)[0] ^ 255]), at)
os.fsync(file)
"""


class TestSuspended(LayerCase):
    name = "suspended"
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
        log = node.share / "vm1.console"
        log.unlink(missing_ok=True)
        node.spawn(
            [
                *("qemu-system-x86_64", "-machine", "pc", "-accel", "tcg,thread=single,tb-size=32"),
                *("-m", str(MEMORY), "-nodefaults", "-display", "none"),
                *("-chardev", "socket,id=c,path=/run/vm1.console,server=on,wait=off,"
                  "logfile=/host/vm1.console", "-serial", "chardev:c"),
                *("-drive", f"file={device},format=raw,if=none,id=disk,cache=none"),
                *("-device", "virtio-blk-pci,drive=disk,serial=vm1", "-device", "vmgenid"),
                *("-qmp", "unix:/run/vm1.qmp,server=on,wait=off"),
            ],
            log="vm1.qemu",
        )  # fmt: skip
        said = "VIRTMAN-GUEST ready"
        wait_until(
            lambda: log.exists() and said in log.read_text(errors="replace"), "the guest", 120, 0.5
        )
        node.run(["chown", "virtman", "/run/vm1.qmp"])

    def say(self, node, console, word, order):
        done = node.run(["python3", "-c", SAY, console, word, order], check=False, timeout=160)
        if done.status:
            raise GuestFailed(f"{console} does not answer {order!r}: {done.stderr}")
        return done.stdout.strip()

    def qemu(self, node, vm, *questions):
        path = f"/run/virtman-guests/{vm}/qmp"
        return json.loads(node.run(["python3", "-c", ASK, path, *questions]).stdout)

    def suspend(self, node, vm, name=IMAGE, qmp="/run/vm1.qmp"):
        words = ["suspend-image", vm, name, "--qmp", qmp, "--json"]
        return json.loads(self.virtman(node, *words, timeout=120).stdout)

    def resume(self, node, vm, image=IMAGE, *words):
        done = self.virtman(node, "resume", image, vm, "--json", *words, timeout=120)
        self.created.append((node, vm))
        return json.loads(done.stdout)

    def assert_goes_on(self, node, vm, word="before"):
        console = "/run/vm1.console" if vm == "vm1" else f"/run/virtman-guests/{vm}/serial0"
        said = self.say(node, console, "VIRTMAN-MEMORY", f"recall {vm}")
        self.assertEqual(f"VIRTMAN-MEMORY ok sum={self.sum} {vm}", said)
        said = self.say(node, console, "VIRTMAN-WORD", "read")
        self.assertEqual(f"VIRTMAN-WORD {word}", said)

    def test_vms_go_on_from_one_image_on_two_nodes(self):
        begin = time.monotonic()
        made = self.suspend(self.first, "vm1")
        report(f"suspended in {time.monotonic() - begin:.1f} s: {made['length']} bytes")
        self.assert_goes_on(self.first, "vm1")
        self.say(self.first, "/run/vm1.console", "VIRTMAN-WORD", "write after")
        kept = self.deployment.ask("GET", f"/v1/images/{IMAGE}")["layer"]["suspended"]
        self.assertEqual(MEMORY << 20, kept["hardware"]["memory"])
        self.assertLess(made["length"], MEMORY << 20)
        seen = []
        for node, vm in ((self.first, "c1"), (self.second, "c2"), (self.second, "c3")):
            before = node.received_bytes()
            told = self.resume(node, vm)
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
        self.suspend(self.second, "c2", "silver", "/run/virtman-guests/c2/qmp")
        self.assert_goes_on(self.second, "c2", "own")
        self.first.run(["sh", "-c", "modprobe tun && ip tuntap add t1 mode tap"])
        told = self.resume(self.first, "d1", "silver", "--tap", "t1")
        self.assert_goes_on(self.first, "d1", "own")
        # its kernel takes a moment to find it
        wait_until(lambda: "0x020000" in self.cards(self.first, "d1"), "the card", 60, 1)
        self.assertRegex(told["mac"], "^52:54:00:(..:){2}..$")
        # who has what it needs outlives the source
        self.first.kill()
        self.assert_goes_on(self.second, "c2", "own")
        self.assert_goes_on(self.second, "c3")
        self.first.boot()
        self.first.wait_up()
        self.deployment.start_agent(self.first, self.options)
        wait_until(lambda: self.is_ready(self.first, "vm1"), "vm1 being back", 90, 0.5)

    def test_whoever_is_killed_or_lies_no_vm_goes_on_wrong(self):
        outcomes = []
        for delay in (3, 8, 14):
            words = ["virtman", "suspend-image", "vm1", IMAGE, "--qmp", "/run/vm1.qmp"]
            begun = self.first.spawn(words, log="suspend")
            time.sleep(delay)
            self.deployment.kill_agent(self.first)
            self.deployment.start_agent(self.first, self.options)
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
        begun = self.second.spawn(["virtman", "resume", IMAGE, "c2"], log="resume")
        time.sleep(4)
        self.second.run(["kill", "-KILL", str(begun)], check=False)
        self.created.append((self.second, "c2"))
        again = self.virtman(self.second, "resume", IMAGE, "c2", check=False, timeout=120)
        if again.status:
            self.assertIn("virtman.instance.exists", again.stderr)
        self.assert_goes_on(self.second, "c2")

    def cards(self, node, vm):
        """Return the classes of the network cards that a guest has."""
        console = f"/run/virtman-guests/{vm}/serial0"
        return self.say(node, console, "VIRTMAN-CARDS", "cards now")

    def is_settled(self):
        found = json.loads(self.virtman(self.first, "layer", "list", "--json").stdout)
        return all(one["state"] in ("kept", "failed") for one in found)

    def has_wrong_bytes(self):
        status = self.second.run(["dmsetup", "status", "--target", "verity"]).stdout
        return any(IMAGE in line and line.endswith(" C") for line in status.splitlines())
