"""What VMs wrote becomes layers on the real kernel; VMs begin with them anywhere, or not at all."""

import json
import time
from typing import ClassVar

from lab.waiting import wait_until
from tests.system.virtman.base import MIB, NEWER, DeployedCase, each, report, sha256

LAYER = "web"
FILE = f"/var/lib/virtman/layers/{LAYER}.layer"
# Writes over a byte of a file, whoever reads it.
ROT = "import os, sys; os.pwrite(os.open(sys.argv[1], os.O_WRONLY), b'rot', int(sys.argv[2]))"
# Changes a bit of a file, and back the second time.
FLIP = (
    "import os, sys; file, at = os.open(sys.argv[1], os.O_RDWR), int(sys.argv[2]); "
    "os.pwrite(file, bytes([os.pread(file, 1, at)[0] ^ 1]), at)"
)
TAKEN = "/var/tmp/layers"
WRITTEN = ((3, 5), (9, 1), (20, 2))  # MiB: where a VM writes, and how much


class LayerCase(DeployedCase):
    release = NEWER
    size = 32 * MIB
    paths_may_fail = True
    options: ClassVar = {"image": {"keep_time": 600}}

    def setUp(self):
        super().setUp()
        self.first, self.second = self.nodes

    def _clear(self, node):
        mine = [vm for where, vm in self.created if where is node]
        self.deployment.destroy(node, *mine)
        wait_until(lambda: self.has_dropped(node), "images going", 60, 0.5)
        wait_until(lambda: self.has_removed(node), "layers going", 60, 0.5)

    def has_dropped(self, node):
        there = [
            one["image"] for one in json.loads(self.virtman(node, "image", "list", "--json").stdout)
        ]
        for image in there:
            self.virtman(node, "image", "drop", image, check=False, timeout=300)
        return not there

    def has_removed(self, node):
        for layer in reversed(self.made(node)):
            self.virtman(node, "layer", "remove", layer, check=False, timeout=300)
        return not self.made(node)

    def made(self, node):
        found = json.loads(self.virtman(node, "layer", "list", "--json").stdout)
        return [one["layer"] for one in found if one["state"] != "failed"]

    def start(self, node, image, vm):
        """Create a VM of an image or layer; return its device."""
        made = self.deployment.create(node, image, vm)
        self.created.append((node, vm))
        return made["device"]

    def write(self, node, device):
        for at, length in WRITTEN:
            node.run(["dd", "if=/dev/urandom", f"of={device}", "bs=1M", f"seek={at}",
                      f"count={length}", "oflag=direct", "conv=notrunc"])  # fmt: skip

    def commit(self, node, vm, layer=LAYER, *words):
        return json.loads(
            self.virtman(node, "commit", "--json", *words, vm, layer, timeout=120).stdout
        )


