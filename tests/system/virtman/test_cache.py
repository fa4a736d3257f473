"""What a node's cache keeps, and what happens when its device dies or is full."""

import hashlib
import json
import random
import re
import time

from lab.waiting import wait_until
from tests.system.virtman.base import MIB, DeployedCase, report, sha256
from tests.system.virtman.rot import BLOCK, Rotting, rot

BEHIND = "/dev/ubdb"
NOTED_AFTER = 35  # seconds; 30 until bcache notes where data lie that were read, and some to do it


class CacheCase(DeployedCase):
    """A node whose cache devices are made by each test, as large as it wants."""

    node_count = 1
    memory = "384M"  # a cache set takes 128 KiB in one piece
    size = 32 * MIB
    driver = "bcache"
    ssds = ("ssd",)
    warm_after = 60
    scrub_interval = 0

    @classmethod
    def setUpClass(cls):
        devices = ",".join(f"/dev/mapper/{name}" for name in cls.ssds)
        cls.options = {
            "cache": {"driver": cls.driver, "devices": devices},
            "image": {
                "warm_after": cls.warm_after,
                "scrub_interval": cls.scrub_interval,
                "scrub_rate": 1000,
            },
        }
        super().setUpClass()

    def setUp(self):
        (self.node,) = self.nodes
        for name in self.ssds:
            self.addCleanup(self.node.run, ["dmsetup", "remove", "--force", name], check=False)
        super().setUp()

    def make_ssd(self, size, erase=True):
        """Make each cache device, of this size."""
        # on the disk at once: later they would be written over what the cache has there by then
        zeros = ["dd", "if=/dev/zero", f"of={BEHIND}", "bs=1M", "count=4", "conv=fsync"]
        for number, name in enumerate(self.ssds):
            start = number * size
            if erase:
                self.node.run([*zeros, f"seek={start // MIB}"])
            table = f"0 {size // 512} linear {BEHIND} {start // 512}"
            self.node.run(["dmsetup", "create", name], input=table)

    def set_ssd(self, table):
        """Swap what the cache device is, under load."""
        self.node.run(["dmsetup", "reload", "ssd", "--table", table])
        self.node.run(["dmsetup", "suspend", "--noflush", "ssd"])
        self.node.run(["dmsetup", "resume", "ssd"])

    def await_device(self, device):
        wait_until(lambda: self.node.run(["test", "-e", device], check=False).status == 0,
                   "the VM's device", 60, 0.5)  # fmt: skip

    def cut_power(self, size, erase=False):
        """Cut the node's power, and start an agent on what is left."""
        self.node.run(["sync"])
        self.node.restart()
        self.make_ssd(size, erase)
        self.start_agent(self.node)

    def figures(self):
        (image,) = json.loads(self.virtman(self.node, "image", "list", "--json").stdout)
        return image["cache"]

    def assert_reads_right(self, device):
        self.assertEqual(self.sha256, sha256(self.node, device))


