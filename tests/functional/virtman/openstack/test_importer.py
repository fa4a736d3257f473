"""Images of Glance that hosts want are made by one importer, and go once nobody needs them."""

import contextlib
import hashlib
import os
import shutil
from dataclasses import replace

import fixtures

from tests.functional.virtman.base import PATIENCE, TestCase
from tests.functional.virtman.openstack.ceph import FakeCeph
from tests.functional.virtman.openstack.glance import FakeGlance, glance_at
from virtman.coordinator.client import VoltClient
from virtman.coordinator.interface import Shape
from virtman.errors import CoordinatorUnreachable, ImageUnknown
from virtman.model.address import Portal, Proof
from virtman.openstack import conversion, importer
from virtman.openstack.ceph import Ceph
from virtman.openstack.importer import Importer
from virtman.openstack.room import NoRoom, Room
from volt.errors import ImageInUse
from volt.registry.imports import LEASE

MIB = 1024**2
KEEP = 100.0


class Sources:
    """Serves files on the network of doubles, and tells Volt.

    :ivar read: bytes that were read for hash trees
    """

    def __init__(self, network, volt, portal):
        self.network, self.volt, self.portal = network, volt, portal
        self.served = {}
        self.hashed = True
        self.read = 0

    def add(self, image, path, told, kept, beside):
        self.beside = {name: tree.leaves.exists() for name, tree in beside.items()}
        size = os.stat(path).st_size
        kept.of(path, size, self.count)
        where = replace(self.portal, iqn=self.portal.iqn + image)
        proof = Proof(image, "secret-of-the-source")
        self.network.add_source(where, [size], (proof.user, proof.secret))
        self.volt.register(image, size, Shape(), where, proof)
        self.served[image] = path

    def count(self, done, size):
        self.read += done

    def remove(self, image):
        with contextlib.suppress(ImageUnknown):
            self.volt.forget(image)
        self.served.pop(image, None)


class Clock:
    def __init__(self):
        self.time = 0.0

    def now(self):
        return self.time

    def pause(self, seconds):
        self.time += seconds


