"""A VM gets its device, alone and among many."""

import errno
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple

import fixtures

from tests.functional.virtman.base import FOREVER, TestCase, hashes
from virtman.errors import ImageUnknown, InstanceExists, ParentUnreachable, VirtmanError
from virtman.model import sizes
from virtman.node import agent
from virtman.node.agent import device_path

MANY = 16


class CreateTest(TestCase):
    def test_the_stack_is_made_in_the_order_of_the_plan(self):
        node = self.bed.node()
        instance = node.create("vm1")
        self.assertEqual("/dev/mapper/virtman_debian_vm_vm1", device_path(instance))
        made = [name for verb, name in node.kernel.log if verb == "create"]
        roles = [name.removeprefix("virtman_debian_") for name in made]
        void = roles.pop(0)
        self.assertTrue(void.startswith("void_"), void)
        self.assertEqual(
            ["leaves", "image", "export0", "export1", "readers", "hashes", "s0", "s1", "origin",
             "base", "stripe", "virtman_cachegroup", "shim", "backing", "leafpath_source",
             "leafverity_source", "path0_source", "verity0_source", "path1_source",
             "verity1_source", f"store_{instance.store}", "vm_vm1"],
            roles,
        )  # fmt: skip

    def test_each_device_lies_on_the_one_below(self):
        node = self.bed.node()
        store = node.create("vm1").store
        state = node.kernel.state()
        tables = {
            name.removeprefix("virtman_debian_"): (rows, *rest)
            for name, (rows, *rest) in state["dm"].items()
        }
        sectors = 8 * 2048
        root, salt = astuple(hashes()[0])
        ours = "virtman_debian_"
        (void,) = (name for name in tables if name.startswith("void"))
        paths = "4 queue_if_no_path retain_attached_hw_handler queue_mode bio 0"
        disk = f"LUN 0 of {self.bed.source.iqn}"
        for stripe in (0, 1):
            path = f"path{stripe}_source"
            self.assertEqual(([(0, sectors, "linear", f"{disk} 0")], "live", "ro"), tables[path])
            tree = f"1 {ours}{path} {ours}hashes 4096 4096 2048 0 sha256 {root} {salt}"
            verity = f"verity{stripe}_source"
            self.assertEqual(([(0, sectors, "verity", tree)], "live", "ro"), tables[verity])
            table = f"{paths} 1 1 service-time 0 1 2 {ours}{verity} 1 1"
            found = tables[f"s{stripe}"]
            self.assertEqual(([(0, sectors, "multipath", table)], "live", "ro"), found)
        path = f"LUN 1 of {self.bed.source.iqn} 0"
        self.assertEqual([(0, 128, "linear", path)], tables["leafpath_source"][0])
        upper = f"loop on {node.folder}/images/debian.upper"
        tree = f"1 {ours}leafpath_source {upper} 4096 4096 16 0 sha256 {root} {salt}"
        self.assertEqual([(0, 128, "verity", tree)], tables["leafverity_source"][0])
        table = f"{paths} 1 1 service-time 0 1 2 {ours}leafverity_source 1 1"
        self.assertEqual([(0, 128, "multipath", table)], tables["leaves"][0])
        leaves = f"loop on /dev/mapper/{ours}leaves 0"
        whole = [(0, 8, "linear", f"{upper} 0"), (8, 128, "linear", leaves)]
        self.assertEqual((whole, "live", "ro"), tables["hashes"])
        table = f"2 2048 0 {ours}s0 0 {ours}s1 0"
        self.assertEqual(([(0, sectors, "switch", table)], "live", "ro"), tables["stripe"])
        image = f"{paths} 2 1 round-robin 0 1 1 bcache over {ours}backing 1 "
        image += f"round-robin 0 1 1 {ours}stripe 1"
        self.assertEqual(([(0, sectors, "multipath", image)], "live", "ro"), tables["image"])
        header = (0, 2048, "zero", "")
        for stripe, regions in (
            (0, f"{ours}image 0 {ours}{void} 0"),
            (1, f"{ours}{void} 0 {ours}image 0"),
        ):
            rest = [(2048, sectors, "switch", f"2 2048 0 {regions}")]
            if stripe == 0:
                rest.append((2048 + sectors, 128, "linear", leaves))
            self.assertEqual(([header, *rest], "live", "ro"), tables[f"export{stripe}"])
        readers = " ".join(
            f"loop on /dev/mapper/{ours}export{stripe} {begin}"
            for stripe in (0, 1)
            for begin in (0, 8, 16, 24) * 2
        )
        self.assertEqual(
            ([(0, sectors, "switch", f"16 256 0 {readers}")], "live", "ro"), tables["readers"]
        )
        table = f"{paths} 1 1 round-robin 0 1 1 {ours}readers 1"
        self.assertEqual(([(0, sectors, "multipath", table)], "live", "ro"), tables["origin"])
        span = sizes.SPAN // 512
        base = [(0, sectors, "linear", f"{ours}origin 0"), (sectors, span - sectors, "zero", "")]
        self.assertEqual((base, "live", "ro"), tables["base"])
        snapshot = f"{ours}base loop on {node.folder}/stores/{store}.cow P 128"
        self.assertEqual(
            ([(0, span, "snapshot", snapshot)], "live", "rw"), tables[f"store_{store}"]
        )
        self.assertEqual(
            ([(0, sectors, "linear", f"{ours}store_{store} 0")], "live", "rw"), tables["vm_vm1"]
        )

    def test_the_cache_takes_all_reads_and_never_gives_up(self):
        node = self.bed.node()
        node.create("vm1")
        ((backing, attached, settings),) = node.kernel.state()["caches"]
        self.assertEqual(("virtman_debian_backing", True), (backing, attached))
        self.assertEqual(
            {"cache_mode": "writearound", "sequential_cutoff": "0", "io_error_limit": "4000000000",
             "read_ahead_kb": "0"},
            dict(settings),
        )  # fmt: skip

    def test_the_regions_and_the_leaves_are_read_ahead_by_little(self):
        node = self.bed.node()
        node.create("vm1")
        buffered = ("_export", "_leaves")
        opened = [one for one in node.kernel.loops.values() if any(map(one.path.count, buffered))]
        for target in node.kernel.network.targets.values():
            opened += [one for one in target.luns.values() if "_export" in one.device]
        self.assertEqual({sizes.READ_AHEAD}, {one.read_ahead for one in opened})
        self.assertEqual(2 + 2 * sizes.READERS + 1, len(opened))

    def test_reads_are_sent_as_they_come(self):
        node = self.bed.node()
        node.create("vm1")
        ((disk, leaves),) = [one.disks.values() for one in node.kernel.sessions]
        self.assertEqual((False, False), (disk.merges, leaves.merges))
        readers = [one for one in node.kernel.loops.values() if "_export" in one.path]
        self.assertEqual({False}, {one.merges for one in readers})

    def test_a_second_vm_shares_the_image(self):
        node = self.bed.node()
        node.create("vm1")
        node.settle()
        before = node.kernel.state()
        store = node.create("vm2").store
        after = node.kernel.state()
        self.assertEqual(
            {f"virtman_debian_store_{store}", "virtman_debian_vm_vm2"},
            after["dm"].keys() - before["dm"].keys(),
        )
        self.assertEqual(before["sessions"], after["sessions"])
        self.assertEqual(1, node.kernel.logins())
        self.assertEqual(["vm1", "vm2"], [one.vm for one in node.records.all()])

    def test_a_second_vm_takes_a_look_and_a_verb_for_each_device_and_no_process(self):
        node = self.bed.node()
        node.create("vm1")
        node.settle()
        before = len(node.kernel.log)
        store = node.create("vm2").store
        node.settle()
        devices = (f"virtman_debian_store_{store}", "virtman_debian_vm_vm2")
        # none of these starts a process: the first does only for modules that are not loaded yet
        enough = Counter([
            ("load_modules", str(list(node.agent.stack.modules))),
            ("attach", f"{node.folder}/stores/{store}.cow"),
            *((verb, device) for verb in ("table", "create") for device in devices),
        ])  # fmt: skip
        self.assertEqual(Counter(), Counter(node.kernel.log[before:]) - enough)

    def test_two_images_share_the_cache_group(self):
        node = self.bed.node()
        self.bed.register("other")
        node.create("vm1")
        node.create("vm2", "other")
        self.assertEqual(2, len(node.kernel.members))
        self.assertEqual(1, node.kernel.created("virtman_cachegroup"))
        node.destroy("vm1")
        node.drop("debian")
        self.assertEqual(1, len(node.kernel.cache_sets))
        node.destroy("vm2")
        node.drop("other")
        self.assertTrue(node.kernel.is_clean(), node.kernel.state())

    def test_many_at_once_bring_the_image_up_once(self):
        node = self.bed.node()
        results = self.create_many(node)
        devices = {device_path(one) for one in results}
        self.assertEqual(MANY, len(devices))
        for role in (
            "image",
            "export0",
            "export1",
            "readers",
            "origin",
            "base",
            "s0",
            "s1",
            "stripe",
            "shim",
            "backing",
        ):
            self.assertEqual(1, node.kernel.created(f"virtman_debian_{role}"), role)
        self.assertEqual(1, node.kernel.logins())
        self.assertEqual(MANY, len(node.records.all()))
        self.assertEqual({"a"}, self.bed.volt.hosts("debian"))

    def test_a_login_that_failed_is_not_said_to_be_refused(self):
        def time_out(*where):
            raise OSError(errno.EIO, "iscsiadm: status 11: PDU timed out")

        node = self.bed.node(attach=0.2)
        with fixtures.MonkeyPatch("virtman.privileged.iscsi.login", time_out):
            error = self.assertRaises(ParentUnreachable, node.create, "vm1")
        self.assertIn("source at 127.0.0.1: the login failed: iscsiadm: status 11", str(error))
        node.create("vm1")

    def test_many_at_once_get_the_same_error_and_leave_nothing(self):
        self.bed.source_dies()
        node = self.bed.node(attach=0.2)
        errors = self.create_many(node)
        self.assertEqual({ParentUnreachable}, {type(one) for one in errors})
        (text,) = {str(one) for one in errors}
        self.assertIn("image debian: source at 127.0.0.1 does not answer", text)
        self.assert_nothing_is_left(node)
        self.bed.source_returns()
        node.create("vm1")

    def test_an_image_that_comes_late_is_waited_for(self):
        self.bed.source_dies()
        node = self.bed.node()
        with ThreadPoolExecutor(1) as pool:
            made = pool.submit(node.create, "vm1")
            self.await_(lambda: "virtman_debian_image" in node.kernel.state()["dm"])
            self.bed.source_returns()
            self.assertEqual("vm1", made.result().vm)

    def test_the_last_vm_starts_the_keep_time(self):
        node = self.bed.node(keep=FOREVER)
        node.create("vm1")
        node.destroy("vm1")
        self.assertIn("virtman_debian_image", node.kernel.state()["dm"])
        node.create("vm2")
        self.assertEqual(1, node.kernel.logins())
        self.assertEqual(1, node.kernel.created("virtman_debian_image"))

    def test_after_the_keep_time_the_image_leaves(self):
        node = self.bed.node(keep=0.05)
        node.create("vm1")
        node.destroy("vm1")
        self.assert_nothing_is_left(node)
        node.create("vm2")
        self.assertEqual(2, node.kernel.logins())

    def test_a_vm_within_the_keep_time_keeps_the_image(self):
        node = self.bed.node(keep=0.05)
        node.create("vm1")
        node.destroy("vm1")
        node.create("vm2")
        self.await_(lambda: node.agent.images._attachments["debian"]._timer is None)
        node.settle()
        self.assertIn("virtman_debian_vm_vm2", node.kernel.state()["dm"])

    def test_a_vm_that_is_being_changed_is_waited_for(self):
        node = self.bed.node(keep=0)
        node.create("vm1")
        with ThreadPoolExecutor(1) as pool:
            with node.agent.claim("vm1"):
                destroyed = pool.submit(node.destroy, "vm1")
                self.assertRaises(TimeoutError, destroyed.result, 0.1)
            destroyed.result()
        self.assert_nothing_is_left(node)

    def test_a_vm_that_is_being_changed_for_long_is_left_alone(self):
        node = self.bed.node(keep=0)
        node.create("vm1")
        self.useFixture(fixtures.MockPatchObject(agent, "_PATIENCE", 0.1))
        with node.agent.claim("vm1"):
            self.assertRaises(InstanceExists, node.destroy, "vm1")
        node.destroy("vm1")
        self.assert_nothing_is_left(node)

    def test_creating_and_destroying_side_by_side_leaves_nothing(self):
        node = self.bed.node(keep=0)

        def live(number):
            for turn in range(4):
                node.create(f"vm-{number}-{turn}")
                node.destroy(f"vm-{number}-{turn}")

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(live, range(6)))
        self.assert_nothing_is_left(node)

    def create_many(self, node):
        def one(number):
            try:
                return node.create(f"vm{number}")
            except VirtmanError as err:
                return err

        with ThreadPoolExecutor(MANY) as pool:
            return list(pool.map(one, range(MANY)))

    def test_an_image_that_a_new_agent_is_about_to_attach_is_said_to_be_that(self):
        node = self.bed.node()
        node.create("vm1")
        node.stop()
        node.reboot()
        for image, said in (("debian", "about to attach it"), ("other", "not attached on this")):
            error = self.assertRaises(ImageUnknown, node.agent.images.attached, image)
            self.assertIn(said, str(error))
        self.assertEqual([], node.recover())
        self.assertEqual("debian", node.agent.images.attached("debian").info.name)
