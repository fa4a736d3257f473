"""Any root verb may fail: the error is a clear one, and nothing of the attempt is left."""

from tests.functional.virtman.base import ENOUGH, FOREVER, TestCase
from virtman.errors import CoordinatorUnreachable, DeviceBusy, KernelFailure, VirtmanError


class FailureTest(TestCase):
    def failures(self, node, work):
        """Run ``work`` with each of its verbs failing in turn; yield the verb and the error."""
        for index in range(1, ENOUGH):
            node.process.fate(fail_at=index)
            error = None
            try:
                work()
            except BaseException as err:
                error = err
            node.settle()
            fired = node.process.fired
            node.process.fate()
            if not fired:
                self.assertGreater(index, 2)
                return
            yield f"verb {index}, {fired}", error
        self.fail("more verbs than expected")

    def test_a_create_that_fails_leaves_nothing_and_can_be_repeated(self):
        node = self.bed.node(keep=0, attach=0)
        for verb, error in self.failures(node, lambda: node.create("vm1")):
            if error is not None:
                self.assertIsInstance(error, VirtmanError, verb)
                self.assertEqual([], node.records.all(), verb)
                self.assert_nothing_is_left(node, (verb, error))
                node.create("vm1")
            self.assertIn("virtman_debian_vm_vm1", node.kernel.state()["dm"], verb)
            node.destroy("vm1")
            self.assert_nothing_is_left(node, verb)
        node.destroy("vm1")

    def test_a_repeated_create_makes_what_an_undisturbed_one_makes(self):
        node = self.bed.node(keep=FOREVER, attach=0)
        node.create("vm1")
        node.settle()
        expected = node.kernel.state()
        node.destroy("vm1")
        node.drop()
        for verb, error in self.failures(node, lambda: node.create("vm1")):
            if error is not None:
                node.create("vm1")
            node.settle()
            self.assertEqual(expected, node.kernel.state(), verb)
            node.destroy("vm1")
            node.drop()

    def test_a_failing_verb_is_ridden_out_while_parents_are_connected(self):
        node = self.bed.node(attach=5)
        errors = []
        for verb, error in self.failures(node, lambda: node.create("vm1")):
            if error is None:
                node.destroy("vm1")
            else:
                errors.append(verb)
            node.drop() if node.agent.images.attachments() else None
        self.assertFalse([verb for verb in errors if "login" in verb], errors)

    def test_a_failing_vm_does_not_disturb_others(self):
        node = self.bed.node()
        node.create("vm1")
        node.settle()
        before = node.kernel.state()
        for verb, error in self.failures(node, lambda: node.create("vm2")):
            if error is None:
                node.destroy("vm2")
            self.assertEqual(before, node.kernel.state(), verb)
            self.assertEqual(["vm1"], [one.vm for one in node.records.all()], verb)
            self.assertEqual({"vm1"}, node.agent.images._attachments["debian"].users)
        node.destroy("vm2")

    def test_a_destroy_that_fails_can_be_repeated(self):
        node = self.bed.node()
        node.create("vm1")
        node.settle()
        without = None

        def destroy():
            node.destroy("vm1")

        for verb, error in self.failures(node, destroy):
            if error is not None:
                self.assertIsInstance(error, VirtmanError, verb)
                node.destroy("vm1")
            self.assertEqual([], node.records.all(), verb)
            state = node.kernel.state()
            self.assertEqual(without or state, state, verb)
            without = state
            node.create("vm1")

    def test_a_drop_that_fails_can_be_repeated(self):
        node = self.bed.node()
        for verb, error in self.prepared_drops(node):
            if error is not None:
                self.assertIsInstance(error, (VirtmanError, ExceptionGroup), verb)
                node.drop()
            self.assert_nothing_is_left(node, (verb, error))

    def test_a_create_after_a_drop_that_failed_makes_the_image_whole(self):
        node = self.bed.node()
        node.create("vm1")
        node.settle()
        expected = node.kernel.state()
        node.destroy("vm1")
        node.drop()
        for verb, error in self.prepared_drops(node):
            node.create("vm1")
            node.settle()
            self.assertEqual(expected, node.kernel.state(), (verb, error))
            self.assertEqual({"a"}, self.bed.volt.hosts("debian"))
            node.destroy("vm1")
            node.drop()

    def test_an_image_is_left_later_if_volt_does_not_answer(self):
        node = self.bed.node(keep=0.05)
        node.create("vm1")
        self.bed.volt.silence()
        node.destroy("vm1")
        self.assertRaises(CoordinatorUnreachable, node.drop)
        self.assertIn("virtman_debian_image", node.kernel.state()["dm"])
        self.bed.volt.silence(False)
        self.assert_nothing_is_left(node)

    def prepared_drops(self, node):
        for index in range(1, ENOUGH):
            node.create("vm1")
            node.settle()
            node.destroy("vm1")
            node.process.fate(fail_at=index)
            error = None
            try:
                node.drop()
            except Exception as err:
                error = err
            fired = node.process.fired
            node.process.fate()
            if not fired:
                self.assertGreater(index, 2)
                return
            yield f"verb {index}, {fired}", error

    def test_a_device_that_is_open_is_not_destroyed(self):
        node = self.bed.node()
        node.create("vm1")
        node.settle()
        before = node.everywhere()
        node.kernel.held.add("/dev/mapper/virtman_debian_vm_vm1")
        error = self.assertRaises(DeviceBusy, node.destroy, "vm1")
        self.assertEqual("virtman.device.busy", error.code)
        self.assertIn("virtman_debian_vm_vm1", str(error))
        self.assertEqual(before, node.everywhere())
        self.assertEqual({"vm1"}, node.agent.images._attachments["debian"].users)
        node.kernel.held.clear()
        node.destroy("vm1")
        self.assertNotIn("virtman_debian_vm_vm1", node.kernel.state()["dm"])

    def test_an_image_that_somebody_reads_is_left_later(self):
        node = self.bed.node()
        node.create("vm1")
        node.destroy("vm1")
        node.kernel.held.add("/dev/mapper/virtman_debian_stripe")
        self.assertRaises(ExceptionGroup, node.drop)
        self.assertIn("virtman_debian_stripe", node.kernel.state()["dm"])
        node.kernel.held.clear()
        node.drop()
        self.assert_nothing_is_left(node)

    def test_no_cache_device_is_a_clear_error(self):
        node = self.bed.node(keep=0)
        node.agent.stack.group.ssd.devices = ()
        error = self.assertRaises(KernelFailure, node.create, "vm1")
        self.assertIn("set [cache] devices", str(error))
        self.assert_nothing_is_left(node)