class ImporterTest(TestCase):
    def setUp(self):
        super().setUp()
        self.glance = self.useFixture(FakeGlance())
        self.data = os.urandom(MIB)
        self.image = self.upload(self.data)
        self.clock = Clock()
        self.host = self.bed.node()
        self.all = []
        self.addCleanup(lambda: [one.stop() for one in self.all])
        self.addCleanup(self.glance.go.set)
        self.importer = self.started("storage1")

    def upload(self, data):
        return f"glance-{self.glance.upload(data)}"

    def started(self, name, limit=None, pool=None):
        """Return an importer, as after a start of its process."""
        volt = VoltClient(
            self.bed.volt.url, name, PATIENCE, self.bed.access(name, self.bed.volt.ground.operator)
        )
        portal = Portal(
            "127.0.0.1",
            self.bed.volt.ground.source_port,
            f"iqn.2026-11.org.virtman:source:{name}:",
        )
        folder = self.bed.folder / f"images-{name}"
        folder.mkdir(exist_ok=True)
        made = Importer(
            name,
            volt,
            glance_at(self.glance.url),
            Ceph("/etc/ceph/ceph.conf", "virtman", pool, name),
            Sources(self.bed.network, volt, portal),
            Room(folder, limit),
            64 * MIB,
            KEEP,
            now=self.clock.now,
            pause=self.clock.pause,
        )
        self.all.append(made)
        return made

    def want(self, image=None):
        with self.host.process.here():
            found = self.host.agent.images.want(image or self.image)
        self.host.beat()
        return found

    def tend(self, *importers):
        """Let importers do rounds until none of them is making anything."""

        def rounds():
            for one in importers or (self.importer,):
                one.tend()
            return not any(one._jobs for one in importers or (self.importer,))

        self.await_(rounds)

    def imports(self):
        return {
            one.image: (one.state.value, one.detail) for one in self.bed.volt.ground.imports.index()
        }

    def known(self):
        return [one.name for one in self.bed.volt.ground.images.index() if one.name != "debian"]

    def made(self, image=None, name="storage1"):
        return self.bed.folder / f"images-{name}" / (image or self.image) / "raw"

    def test_what_a_host_wants_is_made_once(self):
        self.want()
        self.tend()
        self.assertEqual([self.image], self.known())
        self.assertEqual(self.data, self.made().read_bytes())
        self.assertEqual({}, self.imports())
        self.assertEqual(MIB, self.want().size)
        self.tend()
        self.assertEqual(1, self.glance.downloads)
        self.assertEqual(0, self.importer.sources.read)

    def test_a_new_image_may_be_based_on_those_that_hosts_needed_last(self):
        for number, image in enumerate(
            (self.image, self.upload(bytes(MIB)), self.upload(b"x" * MIB))
        ):
            with fixtures.MockPatchObject(importer, "_COMPARED", 2):
                self.want(image)
                self.tend()
            os.utime(self.made(image).parent, (number, number))
        self.assertNotIn(self.image, self.importer.sources.beside)
        self.assertEqual([True, True], list(self.importer.sources.beside.values()))

    def test_what_nobody_wants_or_what_is_not_glances_is_left_alone(self):
        self.want("snapshot-1")
        self.tend()
        self.assertEqual({"snapshot-1": ("wanted", "")}, self.imports())
        self.assertEqual(0, self.glance.downloads)

    def test_who_waits_sees_how_far_it_is(self):
        self.glance.waits_at = 1000
        self.want()
        self.importer.tend()
        self.assertTrue(self.glance.waiting.wait(PATIENCE))
        self.importer.tend()
        found = self.want()
        self.assertEqual(("running", "storage1"), (found.state, found.importer))
        self.glance.go.set()
        self.tend()
        self.assertEqual([self.image], self.known())

    def test_an_image_goes_once_nobody_has_needed_it_for_a_while(self):
        self.want()
        self.tend()
        self.host.create("vm1", self.image)
        self.host.beat()
        self.host.process.dead = True
        self.bed.volt.ground.hosts.expire([self.host.name])
        self.glance.images.clear()
        for _ in range(3):
            self.clock.time += KEEP
            self.tend()
        self.assertTrue(self.made().exists())
        self.bed.volt.ground.holds.release(self.image, self.host.name)
        for _ in range(2):
            self.tend()
            self.assertEqual([self.image], self.known())
            self.clock.time += 0.9 * KEEP
        self.clock.time += KEEP
        self.tend()
        self.assertEqual([], self.known())
        self.assertEqual([], list(self.importer.folder.iterdir()))
        self.assertEqual({}, self.importer.sources.served)

    def test_one_that_an_operator_removed_goes_here_too(self):
        self.want()
        self.tend()
        self.bed.volt.ground.holds.release(self.image, self.host.name, by_itself=True)
        self.bed.volt.ground.images.delete(self.image)
        self.host.agent.images._wishes.clear()
        for _ in range(2):
            self.tend()
            self.clock.time += 2 * KEEP
        self.tend()
        self.assertFalse(self.made().exists())

    def test_why_one_cannot_be_made_is_told_and_it_is_tried_anew(self):
        image = self.image.removeprefix("glance-")
        self.glance.images[image]["os_hash_value"] = "0" * 128
        self.want()
        self.tend()
        state, detail = self.imports()[self.image]
        self.assertEqual("failed", state)
        self.assertIn("it is damaged", detail)
        self.assertEqual([], list(self.importer.folder.iterdir()))
        self.tend()
        self.assertEqual(1, self.glance.downloads)
        self.glance.images[image]["os_hash_value"] = hashlib.sha512(self.data).hexdigest()
        self.bed.volt.let_time_pass()
        self.bed.volt.let_time_pass()
        self.tend()
        self.assertEqual([self.image], self.known())

    def test_one_that_glance_does_not_have_fails(self):
        self.glance.images.clear()
        self.want()
        self.tend()
        self.assertEqual("failed", self.imports()[self.image][0])

    def test_several_share_the_work(self):
        other = self.started("storage2")
        images = [self.image, *(self.upload(os.urandom(4096)) for _ in range(5))]
        for image in images:
            self.want(image)
        self.await_(lambda: self.tend(self.importer, other) or len(self.known()) == 6)
        self.assertEqual(6, self.glance.downloads)
        served = [set(one.sources.served) for one in (self.importer, other)]
        self.assertEqual(set(), served[0] & served[1])
        self.assertEqual(set(images), served[0] | served[1])

    def test_one_that_falls_silent_is_replaced(self):
        self.glance.waits_at = 1000
        self.want()
        self.importer.tend()
        self.assertTrue(self.glance.waiting.wait(PATIENCE))
        other = self.started("storage2")
        self.tend(other)
        self.assertEqual([], self.known())
        self.assertGreater(60, LEASE)
        self.bed.volt.let_time_pass()
        self.glance.waits_at = None
        self.tend(other)
        self.assertEqual([self.image], self.known())
        self.glance.go.set()
        self.tend()
        self.assertEqual({}, self.importer.sources.served)
        self.assertEqual([], list(self.importer.folder.iterdir()))

    def test_after_a_restart_it_goes_on_with_what_it_was_making(self):
        self.glance.waits_at = 1000
        self.want()
        self.importer.tend()
        self.assertTrue(self.glance.waiting.wait(PATIENCE))
        self.glance.waits_at = None
        again = self.started("storage1")
        with fixtures.MockPatchObject(self.importer.sources, "add"):
            self.tend(again)
            self.assertEqual([self.image], self.known())

    def test_after_a_restart_what_is_half_made_goes_if_nobody_waits_for_it(self):
        self.glance.waits_at = 1000
        self.want()
        self.importer.tend()
        self.assertTrue(self.glance.waiting.wait(PATIENCE))
        self.bed.volt.ground.holds.release(self.image, self.host.name, by_itself=True)
        self.glance.waits_at = None
        again = self.started("storage1")
        self.assertTrue(list(self.made().parent.glob("*.part")))
        with fixtures.MockPatchObject(self.importer.sources, "add"):
            self.tend(again)
        self.assertEqual(([], []), (self.known(), list(again.folder.iterdir())))
        self.assertEqual(1, self.glance.downloads)

    def test_after_a_restart_it_serves_again_what_glance_has_deleted_since(self):
        self.want()
        self.tend()
        self.importer.stop()
        self.glance.images.clear()
        again = self.started("storage1")
        self.tend(again)
        self.assertEqual({self.image}, set(again.sources.served))
        self.assertEqual({}, self.imports())
        self.assertEqual(0, again.sources.read)

    def test_what_cannot_be_served_again_just_now_stays_for_the_next_round(self):
        self.want()
        self.tend()
        self.importer.stop()
        self.glance.images.clear()
        again = self.started("storage1")
        add, tries = again.sources.add, []

        def fail(*words):
            tries.append(words)
            raise OSError("the address is not there yet")

        again.sources.add = fail
        self.await_(lambda: again.tend() or len(tries) > 2)
        self.assertEqual(self.data, self.made().read_bytes())
        self.assertEqual({}, self.imports())
        again.sources.add = add
        self.tend(again)
        self.assertEqual({self.image}, set(again.sources.served))

    def test_what_volt_has_from_another_source_goes(self):
        self.want()
        self.tend()
        again = self.started("storage2")
        shutil.copytree(self.made().parent, self.made(name="storage2").parent)
        self.tend(again)
        self.assertEqual([], list(again.folder.iterdir()))
        self.assertTrue(self.made().exists())

    def test_a_hash_tree_that_a_dying_process_did_not_keep_is_made_again(self):
        self.want()
        self.tend()
        self.importer.stop()
        (self.made().parent / "tree").unlink()
        again = self.started("storage1")
        self.tend(again)
        self.assertEqual(MIB, again.sources.read)

    def test_a_glance_that_is_away_for_a_while_is_waited_for(self):
        self.glance.status = 503
        self.want()
        self.importer.tend()
        self.await_(lambda: self.clock.time > 2 * importer._RETRY)
        self.glance.status = None
        self.tend()
        self.assertEqual([self.image], self.known())

    def test_but_not_for_ever(self):
        self.glance.status = 503
        self.want()
        self.tend()
        self.assertEqual("failed", self.imports()[self.image][0])
        self.assertGreater(self.clock.time, importer._PATIENCE)

    def test_what_was_made_while_volt_is_away_is_made_known_later(self):
        self.glance.waits_at = 1000
        self.want()
        self.importer.tend()
        self.assertTrue(self.glance.waiting.wait(PATIENCE))
        self.bed.volt.silence()
        self.glance.go.set()
        (job,) = self.importer._jobs.values()
        self.assertIsInstance(job.future.exception(PATIENCE), CoordinatorUnreachable)
        self.assertRaises(CoordinatorUnreachable, self.importer.tend)
        self.bed.volt.silence(False)
        self.tend()
        self.assertEqual([self.image], self.known())
        self.assertEqual(1, self.glance.downloads)

    def test_a_full_disk_makes_room_by_what_nobody_needs(self):
        old = self.upload(os.urandom(4096))
        self.want(old)
        self.tend()
        self.host.agent.images._wishes.clear()
        self.host.beat()
        self.clock.time += 2 * importer._TIDY
        self.tend()
        make = conversion.make

        def full(*words, **settings):
            if self.made(old).exists():
                raise NoRoom("it is full")
            return make(*words, **settings)

        self.useFixture(fixtures.MockPatchObject(conversion, "make", full))
        self.want()
        self.tend()
        self.tend()
        self.assertEqual([self.image], self.known())
        another = self.upload(os.urandom(4096))
        self.useFixture(
            fixtures.MockPatchObject(conversion, "make", side_effect=NoRoom("it is full"))
        )
        self.want(another)
        self.tend()
        self.assertEqual(("failed", "it is full"), self.imports()[another])
        self.assertEqual([self.image], self.known())

    def limited(self, limit):
        """Have an importer whose images may not take more, in place of the first one."""
        self.importer = self.started("storage1", limit)

    def have_unused(self, *contents):
        """Have images that no host needs any more, in this order."""
        images = [self.upload(content) for content in contents]
        for age, image in enumerate(reversed(images)):
            self.want(image)
            self.tend()
            os.utime(self.made(image).parent, (0, 1000 - age))
        self.host.agent.images._wishes.clear()
        self.host.beat()
        return images

    def test_the_least_recently_used_makes_room_and_no_more_than_needed(self):
        self.limited(4 * MIB)
        images = self.have_unused(*(os.urandom(MIB) for _ in range(3)))
        self.want()
        self.tend()
        self.assertEqual({self.image, *images[1:]}, set(self.known()))
        self.assertEqual(4, self.glance.downloads)
        self.assertLessEqual(self.importer.room.taken(), 4 * MIB)

    def test_when_an_image_was_used_outlives_a_restart(self):
        self.limited(4 * MIB)
        images = self.have_unused(*(os.urandom(MIB) for _ in range(3)))
        self.want(images[0])
        self.clock.time += 2 * importer._TIDY
        self.tend()
        self.host.agent.images._wishes.clear()
        self.host.beat()
        self.importer.stop()
        self.limited(4 * MIB)
        self.tend()
        self.want()
        self.tend()
        self.assertEqual({self.image, images[0], images[2]}, set(self.known()))

    def test_what_hosts_need_is_not_removed_and_the_failure_says_what_to_do(self):
        self.limited(3 * MIB // 2)
        self.want()
        self.tend()
        other = self.upload(os.urandom(MIB))
        self.want(other)
        self.tend()
        state, detail = self.imports()[other]
        self.assertEqual("failed", state)
        self.assertIn(f"of the limit of {3 * MIB // 2}", detail)
        self.assertIn("raise the limit", detail)
        self.assertEqual([self.image], self.known())
        self.assertEqual([self.image], os.listdir(self.importer.folder))

    def test_an_image_that_cannot_fit_fails_and_removes_nothing(self):
        self.limited(3 * MIB)
        old = self.have_unused(os.urandom(MIB))
        large = self.upload(os.urandom(4 * MIB))
        self.want(large)
        self.tend()
        self.assertEqual("failed", self.imports()[large][0])
        self.assertEqual(old, self.known())
        self.assertEqual(1, self.glance.downloads)

    def begin_two(self):
        """Begin with an image that is damaged, and with one that waits for its room; return that.

        The first one comes slowly.
        """
        self.limited(3 * MIB // 2)
        self.glance.waits_at = 1000
        self.glance.images[self.image.removeprefix("glance-")]["os_hash_value"] = "0" * 128
        self.want()
        self.importer.tend()
        self.assertTrue(self.glance.waiting.wait(PATIENCE))
        other = self.upload(os.urandom(MIB))
        self.want(other)
        self.importer.tend()
        self.await_(lambda: self.importer._jobs[other].waits)
        return other

    def test_one_that_another_leaves_no_room_waits_for_what_becomes_of_that(self):
        other = self.begin_two()
        self.importer.tend()
        self.assertEqual(("running", "waiting for room"), self.imports()[other])
        self.glance.waits_at = None
        self.glance.go.set()
        self.tend()
        self.assertEqual("failed", self.imports()[self.image][0])
        self.assertEqual([other], self.known())

    def test_one_that_waits_for_room_ends_with_the_service(self):
        self.begin_two()
        self.glance.go.set()
        self.importer.stop()

    def test_a_smaller_limit_takes_unused_images_away(self):
        self.limited(None)
        images = self.have_unused(os.urandom(MIB), os.urandom(MIB))
        self.importer.room.limit = 3 * MIB // 2
        self.clock.time += 2 * importer._TIDY
        self.tend()
        self.assertEqual([images[1]], self.known())

    def map(self):
        """Have an image that Ceph has served, and its host let it go; return its cluster."""
        ceph = self.useFixture(FakeCeph())
        name = self.image.removeprefix("glance-")
        self.glance.images[name]["direct_url"] = ceph.have(name, self.data)
        self.importer = self.started("storage1", pool="virtman")
        self.want()
        self.tend()
        self.assertEqual([self.image], self.known())
        self.assertEqual((0, 1), (self.glance.downloads, len(ceph.mapped())))
        self.host.agent.images._wishes.clear()
        self.host.beat()
        return ceph

    def let_time_pass(self):
        """Let what nobody needs go, or begin to."""
        for _ in range(2):
            self.clock.time += 2 * KEEP
            self.tend()

    def test_an_image_in_ceph_is_mapped_and_leaves_nothing(self):
        ceph = self.map()
        self.let_time_pass()
        self.await_(lambda: self.let_time_pass() or not os.listdir(self.importer.folder))
        self.assertEqual(([], {}, {}), (self.known(), ceph.mapped(), ceph.clones()))

    def test_a_ceph_that_is_away_is_asked_again_to_let_an_image_go(self):
        ceph = self.map()
        ceph.fail("rbd rm")
        for _ in range(2):
            self.let_time_pass()
        self.assertEqual([self.image], list(self.importer._removed))
        other = self.upload(os.urandom(4096))
        self.want(other)
        self.tend()
        self.assertEqual([other], self.known())
        ceph.fail()
        self.await_(lambda: self.let_time_pass() or self.image not in self.importer._removed)
        self.assertEqual({}, ceph.clones())

    def test_an_image_that_is_wanted_again_while_it_goes_is_mapped_anew(self):
        ceph = self.map()
        ceph.fail("rbd rm")
        self.let_time_pass()
        self.want()
        self.let_time_pass()
        self.assertEqual([], self.known())
        ceph.fail()
        self.await_(lambda: self.let_time_pass() or self.known())
        self.assertEqual(1, len(ceph.mapped()))

    def test_a_mapped_image_is_mapped_again_after_a_boot_once_ceph_is_there(self):
        ceph = self.map()
        self.want()
        self.importer.stop()
        ceph.boot()
        ceph.fail("rbd device map")
        self.glance.images.clear()
        self.importer = self.started("storage1")

        def tries():
            self.importer.tend()
            return sum("device map" in call for call in ceph.state()["calls"]) > 3

        self.await_(tries)
        self.assertEqual({}, self.imports())
        self.assertEqual({}, self.importer.sources.served)
        ceph.fail()
        self.tend()
        self.assertEqual(list(ceph.mapped()), list(self.importer.sources.served.values()))
        self.assertEqual(0, self.importer.sources.read)

    def test_an_image_that_is_wanted_is_not_forgotten(self):
        self.want()
        self.tend()
        self.assertRaises(ImageInUse, self.bed.volt.ground.images.delete, self.image)