class TestLayers(LayerCase):
    name = "layers"

    def test_a_running_vm_is_committed_and_starts_on_another_node(self):
        device = self.create(self.first, "vm1")
        self.write(self.first, device)
        moment = sha256(self.first, device)
        begin = time.monotonic()
        made = self.commit(self.first, "vm1")
        report(f"commit of {sum(n for _, n in WRITTEN)} MiB took {time.monotonic() - begin:.1f} s")
        self.first.run(["dd", "if=/dev/urandom", f"of={device}", "bs=1M", "count=1",
                        "oflag=direct"])  # fmt: skip
        self.assertNotEqual(moment, sha256(self.first, device))
        self.assertLess(made["length"], 10 * MIB)
        begin = time.monotonic()
        other = self.start(self.second, LAYER, "vm2")
        report(f"a VM of a layer, with its parent, came in {time.monotonic() - begin:.1f} s")
        self.assertEqual(moment, sha256(self.second, other))
        own = self.start(self.first, LAYER, "vm3")
        self.assertEqual(moment, sha256(self.first, own))
        self.write(self.second, other)
        self.assertEqual(moment, sha256(self.first, own))
        refused = self.virtman(self.first, "layer", "remove", LAYER, check=False)
        self.assertIn("virtman.image.in_use", refused.stderr)
        told = self.deployment.manage("image", "show", LAYER)
        self.assertIn(f"parent: {self.image}", told)

    def test_chains_are_right_after_power_cuts(self):
        device = self.create(self.first, "vm1")
        self.write(self.first, device)
        self.commit(self.first, "vm1")
        upper = self.start(self.first, LAYER, "vm2")
        self.first.run(["dd", "if=/dev/urandom", f"of={upper}", "bs=64k", "seek=77", "count=1",
                        "oflag=direct"])  # fmt: skip
        moment = sha256(self.first, upper)
        self.commit(self.first, "vm2", "second")
        other = self.start(self.second, "second", "vm3")
        self.assertEqual(moment, sha256(self.second, other))
        for node in (self.first, self.second):
            node.kill()
            node.boot()
            node.wait_up()
            self.start_agent(node)
        wait_until(lambda: self.has_vm(self.second, "vm3"), "a VM being back", 90, 0.5)
        self.assertEqual(moment, sha256(self.second, other))

    def test_the_end_of_a_vm(self):
        device = self.create(self.first, "vm1")
        self.write(self.first, device)
        moment = sha256(self.first, device)
        self.commit(self.first, "vm1", LAYER, "--final")
        self.created.remove((self.first, "vm1"))
        self.assertFalse(self.has_vm(self.first, "vm1"))
        self.assertEqual(moment, sha256(self.second, self.start(self.second, LAYER, "vm2")))

    def test_a_layer_whose_bytes_were_changed_is_refused(self):
        device = self.create(self.first, "vm1")
        self.write(self.first, device)
        made = self.commit(self.first, "vm1")
        # in the data of a chunk that the VM wrote, behind header and table
        self.first.run(["python3", "-c", ROT, FILE, str(3 * MIB)])
        self.first.drop_caches()
        other = self.start(self.second, LAYER, "vm2")
        read = self.second.spawn(["sha256sum", other], log="read")
        wait_until(self.has_wrong_bytes, "wrong bytes being seen", 60, 0.5)
        self.assertEqual("", (self.second.share / "read").read_text())
        self.assertGreater(made["length"], 3 * MIB)
        # once the file is as it was, the read goes on and is right
        moment = sha256(self.first, device)
        self.mend()
        self.second.run(["tail", f"--pid={read}", "-f", "/dev/null"], timeout=120)
        self.assertEqual(moment, (self.second.share / "read").read_text().split()[0])

    def has_wrong_bytes(self):
        status = self.second.run(["dmsetup", "status", "--target", "verity"]).stdout
        return any(LAYER in line and " verity C" in line for line in status.splitlines())

    def mend(self):
        """Have the file of the layer hold what it held: the VM has not written since."""
        script = (
            "import os, sys; "
            "device, file = os.open(sys.argv[1], os.O_RDONLY), os.open(sys.argv[2], os.O_RDWR); "
            # chunk 48 of the layer has the 47th chunk that was written: of the first run
            "at = 3 * 1048576 + (48 - 2) * 65536; "
            "os.pwrite(file, os.pread(device, 65536, at), 48 * 65536)"
        )
        device = f"/dev/mapper/virtman_{self.image}_vm_vm1"
        self.first.run(["python3", "-c", script, device, FILE])
        self.first.drop_caches()


class TestCluster(LayerCase):
    name = "layer-cluster"

    def test_committed_vms_boot_again_elsewhere_and_the_base_is_sent_once(self):
        """Each VM has a layer of its own; both lie on an image that no node has any more."""
        moments = each(self.nodes, self.write_and_commit)
        for node in self.nodes:
            wait_until(lambda node=node: self.has_dropped(node), "the image going", 60, 0.5)
        before = self.storage.sent_bytes()
        layers = [f"own-{node.name}" for node in reversed(self.nodes)]
        pairs = list(zip(self.nodes, layers, strict=True))
        devices = each(pairs, lambda pair: self.start(*pair, f"again-{pair[0].name}"))
        places = list(zip(self.nodes, devices, strict=True))
        self.assertEqual(moments[::-1], each(places, lambda place: sha256(*place)))
        sent = self.storage.sent_bytes() - before
        report(
            f"2 VMs with a layer each booted anew: the source sent {sent / self.size:.2f} images"
        )
        self.assertLess(0.7 * self.size, sent)  # but what layers have instead
        self.assertLess(sent, 1.25 * self.size)

    def write_and_commit(self, node):
        """Have a VM write its own data, and end; return the SHA-256 of its disk."""
        vm = f"first-{node.name}"
        device = self.create(node, vm)
        self.write(node, device)
        moment = sha256(node, device)
        self.commit(node, vm, f"own-{node.name}", "--final")
        self.created.remove((node, vm))
        return moment


