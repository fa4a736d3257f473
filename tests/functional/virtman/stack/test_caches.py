"""What a cache keeps of an image is used again for that image, and never for another."""

import contextlib
import re

from tests.functional.virtman.base import SIZE, TestCase
from tests.functional.virtman.doubles.model import Ssd
from tests.functional.virtman.doubles.process import Killed
from virtman.errors import ImageMismatch, KernelFailure, VirtmanError
from virtman.image.attachment import look


def is_of_a_cache(about):
    """Tell whether a verb's argument is a part of a cache."""
    parts = ("cache", "backing", "shim", "superblock", "set-", "loop")
    return any(part in about for part in parts)


class BcacheTest(TestCase):
    def uuids(self, node):
        return [one.uuid for one in node.kernel.members.values()]

    def superblocks(self, node):
        return [path.name for path in node.folder.rglob("*.superblock")]

    def restart(self, node):
        node.stop()
        node.reboot()

    def test_after_a_reboot_an_image_finds_what_the_cache_has_of_it(self):
        node = self.bed.node()
        node.create("vm1")
        node.settle()
        before, held, settings = self.uuids(node), dict(node.kernel.ssd.holds), self.settings(node)
        self.restart(node)
        self.assertEqual([], node.recover())
        self.assertEqual(before, self.uuids(node))
        self.assertEqual(held, node.kernel.ssd.holds)
        self.assertEqual(settings, self.settings(node))

    def settings(self, node):
        members, sets = node.kernel.members.values(), node.kernel.cache_sets.values()
        return [one.settings for one in (*members, *sets)]

    def test_an_image_that_was_left_gives_its_space_back(self):
        node = self.bed.node()
        self.bed.register("fedora")
        node.create("vm1")
        node.create("vm2", "fedora")
        node.destroy("vm1")
        node.drop("debian")
        self.assertEqual(["fedora"], list(node.kernel.ssd.holds.values()))

    def test_an_image_that_was_made_anew_gets_nothing_of_the_earlier_one(self):
        node = self.bed.node()
        node.create("vm1")
        node.settle()
        node.records.forget(node.records.get("vm1"))
        before = self.superblocks(node)
        self.restart(node)
        self.bed.remake("debian", "other content")
        node.create("vm1")
        node.settle()
        (after,) = self.superblocks(node)
        self.assertNotIn(after, before)
        self.assertIn("other content", node.kernel.ssd.holds.values())

    def test_wherever_power_is_cut_an_image_made_anew_gets_nothing_of_the_earlier_one(self):
        node = self.bed.node("whole", attach=0)
        self.live(node)
        # a cut before a verb is a cut after the one before it
        cuts = [at for at, (verb, about) in enumerate(node.kernel.log, 1) if is_of_a_cache(about)]
        self.assertGreater(len(cuts), 25)
        for index in cuts:
            node = self.bed.node(f"n{index}", attach=0)
            node.process.fate(kill_at=index)
            with contextlib.suppress(Killed, VirtmanError):
                self.live(node)
            fired, node.process.dead = node.process.fired, True
            for one in node.records.all():
                node.records.forget(one)
            self.restart(node)
            self.bed.remake("debian", f"content {index}")
            node.create("vm1")
            node.settle()
            self.assertEqual(1, len(self.superblocks(node)), fired)
            node.destroy("vm1")
            node.drop()
            self.assert_nothing_is_left(node, fired)

    def live(self, node):
        node.create("vm1")
        node.settle()
        node.destroy("vm1")
        node.drop()

    def test_an_earlier_image_that_was_half_given_up_is_given_up_whole(self):
        node = self.bed.node("whole")
        node.create("vm1")
        node.destroy("vm1")
        node.settle()
        before = len(node.kernel.log)
        node.drop()
        count = len(node.kernel.log) - before
        for index in range(1, count, 2):
            node = self.bed.node(f"n{index}")
            node.create("vm1")
            node.destroy("vm1")
            node.settle()
            node.process.fate(kill_at=index)
            with contextlib.suppress(Killed, VirtmanError, ExceptionGroup):
                node.drop()
            node.process.dead = True
            node.stop()
            node.start()
            self.bed.remake("debian", f"content {index}")
            self.assertEqual([], node.recover())
            node.create("vm1")
            node.settle()
            self.assertEqual([f"content {index}"], list(node.kernel.ssd.holds.values()), index)
            node.destroy("vm1")
            node.drop()
            self.assert_nothing_is_left(node, index)

    def test_a_host_does_not_feed_an_earlier_image_to_others(self):
        node = self.bed.node()
        node.create("vm1")
        node.settle()
        self.bed.remake("debian", "other content")
        node.beat()
        self.assertEqual(set(), self.bed.volt.hosts("debian"))
        self.assertIn("made anew", self.log.output)

    def test_a_cache_that_died_is_used_again_once_it_is_back(self):
        node = self.bed.node()
        node.create("vm1")
        node.settle()
        before = node.kernel.state()
        node.kernel.lose_ssd()
        self.assertEqual([False], [attached for _, attached, _ in node.kernel.state()["caches"]])
        for _ in range(3):
            node.beat()
        self.assertEqual(1, self.log.output.count("goes on without a cache"))
        node.kernel.return_ssd()
        node.beat()
        self.assertEqual(before, node.kernel.state())
        node.kernel.lose_ssd()
        node.beat()
        self.assertEqual(2, self.log.output.count("goes on without a cache"))

    def test_a_cache_that_another_took_the_place_of_is_not_waited_for(self):
        node = self.bed.node()
        node.create("vm1")
        node.settle()
        before = node.kernel.state()
        node.stop()
        node.kernel.ssd = Ssd()
        node.reboot()
        self.assertEqual([], node.recover())
        node.settle()
        self.assertEqual(before, node.kernel.state())

    def test_a_cache_that_can_have_no_more_members_is_made_anew_under_them(self):
        node = self.bed.node()
        self.bed.register("fedora")
        node.create("vm1")
        node.settle()
        before = node.kernel.state()
        node.kernel.ssd.places = 0
        node.create("vm2", "fedora")
        self.assertIn("making it anew", self.log.output)
        self.assertEqual({"debian", "fedora"}, set(node.kernel.ssd.holds.values()))
        node.destroy("vm2")
        node.drop("fedora")
        self.assertEqual(before, node.kernel.state())

    def test_wherever_an_agent_dies_that_makes_a_cache_anew_the_next_one_repairs_it(self):
        for index in range(1, 12):
            node = self.bed.node(f"n{index}", attach=0)
            self.bed.register(f"image{index}")
            node.create("vm1")
            node.settle()
            node.kernel.ssd.places = 0
            start = len(node.kernel.log)
            node.create("vm2", f"image{index}")
            verbs = [verb for verb, _ in node.kernel.log[start:]]
            full = verbs.index("attach")
            node.destroy("vm2")
            node.drop(f"image{index}")
            node.kernel.ssd.places = 0
            node.process.fate(kill_at=full + 1 + index)
            with contextlib.suppress(Killed, VirtmanError):
                node.create("vm2", f"image{index}")
            node.process.dead = True
            node.stop()
            node.start()
            self.assertEqual([], node.recover())
            node.beat()
            if len(node.records.all()) < 2:
                node.create("vm2", f"image{index}")
            states = [attached for _, attached, _ in node.kernel.state()["caches"]]
            self.assertEqual([True, True], states, index)
            node.destroy("vm1")
            node.destroy("vm2")
            node.drop()
            node.drop(f"image{index}")
            self.assert_nothing_is_left(node, index)

    def test_figures_go_to_volt_and_to_whoever_asks(self):
        node = self.bed.node()
        node.create("vm1")
        (member,) = node.kernel.members.values()
        member.reads = (70, 20, 10)
        (attachment,) = node.agent.images.attachments()
        with node.process.here():
            seen = look([attachment])
            figures, report = attachment.figures(seen), attachment.report(seen)
        self.assertEqual((70, 20, 10), (figures.hits, figures.misses, figures.bypassed))
        self.assertEqual((70, 20), (report.hits, report.misses))


