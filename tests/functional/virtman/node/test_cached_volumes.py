"""The cache group before volumes of others: put there, kept, and taken away without a trace."""

import errno
import os
from dataclasses import replace

import fixtures

from tests.functional.virtman.base import MIB, TestCase
from tests.functional.virtman.doubles.bcache import Bcache
from tests.functional.virtman.doubles.model import Ssd
from virtman.errors import CacheUnsupported, DeviceBusy, VolumeUnknown, VolumeUnusable
from virtman.node import cached_volumes
from virtman.node.cached_volumes import WRITEBACK, WRITETHROUGH

VOLUME = "/dev/cinder/volume-1"


class CachedCase(TestCase):
    def setUp(self):
        super().setUp()
        self.node = self.bed.node()
        self.kernel = self.node.kernel
        self.kernel.lvm.create("cinder", "volume-1", 64 * MIB)
        self.kernel.volumes[VOLUME].identity = "naa.1"
        exists = os.path.exists
        self.useFixture(
            fixtures.MockPatchObject(
                cached_volumes.os.path,
                "exists",
                lambda path: path in self.kernel.volumes or exists(path),
            )
        )

    def call(self, verb, *words):
        with self.node.process.here():
            return getattr(self.node.agent.cached, verb)(*words)

    def attach(self, mode=WRITETHROUGH):
        return self.call("attach", VOLUME, mode)

    def shown(self):
        (one,) = self.call("list")
        return one

    def member(self):
        (member,) = self.kernel.members.values()
        return member

    def assert_nothing_is_left_of_it(self):
        self.assertEqual([], list(self.call("list")))
        self.assertTrue(self.kernel.is_clean(), self.kernel.state())
        self.assertEqual([], list((self.node.folder / "cached").glob("*")))


class CachedTest(CachedCase):
    def test_a_volume_is_shown_through_the_cache_and_given_back(self):
        for mode in (WRITETHROUGH, WRITEBACK):
            made = self.attach(mode)
            self.assertEqual("ready", made.state)
            table = self.kernel.state()["dm"][made.volume.name]
            self.assertEqual(f"bcache over {made.volume.name}_backing 0", table[0][0][3])
            (_, behind) = self.kernel.state()["dm"][f"{made.volume.name}_backing"][0]
            self.assertEqual((2048, 131072, "linear", f"{VOLUME} 0"), behind)
            self.assertEqual(mode, self.member().settings["cache_mode"])
            self.assertEqual(made, self.attach(mode))
            self.assertEqual(None, self.call("detach", VOLUME))
            self.assert_nothing_is_left_of_it()

    def test_figures_are_those_of_the_cache(self):
        self.attach()
        self.member().reads = (7, 3, 1)
        self.assertEqual((7, 3), (self.shown().figures.hits, self.shown().figures.misses))

    def test_what_only_the_cache_has_is_written_before_the_volume_is_given_back(self):
        self.attach(WRITEBACK)
        self.member().dirty = 3 * MIB
        left = [self.call("detach", VOLUME) for _ in range(2)]
        self.assertEqual([("emptying", 2 * MIB), ("emptying", MIB)],
                         [(one.state, one.dirty) for one in left])  # fmt: skip
        self.assertRaises(VolumeUnusable, self.attach, WRITEBACK)
        self.node.stop()
        self.node.start()
        self.assertEqual([], list(self.node.recover()))
        self.assertEqual("emptying", self.shown().state)
        self.assertEqual(None, self.call("detach", VOLUME))
        self.assert_nothing_is_left_of_it()

    def test_a_volume_in_use_stays(self):
        made = self.attach()
        self.kernel.held.add(made.volume.device)
        before = self.kernel.state()
        self.assertRaises(DeviceBusy, self.call, "detach", VOLUME)
        self.assertEqual((before, "ready"), (self.kernel.state(), self.shown().state))

    def test_it_is_there_again_after_a_restart_and_a_reboot(self):
        self.attach(WRITEBACK)
        before = self.kernel.state()
        for again in (self.node.start, self.node.reboot):
            again()
            self.assertEqual([], list(self.node.recover()))
            self.assertEqual(before, self.kernel.state())

    def test_what_only_the_cache_has_outlasts_a_registration_that_fails(self):
        for number in (errno.ENOMEM, errno.EINVAL):
            self.attach(WRITEBACK)
            member = self.member().uuid
            self.member().dirty = 3 * MIB
            self.node.stop()
            self.node.reboot()
            register, failed = Bcache.register, []

            def registering(one, device, register=register, failed=failed, number=number):
                if "backing" in device and not failed:
                    failed.append(device)
                    raise OSError(number, "not just now")
                register(one, device)

            with fixtures.MockPatchObject(Bcache, "register", registering):
                self.call("recover")
            self.assertEqual(1, len(failed))
            self.call("recover")
            self.assertEqual(member, self.member().uuid)
            self.member().dirty = 0
            self.call("detach", VOLUME)

    def test_another_volume_of_the_same_path_is_not_touched(self):
        self.attach(WRITEBACK)
        self.kernel.volumes[VOLUME] = replace(self.kernel.volumes[VOLUME], identity="naa.2")
        self.node.reboot()
        self.assertEqual([VOLUME], list(self.node.recover()))
        self.assertNotIn(VOLUME, str(self.kernel.state()))
        for verb in ("attach", "detach"):
            words = (WRITEBACK,) if verb == "attach" else ()
            self.assertRaises(VolumeUnusable, self.call, verb, VOLUME, *words)

    def test_a_volume_that_is_not_connected_holds_nothing_up(self):
        self.attach()
        volume = self.kernel.volumes.pop(VOLUME)
        self.node.reboot()
        self.assertEqual([], list(self.node.recover()))
        self.assertEqual("absent", self.shown().state)
        self.kernel.volumes[VOLUME] = volume
        self.assertEqual("ready", self.attach().state)

    def test_images_and_volumes_share_the_cache(self):
        self.attach()
        self.node.create("vm1")
        self.node.destroy("vm1")
        self.node.drop()
        self.assertEqual("ready", self.shown().state)
        self.assertEqual(1, len(self.kernel.cache_sets))

    def test_an_agent_that_dies_anywhere_is_followed_by_one_that_gives_back_all(self):
        for index in range(1, 200):
            self.node.process.fate(kill_at=index)
            try:
                self.attach()
                self.call("detach", VOLUME)
            except BaseException as err:
                self.assertEqual("Killed", type(err).__name__)
            fired = self.node.process.fired
            self.node.start()
            if not fired:
                self.assertGreater(index, 10)
                return
            self.assertEqual([], list(self.node.recover()), fired)
            while any(self.call("list")):
                self.call("detach", VOLUME)
            self.assert_nothing_is_left_of_it()

    def test_what_cannot_be_cached_is_refused_and_leaves_nothing(self):
        self.kernel.lvm.create("cinder", "odd", MIB + 512)
        self.attach()
        busy = self.kernel.mappings
        for path in ("/dev/cinder/odd", "/dev/cinder/none", "/etc/passwd", "/dev/../etc", "x",
                     "/dev/mapper/virtman_cachegroup"):  # fmt: skip
            self.assertRaises(VolumeUnusable, self.call, "attach", path)
        self.assertRaises(VolumeUnusable, self.call, "attach", VOLUME, "writearound")
        self.assertRaises(VolumeUnusable, self.call, "attach", VOLUME, WRITEBACK)
        self.assertRaises(VolumeUnknown, self.call, "detach", "/dev/cinder/odd")
        self.assertEqual(busy, self.kernel.mappings)
        self.call("detach", VOLUME)
        self.assert_nothing_is_left_of_it()