class TestCheckpoints(LayerCase):
    name = "checkpoints"

    def test_checkpoints_are_right_whoever_dies_and_the_next_has_only_what_changed(self):
        device = self.create(self.first, "vm1")
        self.write(self.first, device)
        first = self.make()
        self.assertGreater(first["length"], 8 * MIB)
        earliest = sha256(self.first, device)
        self.change(device, 1)
        second = self.make()
        self.assertEqual(("vm1.2", "vm1.1", MIB), self.seen(second))
        self.virtman(self.first, "checkpoint", "vm1", "--every", "2s", "--keep", "2")
        for turn in range(2):
            self.change(device, turn)
            time.sleep(2 + turn)
            self.restart_agent(self.first)
        count = self.count()
        wait_until(lambda: self.count() > count, "one more by the schedule", 30, 0.2)
        self.virtman(self.first, "checkpoint", "--every", "0", "vm1")
        self.first.kill()
        self.first.boot()
        self.first.wait_up()
        self.start_agent(self.first)
        wait_until(lambda: self.has_vm(self.first, "vm1"), "the VM being back", 60, 0.5)
        self.change(device, 5)
        last = self.make()
        self.assertEqual(MIB, last["length"])
        other = self.start(self.second, last["layer"], "vm2")
        self.assertEqual(sha256(self.first, device), sha256(self.second, other))
        if "vm1.1" in self.made(self.first):
            back = self.start(self.second, "vm1.1", "vm3")
            self.assertEqual(earliest, sha256(self.second, back))
        (shown,) = json.loads(self.virtman(self.first, "checkpoint", "list", "--json").stdout)
        report(f"after {last['layer']} there are {shown['layers']}")
        self.assertLessEqual(len(shown["layers"]), 5)
        vms = json.loads(self.virtman(self.first, "list", "--json").stdout)
        self.assertEqual(["vm1"], [one["vm"] for one in vms])
        self.virtman(self.first, "checkpoint", "stop", "vm1")

    def make(self):
        return json.loads(self.virtman(self.first, "checkpoint", "vm1", "--json").stdout)

    def seen(self, layer):
        return layer["layer"], layer["image"], layer["length"]

    def count(self):
        (shown,) = json.loads(self.virtman(self.first, "checkpoint", "list", "--json").stdout)
        return int(shown["layers"][-1].removeprefix("vm1."))

    def change(self, device, chunk):
        self.first.run(["dd", "if=/dev/urandom", f"of={device}", "bs=64k", f"seek={chunk}",
                        "count=1", "oflag=direct"])  # fmt: skip


class TestExport(LayerCase):
    name = "layer-export"

    def test_a_layer_goes_in_a_file_and_comes_back_as_it_was(self):
        device = self.create(self.first, "vm1")
        self.write(self.first, device)
        moment = sha256(self.first, device)
        made = self.commit(self.first, "vm1")
        self.virtman(self.first, "layer", "export", LAYER, "/host/file")
        content = (self.first.share / "file").read_bytes()
        self.assertLess(len(content), made["length"])
        self.virtman(self.first, "layer", "remove", LAYER)
        middle = len(content) // 2
        changed = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        for text in (changed, content[:-1]):
            (self.first.share / "file").write_bytes(text)
            refused = self.virtman(self.first, "layer", "import", "/host/file", check=False)
            self.assertIn("virtman.layer.file", refused.stderr)
            self.assertEqual("", self.first.run(["ls", "/var/lib/virtman/layers"]).stdout)
        (self.first.share / "file").write_bytes(content)
        self.virtman(self.first, "layer", "import", "/host/file", timeout=120)
        other = self.start(self.second, LAYER, "vm2")
        self.assertEqual(moment, sha256(self.second, other))
        disk = "/var/tmp/disk.qcow2"
        self.second.run(
            ["qemu-img", "convert", "-f", "raw", "-O", "qcow2", other, disk], timeout=120
        )
        self.second.run(
            ["qemu-img", "compare", "-f", "raw", "-F", "qcow2", other, disk], timeout=120
        )
        self.second.run(["rm", disk])


class StorageCase(LayerCase):
    """Storage nodes may take what nodes make."""

    peers = True

    def taking(self, layer=LAYER, maker=None):
        self.storage.run(["mkdir", "-p", TAKEN])
        return self.deployment.taking(self.storage, layer, TAKEN, maker)