class NoCacheTest(TestCase):
    driver = "none"

    def test_an_image_lies_on_the_stripes_directly(self):
        node = self.bed.node()
        node.create("vm1")
        node.settle()
        state = node.kernel.state()
        ((_, _, target, words),), *_ = state["dm"]["virtman_debian_image"]
        self.assertEqual("multipath", target)
        self.assertEqual(1, words.count("virtman_"))
        self.assertIn("virtman_debian_stripe", words)
        self.assertNotIn("virtman_cachegroup", state["dm"])
        self.assertEqual([], state["caches"])
        node.beat()
        self.assertEqual(state, node.kernel.state())
        node.destroy("vm1")
        node.drop()
        self.assert_nothing_is_left(node)


class DmCacheTest(TestCase):
    """What holds for all drivers that give each image a slice."""

    driver = "dmcache"
    target = "cache"
    figures = (60, 40, 0)

    def cached(self, node, image="debian"):
        return f"virtman_{image}_cached"

    def extents(self, node):
        """Who has which sectors of the SSD group."""
        return {
            name: [(int(row[3].split()[1]), row[1]) for row in one.table]
            for name, one in node.kernel.mappings.items()
            if name.endswith(("_cachemeta", "_cachedata"))
        }

    def test_an_image_has_a_slice_and_lies_on_its_cache_first(self):
        node = self.bed.node()
        node.create("vm1")
        node.settle()
        state = node.kernel.state()["dm"]
        ((_, length, target, words),), *_ = state[self.cached(node)]
        self.assertEqual((self.target, SIZE // 512), (target, length))
        self.assertIn("virtman_debian_cachedata", words)
        ((_, _, _, paths),), *_ = state["virtman_debian_image"]
        self.assertEqual(
            [self.cached(node), "virtman_debian_stripe"], re.findall(r"virtman_\S+", paths)
        )

    def test_a_slice_is_free_again_once_its_image_was_left(self):
        node = self.bed.node()
        self.bed.register("fedora")
        node.create("vm1")
        node.create("vm2", "fedora")
        before = self.extents(node)
        node.destroy("vm1")
        node.drop("debian")
        self.assertEqual({"fedora"}, {name.split("_")[1] for name in self.extents(node)})
        node.create("vm1")
        self.assertEqual(before, self.extents(node))
        for vm, image in (("vm1", "debian"), ("vm2", "fedora")):
            node.destroy(vm)
            node.drop(image)
        self.assert_nothing_is_left(node)

    def test_an_image_without_space_goes_on_without_a_cache_until_there_is_some(self):
        node = self.bed.node()
        self.bed.register("fedora")
        node.kernel.ssd_sectors = 15 * 2048
        node.create("vm1")
        node.create("vm2", "fedora")
        node.settle()
        self.assertIn("image fedora goes on without a cache", self.log.output)
        self.assertEqual([], [name for name in node.kernel.mappings if "fedora_cache" in name])
        node.destroy("vm1")
        node.drop("debian")
        node.beat()
        ((_, _, _, paths),), *_ = node.kernel.state()["dm"]["virtman_fedora_image"]
        self.assertIn(self.cached(node, "fedora"), paths)
        node.destroy("vm2")
        node.drop("fedora")
        self.assert_nothing_is_left(node)

    def test_whoever_holds_the_cache_of_an_image_that_left_reads_errors(self):
        node = self.bed.node()
        node.create("vm1")
        node.destroy("vm1")
        name = self.cached(node)
        node.kernel.held.add(f"/dev/mapper/{name}")
        self.assertRaises(ExceptionGroup, node.drop)
        ((_, _, target, _),), *_ = node.kernel.state()["dm"][name]
        self.assertEqual("error", target)
        self.assertEqual({}, self.extents(node))
        node.kernel.held.clear()
        node.create("vm1")
        node.settle()
        self.assertEqual(self.target, node.kernel.mappings[name].table[0][2])
        node.destroy("vm1")
        node.drop()
        self.assert_nothing_is_left(node)

    def test_an_agent_changes_nothing_of_what_runs_and_rebuilds_what_a_reboot_took(self):
        node = self.bed.node()
        node.create("vm1")
        node.settle()
        before = node.kernel.state()
        node.stop()
        node.start()
        self.assertEqual([], node.recover())
        node.settle()
        self.assertEqual(before, node.kernel.state())
        node.stop()
        node.reboot()
        self.assertEqual([], node.recover())
        node.settle()
        self.assertEqual(before, node.kernel.state())

    def test_a_device_that_holds_anything_else_is_refused(self):
        node = self.bed.node(keep=0)
        node.kernel.ssd_holds = "ext4"
        error = self.assertRaises(KernelFailure, node.create, "vm1")
        self.assertIn("holds ext4", str(error))
        self.assert_nothing_is_left(node)

    def test_a_create_that_is_cut_short_is_finished_or_undone(self):
        node = self.bed.node("whole", attach=0)
        node.create("vm1")
        node.settle()
        expected = node.kernel.state()["dm"]
        node.destroy("vm1")
        node.drop()
        cuts = [at for at, (_, about) in enumerate(node.kernel.log, 1) if is_of_a_cache(about)]
        self.assertGreater(len(cuts), 10)
        for index in cuts:
            node = self.bed.node(f"n{index}", attach=0)
            node.process.fate(kill_at=index)
            with contextlib.suppress(Killed, VirtmanError):
                node.create("vm1")
                node.settle()
            if not node.process.fired:
                continue
            node.process.dead = True
            node.stop()
            node.start()
            self.assertEqual([], node.recover(), node.process.fired)
            if not node.records.all():
                node.create("vm1")
            node.settle()
            state = node.kernel.state()["dm"]
            self.assertEqual(sorted(self.unmarked(expected)), sorted(self.unmarked(state)))
            node.destroy("vm1")
            node.drop()
            self.assert_nothing_is_left(node, index)

    def unmarked(self, names):
        return [name for name in names if not re.search("path|verity", name)]

    def test_figures_are_what_the_driver_says(self):
        node = self.bed.node()
        node.create("vm1")
        (attachment,) = node.agent.images.attachments()
        with node.process.here():
            figures = attachment.figures(look([attachment]))
        self.assertEqual(self.figures, (figures.hits, figures.misses, figures.bypassed))


class FlashCacheTest(DmCacheTest):
    driver = "flashcache"
    target = "flashcache"
    figures = (60, 30, 10)


class DmCacheFailureTest(TestCase):
    driver = "dmcache"

    def test_a_cache_that_gave_up_is_made_anew_once_its_device_is_back(self):
        node = self.bed.node()
        node.create("vm1")
        node.settle()
        before = node.kernel.state()
        node.kernel.lose_ssd()
        node.beat()
        self.assertEqual("error", node.kernel.mappings["virtman_debian_cached"].table[0][2])
        self.assertNotIn("virtman_debian_cachedata", node.kernel.mappings)
        node.kernel.return_ssd()
        node.beat()
        self.assertEqual(before, node.kernel.state())


class RemadeTest(TestCase):
    """An image that was deleted and made anew while its agent was away."""

    def voids(self, node):
        return [name for name in node.kernel.mappings if "_void_" in name]

    def test_an_agent_gives_up_devices_of_an_earlier_image(self):
        node = self.bed.node()
        node.create("vm1")
        node.destroy("vm1")
        node.settle()
        (earlier,) = self.voids(node)
        node.stop()
        node.start()
        self.bed.remake("debian", "other content")
        self.assertEqual([], node.recover())
        node.create("vm1")
        node.settle()
        (void,) = self.voids(node)
        self.assertNotEqual(earlier, void)

    def test_vms_over_an_earlier_image_are_left_alone_and_named(self):
        node = self.bed.node()
        node.create("vm1")
        node.settle()
        before = node.kernel.state()
        node.stop()
        node.start()
        self.bed.remake("debian", "other content")
        self.assertEqual(["vm1"], list(node.recover()))
        error = self.assertRaises(ImageMismatch, node.create, "vm2")
        self.assertIn("vm1", str(error))
        self.assertEqual(before["dm"], node.kernel.state()["dm"])
        node.destroy("vm1")
        self.assertEqual([], node.recover())
        node.create("vm2")


class RemadeUncachedTest(RemadeTest):
    driver = "none"
