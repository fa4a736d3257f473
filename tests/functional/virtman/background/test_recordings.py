"""A workload is recorded while somebody says so, and merged into its profile."""

import threading

from tests.functional.virtman.background.test_boots import BOOT, PIECE, BootsCase
from virtman.background.recordings import LONGEST, Recordings
from virtman.errors import (
    InstanceUnknown,
    InvalidName,
    InvalidRequest,
    ProfileUnbound,
    RecordingInProgress,
    RecordingUnknown,
)
from virtman.model.profile_format import decode


class RecordingsTest(BootsCase):
    def setUp(self):
        super().setUp()
        self.node = self.bed.node()
        self.recordings = Recordings(
            self.node.agent, self.boots(self.node, record=0, prefetch=False)
        )

    def begin(self, vm="vm1", workload="web", seconds=None):
        with self.node.process.here():
            return self.recordings.begin(vm, workload, seconds)

    def read(self, *numbers, image="debian"):
        for number in numbers:
            self.node.kernel.vm_reads(image, number * PIECE, PIECE)

    def ended(self, vm="vm1"):
        self.await_(lambda: self.recordings.show(vm).state != "recording")
        self.await_(lambda: not recording())
        return self.recordings.show(vm)

    def finish(self, vm="vm1"):
        self.recordings.end(vm)
        return self.ended(vm)

    def wanted(self, workload="web"):
        stored = self.bed.operator().profile("debian", workload)
        return decode(stored[0]).wanted() if stored else None

    def test_what_is_read_until_told_becomes_the_profile(self):
        self.node.create("vm1")
        begun = self.begin()
        self.assertEqual(("debian", "web"), (begun.image, begun.workload))
        self.assertEqual(("recording", 0), (begun.state, begun.pieces))
        self.read(*BOOT)
        self.await_(lambda: self.recordings.show("vm1").pieces == len(BOOT))
        found = self.finish()
        self.assertEqual(("stored", 1, ""), (found.state, found.runs, found.detail))
        self.assertEqual(len(BOOT) * PIECE, found.bytes)
        self.assertEqual(BOOT, self.wanted())
        self.assertIsNone(self.wanted("boot"))
        self.assertEqual({}, self.node.kernel.mappings["virtman_debian_origin"].counts)
        self.read(99)
        self.begin()
        self.read(7)
        self.await_(lambda: self.recordings.show("vm1").pieces)
        self.assertEqual(2, self.finish().runs)
        self.assertEqual((*BOOT[:2], 7, *BOOT[2:]), tuple(sorted(self.wanted())))

    def test_it_ends_after_the_time_that_was_given(self):
        self.node.create("vm1")
        self.begin(seconds=1)
        self.read(3)
        self.assertEqual("stored", self.ended().state)
        self.assertEqual((3,), self.wanted())

    def test_it_ends_with_the_vm(self):
        self.node.create("vm1")
        self.node.create("vm2")
        self.begin()
        self.read(3)
        self.await_(lambda: self.recordings.show("vm1").pieces)
        self.node.destroy("vm1")
        self.assertEqual("stored", self.ended().state)

    def test_it_ends_with_the_agent(self):
        self.node.create("vm1")
        self.begin()
        self.read(3)
        self.await_(lambda: self.recordings.show("vm1").pieces)
        for one in self.all:
            one.stop()
        found = self.ended()
        self.assertEqual(("failed", "its agent stopped"), (found.state, found.detail))

    def test_one_of_which_nothing_was_read_is_not_stored(self):
        self.node.create("vm1")
        self.begin()
        found = self.finish()
        self.assertEqual("failed", found.state)
        self.assertIn("record from a cold image", found.detail)

    def test_a_volt_that_is_away_gets_it_later(self):
        self.node.create("vm1")
        self.begin()
        self.read(3)
        self.await_(lambda: self.recordings.show("vm1").pieces)
        self.bed.volt.silence()
        self.recordings.end("vm1")
        self.await_(lambda: "its web is not stored yet" in self.log.output)
        self.assertEqual("recording", self.recordings.show("vm1").state)
        self.bed.volt.silence(False)
        self.node.beat()
        self.assertEqual("stored", self.ended().state)

    def test_it_has_pieces_as_long_as_those_of_the_profile(self):
        self.store((2, 3), workload="web", piece=4 * PIECE)
        self.node.create("vm1")
        self.begin()
        self.read(100)
        self.await_(lambda: self.recordings.show("vm1").pieces)
        found = self.finish()
        self.assertEqual(("stored", 2, 4 * PIECE), (found.state, found.runs, found.bytes))
        self.assertEqual((2, 3, 25), self.wanted())

    def test_while_nobody_tells_how_long_they_are_it_begins_all_the_same(self):
        self.node.create("vm1")
        self.bed.volt.silence()
        self.begin()
        self.read(3)
        self.await_(lambda: self.recordings.show("vm1").pieces)
        self.bed.volt.silence(False)
        self.node.beat()
        self.assertEqual(
            ("stored", PIECE), (self.finish().state, self.recordings.show("vm1").bytes)
        )

    def test_one_that_an_image_has_already_is_refused(self):
        self.node.create("vm1")
        self.node.create("vm2")
        self.begin()
        error = self.assertRaises(RecordingInProgress, self.begin, "vm2", "other")
        self.assertIn("workload web of image debian is being recorded, with VM vm1", str(error))
        self.read(3)
        self.await_(lambda: self.recordings.show("vm1").pieces)
        self.finish()
        self.begin("vm2", "other")
        self.finish("vm2")

    def test_what_cannot_be_recorded_is_refused(self):
        self.bed.register("plain", hashed=False)
        self.node.create("vm1")
        self.node.create("vm2", "plain")
        for words, error in (
            (("vm9",), InstanceUnknown),
            (("vm1", "boot"), InvalidRequest),
            (("vm1", "Web"), InvalidName),
            (("vm1", "web", 0), InvalidRequest),
            (("vm1", "web", LONGEST + 1), InvalidRequest),
            (("vm2",), ProfileUnbound),
        ):
            self.assertRaises(error, self.begin, *words)
        self.assertRaises(RecordingUnknown, self.recordings.show, "vm1")
        self.assertRaises(RecordingUnknown, self.recordings.end, "vm1")


def recording():
    return [one.name for one in threading.enumerate() if one.name.startswith("recording ")]
