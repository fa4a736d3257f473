"""An agent that died anywhere is followed by one that makes everything right."""

import os
from dataclasses import replace

import fixtures

from tests.functional.virtman.base import ENOUGH, FOREVER, SIZE, TestCase
from tests.functional.virtman.doubles.model import Mapping, Session
from tests.functional.virtman.doubles.process import Killed
from virtman.background.recovery import Recovery
from virtman.errors import CoordinatorUnreachable, DeviceBusy, KernelFailure, VirtmanError
from virtman.image.attachment import look
from virtman.model.address import iqn, source_at
from virtman.stack.transport import transport


class RecoveryTest(TestCase):
    def killed(self, node, work):
        """Let the agent die at each verb of ``work`` in turn; yield which, with a new one."""
        for index in range(1, ENOUGH):
            node.process.fate(kill_at=index)
            try:
                work()
                node.settle()
            except (Killed, VirtmanError):
                pass
            fired = node.process.fired
            node.process.dead = bool(fired)
            node.stop()
            if not fired:
                self.assertGreater(index, 2)
                node.start()
                return
            node.start()
            yield f"verb {index}, {fired}"
        self.fail("more verbs than expected")

    def test_a_create_that_was_cut_short_is_finished_or_undone(self):
        node = self.bed.node(keep=FOREVER)
        node.create("vm1")
        node.settle()
        expected = node.kernel.state()
        node.destroy("vm1")
        node.drop()
        for verb in self.killed(node, lambda: node.create("vm1")):
            self.assertEqual([], node.recover(), verb)
            if not node.records.all():
                node.create("vm1")
            node.settle()
            self.assertEqual(expected, node.kernel.state(), verb)
            node.destroy("vm1")
            node.drop()
            self.assert_nothing_is_left(node, verb)

    def test_a_device_whose_maker_died_before_its_node_gets_it(self):
        node = self.bed.node(keep=FOREVER)
        node.create("vm1")
        node.settle()
        expected = node.kernel.state()
        node.stop()
        for mapping in node.kernel.mappings.values():
            mapping.has_node, mapping.owner = False, 0
        node.start()
        self.assertEqual([], node.recover())
        node.settle()
        self.assertEqual(expected, node.kernel.state())
        for name, mapping in node.kernel.mappings.items():
            self.assertTrue(mapping.has_node, name)
            is_read = "_export" in name or name.endswith("_base")
            self.assertEqual(os.getuid() if is_read else 0, mapping.owner, name)

    def test_a_change_of_what_vms_read_that_was_cut_short_is_made_or_not(self):
        node = self.bed.node(keep=FOREVER, warm=1e-9)
        node.create("vm1")
        node.settle()

        def warm_and_cold_again():
            (member,), (image,) = node.kernel.members.values(), node.agent.images.attachments()
            for misses in (99, 99, 10**9):
                member.reads = (0, misses, 0)
                with node.process.here():
                    image.mend(look([image]), transport.cut_off())
                node.settle()

        for verb in self.killed(node, warm_and_cold_again):
            self.assertEqual([], node.recover(), verb)
            node.settle()
            tables = node.kernel.state()["dm"]
            ((*_, origin),), ((*_, stripe),) = (
                tables[f"virtman_debian_{role}"][0] for role in ("origin", "stripe")
            )
            self.assertEqual("bcache" in origin, "regions" in stripe, verb)
        node.recover()
        node.destroy("vm1")
        node.drop()
        self.assert_nothing_is_left(node, "none")

    def test_what_no_vm_uses_goes_after_the_keep_time(self):
        node = self.bed.node(keep=0)
        for verb in self.killed(node, lambda: node.create("vm1")):
            self.assertEqual([], node.recover(), verb)
            for one in node.records.all():
                node.destroy(one.vm)
            self.assert_nothing_is_left(node, verb)

    def test_a_destroy_that_was_cut_short_is_undone_or_finished(self):
        node = self.bed.node(keep=0)
        node.create("vm1")
        for verb in self.killed(node, lambda: node.destroy("vm1")):
            self.assertEqual([], node.recover(), verb)
            for one in node.records.all():
                self.assertIn(f"virtman_debian_vm_{one.vm}", node.kernel.state()["dm"], verb)
                node.destroy(one.vm)
            self.assert_nothing_is_left(node, verb)
            node.create("vm1")

    def test_a_leave_that_was_cut_short_is_finished(self):
        node = self.bed.node(keep=0.05)

        def live():
            node.create("vm1")
            node.destroy("vm1")
            self.await_(lambda: node.process.dead or node.kernel.is_clean())

        for verb in self.killed(node, live):
            self.assertEqual([], node.recover(), verb)
            for one in node.records.all():
                node.destroy(one.vm)
            self.await_(
                lambda: node.kernel.is_clean() or set(node.kernel.mappings) <= {GROUP},
                lambda verb=verb: (verb, node.kernel.state()),
            )

    def test_a_new_agent_changes_nothing_of_what_runs(self):
        node = self.bed.node()
        node.create("vm1")
        node.create("vm2")
        node.settle()
        before, made = node.everywhere(), len(node.kernel.mappings)
        reloads = [one.reloads for one in node.kernel.mappings.values()]
        node.stop()
        node.start()
        self.assertEqual([], node.recover())
        node.settle()
        self.assertEqual(before, node.everywhere())
        self.assertEqual(made, len(node.kernel.mappings))
        self.assertEqual(reloads, [one.reloads for one in node.kernel.mappings.values()])

    def test_parents_of_before_a_reboot_are_forgotten(self):
        node = self.bed.node()
        node.create("vm1")
        others = ("192.0.2.8", 3260, "iqn.2003-01.org.example:others")
        node.kernel.remembered |= {
            ("192.0.2.9", 3260, iqn("gone", "debian")),
            ("192.0.2.9", 3260, source_at("gone", "debian", "192.0.2.9", 3260).iqn),
            others,
        }
        node.reboot()
        node.recover()
        self.assertIn(others, node.kernel.remembered)
        node.kernel.remembered.remove(others)
        self.assertEqual({one.key for one in node.kernel.sessions}, node.kernel.remembered)
        node.destroy("vm1")
        node.drop()
        self.assert_nothing_is_left(node)

    def test_a_session_with_a_source_that_has_a_parent_s_name_ends_and_the_parent_s_stays(self):
        one, two = self.bed.node("a"), self.bed.node("b")
        for node in (one, two):
            node.create("vm1")
        for node in (one, two) * 3:
            node.beat()
        before = two.kernel.state()
        self.assertIn((one.ip, 3260, iqn("a", "debian")), before["sessions"])
        stray = source_at("a", "debian", "192.0.2.9", 3260)
        two.kernel.sessions.append(Session((stray.ip, stray.port, stray.iqn), {}, ("", "")))
        two.stop()
        two.start()
        self.assertEqual([], two.recover())
        two.beat()
        self.assertEqual(before, two.kernel.state())

    def test_after_a_reboot_all_vms_have_their_devices_again(self):
        node = self.bed.node()
        node.create("vm1")
        node.create("vm2")
        node.settle()
        before = node.kernel.state()
        node.stop()
        node.reboot()
        self.assertTrue(node.kernel.is_clean())
        self.assertEqual([], node.recover())
        node.settle()
        self.assertEqual(before, node.kernel.state())

    def test_a_recovery_that_fails_hurts_no_vm_and_is_repeated(self):
        node = self.bed.node()
        node.create("vm1")
        node.settle()
        before = node.kernel.state()
        for index in range(1, ENOUGH):
            node.stop()
            node.start()
            node.process.fate(fail_at=index)
            failed = None
            try:
                failed = node.recover()
            except VirtmanError:
                failed = ["all"]
            node.settle()
            fired = node.process.fired
            node.process.fate()
            self.assertEqual(before, node.kernel.state(), (index, fired, failed))
            if failed:
                self.assertEqual([], node.recover())
                node.settle()
            self.assertEqual({"vm1"}, node.agent.images._attachments["debian"].users)
            if not fired:
                self.assertGreater(index, 10)
                return

    def test_a_vm_that_could_not_be_served_is_tried_again(self):
        node = self.bed.node()
        node.create("vm1")
        node.settle()
        before = node.kernel.state()
        node.stop()
        node.reboot()
        store = node.folder / "stores" / "s1.cow"
        store.rename(node.folder / "elsewhere")
        self.assertEqual(["vm1"], list(node.recover()))
        self.assertEqual(["vm1"], list(node.recover()))
        (node.folder / "elsewhere").rename(store)
        self.assertEqual([], node.recover())
        node.settle()
        self.assertEqual(before, node.kernel.state())

    def test_volt_hears_of_a_host_that_still_waits_for_its_parents(self):
        node = self.bed.node()
        node.create("vm1")
        node.stop()
        node.reboot()
        self.bed.source_dies()
        recovery = Recovery(node.agent, FOREVER)
        with node.process.here():
            recovery.start()
            node.heartbeat.start()
        try:
            for _ in range(2):
                self.bed.volt.let_time_pass()
                node.heartbeat.hasten()
                self.await_(lambda: self.bed.volt.silence_of("a") == 0)
            self.assertNotIn("virtman_debian_vm_vm1", node.kernel.state()["dm"])
        finally:
            self.bed.source_returns()
            recovery.stop()
            node.heartbeat.stop()

    def test_images_are_taken_over_without_volt_and_left_once_it_answers_again(self):
        node = self.bed.node(keep=0)
        node.create("vm1")
        node.stop()
        node.start()
        node.records.forget(node.records.get("vm1"))
        node.kernel.mappings.pop("virtman_debian_vm_vm1")
        self.bed.volt.silence()
        self.assertEqual([], list(node.recover()))
        self.assertIn("virtman_debian_image", node.kernel.mappings)
        self.bed.volt.silence(False)
        self.assert_nothing_is_left(node)

    def test_an_image_without_vms_whose_parents_are_away_is_left_after_the_keep_time(self):
        node = self.bed.node(attach=0)
        node.create("vm1")
        node.settle()
        node.destroy("vm1")
        node.stop()
        node.times = replace(node.times, keep=0.05)
        node.start()
        self.bed.source_dies()
        self.assertEqual(["debian"], node.recover())
        self.bed.source_returns()
        self.assertEqual([], node.recover())
        self.assert_nothing_is_left(node)

    def test_an_image_that_could_not_be_left_is_left_after_a_create_that_fails_too(self):
        one, two = self.bed.node("a", keep=0.3, leave=0.1), self.bed.node("b")
        for node in (one, two):
            node.create("vm1")
        for node in (one, two) * 3:
            node.beat()
        one.destroy("vm1")
        self.assertRaises(KernelFailure, one.drop)
        away = CoordinatorUnreachable("Volt is away")
        with fixtures.MockPatchObject(one.agent.coordinator, "join", side_effect=away):
            self.assertRaises(CoordinatorUnreachable, one.create, "vm2")
        two.beat()
        self.assert_nothing_is_left(one)

    def test_a_place_in_an_image_of_which_a_reboot_left_nothing_is_given_up(self):
        node = self.bed.node()
        node.create("vm1")
        node.destroy("vm1")
        node.stop()
        node.reboot()
        self.assertEqual([], node.recover())
        with node.process.here():
            node.watch.fetch(0)
        self.assertEqual(set(), self.bed.volt.hosts("debian"))

    def test_an_image_is_not_left_under_a_vm_that_was_not_taken_over_yet(self):
        node = self.bed.node(keep=0)
        node.create("vm1")
        node.settle()
        before = node.kernel.state()
        node.stop()
        node.start()
        node.create("vm2")
        node.destroy("vm2")
        node.settle()
        self.assertRaises(DeviceBusy, node.drop)
        node.settle()
        self.assertEqual(before, node.kernel.state())
        self.assertEqual([], node.recover())
        node.destroy("vm1")
        self.assert_nothing_is_left(node)

    def test_a_device_without_a_table_that_was_left_is_made_anew(self):
        node = self.bed.node(keep=FOREVER)
        node.create("vm1")
        node.settle()
        expected = node.kernel.state()
        node.stop()
        node.reboot()
        for number, role in enumerate(("image", "store_s1", "vm_vm1"), 90):
            name = f"virtman_debian_{role}"
            node.kernel.mappings[name] = Mapping(name, f"253:{number}", [], False)
        self.assertEqual([], node.recover())
        node.settle()
        self.assertEqual(expected, node.kernel.state())

    def test_an_image_is_not_kept_for_a_vm_that_went_while_it_was_taken_over(self):
        node = self.bed.node(keep=FOREVER)
        node.create("vm1")
        node.settle()
        node.stop()
        node.start()
        found = node.agent.images.find

        def gone(image):
            self.useFixture(fixtures.MockPatchObject(node.agent.images, "find", found))
            node.agent.remove("vm1")
            return found(image)

        self.useFixture(fixtures.MockPatchObject(node.agent.images, "find", gone))
        self.assertEqual(["vm1"], node.recover())
        node.drop()
        self.assert_nothing_is_left(node)

    def test_a_store_that_nobody_refers_to_goes(self):
        node = self.bed.node()
        node.records.add_store("debian", SIZE, "", node.backing.path)
        (node.folder / "stores" / "s1.cow").write_bytes(b"half a VM")
        node.recover()
        self.assert_nothing_is_left(node)


GROUP = "virtman_cachegroup"
