"""An image reads from others on its node what they have too, and does without them at any time."""

import contextlib

from tests.functional.virtman.base import ENOUGH, TestCase
from tests.functional.virtman.doubles.process import Killed
from virtman.background.liveness import Pulse
from virtman.errors import CoordinatorRefused, DeviceBusy, ImageUnknown, VirtmanError
from virtman.model.basis import Run

V2 = "virtman_v2_"
LENT = "virtman_debian_lent"
RUNS = {"debian": [Run(0, 0, 100, 8), Run(0, 300, 1000, 20)]}
BLOCKS = 2048
MINE = {"image", "lent", "mixed", "mixture"}
"""Roles of devices that come, change or go as images lend."""


class LendersCase(TestCase):
    def setUp(self):
        super().setUp()
        self.bed.network.contents["v2"] = "v2"
        self.bed.register("v2", runs=RUNS)

    def both(self, **times):
        """Return a node with a VM of each image."""
        node = self.bed.node(**times)
        node.create("vm1")
        node.create("vm2", "v2")
        node.settle()
        return node

    def tables(self, node):
        return node.kernel.state()["dm"]

    def below(self, node, name):
        """The devices of a multipath, best first."""
        return list(node.kernel.path_states(name))

    def lenders(self, node, image="v2"):
        return node.agent.images.attached(image).lenders

    def assert_mixed(self, node):
        self.assertEqual(("debian",), self.lenders(node))
        self.assertEqual(f"{V2}mixed", self.below(node, f"{V2}image")[0])

    def assert_plain(self, node):
        self.assertEqual((), self.lenders(node))
        self.assertNotIn(f"{V2}mixture", self.tables(node))
        self.assertNotIn(f"{V2}mixed", self.tables(node))
        self.assertEqual(f"bcache over {V2}backing", self.below(node, f"{V2}image")[0])
        self.assertFalse((node.folder / "images" / "v2.basis").exists())


