"""VMs that begin with what another one has, and go by themselves when nobody reads them."""

from unittest import mock

from tests.functional.virtman.base import SIZE
from tests.functional.virtman.disk.test_snapshots import KilledCase, SnapshotCase
from virtman.background.temporaries import Temporaries
from virtman.errors import (
    DeviceBusy,
    InstanceExists,
    InstanceSize,
    InstanceUnknown,
    KernelFailure,
    NoSpace,
)


class CopyTest(SnapshotCase):
    def setUp(self):
        super().setUp()
        self.node.create("vm1")
        self.write("vm1", c0="a")

    def test_a_copy_has_the_bytes_of_its_moment_and_the_vm_goes_on(self):
        number = self.node.kernel.mappings["virtman_debian_vm_vm1"].number
        self.node.create("vm2", original="vm1")
        self.write("vm1", c1="b")
        self.write("vm2", c2="c")
        self.assertEqual(("ab..", "a.c."), (self.read("vm1"), self.read("vm2")))
        self.assertEqual(number, self.node.kernel.mappings["virtman_debian_vm_vm1"].number)
        self.assertEqual([], list(self.node.agent.snapshots()))
        self.restart(reboot=True)
        self.assertEqual(("ab..", "a.c."), (self.read("vm1"), self.read("vm2")))

    def test_what_both_need_goes_with_the_last_of_them(self):
        self.node.create("vm2", original="vm1")
        self.node.destroy("vm2")
        self.node.merge("vm1")
        self.assertEqual(1, len(self.node.chain("vm1")))
        self.node.create("vm3", original="vm1")
        self.node.destroy("vm1")
        self.assertEqual("a...", self.read("vm3"))
        self.node.destroy("vm3")
        self.assertEqual([], self.stores())

    def test_a_copy_is_as_long_as_its_original_or_longer(self):
        with self.node.process.here():
            self.node.agent.resize("vm1", 2 * SIZE)
        for vm, size, expected in (("vm2", None, 2 * SIZE), ("vm3", 3 * SIZE, 3 * SIZE)):
            self.node.create(vm, original="vm1", size=size)
            self.assertEqual(expected, self.node.records.get(vm).size)

    def test_what_cannot_be_changes_nothing(self):
        self.node.create("vm2")
        before = self.node.everywhere()
        for error, vm, words in (
            (InstanceUnknown, "vm3", {"original": "nope"}),
            (InstanceExists, "vm2", {"original": "vm1"}),
            (InstanceExists, "vm1", {"original": "vm1"}),
            (InstanceSize, "vm3", {"original": "vm1", "size": SIZE - 512}),
            (NoSpace, "vm3", {"original": "vm1", "size": 1 << 45}),
        ):
            self.assertRaises(error, self.node.create, vm, **words)
            self.node.settle()
            self.assertEqual(before, self.node.everywhere())


class TemporaryTest(SnapshotCase):
    def setUp(self):
        super().setUp()
        self.node.create("vm1")
        self.write("vm1", c0="a")
        self.node.create("vm2", original="vm1", temporary=True)
        self.now = 0.0
        self.begin()

    def begin(self):
        self.temporaries = Temporaries(self.node.agent, lambda: self.now)
        self.look(0)

    def look(self, now):
        """Look at a moment; return which VMs there are then."""
        self.now = now
        with self.node.process.here():
            self.temporaries.look()
        return [one.vm for one in self.node.records.all()]

    def test_it_goes_a_minute_after_it_was_open(self):
        self.assertEqual(["vm1", "vm2"], self.look(59))
        self.node.kernel.held.add("/dev/mapper/virtman_debian_vm_vm2")
        self.assertEqual(["vm1", "vm2"], self.look(61))
        self.assertEqual(["vm1", "vm2"], self.look(600))
        self.node.kernel.held.clear()
        self.assertEqual(["vm1", "vm2"], self.look(650))
        self.assertEqual(["vm1"], self.look(661))
        self.node.merge("vm1")
        self.assertEqual(1, len(self.node.chain("vm1")))
        self.assertEqual("a...", self.read("vm1"))
        self.assertEqual(["vm1"], self.look(9999))

    def test_the_next_agent_takes_it_away(self):
        for reboot in (False, True):
            self.restart(reboot)
            self.begin()
            self.assertEqual(["vm1", "vm2"], self.look(self.now + 59))
        self.assertEqual("a...", self.read("vm2"))
        self.assertEqual(["vm1"], self.look(self.now + 1))

    def test_one_that_cannot_go_is_tried_again_and_keeps_no_other(self):
        self.node.create("vm3", original="vm1", temporary=True)
        self.look(0)
        destroy = self.node.agent.destroy

        def fail(vm):
            if vm == "vm2":
                raise KernelFailure("no")
            destroy(vm)

        with mock.patch.object(self.node.agent, "destroy", fail):
            self.assertEqual(["vm1", "vm2"], self.look(60))
        self.assertIn("temporary VM vm2: no", self.log.output)
        self.assertEqual(["vm1"], self.look(65))

    def test_one_that_is_opened_in_the_last_moment_stays(self):
        with mock.patch.object(self.node.agent, "destroy", side_effect=DeviceBusy("open")):
            self.assertEqual(["vm1", "vm2"], self.look(60))
        self.assertEqual(["vm1", "vm2"], self.look(119))
        self.assertEqual(["vm1"], self.look(120))


class KilledCopyTest(KilledCase):
    """The agent dies, or fails, at each root verb while a VM is copied."""

    def assert_ends(self, *, fail):
        for verb in self.killed(lambda _: self.node.create("vm2", original="vm1"), fail=fail):
            self.assertEqual("ab..", self.read("vm1"), verb)
            self.assert_tidy(verb)
            if len(self.node.records.all()) > 1:
                self.assertEqual("ab..", self.read("vm2"), verb)
                self.node.destroy("vm2")
            self.write("vm1", c3="z")
            self.write("vm1", c3="")

    def test_an_agent_that_dies_has_made_a_copy_or_none(self):
        self.assert_ends(fail=False)

    def test_nor_is_a_verb_that_fails_the_end(self):
        self.assert_ends(fail=True)