class TestCache(CacheCase):
    name = "cache"
    size = 80 * MIB
    paths_may_fail = True

    def test_after_a_power_cut_little_is_fetched_again(self):
        self.make_ssd(256 * MIB)
        device = self.create(self.node, "vm1")
        self.assert_reads_right(device)
        time.sleep(NOTED_AFTER)
        self.cut_power(256 * MIB)
        self.await_device(device)
        before = self.node.received_bytes()
        self.assert_reads_right(device)
        again = (self.node.received_bytes() - before) / self.size
        report(f"a node that was power-cut read its image again: {again:.0%} came from parents")
        self.assertLess(again, 0.2)
        # what a member belonged to may be gone as well
        self.cut_power(128 * MIB, erase=True)
        self.await_device(device)
        self.assert_reads_right(device)

    def test_an_image_made_anew_is_not_served_from_what_is_kept_of_the_earlier_one(self):
        self.make_ssd(256 * MIB)
        self.assert_reads_right(self.create(self.node, "vm1"))
        self.destroy(self.node, "vm1")
        self.node.run(["sync"])
        self.node.kill()
        where = f"/v1/images/{self.image}/hosts/{self.node.name}"
        self.deployment.ask("DELETE", where)
        self.deployment.remove_source(self.storage, self.image)
        content = random.Random(2).randbytes(self.size)
        (self.storage.share / "other").write_bytes(content)
        self.storage.run(["cp", "/host/other", "/var/tmp/other"])
        self.deployment.add_source(self.storage, self.image, *self.shape, disk="/var/tmp/other")
        self.addCleanup(self.restore_image)
        self.node.boot()
        self.node.wait_up()
        self.make_ssd(256 * MIB, erase=False)
        self.start_agent(self.node)
        device = self.create(self.node, "vm2")
        self.assertEqual(hashlib.sha256(content).hexdigest(), sha256(self.node, device))

    def restore_image(self):
        self.give_back()
        self.deployment.remove_source(self.storage, self.image)
        self.deployment.add_source(self.storage, self.image, *self.shape)

    def test_a_cache_that_dies_costs_no_vm_an_error_and_another_takes_its_place(self):
        sectors = 256 * MIB // 512
        self.make_ssd(256 * MIB)
        device = self.create(self.node, "vm1")
        self.assert_reads_right(device)
        # what the page cache has would not be read from below again
        script = (
            "while [ ! -e /tmp/stop ]; do echo 3 > /proc/sys/vm/drop_caches; "
            f"sha256sum {device} || echo an error; done"
        )
        reader = self.node.spawn(["sh", "-c", script], log="reads")
        log = self.node.share / "reads"
        wait_until(lambda: log.read_text().count("\n") > 1, "reads", 60, 0.2)
        self.set_ssd(f"0 {sectors} error")
        wait_until(lambda: not self.is_attached(), "bcache giving it up", 60, 0.2)
        died = log.read_text().count("\n")
        wait_until(lambda: log.read_text().count("\n") > died + 2, "reads without it", 60, 0.2)
        self.set_ssd(f"0 {sectors} linear {BEHIND} {sectors}")
        begin = time.monotonic()
        wait_until(self.is_cached, "another cache in use", 60, 0.5)
        report(f"another cache device was in use {time.monotonic() - begin:.1f} s later")
        back = log.read_text().count("\n")
        wait_until(lambda: log.read_text().count("\n") > back + 2, "reads with it", 60, 0.2)
        self.node.run(["touch", "/tmp/stop"])
        self.node.run(["tail", f"--pid={reader}", "-f", "/dev/null"])
        sums = {line.split()[0] for line in log.read_text().splitlines()}
        self.assertEqual({self.sha256}, sums)

    def is_cached(self):
        status = self.node.run(["dmsetup", "status", f"virtman_{self.image}_image"]).stdout
        return self.is_attached() and " F " not in status

    def is_attached(self):
        done = self.node.run(["sh", "-c", "ls -d /sys/block/bcache*/bcache/cache"], check=False)
        return done.status == 0

    def test_a_cache_that_is_full_serves_what_is_right(self):
        self.make_ssd(40 * MIB)  # bcache wants more than 512 buckets
        device = self.create(self.node, "vm1")
        for _ in range(3):
            self.assert_reads_right(device)
            self.node.drop_caches()