class TestStorage(StorageCase):
    name = "layer-storage"
    link_rate = "25mbit"

    def test_a_storage_node_takes_a_layer_whoever_dies_and_its_maker_may_go(self):
        device = self.create(self.first, "vm1")
        self.write(self.first, device)
        moment = sha256(self.first, device)
        made = self.commit(self.first, "vm1")
        other = self.start(self.second, LAYER, "vm2")
        flip = ["python3", "-c", FLIP, FILE, str(made["length"] - 1)]
        self.first.run(flip)
        refused = self.storage.run(self.taking(), check=False, timeout=120)
        self.assertIn("virtman.layer.wrong", refused.stderr)
        self.assertEqual("", self.storage.run(["ls", TAKEN]).stdout)
        self.first.run(flip)
        taking = self.storage.spawn(self.taking(), log="take")
        self.wait_come(MIB)
        self.storage.run(["kill", "-9", str(taking)])
        taking = self.storage.spawn(self.taking(), log="take")
        self.wait_come(3 * MIB)
        self.deployment.kill_agent(self.first)
        self.assertGreater(self.come(), 2 * MIB)
        before = self.first.sent_bytes()
        self.start_agent(self.first)
        self.storage.run(["tail", f"--pid={taking}", "-f", "/dev/null"], timeout=120)
        self.assertIn(f"{LAYER}: ", self.said_taking())
        sent = self.first.sent_bytes() - before
        report(f"the rest of a layer of {made['length']} bytes took {sent}")
        self.assertLess(sent, made["length"] - MIB)
        self.virtman(self.first, "layer", "remove", LAYER)
        self.first.kill()
        self.assertEqual(moment, sha256(self.second, other))
        self.first.boot()
        self.first.wait_up()
        self.start_agent(self.first)
        self.give_back_layer()

    def test_a_layer_comes_while_it_is_made(self):
        device = self.create(self.first, "vm1")
        self.write(self.first, device)
        moment = sha256(self.first, device)
        making = self.first.spawn(["virtman", "commit", "vm1", LAYER], log="commit")
        wait_until(lambda: self.made(self.first), "the beginning of the commit", 60, 0.05)
        was_known = self.deployment.request("GET", f"/v1/images/{LAYER}").ok
        self.storage.run(self.taking(LAYER, self.first), timeout=120)
        report(f"a storage node took a layer; known to Volt when that began: {was_known}")
        self.first.run(["tail", f"--pid={making}", "-f", "/dev/null"], timeout=60)
        self.virtman(self.first, "layer", "remove", LAYER)
        other = self.start(self.second, LAYER, "vm2")
        self.assertEqual(moment, sha256(self.second, other))
        self.give_back_layer()

    def give_back_layer(self):
        self.deployment.destroy(self.second, "vm2")
        self.created.remove((self.second, "vm2"))
        self.virtman(self.second, "image", "drop", LAYER, timeout=120)
        self.deployment.remove_source(self.storage, LAYER)
        self.storage.run(["rm", "-rf", TAKEN])

    def come(self):
        """Bytes of a layer that have come to the storage node."""
        found = self.storage.run(["stat", "-c", "%s", f"{TAKEN}/{LAYER}.layer.part"], check=False)
        return int(found.stdout or 0)

    def wait_come(self, size):
        wait_until(lambda: self.come() > size, f"{size} bytes of a layer", 60, 0.1)

    def said_taking(self):
        return (self.storage.share / "take").read_text()


class TestMoment(LayerCase):
    name = "layer-moment"

    def test_a_commit_has_one_moment_while_the_vm_writes(self):
        """The guest writes numbers that rise; the layer has all up to one of them."""
        device = self.create(self.first, "vm1")
        script = (
            "import mmap, os, sys, time\n"
            "disk = os.open(sys.argv[1], os.O_RDWR | os.O_DIRECT)\n"
            "block, number = mmap.mmap(-1, 4096), 0\n"
            "while not os.path.exists('/host/stop'):\n"
            "    number += 1\n"
            "    block[:8] = number.to_bytes(8, 'big')\n"
            "    os.pwritev(disk, [block], number % 512 * 65536)\n"
        )
        (self.first.share / "stop").unlink(missing_ok=True)
        writer = self.first.spawn(["python3", "-c", script, device], log="writer")
        time.sleep(2)
        self.commit(self.first, "vm1")
        (self.first.share / "stop").touch()
        self.first.run(["tail", f"--pid={writer}", "-f", "/dev/null"], timeout=60)
        other = self.start(self.second, LAYER, "vm2")
        script = (
            "import os, sys; disk = os.open(sys.argv[1], os.O_RDONLY); "
            "print(*(os.pread(disk, 8, n * 65536).hex() for n in range(512)))"
        )
        base = (self.bed.folder / "image").read_bytes()
        found = self.second.run(["python3", "-c", script, other]).stdout.split()
        numbers = {
            at: int(text, 16)
            for at, text in enumerate(found)
            if bytes.fromhex(text) != base[at * 65536 :][:8]
        }
        last = max(numbers.values())
        expected = {n % 512: n for n in range(max(1, last - 511), last + 1)}
        self.assertEqual(expected, numbers)
        self.assertGreater(last, 10)