class FullTest(CachedCase):
    """A cache that can have no more members, with what it alone has of a volume."""

    def setUp(self):
        super().setUp()
        self.attach(WRITEBACK)
        self.volume = self.member().uuid

    def fill(self):
        self.kernel.ssd.places = 0

    def caches(self):
        """Whether the cache set is before each member, by what it is a member for."""
        states = self.kernel.state()["caches"]
        return {name.split("_")[1]: attached for name, attached, _ in states}

    def assert_uncached(self, image="debian"):
        ((_, _, _, words),), *_ = self.kernel.state()["dm"][f"virtman_{image}_image"]
        self.assertNotIn("bcache", words)
        self.assertIn(f"virtman_{image}_stripe", words)
        self.assertIn(f"image {image} goes on without a cache", self.log.output)
        self.assertIn(f"connect {VOLUME} if that is absent, and run 'virtman cache detach'",
                      self.log.output)  # fmt: skip
        self.assertIn(self.volume, self.kernel.ssd.holds)

    def assert_mended(self):
        self.node.beat()
        self.assertEqual({"debian": True}, self.caches())
        ((_, _, _, words),), *_ = self.kernel.state()["dm"]["virtman_debian_image"]
        self.assertIn("bcache", words)
        self.node.destroy("vm1")
        self.node.drop()
        self.assert_nothing_is_left_of_it()

    def test_it_is_not_made_anew_while_the_volume_is_not_connected(self):
        volume = self.kernel.volumes.pop(VOLUME)
        self.node.reboot()
        self.assertEqual([], list(self.node.recover()))
        self.fill()
        self.node.create("vm1")
        self.assert_uncached()
        self.kernel.volumes[VOLUME] = volume
        self.assertEqual(None, self.call("detach", VOLUME))
        self.assert_mended()

    def test_it_is_not_made_anew_while_the_volume_is_not_written_back(self):
        self.member().dirty = 1
        self.fill()
        self.node.create("vm1")
        self.assert_uncached()
        self.assertEqual("ready", self.shown().state)
        self.assertEqual(None, self.call("detach", VOLUME))
        self.assert_mended()

    def test_it_is_made_anew_once_the_volume_is_written_back(self):
        self.member().dirty = 1
        self.fill()
        self.node.create("vm1")
        (volume, _) = self.kernel.members.values()
        volume.dirty = 0
        self.node.beat()
        self.assertEqual([True, True], list(self.caches().values()))
        self.assertEqual("ready", self.shown().state)

    def test_it_is_made_anew_for_a_volume_that_never_was_in_it(self):
        self.kernel.lvm.create("cinder", "volume-2", 64 * MIB)
        self.fill()
        made = self.call("attach", "/dev/cinder/volume-2", WRITEBACK)
        self.assertEqual("ready", made.state)

    def test_an_image_that_awaits_an_earlier_cache_can_be_used_and_left(self):
        self.node.create("vm1")
        self.node.destroy("vm1")
        self.node.stop()
        self.kernel.ssd = Ssd()
        self.node.reboot()
        self.assertEqual([], list(self.node.recover()))
        self.member().dirty = 1
        self.fill()
        self.node.create("vm1")
        self.assert_uncached()
        self.node.destroy("vm1")
        self.node.drop()
        self.assertEqual(None, self.call("detach", VOLUME))
        self.assert_nothing_is_left_of_it()


class UnsupportedTest(CachedCase):
    driver = "dmcache"

    def test_other_drivers_refuse(self):
        self.assertRaises(CacheUnsupported, self.attach)
        self.assert_nothing_is_left_of_it()