class TestScrub(CacheCase):
    name = "scrub"
    size = 96 * MIB
    scrub_interval = 2

    def test_what_is_cached_is_healed_and_next_to_nothing_fetched(self):
        cached = 16 * MIB
        content = (self.bed.folder / "image").read_bytes()
        self.make_ssd(256 * MIB)
        self.device = self.create(self.node, "vm1")
        self.assertTrue(self.read_start(cached) == content[:cached])
        wait_until(lambda: self.scrubs() > 1, "two scrubs", 60, 0.2)
        wrong = range(0, cached, MIB + BLOCK)
        # else a scrub heals a block while the next one rots
        with self.agent_held(self.node):
            wait_until(lambda: self.is_answered_by_the_cache(cached), "all cached", 60, 0.2)
            rot(self.node, BEHIND, content, wrong)
            self.assertFalse(self.read_start(cached) == content[:cached])
            before, scrubs = self.fetched(), self.scrubs()
        # what the VM reads itself must not count as fetched by scrubs: it reads after these
        wait_until(lambda: self.scrubs() > scrubs + 1, "a scrub from begin to end", 120, 0.2)
        scrubs = self.scrubs() - scrubs
        fetched = self.fetched() - before
        wait_until(lambda: self.read_start(cached) == content[:cached], "all healed", 120, 1)
        said = re.findall(r"the cache was wrong at bytes \((.*?)\)", self.log())
        found = sorted(int(at) for words in said for at in re.findall(r"\d+", words))
        self.assertEqual(sorted({*found} & {*wrong}), found)
        lacked = self.size - cached
        report(f"{scrubs} scrubs healed {len(found)} blocks, and fetched {fetched // 1024} KiB of "
               f"the {lacked // MIB} MiB that the cache lacked")  # fmt: skip
        self.assertLessEqual(fetched, (scrubs + 1) * 2 * lacked // 128)

    def is_answered_by_the_cache(self, length):
        """Read the first bytes of the VM's device; tell whether none of them were fetched."""
        before = self.fetched()
        self.read_start(length)
        return self.fetched() == before

    def fetched(self):
        """Bytes that were read from below the cache so far."""
        return self.node.read_bytes(f"/dev/mapper/virtman_{self.image}_stripe")

    def read_start(self, length):
        """Return the first bytes of the VM's device, read past the page cache."""
        self.node.run(["dd", f"if={self.device}", "of=/host/start", "bs=1M", "iflag=direct",
                       f"count={length // MIB}"])  # fmt: skip
        return (self.node.share / "start").read_bytes()

    def scrubs(self):
        return self.log().count("is scrubbed")

    def log(self):
        return (self.node.share / "agent.log").read_text()


class TestGroup(CacheCase):
    name = "group"
    size = 80 * MIB
    ssds = ("ssd", "ssd2")

    def test_two_devices_keep_together_an_image_that_is_larger_than_either(self):
        self.make_ssd(56 * MIB)
        device = self.create(self.node, "vm1")
        self.assert_reads_right(device)
        below = re.findall(r"\((\S+)\)", self.group("deps", "-o", "devname"))
        self.assertEqual({"ssd", "ssd2"}, set(below))
        each = str(55 * MIB // 512)  # all but what says that a device is ours
        rows = [line.split()[:3] for line in self.group("table").splitlines()]
        self.assertEqual([["0", each, "linear"], [each, each, "linear"]], rows)
        self.node.drop_caches()
        before, received = self.given(), self.node.received_bytes()
        self.assert_reads_right(device)
        again = (self.node.received_bytes() - received) / self.size
        given = [now - then for now, then in zip(self.given(), before, strict=True)]
        report(f"two cache devices gave {' and '.join(str(one >> 20) for one in given)} MiB of "
               f"{self.size >> 20}; {again:.0%} came from parents again")  # fmt: skip
        self.assertLess(again, 0.2)
        self.assertGreater(min(given), MIB)

    def group(self, *words):
        return self.node.run(["dmsetup", *words, "virtman_cachegroup"]).stdout

    def given(self):
        """Bytes that were read from each cache device."""
        return [self.node.read_bytes(f"/dev/mapper/{name}") for name in self.ssds]


class TestWarm(CacheCase):
    """VMs read a warm image from the cache itself, a few sectors at a time if they want."""

    name = "warm"
    size = 16 * MIB
    warm_after = 10

    def states(self):
        """Which of the ways to the image work, the cache first; only one while it is cold."""
        status = self.node.run(["dmsetup", "status", f"virtman_{self.image}_origin"]).stdout
        return re.findall(r"\d+:\d+ ([AF]) \d+", status)

    def read(self, device):
        """Return the hash of all that is read past the page cache, a sector at a time."""
        script = f"dd if={device} bs=512 iflag=direct status=none | sha256sum"
        return self.node.run(["sh", "-c", script]).stdout.split()[0]

    def test_what_the_cache_lacks_is_fetched(self):
        self.make_ssd(256 * MIB)
        device = self.create(self.node, "vm1")
        self.assertEqual(["A"], self.states())
        for _ in range(2):
            self.assert_reads_right(device)
            self.node.drop_caches()
        begin = time.monotonic()
        wait_until(lambda: self.states() == ["A", "A"], "reads from the cache", 120, 0.5)
        report(f"VMs read from the cache {time.monotonic() - begin:.1f} s after all was read")
        self.assertEqual(self.sha256, self.read(device))
        self.assertEqual(["A", "A"], self.states())
        cache = self.node.run(["sh", "-c", "echo /dev/bcache*"]).stdout.strip()
        self.node.run(["blkdiscard", "--force", "--offset", "4M", "--length", "4M", cache])
        self.assertEqual(self.sha256, self.read(device))
        self.assertNotIn("F", self.states())
        # bcache adds up what happened only every 38 seconds
        wait_until(lambda: self.figures()["hits"], "what was read twice being counted", 60, 0.5)
        self.assertGreater(self.figures()["misses"], 0)
        self.assertGreaterEqual(self.figures()["bypassed"], 0)
        self.assertEqual("512", self.node.run(["blockdev", "--getss", device]).stdout.strip())


class TestVolume(CacheCase):
    """A volume of somebody else, before which the cache is put."""

    name = "volume"
    VOLUME, FILE = "/dev/loop60", "/root/volume"

    def setUp(self):
        super().setUp()
        self.make_ssd(256 * MIB)

    def connect(self):
        self.node.run(["modprobe", "loop"])
        self.node.run(["losetup", self.VOLUME, self.FILE])

    def attach(self):
        """Return the volume's cached device; what is written stays in the cache until it goes."""
        attach = ["cache", "attach", "--mode", "writeback", self.VOLUME]
        device = self.virtman(self.node, *attach).stdout.strip()
        self.node.run(["sh", "-c", "echo 0 | tee /sys/block/bcache*/bcache/writeback_running"])
        return device

    def shown(self):
        (volume,) = json.loads(self.virtman(self.node, "cache", "list", "--json").stdout)
        return volume

    def test_a_volume_that_is_written_back_survives_a_power_cut(self):
        content = bytearray(random.Random(2).randbytes(16 * MIB))
        self.node.run(["dd", f"of={self.FILE}", "bs=1M", "conv=fsync"], input=bytes(content))
        self.connect()
        device = self.attach()
        self.assertEqual(hashlib.sha256(content).hexdigest(), sha256(self.node, device))
        content[MIB : 5 * MIB] = written = random.Random(3).randbytes(4 * MIB)
        self.node.run(["dd", f"of={device}", "bs=1M", "seek=1", "iflag=fullblock", "oflag=direct",
                       "conv=fsync"], input=written)  # fmt: skip
        self.assertGreater(self.shown()["dirty"], MIB)
        holder = self.node.spawn(["sh", "-c", f"exec 3<{device}; exec sleep 600"], log="holder")
        self.assertIn(
            "virtman.device.busy", self.refused(self.node, "cache", "detach", self.VOLUME)
        )
        self.node.run(["kill", str(holder)])
        self.cut_power(256 * MIB)
        self.connect()
        self.assertEqual(device, self.attach())
        expected = hashlib.sha256(content).hexdigest()
        self.assertEqual(expected, sha256(self.node, device))
        dirty, begin = self.shown()["dirty"], time.monotonic()
        self.assertGreater(dirty, MIB)
        self.virtman(self.node, "cache", "detach", self.VOLUME)
        report(f"a cached volume with {dirty >> 20} MiB not written back was given back after "
               f"{time.monotonic() - begin:.1f} s")  # fmt: skip
        self.node.run(["losetup", "--detach", self.VOLUME])
        self.assertEqual(expected, sha256(self.node, self.FILE))


class TestDmCache(Rotting, CacheCase):
    name = "dmcache"
    driver = "dmcache"

    def test_an_image_is_cached_on_a_slice_and_full_is_no_error(self):
        self.make_ssd(32 * MIB)
        device = self.create(self.node, "vm1")
        begin = time.monotonic()
        wait_until(lambda: self.hits(device), "blocks that are read again and again", 60, 0.5)
        report(f"dmcache, smaller than the image, served something after "
               f"{time.monotonic() - begin:.1f} s: {self.figures()}")  # fmt: skip

    def test_a_scrub_heals_blocks_that_have_rotted(self):
        self.make_ssd(64 * MIB)
        device = self.create(self.node, "vm1")
        wait_until(lambda: self.hits(device), "blocks that are read again and again", 60, 0.5)
        rotten = self.rot(self.node, BEHIND, range(0, self.size, MIB // 4 + BLOCK))
        self.assertEqual(rotten, self.scrub(self.node))
        self.assert_reads_right(f"/dev/mapper/virtman_{self.image}_image")
        self.assertEqual([], self.scrub(self.node))
        report(f"dmcache: a scrub healed {len(rotten)} blocks")

    def hits(self, device):
        self.assert_reads_right(device)
        self.node.drop_caches()
        return self.figures()["hits"]
