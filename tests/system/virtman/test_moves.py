"""VMs that write while they are copied and moved: every byte that was acknowledged is there."""

import json

from lab.waiting import wait_until
from tests.system.virtman.base import DeployedCase, report

# Writes a number to one block after another, each when the one before is on the disk and at most
# 200 a second, until the device fails; says which was the first that failed, and how long a write
# took at most.
COUNTER = """
import mmap, os, sys, time
disk = os.open(sys.argv[1], os.O_RDWR | os.O_DIRECT)
block, longest, last = mmap.mmap(-1, 4096), 0.0, time.monotonic()
for n in range(1, 1 << 30):
    block[:16] = b"%016d" % n
    try:
        os.pwritev(disk, [block], 16 * 1048576 + n % 256 * 4096)
    except OSError:
        break
    now = time.monotonic()
    longest, last = max(longest, now - last), now
    time.sleep(0.005)
print(n, longest)
"""

# Reads it: the last number, if all others are those that were written right before.
COUNTED = """
import mmap, os, sys
disk = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
data = mmap.mmap(-1, 256 * 4096)
os.preadv(disk, [data], 16 * 1048576)
found = [int(data[at * 4096 : at * 4096 + 16].replace(b"\\0", b"0")) for at in range(256)]
last = max(found)
right = [max(0, last - (last - at) % 256) for at in range(256)]
assert found == right, (last, [at for at in range(256) if found[at] != right[at]])
print(last)
"""

# Opens a device, as a hypervisor does that gets a guest's memory, and reads until it can; says how
# many reads failed, and which number it read.
WAITER = """
import mmap, os, sys, time
disk = os.open(sys.argv[1], os.O_RDWR | os.O_DIRECT)
data, failed = mmap.mmap(-1, 256 * 4096), 0
print("open", flush=True)
while True:
    try:
        os.preadv(disk, [data], 16 * 1048576)
        break
    except OSError:
        failed += 1
        time.sleep(0.05)
found = [int(data[at * 4096 : at * 4096 + 16].replace(b"\\0", b"0")) for at in range(256)]
print(failed, max(found))
"""


class TestMoves(DeployedCase):
    name = "moves"
    shape = (1, 2)
    peers = True
    link_rate = "25mbit"  # an agent is to be killed while it sends

    def test_a_vm_is_copied_moved_and_moved_back(self):
        first, second = self.nodes
        device = self.create(first, "vm1")
        zeros = ["dd", "if=/dev/zero", f"of={device}", "bs=1M", "seek=16", "count=1",
                 "oflag=direct", "conv=fsync"]  # fmt: skip
        first.run(zeros)
        first.run(["dd", "if=/dev/urandom", f"of={device}", "bs=1M", "count=6", "oflag=direct"])
        kept = self.digest(first, device)
        first.spawn(
            ["fio", "--name=load", f"--filename={device}", "--rw=randwrite", "--bs=4k",
             "--offset=8M", "--size=1M", "--direct=1", "--verify=crc32c", "--verify_backlog=64",
             "--rate=100k", "--time_based", "--runtime=120"],
            log="fio",
        )  # fmt: skip
        first.spawn(["python3", "-c", COUNTER, device], log="counter")
        copied = self.ask(first, "clone", "vm1", "--to", "node2", "--as", "copy")
        self.created.append((second, "copy"))
        copy = self.ask(second, "vm", "show", "copy")["device"]
        at_copy = self.counted(second, copy)
        self.assertEqual(kept, self.digest(second, copy))
        self.destroy(second, "copy")
        moved = self.ask(first, "migrate", "vm1", "--to", "node2")
        self.created[:] = [(second, "vm1")]
        self.assertEqual(device, self.ask(second, "vm", "show", "vm1")["device"])
        failed, longest = self.written(first, "counter")
        self.assertEqual(int(failed) - 1, self.counted(second, device))
        self.assertGreater(int(failed), at_copy)
        self.assertEqual(kept, self.digest(second, device))
        self.assertNotIn("verify:", (first.share / "fio").read_text())
        report(f"migrate under load: {moved['sent'] >> 10} KiB of a 32 MiB disk sent as "
               f"{moved['wire'] >> 10} KiB in {moved['round'] + 1} rounds, the VM held for "
               f"{moved['pause']:.3f} s (longest write before: {float(longest):.3f} s); clone: "
               f"{copied['sent'] >> 10} KiB")  # fmt: skip
        wait_until(lambda: not self.list(first), "nothing left on node1", 60, 0.5)
        self.kill_halfway(second, first, device)
        self.assertEqual(kept, self.digest(first, device))

    def test_a_vm_moves_live_while_its_agents_are_killed(self):
        first, second = self.nodes
        device = self.create(first, "vm1")
        first.spawn(["python3", "-c", COUNTER, device], log="live")
        self.ask(first, "migrate", "vm1", "--to", "node2", "--live")
        second.spawn(["python3", "-c", WAITER, device], log="waiter")
        wait_until(lambda: "open" in (second.share / "waiter").read_text(), "an open device", 20)
        for node in (second, first):
            self.restart_agent(node)
            wait_until(lambda: self.is_ready(first), "a VM that can go", 60, 0.5)
        moved = self.ask(first, "move", "finish", "vm1")
        self.created[:] = [(second, "vm1")]
        failed, _ = self.written(first, "live")
        self.assertEqual(int(failed) - 1, self.counted(second, device))
        _, reads, number = self.written(second, "waiter", 2)
        self.assertGreater(int(reads), 0)
        self.assertEqual(int(failed) - 1, int(number))
        report(f"live move under load: the VM held for {moved['pause']:.3f} s")
        wait_until(lambda: not self.list(first), "nothing left on node1", 60, 0.5)

    def is_ready(self, node):
        return [one["state"] for one in self.ask(node, "move", "list")] == ["ready"]

    def kill_halfway(self, source, destination, device):
        """Move the VM back; the source's agent is killed while it sends."""
        source.spawn(["python3", "-c", COUNTER, device], log="counter")
        source.spawn(["virtman", "migrate", "vm1", "--to", destination.name], log="migrate")
        wait_until(lambda: any(one["sent"] for one in self.ask(source, "move", "list")),
                   "something sent", 30, 0.1)  # fmt: skip
        self.deployment.kill_agent(source)
        source.run(["test", "-e", device])
        self.start_agent(source)
        self.created[:] = [(destination, "vm1")]
        wait_until(lambda: self.list(destination) == [("vm1", "ready")], "the VM back", 60, 0.5)
        failed, _ = self.written(source, "counter")
        self.assertEqual(int(failed) - 1, self.counted(destination, device))
        wait_until(lambda: not self.list(source), "nothing left behind", 60, 0.5)

    def ask(self, node, *words):
        return json.loads(self.virtman(node, *words, "--json", timeout=120).stdout)

    def list(self, node):
        return [(one["vm"], one["state"]) for one in self.ask(node, "list")]

    def counted(self, node, device):
        return int(node.run(["python3", "-c", COUNTED, device]).stdout)

    def digest(self, node, device):
        """Checksum of the first 6 MiB."""
        read = f"dd if={device} bs=1M count=6 iflag=direct 2> /dev/null | sha256sum"
        return node.run(["sh", "-c", read]).stdout.split()[0]

    def written(self, node, log, lines=1):
        """Wait for a writer; return what it printed."""
        file = node.share / log
        wait_until(lambda: file.exists() and file.read_text().count("\n") == lines, log, 60, 0.5)
        return file.read_text().split()
