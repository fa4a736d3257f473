"""What VMs wrote: kept, merged and given back under load, and never lost for want of space."""

import hashlib
import json
import re
import time

from lab.waiting import wait_until
from tests.system.virtman.base import MIB, DeployedCase, report, sha256
from virtman.model.dirty import CHUNK

# Writes a number to one block after another, each when the one before is on the disk.
COUNTER = """
import mmap, os, sys, time
disk = os.open(sys.argv[1], os.O_RDWR | os.O_DIRECT)
block, longest = mmap.mmap(-1, 4096), 0.0
for n in range(1, 1 << 30):
    if n % 64 == 0 and os.path.exists("/host/stop"):
        break
    block[:16] = b"%016d" % n
    before = time.monotonic()
    os.pwritev(disk, [block], 16 * 1048576 + n % 256 * 4096)
    longest = max(longest, time.monotonic() - before)
print(n, longest)
"""

# Reads it: the last number, if all others are those that were written right before.
COUNTED = """
import mmap, os, sys
disk = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
data = mmap.mmap(-1, 256 * 4096)
os.preadv(disk, [data], 16 * 1048576)
found = [int(data[at * 4096 : at * 4096 + 16]) for at in range(256)]
last = max(found)
assert sorted(found) == list(range(last - 255, last + 1)), sorted(found)
assert all(n % 256 == at for at, n in enumerate(found)), found
print(last)
"""

# Fills chunks of 64 KiB, none of them right after its neighbour: a merge takes them one by one.
SCATTERED = """
import os, sys
device, first, count, fill = sys.argv[1], *map(int, sys.argv[2:])
disk = os.open(device, os.O_WRONLY)
for number in range(count):
    os.pwrite(disk, bytes([fill]) * 65536, (first + number * 7 % count) * 65536)
os.fsync(disk)
"""

# Stops a merge of stores once some of it is done, and prints what of all is left to merge; in the
# node, as it is over within two seconds.
STOPPED = """
import re, subprocess, sys

def told(what):
    return subprocess.check_output(["dmsetup", what, "--target", "snapshot-merge"], text=True)

def left():
    found = re.search(r"(\\d+)/\\d+ (\\d+)$", told("status").strip())
    return int(found[1]) - int(found[2]) if found else 0

while not 0 < left() < int(sys.argv[1]):
    pass
major, minor = re.search(r"merge (\\d+):(\\d+)", told("table")).groups()
which = ["--major", major, "--minor", minor]
subprocess.run(["dmsetup", "suspend", "--noflush", "--nolockfs", *which], check=True)
print(left())
"""

# Tells whether a device is open, while it is not and while it is.
OPENED = """
import os, sys, time
from virtman.privileged import context, dm
context.set_client_mode(False)
for opened in (False, True):
    disk = os.open(sys.argv[1], os.O_RDONLY) if opened else None
    end = time.monotonic() + 5
    while dm.is_open(os.path.basename(sys.argv[1])) != opened and time.monotonic() < end:
        time.sleep(0.05)
    print(dm.is_open(os.path.basename(sys.argv[1])))
"""

# Writes to a store with chunks of 8 KiB, puts it on anew as stores are put on now, writes more, and
# prints what it holds.
EARLIER = """
import os, subprocess, sys
from virtman.model.dirty import CHUNK
from virtman.privileged import chunks, context
context.set_client_mode(False)
origin, store = sys.argv[1:]
size = 8 << 20
def mapped(sectors, *written):
    table = f"0 {size >> 9} snapshot {origin} {store} P {sectors}"
    subprocess.run(["dmsetup", "create", "earlier", "--table", table], check=True)
    try:
        for offset in written:
            chunks.write("/dev/mapper/earlier", [(offset, 4096)], b"x" * 4096)
        return chunks.read("/dev/mapper/earlier", [(0, size)])
    finally:
        subprocess.run(["dmsetup", "remove", "earlier"], check=True)
before = mapped(16, 0, 9 * 8192, size - 4096)
after = mapped(CHUNK >> 9, 40 * 8192 + 4096)
assert after[:5 * CHUNK] == before[:5 * CHUNK] and after.count(b"x") == 4 * 4096
found = int.from_bytes(chunks.written(store, CHUNK, size // CHUNK), "little")
print(*(number for number in range(size // CHUNK) if found >> number & 1))
"""

