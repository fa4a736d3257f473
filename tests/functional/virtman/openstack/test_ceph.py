"""Images that Ceph has are mapped: the real code, with stand-ins for the programs of Ceph."""

from dataclasses import replace
from pathlib import Path
from random import Random

import fixtures
import testtools

from tests.functional.virtman.openstack.ceph import FSID, FakeCeph
from virtman.kept_tree import KeptTree
from virtman.openstack import ceph
from virtman.openstack.ceph import Ceph, CephFailed
from virtman.openstack.glance import Image
from virtman.openstack.inspection import ImageUnusable

MIB = 1024**2
ID = "3f0e0a5c-8f0e-4a9c-9a53-0d6a9b1f7c11"
CLONE = f"virtman/storage1.glance-{ID}"
SNAPSHOT = f"images/{ID}@snap"


class Job:
    def __init__(self):
        self.heard, self.needed = [], 0

    def told(self, *words):
        self.heard.append(words)

    def need(self, size):
        self.needed = size


class Killed(BaseException):
    """The process is no more."""


class CephTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.cluster = self.useFixture(FakeCeph())
        self.place = Path(self.useFixture(fixtures.TempDir()).path)
        self.folder = self.place / f"glance-{ID}"
        self.disk = bytes(MIB) + Random(1).randbytes(2 * MIB) + bytes(3 * MIB)
        url = self.cluster.have(ID, self.disk)
        self.image = Image(ID, "active", "raw", "bare", len(self.disk), "sha512", "0", None, (url,))
        self.ceph = self.started()

    def started(self, pool="virtman"):
        return Ceph("/etc/ceph/ceph.conf", "virtman", pool, "storage1")

    def make(self, hashed=True, **different):
        self.job = Job()
        image = replace(self.image, **different)
        return self.ceph.make(image, self.folder, self.job, 64 * MIB, hashed=hashed)

    def assert_nothing_left(self):
        self.assertEqual(({}, {}), (self.cluster.clones(), self.cluster.mapped()))
        self.assertFalse(self.ceph.has(self.folder))

    def test_the_snapshot_is_held_by_a_clone_and_that_is_mapped(self):
        made = self.make()
        self.assertEqual(self.disk, made.path.read_bytes())
        self.assertEqual({CLONE: SNAPSHOT}, self.cluster.clones())
        self.assertEqual({str(made.path): CLONE}, self.cluster.mapped())
        self.assertEqual(["mapping", "hashing"], [self.job.heard[0][0], self.job.heard[-1][0]])

    def test_its_tree_is_kept_and_holes_were_not_read(self):
        made = self.make()
        read, size = [], len(self.disk)
        found = made.tree.of(str(made.path), size, lambda *words: read.append(words))
        self.assertEqual([], read)
        whole = self.place / "whole"
        whole.write_bytes(self.disk)
        other = KeptTree(self.place / "other")
        self.assertEqual(found, other.of(str(whole), size, lambda *words: None))
        self.assertEqual(made.tree.leaves.stat().st_size, self.job.needed)

    def test_without_a_tree_nothing_is_read(self):
        self.make(hashed=False)
        self.assertNotIn("diff", " ".join(self.cluster.state()["calls"]))
        self.assertEqual(["rbd"], [one.name for one in self.folder.iterdir()])

    def test_removal_leaves_nothing_and_can_be_repeated(self):
        self.make()
        for _ in range(2):
            self.ceph.remove(self.folder)
            self.assert_nothing_left()

    def test_another_process_finds_what_is_mapped(self):
        made = self.make()
        self.assertEqual(made.path, self.started().made(self.folder).path)
        self.assertEqual(1, len(self.cluster.mapped()))
        self.cluster.boot()
        again = self.started(pool=None).made(self.folder)
        self.assertEqual({str(again.path): CLONE}, self.cluster.mapped())
        self.assertEqual(self.disk, again.path.read_bytes())
        self.assertEqual([], again.tree.of(str(again.path), len(self.disk), self.fail) and [])

    def test_a_ceph_that_is_away_after_a_boot_is_waited_for(self):
        self.make()
        self.cluster.boot()
        self.cluster.fail("rbd device map")
        self.assertRaises(CephFailed, self.ceph.made, self.folder)
        self.cluster.fail()
        self.assertIsNotNone(self.ceph.made(self.folder))

    def test_what_is_not_in_ceph_is_left_to_others(self):
        for different in (
            {"places": ()},
            {"places": ("file:///images/1", "http://example/2")},
            {"disk_format": "qcow2"},
        ):
            self.assertIsNone(self.make(**different))
        self.ceph = self.started(pool=None)
        self.assertIsNone(self.make())
        self.assertEqual([], self.cluster.state()["calls"])

    def assert_not_mapped(self, word, **different):
        logger = self.useFixture(fixtures.FakeLogger("virtman.openstack.ceph"))
        self.assertIsNone(self.make(**different))
        self.assertIn(word, logger.output)
        self.assertIn("downloading it", logger.output)
        self.assert_nothing_left()

    def test_what_cannot_be_mapped_is_downloaded_and_the_log_says_why(self):
        other = "11111111-2222-3333-4444-555555555555"
        for word, different in (
            ("in the cluster other", {"places": (f"rbd://other/images/{ID}/snap",)}),
            ("not by its id", {"places": (self.cluster.have(other, self.disk),)}),
            ("error opening parent", {"places": (f"rbd://{FSID}/images/{ID}/gone",)}),
            ("not simple", {"places": (f"rbd://{FSID}/--pool/{ID}/snap",)}),
            ("not simple", {"places": (f"rbd://{FSID}/a%2Fb/{ID}/snap",)}),
            ("no whole sectors", {"size": len(self.disk) - 1}),
            ("bytes in Glance", {"size": len(self.disk) - 512}),
        ):
            self.assert_not_mapped(word, **different)

    def test_any_command_may_fail(self):
        for words in ("ceph fsid", "rbd clone", "rbd device map", "rbd device list", "rbd diff"):
            self.cluster.fail(words)
            logger = self.useFixture(fixtures.FakeLogger("virtman.openstack.ceph"))
            self.assertIsNone(self.make())
            self.assertIn(f"{words}", logger.output)
            self.cluster.fail()
            self.ceph.remove(self.folder)
            self.assert_nothing_left()

    def test_a_host_without_the_programs_of_ceph_downloads(self):
        self.useFixture(fixtures.EnvironmentVariable("PATH", "/usr/bin:/bin"))
        self.assertIsNone(self.make())

    def test_a_command_that_does_not_end_is_one_that_failed(self):
        self.useFixture(fixtures.MockPatchObject(ceph, "_SECONDS", 0.001))
        self.assertIsNone(self.make())

    def test_a_removal_that_fails_is_repeated(self):
        self.make()
        for words in ("rbd device unmap", "rbd rm"):
            self.cluster.fail(words)
            self.assertRaises(CephFailed, self.ceph.remove, self.folder)
            self.assertTrue(self.ceph.has(self.folder))
        self.cluster.fail()
        self.ceph.remove(self.folder)
        self.assert_nothing_left()

    def test_an_image_of_another_format_is_refused(self):
        self.disk = b"QFI\xfb" + bytes(MIB - 4)
        url = self.cluster.have(ID, self.disk)
        self.assertRaises(ImageUnusable, self.make, places=(url,), size=MIB)
        self.ceph.remove(self.folder)
        self.assert_nothing_left()

    def test_whatever_a_process_dies_over_the_next_one_goes_on_or_removes_it(self):
        for verb in (self.make, lambda: self.ceph.remove(self.folder)):
            for after in (False, True):
                for calls in range(20):
                    self.begin_again(with_image=verb != self.make)
                    with self.dying(calls, after=after):
                        try:
                            verb()
                            break
                        except Killed:
                            pass
                    self.ceph = self.started()
                    present = self.ceph.made(self.folder) or self.make()
                    self.assertEqual({str(present.path): CLONE}, self.cluster.mapped())
                    self.assertEqual([CLONE], list(self.cluster.clones()))
                    self.ceph.remove(self.folder)
                    self.assert_nothing_left()
                self.assertGreater(calls, 2)

    def begin_again(self, *, with_image):
        self.ceph.remove(self.folder)
        if with_image:
            self.make()

    def dying(self, calls, *, after):
        """Let the process die over its command of this number: before or after it."""
        run, left = ceph.subprocess.run, calls

        def die(*words, **settings):
            nonlocal left
            left -= 1
            if left < 0 and not after:
                raise Killed
            done = run(*words, **settings)
            if left < 0:
                raise Killed
            return done

        return fixtures.MockPatchObject(ceph.subprocess, "run", die)
