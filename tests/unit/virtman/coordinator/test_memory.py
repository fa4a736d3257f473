"""What is kept of Volt's answers, by several threads side by side."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import fixtures
import testtools

from tests.unit.virtman.model.test_suspended import RECORD
from virtman.coordinator.interface import Based, ImageInfo, Layer
from virtman.coordinator.memory import Known, Memory
from virtman.model.address import Proof
from virtman.model.hashtree import HashTree
from virtman.model.placement import Placement

INFO = ImageInfo("debian", 1 << 20, 2, 2, "one")


def placement(generation):
    return Placement("debian", 1 << 20, generation, Proof("debian", "secret"), ())


class MemoryTest(testtools.TestCase):
    def test_threads_that_are_told_of_one_image_do_not_hinder_each_other(self):
        memory = Memory(Path(self.useFixture(fixtures.TempDir()).path))
        memory.put(Known(INFO, placement(1)))
        begin = threading.Barrier(4)

        def keep(first):
            begin.wait(10)
            for generation in range(first, first + 50):
                memory.place(placement(generation))

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(keep, (100, 200, 300, 400)))
        self.assertIn(memory.get("debian").placement.generation, (149, 249, 349, 449))

    def test_all_that_makes_an_image_is_kept(self):
        memory = Memory(Path(self.useFixture(fixtures.TempDir()).path))
        full = replace(
            INFO,
            tree=HashTree("aa", "bb"),
            layer=Layer("below", 1 << 21, RECORD),
            based=Based(("earlier", "other"), 4096),
        )
        for info in (INFO, full):
            memory.put(Known(info, placement(1)))
            self.assertEqual(Known(info, placement(1)), memory.get("debian"))

    def test_of_a_ring_it_is_kept_what_this_host_owns(self):
        memory = Memory(Path(self.useFixture(fixtures.TempDir()).path))
        for owned in (frozenset({0, 3}), frozenset(), None):
            place = replace(placement(1), owns=owned)
            memory.put(Known(INFO, place))
            self.assertEqual(place, memory.get("debian").placement)

    def test_no_place_is_kept_in_an_image_that_is_not_known(self):
        memory = Memory(Path(self.useFixture(fixtures.TempDir()).path))
        memory.place(placement(1))
        self.assertIsNone(memory.get("debian"))