# Writes to one chunk after another of the uppermost of three stores, in eight threads, and leads it
# from the one in the middle, which is empty, to the lowest; prints how many were written meanwhile,
# and which of all are not there.
LED = """
import mmap, os, sys, threading, time
from virtman.model import plan
from virtman.model.dirty import CHUNK
from virtman.stack.layers.store import StoreLayer
from virtman.model.naming import Device
from virtman.privileged import context
context.set_client_mode(False)
sectors, written, go_on = (128 << 20) >> 9, [], True
def store(name, merging=False):
    step = plan.Store(
        Device("led", "store", name), sectors, (), f"/root/{name}", merging, sectors * 512
    )
    return StoreLayer(step)
def write(numbers):
    disk, block = os.open(upper.node, os.O_RDWR | os.O_DIRECT), mmap.mmap(-1, 4096)
    for number in numbers:
        if not go_on:
            break
        block[:16] = b"%016d" % number
        os.pwritev(disk, [block], number * CHUNK)
        written.append(number)
    os.close(disk)
lower, middle, upper = map(store, ("lower", "middle", "upper"))
lower.up([sys.argv[1]])
middle.up([lower.node])
upper.up([middle.node])
store("middle", True).up([lower.node])
chunks = (sectors << 9) // CHUNK
threads = [threading.Thread(target=write, args=(range(n, chunks, 8),)) for n in range(8)]
for one in threads:
    one.start()
while len(written) < chunks // 8:
    time.sleep(0.01)
before = len(written)
upper.up([lower.node])
print(len(written) - before)
go_on = False
for one in threads:
    one.join()
with open(upper.node, "rb", 0) as disk:
    for number in written:
        disk.seek(number * CHUNK)
        if disk.read(16) != b"%016d" % number:
            print(number)
for one in (upper, middle, lower):
    one.down()
"""

# Copies a store on a block device, has more written to it, and copies it again; prints whether the
# second copy is what lies on the device.
COPIED = """
import subprocess, sys
from virtman.model.dirty import CHUNK
from virtman.privileged import chunks, context, device
context.set_client_mode(False)
origin, store, first, second = sys.argv[1:]
table = f"0 {(8 << 20) >> 9} snapshot {origin} {store} P {CHUNK >> 9}"
subprocess.run(["dmsetup", "create", "copied", "--table", table], check=True)
try:
    for number, copy in enumerate((first, second)):
        chunks.write("/dev/mapper/copied", [(number * CHUNK, 4096)], b"x" * 4096)
        device.copy(store, copy, 8 << 20)
    there = subprocess.run(["dd", f"if={store}", "bs=1M", "count=8", "iflag=direct"],
                           check=True, capture_output=True).stdout
    print(open(second, "rb").read(8 << 20) == there)
finally:
    subprocess.run(["dmsetup", "remove", "copied"], check=True)
"""

GROUP = "stores"
GROUP_FILE = "/root/group"
ATTACH = f"losetup --find --show {GROUP_FILE}"