class LendersTest(LendersCase):
    def test_what_both_have_is_read_from_the_one_that_is_here(self):
        node = self.both()
        tables = self.tables(node)
        own, size = f"bcache over {V2}backing", BLOCKS * 8
        rows = [
            (0, 64, "linear", f"{LENT} 800"),
            (64, 2336, "linear", f"{own} 64"),
            (2400, 160, "linear", f"{LENT} 8000"),
            (2560, size - 2560, "linear", f"{own} 2560"),
        ]
        self.assertEqual((rows, "live", "ro"), tables[f"{V2}mixture"])
        ((_, _, target, words),) = tables[f"{V2}mixed"][0]
        self.assertEqual("verity", target)
        self.assertTrue(words.startswith(f"1 {V2}mixture {V2}hashes 4096 4096 {BLOCKS} 0 sha256"))
        self.assertEqual([f"{V2}mixed", own, f"{V2}stripe"], self.below(node, f"{V2}image"))

    def test_who_lends_has_no_reads_wait_where_its_paths_come_together(self):
        node = self.both()
        tables = self.tables(node)
        queueing = {
            name: "queue_if_no_path" in tables[f"virtman_debian_{name}"][0][0][3]
            for name in ("s0", "s1", "leaves", "lent", "image", "origin")
        }
        self.assertEqual(
            {"s0": False, "s1": False, "leaves": False, "lent": False, "image": True,
             "origin": True},
            queueing,
        )  # fmt: skip
        self.assertIn("queue_if_no_path", tables[f"{V2}s0"][0][0][3])
        self.assertEqual(
            ["bcache over virtman_debian_backing", "virtman_debian_stripe"], self.below(node, LENT)
        )

    def test_where_the_other_one_is_not_it_is_read_as_any(self):
        node = self.bed.node()
        node.create("vm2", "v2")
        node.beat()
        self.assert_plain(node)

    def test_one_that_comes_later_lends_as_well(self):
        node = self.bed.node()
        node.create("vm2", "v2")
        node.create("vm1")
        self.assert_plain(node)
        node.beat()
        self.assert_mixed(node)

    def test_one_that_is_dropped_is_left_first(self):
        node = self.both()
        node.destroy("vm1")
        node.drop()
        self.assert_plain(node)
        self.assertFalse([name for name in self.tables(node) if name.startswith("virtman_debian")])
        node.create("vm1")
        node.beat()
        self.assert_mixed(node)

    def test_one_that_lends_is_kept(self):
        node = self.both(keep=0.01)
        node.destroy("vm1")
        self.await_(lambda: node.agent.images.attached("debian")._timer is not None)
        node.settle()
        self.assert_mixed(node)
        node.destroy("vm2")
        self.await_(node.kernel.is_clean, node.kernel.state)

    def test_reads_that_may_hang_keep_a_lender_from_going(self):
        node = self.both()
        node.destroy("vm1")
        self.bed.network.targets[
            next(key for key in self.bed.network.targets if key[2].endswith(":v2"))
        ].luns.clear()
        self.assertRaises(DeviceBusy, node.drop)
        self.assert_mixed(node)

    def test_a_lender_gives_a_stuck_parent_up_though_it_has_no_other(self):
        node, now = self.both(), 0.0
        pulse = Pulse(node.agent.images, lambda: now)
        stuck = {key for key in self.bed.network.targets if "source:storage" in key[2]}
        for step, seconds in enumerate((0.1, 10, 0.1, 2.1)):
            now += seconds
            if step == 2:
                self.bed.network.stuck |= stuck
            with node.process.here():
                pulse.feel()
        cut = {one.key[2].rpartition(":")[2]: one.is_cut for one in node.kernel.sessions}
        self.assertEqual({"debian": True, "v2": False}, cut)

    def test_wrong_bytes_are_left_alone_until_the_image_has_gone(self):
        node = self.both()
        node.kernel.meet_wrong_bytes(f"{V2}mixed")
        with node.process.here():
            Pulse(node.agent.images).tell()
        node.settle()
        self.assert_plain(node)
        self.assertEqual([], [one for one in self.bed.volt.ground.hosts.events()
                              if one.kind.endswith("corrupt")])  # fmt: skip
        node.beat()
        self.assert_plain(node)
        node.destroy("vm2")
        node.drop("v2")
        node.create("vm2", "v2")
        self.assert_mixed(node)

    def test_one_whose_drop_failed_is_whole_again(self):
        node = self.both()
        expected = node.kernel.state()
        for index in range(1, ENOUGH):
            node.destroy("vm2")
            node.process.fate(fail_at=index)
            with contextlib.suppress(ExceptionGroup, VirtmanError):
                node.drop("v2")
            fired = node.process.fired
            node.process.fate()
            node.create("vm2", "v2")
            node.settle()
            self.assertEqual(expected, node.kernel.state(), (index, fired))
            self.assert_mixed(node)
            if not fired:
                break
        self.assertGreater(index, 10)

    def test_the_next_agent_changes_nothing(self):
        node = self.both()
        before = node.kernel.state()
        reloads = {name: one.reloads for name, one in node.kernel.mappings.items()}
        node.die()
        node.start()
        self.assertEqual([], list(node.recover()))
        node.settle()
        self.assertEqual(before, node.kernel.state())
        self.assertEqual(reloads, {name: one.reloads for name, one in node.kernel.mappings.items()})
        self.assert_mixed(node)

    def test_the_next_agent_knows_who_lends_to_others_only(self):
        for image, runs in (
            ("v3", None),
            ("v4", {"v3": [Run(0, 0, 0, 9)]}),
            ("v5", {"debian": [Run(0, 0, 0, 8)], "v3": [Run(1, 8, 8, 9)]}),
        ):
            self.bed.network.contents[image] = image
            self.bed.register(image, runs=runs)
        node = self.bed.node()
        for image in ("debian", "v5", "v3", "v4"):
            node.create(f"of-{image}", image)
        for _ in range(2):
            self.assertEqual(("debian",), self.lenders(node, "v5"))
            self.assertEqual(("v3",), self.lenders(node, "v4"))
            node.die()
            node.start()
            self.assertEqual([], list(node.recover()))
        node.beat()
        self.assertEqual(("debian", "v3"), self.lenders(node, "v5"))

    def test_after_a_reboot_it_is_as_before(self):
        node = self.both()
        node.die()
        node.reboot()
        self.assertEqual([], list(node.recover()))
        node.beat()
        self.assert_mixed(node)

    def test_another_image_of_the_name_lends_nothing(self):
        self.bed.remake("debian", "other")
        node = self.both()
        self.assert_plain(node)

    def killed(self, prepare, work):
        """Kill the agent before each verb about what is lent; nothing may be left in the end."""
        node = self.bed.node()
        prepare(node)
        node.settle()
        begin = len(node.kernel.log)
        work(node)
        node.settle()
        names = [name.rpartition("_")[2] for _, name in node.kernel.log[begin:]]
        steps = [step for step, name in enumerate(names, 1) if name in MINE]
        self.give_back(node)
        for step in steps:
            prepare(node)
            node.settle()
            node.process.fate(kill_at=step)
            with contextlib.suppress(Exception, Killed):
                work(node)
                node.settle()
            self.assertTrue(node.process.fired, step)
            node.die()
            node.start()
            node.recover()
            node.beat()
            self.give_back(node)
            self.assert_nothing_is_left(node, step)
        return {names[step - 1] for step in steps}

    def give_back(self, node):
        for vm in [one.vm for one in node.records.all()]:
            node.destroy(vm)
        for one in node.agent.images.attachments():
            node.drop(one.info.name)

    def test_without_what_the_kernel_refuses_it_is_read_as_any_and_tried_again(self):
        node = self.bed.node()
        for device in (LENT, f"{V2}mixture", f"{V2}mixed"):
            node.create("vm1")
            node.settle()
            begin = len(node.kernel.log)
            node.create("vm2", "v2")
            step = node.kernel.log[begin:].index(("create", device)) + 1
            self.give_back(node)
            node.create("vm1")
            node.settle()
            node.process.fate(fail_at=step)
            node.create("vm2", "v2")
            self.assertEqual("create", node.process.fired)
            node.process.fate()
            node.settle()
            self.assertEqual((), self.lenders(node))
            node.beat()
            self.assert_mixed(node)
            self.give_back(node)

    def test_an_agent_that_is_killed_while_it_mixes_leaves_nothing(self):
        met = self.killed(lambda node: node.create("vm1"), lambda node: node.create("vm2", "v2"))
        self.assertEqual(MINE, met)

    def test_nor_does_one_that_is_killed_while_a_lender_leaves(self):
        def prepare(node):
            node.create("vm1")
            node.create("vm2", "v2")
            node.destroy("vm1")

        met = self.killed(prepare, lambda node: node.drop())
        self.assertEqual(MINE, met)


class RefusedTest(LendersCase):
    def refused(self, error, image, runs):
        return str(self.assertRaises(error, self.bed.register, image, runs=runs))

    def test_a_basis_that_makes_no_sense_is_refused(self):
        for image, runs, error, why in (
            ("v3", {"v3": []}, CoordinatorRefused, "based on itself"),
            ("debian", {"v2": []}, CoordinatorRefused, "which is based on it"),
            ("v3", {"v9": []}, ImageUnknown, "v9 is not known"),
        ):
            self.assertIn(why, self.refused(error, image, runs))
        self.assertRaises(ImageUnknown, self.bed.operator().image, "v3")
        self.bed.network.contents["debian"] = "other"
        self.assertIn("another root hash", self.refused(CoordinatorRefused, "v3", {"debian": []}))

    def test_runs_outside_either_image_leave_it_read_as_any(self):
        for number, runs in enumerate(([Run(0, 2040, 0, 9)], [Run(0, 0, 2040, 9)])):
            image = f"odd{number}"
            self.bed.register(image, runs={"debian": runs})
            node = self.bed.node(f"n{number}")
            node.create("vm1")
            node.create("vm2", image)
            self.assertEqual((), self.lenders(node, image))
