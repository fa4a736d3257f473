"""What has rotted in the cache is found, and dropped without anything else."""

import fixtures

from tests.functional.virtman.base import MIB, SIZE, TestCase
from virtman.background.scrub import Scrubbing, scrub, scrub_held
from virtman.errors import DeviceBusy, ImageUnknown, InvalidRequest


class ScrubTest(TestCase):
    def setUp(self):
        super().setUp()
        self.node = self.bed.node()
        self.node.create("vm1")
        self.rotten = self.node.kernel.rotten[self.cache()]

    def cache(self):
        (member,) = self.node.kernel.members
        return member

    def scrub(self, **settings):
        with self.node.process.here():
            return scrub(self.node.agent.images.attached("debian"), **settings)

    def test_a_sound_cache_keeps_all(self):
        self.assertEqual((SIZE, ()), (self.scrub().checked, self.scrub().dropped))
        self.assertEqual([], self.node.kernel.forgotten)

    def test_only_wrong_blocks_are_dropped_from_all_caches(self):
        wrong = (0, 3 * MIB + 4096, SIZE - 4096)
        self.rotten.update(wrong)
        self.assertEqual(wrong, self.scrub().dropped)
        self.assertEqual(
            {(f"virtman_debian_export{stripe}", at + MIB) for stripe in (0, 1) for at in wrong},
            set(self.node.kernel.forgotten),
        )
        self.assertEqual((), self.scrub().dropped)

    def test_a_slow_scrub_pauses_for_what_it_was_too_fast(self):
        pauses = []
        self.scrub(rate=MIB / 100, pause=pauses.append)
        self.assertEqual(2 * SIZE // MIB, len(pauses))
        self.assertTrue(all(49 < pause <= 50 for pause in pauses), pauses)

    def test_the_image_stays_while_it_is_scrubbed(self):
        self.node.destroy("vm1")
        refused = []

        def drop(delay):
            error = self.assertRaises(DeviceBusy, self.node.drop)
            refused.append(str(error))

        self.scrub(rate=1, pause=drop)
        why = "image debian is in use: a scrub reads it: try again after that"
        self.assertEqual({why}, set(refused))
        self.node.drop()
        self.assert_nothing_is_left(self.node)

    def test_all_images_with_hashes_are_scrubbed_in_turn(self):
        self.bed.register("plain", hashed=False)
        self.node.create("vm2", "plain")
        self.rotten.add(MIB)
        with self.node.process.here():
            Scrubbing(self.node.agent.images, self.node.copying, 0, 1e6).round()
        self.assertEqual(set(), self.rotten)

    def test_what_comes_by_itself_leaves_alone_what_the_cache_lacks(self):
        cached, piece = {*range(0, MIB, 4096), *range(SIZE // 2, SIZE, 4096)}, 64 * 1024
        lacking = set(range(0, SIZE, 4096)) - cached
        self.node.kernel.lacking[self.cache()] = set(lacking)
        self.rotten.update((MIB - 4096, SIZE - 4096, MIB + piece))
        with self.node.process.here():
            Scrubbing(self.node.agent.images, self.node.copying, 0, 1e6).round()
        self.assertEqual({MIB + piece}, self.rotten)
        self.assertEqual(len(lacking) // 128, self.node.kernel.fetched)

    def test_of_a_group_with_gaps_everywhere_one_piece_is_fetched(self):
        blocks = range(0, SIZE, 4096)
        lacking = {at for at in blocks if at % (64 * 1024)}
        self.node.kernel.lacking[self.cache()] = lacking
        with (
            self.node.process.here(),
            fixtures.MockPatch("virtman.background.scrub.random.randrange", lambda _: 0),
        ):
            Scrubbing(self.node.agent.images, self.node.copying, 0, 1e6).round()
        self.assertEqual(len(blocks) // 128 * 15, self.node.kernel.fetched)

    def test_what_comes_by_itself_ends_when_no_vm_is_left(self):
        pauses = []

        def leave(delay):
            if not pauses:
                self.node.destroy("vm1")
                self.node.drop()
            pauses.append(delay)

        with self.node.process.here():
            scrub_held(self.node.agent.images.attached("debian"), 1, leave)
        self.assertEqual(1, len(pauses))
        self.assert_nothing_is_left(self.node)

    def test_what_is_left_meanwhile_is_no_fault(self):
        def gone(attachment, rate, pause):
            self.node.destroy("vm1")
            self.node.drop()
            raise FileNotFoundError("a device")

        self.useFixture(fixtures.MockPatch("virtman.background.scrub.scrub_held", gone))
        with self.node.process.here():
            scrubbing = Scrubbing(self.node.agent.images, self.node.copying, 0, 1)
            scrubbing.round()
            scrubbing.round()
        self.assertNotIn("scrubbing image", self.log.output)

    def test_of_a_group_that_is_cached_in_part_pieces_are_compared(self):
        piece = 64 * 1024
        self.node.kernel.lacking[self.cache()] = set(range(0, 5 * piece, 4096))
        self.rotten.add(5 * piece)
        with self.node.process.here():
            for _ in range(64):  # each looks at a block at random
                Scrubbing(self.node.agent.images, self.node.copying, 0, 1e6).round()
        self.assertEqual(set(), self.rotten)

    def test_what_cannot_be_scrubbed_is_refused(self):
        self.bed.register("plain", hashed=False)
        self.node.create("vm2", "plain")
        with self.node.process.here():
            self.assertRaises(InvalidRequest, scrub, self.node.agent.images.attached("plain"))
        self.assertRaises(ImageUnknown, self.node.agent.images.attached, "other")


class UncachedScrubTest(TestCase):
    driver = "none"

    def test_there_is_nothing_to_scrub(self):
        node = self.bed.node()
        node.create("vm1")
        with node.process.here():
            self.assertEqual(0, scrub(node.agent.images.attached("debian")).checked)


class DmCacheScrubTest(ScrubTest):
    driver = "dmcache"

    def cache(self):
        return "virtman_debian_cached"


class FlashCacheScrubTest(DmCacheScrubTest):
    driver = "flashcache"