class TestStores(DeployedCase):
    name = "stores"
    node_count = 1
    size = 32 * MIB
    shape = (1, 2)

    def setUp(self):
        super().setUp()
        (self.node,) = self.nodes
        self.addCleanup(self.delete_snapshots)

    def delete_snapshots(self):
        names = [one["snapshot"] for one in self.ask("snapshot", "list")]
        if names:
            self.virtman(self.node, "snapshot", "delete", *names)

    def ask(self, *words):
        return json.loads(self.virtman(self.node, *words, "--json").stdout)

    def from_snapshot(self, vm, snapshot):
        self.virtman(self.node, "create", "--from-snapshot", snapshot, vm)
        self.created.append((self.node, vm))
        return self.ask("vm", "show", vm)["device"]

    def python(self, program, *arguments):
        return self.node.run(["python3", "-c", program, *arguments]).stdout.split()

    def chain(self, vm):
        return self.ask("vm", "show", vm)["stores"]

    def await_chain(self, vm, length, deadline=60):
        wait_until(
            lambda: len(self.chain(vm)) <= length
            and not any(one["merging"] for one in self.chain(vm)),
            f"{length} stores of {vm}", deadline, 0.5,
        )  # fmt: skip

    def written(self, log):
        """Wait for a writer; return what it printed."""
        file = self.node.share / log
        wait_until(lambda: file.exists() and file.read_text().endswith("\n"), log, 120, 0.5)
        return file.read_text().split()

    def load(self, device, seconds, log):
        """Write for so long, and read that again; the log has fio's status when it is done."""
        self.node.spawn(
            ["sh", "-c", f"fio --name=load --filename={device} --rw=randwrite --bs=4k --size=12M "
             "--direct=1 --ioengine=libaio --iodepth=4 --verify=crc32c --verify_backlog=256 "
             f"--time_based --runtime={seconds} > /host/fio.log 2>&1; echo $?"],
            log=log,
        )  # fmt: skip

    def test_a_disk_longer_than_its_image_becomes_longer_under_load(self):
        made = self.virtman(self.node, "create", "--size", "48M", self.image, "vm1")
        self.created.append((self.node, "vm1"))
        device = made.stdout.strip()

        def length():
            return int(self.node.run(["blockdev", "--getsize64", device]).stdout)

        def zeros(start, end):
            words = ["cmp", f"--bytes={(end - start) * MIB}", f"--ignore-initial={start * MIB}:0"]
            self.node.run([*words, device, "/dev/zero"])

        def write(at, text):
            program = (
                "import os,sys;d=os.open(sys.argv[1],os.O_WRONLY);"
                "os.pwrite(d,sys.argv[3].encode()*4096,int(sys.argv[2]));os.fsync(d)"
            )
            self.python(program, device, str(at * MIB), text)

        def read(at):
            program = (
                "import os,sys;d=os.open(sys.argv[1],os.O_RDONLY);"
                "print(set(os.pread(d,4096,int(sys.argv[2]))))"
            )
            return "".join(self.python(program, device, str(at * MIB)))

        self.assertEqual(48 * MIB, length())
        head = ["sh", "-c", f"head -c {self.size} {device} | sha256sum"]
        self.assertEqual(self.sha256, self.node.run(head).stdout.split()[0])
        zeros(32, 48)
        write(47, "a")
        self.virtman(self.node, "snapshot", "create", "vm1", "short")
        self.load(device, 10, "grown")
        self.node.run(["sleep", "2"])
        for size in ("64M", "64M", "96M"):
            self.virtman(self.node, "vm", "resize", "vm1", size)
        self.assertEqual(96 * MIB, length())
        zeros(48, 96)
        write(95, "b")
        self.assertEqual(["0"], self.written("grown"))
        other = self.from_snapshot("vm2", "short")
        self.assertEqual(48 * MIB, int(self.node.run(["blockdev", "--getsize64", other]).stdout))
        self.destroy(self.node, "vm2")
        self.virtman(self.node, "snapshot", "delete", "short")
        self.await_chain("vm1", 1)
        self.assertEqual(("{97}", "{98}"), (read(47), read(95)))
        zeros(48, 95)
        # all of it can be written: nothing is full
        self.node.run(["dd", "if=/dev/zero", f"of={device}", "bs=1M", "count=96", "oflag=direct"])
        self.assertIn("state: ready", self.virtman(self.node, "vm", "show", "vm1").stdout)
        said = self.refused(self.node, "vm", "resize", "vm1", "32M")
        self.assertIn("virtman.instance.size", said)

    def test_snapshots_of_a_vm_that_writes(self):
        device = self.create(self.node, "vm1")
        zeros = ["dd", "if=/dev/zero", f"of={device}", "bs=1M", "seek=16", "count=1", "conv=fsync"]
        self.node.run(zeros)
        self.load(device, 35, "fio")
        self.node.spawn(["python3", "-c", COUNTER, device], log="counter")
        self.node.run(["sleep", "1"])
        words = ["create", "--from-vm", "vm1", "--temporary", "reader"]
        reader = self.virtman(self.node, *words).stdout.strip()
        self.created.append((self.node, "reader"))
        copied = self.python(COUNTED, reader)
        self.assertEqual(["False", "True"], self.python(OPENED, reader))
        # it goes once nobody has had it open for a while
        user = self.node.spawn(["sh", "-c", f"exec sleep 600 < {reader}"], log="user")
        last = 0
        for number in range(3):
            self.node.run(["sleep", "1"])
            self.virtman(self.node, "snapshot", "create", "vm1", f"at{number}")
            other = self.from_snapshot(f"vm-at{number}", f"at{number}")
            (counted,) = self.python(COUNTED, other)
            self.assertGreater(int(counted), last)
            last = int(counted)
            kept = sha256(self.node, other)
            self.destroy(self.node, f"vm-at{number}")
        self.assertEqual(copied, self.python(COUNTED, reader))
        self.node.run(["kill", str(user)])
        self.destroy(self.node, "reader")
        self.await_chain("vm1", 3)
        done = self.virtman(self.node, "snapshot", "rollback", "vm1", "at0", check=False)
        self.assertIn("[virtman.device.busy]", done.stderr)
        self.virtman(self.node, "snapshot", "delete", "at1", "at0")
        self.await_chain("vm1", 2)
        (self.node.share / "stop").touch()
        count, longest = self.written("counter")
        self.assertEqual(["0"], self.written("fio"))
        log = (self.node.share / "agent.log").read_text()
        pauses = [float(one) for one in re.findall(r"waited for less than ([0-9.]+) s", log)]
        report(f"3 snapshots under load: the VM waited {max(pauses):.3f} s at most for one; its "
               f"longest write, merges included, took {float(longest):.3f} s")  # fmt: skip
        (counted,) = self.python(COUNTED, device)
        self.assertEqual(int(count) - 1, int(counted))
        self.virtman(self.node, "snapshot", "rollback", "vm1", "at2")
        self.assertEqual(kept, sha256(self.node, device))

    def test_power_cut_in_a_merge(self):
        device = self.create(self.node, "vm1")
        expected = bytearray((self.bed.folder / "image").read_bytes())
        chunks = 384
        for start, fill in ((0, b"a"), (64, b"b")):
            self.python(SCATTERED, device, str(start), str(chunks), str(fill[0]))
            expected[start * CHUNK : (start + chunks) * CHUNK] = fill * (chunks * CHUNK)
            if fill == b"a":
                self.virtman(self.node, "snapshot", "create", "vm1", "before")
        digest = hashlib.sha256(expected).hexdigest()
        slow = "echo 1 > /sys/module/dm_snapshot/parameters/snapshot_copy_throttle"
        self.node.run(["sh", "-c", slow])
        every = chunks * CHUNK // 512
        stopper = ["python3", "-c", STOPPED, str(every)]
        self.node.spawn(stopper, log="stopped")
        self.virtman(self.node, "snapshot", "delete", "before")
        said = self.node.share / "stopped"
        wait_until(said.read_text, "the merge being stopped", 60, 0.5)
        self.assertTrue(0 < int(said.read_text()) < every, said.read_text())
        self.node.restart()
        self.start_agent(self.node)
        there = ["test", "-e", device]
        wait_until(lambda: self.node.run(there, check=False).status == 0, "the device", 60, 0.5)
        self.assertEqual(digest, sha256(self.node, device))
        self.await_chain("vm1", 1)
        self.node.drop_caches()
        self.assertEqual(digest, sha256(self.node, device))

    def test_what_was_flushed_after_a_snapshot_survives_a_power_cut_with_all_before(self):
        device, data = self.create(self.node, "vm1"), hashlib.sha256(b"a").digest() * (MIB // 32)
        write = ["dd", f"of={device}", "bs=1M", "iflag=fullblock", "oflag=direct"]
        # the first write of a chunk is flushed by the kernel itself, later ones are not
        for content in (data[::-1], data):
            self.node.run([*write, "seek=8"], input=content)
        self.virtman(self.node, "snapshot", "create", "vm1", "before")
        self.node.run([*write, "seek=16", "conv=fsync"], input=data)
        self.node.restart()
        self.start_agent(self.node)
        there = ["test", "-e", device]
        wait_until(lambda: self.node.run(there, check=False).status == 0, "the device", 60, 0.5)
        for start in (8, 16):
            read = ["dd", f"if={device}", "bs=1M", f"skip={start}", "count=1"]
            self.assertTrue(self.node.run(read).stdout_bytes == data, start)

    def test_a_full_disk_lets_vms_wait(self):
        node, small = self.node, "/var/lib/small"
        self.end_agent()
        self.addCleanup(self.start_agent, node)
        self.addCleanup(node.run, ["sh", "-c", f"umount {small}; rm -rf {small} {small}.img"])
        self.addCleanup(self.end_agent)
        node.run(["sh", "-ec", f"truncate -s 200M {small}.img; mke2fs -q -t ext4 -m 0 {small}.img; "
                  f"mkdir {small}; mount -o loop {small}.img {small}; chown virtman {small}; "
                  f"fallocate -l 64M {small}/filler"])  # fmt: skip
        self.deployment.start_agent(node, {
            "agent": {"state_dir": small},
            "store": {"overcommit": 8, "reserve": 64, "ahead": 4},
        })  # fmt: skip
        vms = ["vm1", "vm2", "vm3"]
        self.addCleanup(self.deployment.drop, node, self.image)
        self.addCleanup(self.deployment.destroy, node, *vms)
        devices = [self.deployment.create(node, self.image, vm)["device"] for vm in vms]
        for vm, device in zip(vms, devices, strict=True):
            self.fill(device, f"filled-{vm}", 28)
        wait_until(lambda: "waits" in [one["state"] for one in self.ask("list")],
                   "a VM waiting", 60, 0.5)  # fmt: skip
        node.run(["sleep", "3"])
        free = node.run(["stat", "-f", "-c", "%a %S", small]).stdout.split()
        report(f"full disk: VMs waited with {int(free[0]) * int(free[1]) >> 20} MiB left")
        node.run(["rm", f"{small}/filler"])
        for vm, device in zip(vms, devices, strict=True):
            self.assertEqual(["0"], self.written(f"filled-{vm}"))
            self.assertEqual("ready", self.ask("vm", "show", vm)["state"])
            self.assertEqual(0, self.count_others(device))

    def test_a_vm_at_its_quota_waits_until_it_gets_more_and_no_other_does(self):
        node = self.node
        self.virtman(node, "create", "--quota", "4M", self.image, "vm1")
        self.created.append((node, "vm1"))
        limited, other = self.ask("vm", "show", "vm1")["device"], self.create(node, "vm2")
        self.fill(limited, "limited", 28, pause=0.3)
        wait_until(
            lambda: self.ask("vm", "show", "vm1")["state"] == "waits", "vm1 waiting", 60, 0.2
        )
        taken = self.ask("vm", "show", "vm1")["taken"]
        self.fill(other, "other", 28)
        self.assertEqual(["0"], self.written("other"))
        self.assertEqual(0, self.count_others(other))
        self.assertEqual("ready", self.ask("vm", "show", "vm2")["state"])
        shown = self.ask("vm", "show", "vm1")
        self.assertEqual(("waits", taken), (shown["state"], shown["taken"]))
        self.assertEqual("", (node.share / "limited").read_text())
        report(f"a VM with a quota of 4 MiB waited with {taken / MIB:.1f} MiB taken")
        self.virtman(node, "vm", "limit", "vm1", "64M")
        self.assertEqual(["0"], self.written("limited"))
        self.assertEqual(0, self.count_others(limited))
        self.assertEqual("ready", self.ask("vm", "show", "vm1")["state"])

    def test_logical_volumes(self):
        node = self.node
        self.end_agent()
        self.addCleanup(self.start_agent, node)
        self.addCleanup(self.remove_group)
        self.addCleanup(self.end_agent)
        node.run(["truncate", "-s", "120M", GROUP_FILE])
        node.run(["sh", "-ec", f"modprobe loop; vgcreate -q {GROUP} $({ATTACH})"])
        options = {"store": {"backing": "lvm", "volume_group": GROUP}}
        self.deployment.start_agent(node, options)
        device = self.create(node, "vm1")
        self.put(device, "before")
        self.virtman(node, "snapshot", "create", "vm1", "then")
        self.put(device, "after")
        self.assertEqual("before", self.get(self.from_snapshot("vm2", "then")))
        volumes = self.volumes()
        self.assertEqual(3, len(volumes))
        said = self.refused(node, "create", self.image, "vm3")
        self.assertIn("[virtman.store.no_space]", said)
        self.assertEqual(volumes, self.volumes())
        node.restart()
        node.run(["sh", "-ec", f"modprobe loop; {ATTACH}; vgchange -q -ay {GROUP}"])
        self.deployment.start_agent(node, options)
        wait_until(lambda: node.run(["test", "-e", device], check=False).status == 0,
                   "the device", 60, 0.5)  # fmt: skip
        self.assertEqual("after", self.get(device))
        self.destroy(node, "vm2")
        self.virtman(node, "snapshot", "rollback", "vm1", "then")
        self.assertEqual("before", self.get(device))
        self.destroy(node, "vm1")
        self.delete_snapshots()
        self.assertEqual([], self.volumes())

    def put(self, device, text):
        command = ["dd", f"of={device}", "bs=512", "seek=9", "conv=fsync"]
        self.node.run(command, input=text.ljust(512))

    def get(self, device):
        command = ["dd", f"if={device}", "bs=512", "skip=9", "count=1", "iflag=direct"]
        return self.node.run(command).stdout.strip()

    def volumes(self):
        return self.node.run(["lvs", "--noheadings", "-o", "lv_name", GROUP]).stdout.split()

    def remove_group(self):
        self.node.run(["sh", "-c", f"vgremove -q -f {GROUP}; losetup -j {GROUP_FILE} | cut -d: -f1 "
                       f"| xargs -r losetup -d; rm {GROUP_FILE}"])  # fmt: skip

    def test_a_device_that_is_there_takes_what_a_vm_writes(self):
        node, file = self.node, "/root/given"
        node.run(["truncate", "-s", "40M", file])
        self.addCleanup(node.run, ["rm", file])
        # the agent, which has just been started, may not have loaded the module yet
        node.run(["modprobe", "loop"])
        given = node.run(["losetup", "--find", "--show", file]).stdout.strip()
        self.addCleanup(node.run, ["losetup", "--detach", given])
        self.virtman(node, "create", "--store", given, self.image, "vm1")
        self.created.append((node, "vm1"))
        said = self.refused(node, "create", "--store", given, self.image, "vm2")
        self.assertIn("[virtman.store.unusable]", said)
        device = self.ask("vm", "show", "vm1")["device"]
        self.put(device, "mine")
        self.assertEqual("mine", self.get(device))
        self.destroy(node, "vm1")
        node.run(["cmp", "-n", "65536", given, "/dev/zero"])
        node.run(["dd", f"of={given}", "conv=fsync"], input="something")
        said = self.refused(node, "create", "--store", given, self.image, "vm1")
        self.assertIn("it holds something", said)

    def test_a_store_with_chunks_of_another_size_is_read_as_it_is(self):
        node, loops = self.node, []
        node.run(["modprobe", "--all", "loop", "dm-snapshot"])
        for name in ("origin", "store"):
            node.run(["truncate", "-s", "16M", f"/root/{name}"])
            self.addCleanup(node.run, ["rm", f"/root/{name}"])
            loops += node.run(["losetup", "--find", "--show", f"/root/{name}"]).stdout.split()
            self.addCleanup(node.run, ["losetup", "--detach", loops[-1]])
        self.assertEqual(["0", "1", "5", "127"], self.python(EARLIER, *loops))

    def test_a_store_that_is_led_to_another_one_loses_nothing(self):
        node = self.node
        node.run(["modprobe", "--all", "loop", "dm-snapshot"])
        for name in ("led", "lower", "middle", "upper"):
            node.run(["truncate", "-s", "256M", f"/root/{name}"])
            self.addCleanup(node.run, ["rm", f"/root/{name}"])
        origin = node.run(["losetup", "--find", "--show", "/root/led"]).stdout.strip()
        self.addCleanup(node.run, ["losetup", "--detach", origin])
        count, *lost = self.python(LED, origin)
        report(f"{count} chunks were written while a store was led to another one")
        self.assertEqual([], lost)

    def test_a_store_is_copied_as_it_lies_on_its_device(self):
        node, loops, copies = self.node, [], ["/root/first", "/root/second"]
        node.run(["modprobe", "--all", "loop", "dm-snapshot"])
        for file in ("/root/origin", "/root/store", *copies):
            node.run(["truncate", "-s", "16M", file])
            self.addCleanup(node.run, ["rm", file])
            if file not in copies:
                loops += node.run(["losetup", "--find", "--show", file]).stdout.split()
                self.addCleanup(node.run, ["losetup", "--detach", loops[-1]])
        self.assertEqual(["True"], self.python(COPIED, *loops, *copies))

    def test_a_vm_whose_reads_have_no_end_is_not_held_for_a_snapshot(self):
        device = self.create(self.node, "vm1")
        stripe = f"/dev/mapper/virtman_{self.image}_stripe"
        self.node.run(["dmsetup", "suspend", "--noflush", "--nolockfs", stripe])
        self.addCleanup(self.node.run, ["dmsetup", "resume", stripe])
        read = f"dd if={device} of=/dev/null bs=1M count=1 skip=3 iflag=direct; echo $?"
        self.node.spawn(["sh", "-c", read], log="read")
        wait_until(lambda: self.inflight(device), "a read on its way", 10, 0.1)
        write = ["dd", "if=/dev/zero", f"of={device}", "bs=64k", "count=1", "oflag=direct"]
        begin = time.monotonic()
        said = self.virtman(self.node, "snapshot", "create", "vm1", "at", check=False).stderr
        report(f"a snapshot of a VM whose reads hang was refused after "
               f"{time.monotonic() - begin:.1f} s")  # fmt: skip
        self.assertIn("[virtman.device.pending]", said)
        self.node.run(write, timeout=5)
        self.assertEqual(1, len(self.chain("vm1")))
        self.node.run(["dmsetup", "resume", stripe])
        self.assertEqual("0", self.written("read")[-1])
        self.virtman(self.node, "snapshot", "create", "vm1", "at")

    def fill(self, device, log, count, pause=0):
        """Write zeros over the start of a device; the log has dd's status when it is done.

        :param pause: seconds before each MiB
        """
        zeros = f"for n in $(seq {count}); do sleep {pause}; head -c 1M /dev/zero; done"
        command = f"dd of={device} bs=1M iflag=fullblock oflag=direct 2>&3; echo $?"
        self.node.spawn(["sh", "-c", f"{{ {zeros} | {command}; }} 3>/dev/null"], log=log)

    def inflight(self, device):
        """Tell whether something is on its way through a device."""
        number = self.node.run(["stat", "-Lc", "%Hr:%Lr", device]).stdout.strip()
        counts = self.node.run(["cat", f"/sys/dev/block/{number}/inflight"]).stdout.split()
        return any(map(int, counts))

    def count_others(self, device):
        """Bytes of a device's first 28 MiB that are not zero."""
        done = self.node.run(["sh", "-c", f"head -c {28 * MIB} {device} | tr -d '\\0' | wc -c"])
        return int(done.stdout)

    def end_agent(self):
        self.deployment.kill_agent(self.node)
