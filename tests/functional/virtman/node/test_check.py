"""What differs between kernel, records and Volt is found, named and mended."""

import contextlib
from dataclasses import replace
from functools import partial
from pathlib import Path

import fixtures

from tests.functional.virtman.base import FOREVER, SIZE, TestCase
from tests.functional.virtman.doubles.model import Mapping, Session
from tests.functional.virtman.doubles.network import Lun, Target
from virtman.disk.capacity import Space
from virtman.disk.merger import Merger
from virtman.errors import NoSpace
from virtman.image.attachment import look_closely
from virtman.model.address import iqn, source_at
from virtman.node import check
from virtman.node.check import Check
from volt.model.hosts import Report


class CheckTest(TestCase):
    def setUp(self):
        super().setUp()
        self.node = self.bed.node(keep=FOREVER)
        self.node.create("vm1")
        self.node.snapshot("vm1", "before")
        self.node.settle()
        self.kernel = self.node.kernel
        self.before = self.node.everywhere()

    def check(self, pause=lambda seconds: None):
        return Check(self.node.agent, pause)

    def look(self):
        with self.node.process.here():
            return [(one.code, one.what) for one in self.check().look()]

    def repair(self):
        with self.node.process.here():
            outcome = self.check().repair()
        self.node.settle()
        return [(one.code, one.what) for one in outcome.left]

    def assert_mended(self, *found, restored=True):
        self.assertEqual(sorted(found), sorted(self.look()))
        self.assertEqual([], self.repair())
        self.assertEqual([], self.look())
        if restored:
            self.assertEqual(self.before[:2], self.node.everywhere()[:2])

    def test_nothing_differs_on_a_node_that_is_well(self):
        self.assertEqual([], self.look())
        self.assertEqual([], self.repair())
        self.assertEqual(self.before, self.node.everywhere())

    def test_the_documentation_has_each_code(self):
        page = Path(__file__).parents[4] / "doc/source/operator/check.rst"
        text = page.read_text()
        for code, words in check.KINDS.items():
            self.assertIn(f"   * - ``{code}``\n     - {words[0]}\n     - {words[1]}\n", text)

    # Records and kernel.

    def test_a_vm_without_a_device(self):
        del self.kernel.mappings["virtman_debian_vm_vm1"]
        self.assert_mended(("vm.absent", "vm1"))

    def test_a_device_on_another_store_than_the_records(self):
        record = self.node.records.get("vm1")
        self.node.records.put(replace(record, store="s1"))
        self.assertIn(("vm.moved", "vm1"), self.look())
        self.node.records.put(record)
        self.assertEqual([], self.look())

    def test_a_vm_and_a_store_of_which_nothing_is_written_down(self):
        length = SIZE // 512
        origin = self.kernel.mappings["virtman_debian_origin"].number
        file = self.node.folder / "stores" / "s9.cow"
        file.write_bytes(b"")
        with self.node.process.here():
            device = self.kernel.loop.attach(str(file), 0, False)
            number = self.kernel.loops[device].number
            self.kernel.dm.create(
                "virtman_debian_store_s9", [(0, length, "snapshot", f"{origin} {number} P 128")],
                False,
            )  # fmt: skip
            store = self.kernel.mappings["virtman_debian_store_s9"].number
            table = [(0, length, "linear", f"{store} 0")]
            self.kernel.dm.create("virtman_debian_vm_ghost", table, False)
        found = [
            ("vm.orphan", "virtman_debian_vm_ghost"),
            ("store.orphan", "virtman_debian_store_s9"),
        ]
        self.kernel.held.add("/dev/mapper/virtman_debian_vm_ghost")
        self.assertIn(found[0], self.repair())
        self.kernel.held.clear()
        self.assertTrue(file.exists())
        self.assertEqual(sorted(found), sorted(self.look()))
        self.assertEqual([], self.repair())
        self.assertEqual(self.before[:2], self.node.everywhere()[:2])
        self.assertEqual([], list((self.node.folder / "stores").glob("s9.cow")))
        self.assertEqual(1, len(list((self.node.folder / "lost").iterdir())))

    def test_stores_that_nobody_needs_or_that_are_not_there(self):
        unused = self.node.records.add_store("debian", SIZE, "", self.node.backing.path)
        self.assert_mended(("store.unused", unused.path))
        (file,) = (self.node.folder / "stores").glob("s1.cow")
        file.rename(self.node.folder / "elsewhere")
        self.assertEqual([("store.missing", str(file))], self.repair())

    def test_a_chain_that_stays_long_for_want_of_space(self):
        self.lengthen("vm1")
        self.free = 0
        self.useFixture(fixtures.MockPatchObject(Space, "left", lambda _: self.free))
        self.check = partial(Check, self.node.agent, self.merge)
        self.assertEqual([("vm.unmerged", "vm1")], self.look())
        self.assertEqual([("vm.unmerged", "vm1")], self.repair())
        self.free = 1 << 40
        self.assertEqual([], self.repair())
        self.assertEqual(3, len(self.node.chain("vm1")))

    def test_a_long_chain_is_none_while_it_is_merged(self):
        self.lengthen("vm1")
        copy, found = Merger._copy, []

        def copying(*arguments):
            copy(*arguments)
            found.append(self.look())

        self.useFixture(fixtures.MockPatchObject(Merger, "_copy", copying))
        self.node.merge("vm1")
        self.assertEqual([[]], found)

    def test_a_long_chain_is_none_while_it_waits_for_another(self):
        self.lengthen("vm1")
        self.node.create("vm2")
        self.node.snapshot("vm2", "another")
        self.node.kernel.write("virtman_debian_vm_vm2", 0, "x")
        self.node.delete_snapshot("another")
        with self.node.process.here():
            self.node.merger._begin(self.node.merger._find("vm2"))
        self.assertEqual([], self.look())
        self.node.merge("vm2")
        self.assertEqual([("vm.unmerged", "vm1")], self.look())

    def test_a_long_chain_is_none_while_its_vm_is_handed_over(self):
        self.lengthen("vm1")
        with self.node.process.here():
            self.node.agent.stores.suspension.suspend("vm1")
        self.assertEqual([], self.look())

    def lengthen(self, vm):
        for name in ("then", "later"):
            self.node.snapshot(vm, name)

    def merge(self, seconds):
        """Do what the merger's thread does meanwhile."""
        changed = self.node.agent.stores.changed
        if changed.is_set():
            changed.clear()
            with contextlib.suppress(NoSpace):
                self.node.merge("vm1")

    # What the kernel has beyond that.

    def test_an_image_that_nobody_attached_is_taken_over(self):
        self.node.destroy("vm1")
        self.node.delete_snapshot("before")
        self.node.stop()
        self.node.start()
        found = self.look()
        self.assertIn(("image.orphan", "debian"), found)
        self.assertEqual([], self.repair())
        self.assertEqual(
            ["debian"], [one.info.name for one in self.node.agent.images.attachments()]
        )

    def test_a_path_to_a_host_that_is_no_parent(self):
        other = self.bed.node("b")
        other.create("vm1")
        portal = ("192.0.2.2", 3260, iqn("b", "debian"))
        with self.node.process.here():
            self.kernel.iscsi.login(*portal, *self.bed.network.targets[portal].chap)
            self.kernel.iscsi.scan(portal[2], 0)
        self.kernel.mappings["virtman_debian_path0_b"] = Mapping(
            "virtman_debian_path0_b", "253:99",
            [(0, 16384, "linear", f"{self.kernel.sessions[-1].disks[0].number} 2048")], True,
        )  # fmt: skip
        self.assertIn(("path.orphan", "virtman_debian_path0_b"), self.look())
        self.repair()
        self.assertNotIn("virtman_debian_path0_b", self.kernel.mappings)

    def test_sessions_exports_loops_and_files_that_nothing_uses(self):
        ghost = iqn("a", "ghost")
        portal = ("192.0.2.9", 3260, iqn("z", "ghost"))
        source = ("192.0.2.9", 3260, source_at("z", "ghost", "192.0.2.9", 3260).iqn)
        self.kernel.sessions += [Session(one, {}, ("", "")) for one in (portal, source)]
        mine = (self.node.ip, 3260, ghost)
        export = Lun("virtman_ghost_0", "/dev/mapper/virtman_ghost_export0", 8)
        self.bed.network.targets[mine] = Target(self.kernel, *mine, {0: export})
        file = self.node.folder / "images" / "ghost.upper"
        file.write_bytes(b"x")
        with self.node.process.here():
            self.kernel.loop.attach(str(file), 0, False)
        self.assert_mended(
            ("session.orphan", portal[2]),
            ("session.orphan", source[2]),
            ("export.orphan", "virtman_ghost_0"),
            ("loop.orphan", str(file)),
            restored=False,
        )
        self.assertFalse(file.exists())
        self.assertEqual(self.before[0], self.kernel.state())

    def test_what_is_half_written_is_an_orphan_unless_its_image_is_here(self):
        mine, ghost = (
            self.node.folder / "images" / f".{image}.upper.part" for image in ("debian", "ghost")
        )
        for file in (mine, ghost):
            file.write_bytes(b"x")
        self.assert_mended(("file.orphan", str(ghost)), restored=False)
        self.assertEqual((True, False), (mine.exists(), ghost.exists()))

    def test_what_is_others_is_left_alone(self):
        file = self.node.folder.parent / "theirs"
        file.write_bytes(b"x")
        theirs = ("192.0.2.9", 3260, "iqn.2001-04.com.example:disk")
        self.kernel.sessions.append(Session(theirs, {}, ("", "")))
        mine = (self.node.ip, 3260, "iqn.2001-04.com.example:store")
        lun = Lun("virtman_debian-2_0", "/dev/sdx", 8)
        self.bed.network.targets[mine] = Target(self.kernel, *mine, {0: lun})
        with self.node.process.here():
            self.kernel.loop.attach(str(file), 0, False)
            self.kernel.dm.create("vg0-root", [(0, 8, "zero", "")], False)
            self.kernel.dm.create("virtman-notes", [(0, 8, "zero", "")], False)
        before = self.kernel.state()
        self.assertEqual([], self.repair())
        self.assertEqual(before, self.kernel.state())

    # What an attached image lacks.

    def test_a_cache_that_went_and_paths_that_failed(self):
        self.kernel.lose_ssd()
        self.kernel.return_ssd()
        self.kernel.mappings["virtman_debian_image"].failed.add(
            self.kernel.mappings["virtman_debian_image"].below[0]
        )
        self.assertEqual([], [one for one in self.look() if one[0] not in (
            "cache.absent", "path.failed", "image.incomplete")])  # fmt: skip
        self.assertIn(("cache.absent", "virtman_debian_cache"), self.look())
        self.assertEqual([], self.repair())

    def test_reads_that_wait_for_parents(self):
        with self.node.process.here():
            (one,) = self.node.agent.images.attachments()
            one.waiting = 9.9
            self.assertEqual([], self.look())
            one.waiting = 10.0
            self.assertEqual([("image.waits", "debian")], self.look())

    def test_a_device_that_is_missing(self):
        with self.node.process.here():
            self.node.kernel.lio.withdraw("virtman_debian_1", iqn("a", "debian"), 1)
        self.assert_mended(("image.incomplete", "virtman_debian_export1"))

    def test_one_verb_looks_at_all_devices_of_all_images(self):
        self.bed.register("other")
        self.node.create("vm2", "other")
        self.node.settle()
        with self.node.process.here():
            attached = self.node.agent.images.attachments()
            self.kernel.log.clear()
            seen = look_closely(attached)
            self.assertEqual(["statuses"], [verb for verb, _ in self.kernel.log])
            self.assertEqual([[], []], [one.faults(seen) for one in attached])
        verbs = {verb for verb, _ in self.kernel.log}
        # what is served, and which devices there are beyond those that are wanted
        self.assertEqual({"statuses", "serves", "names"}, verbs)

    def test_an_image_that_was_left_half_way_is_left_and_not_mended(self):
        self.node.destroy("vm1")
        self.node.delete_snapshot("before")
        self.kernel.held.add("/dev/mapper/virtman_debian_stripe")
        self.assertRaises(ExceptionGroup, self.node.drop)
        before = self.kernel.state()
        self.node.beat()
        self.assertEqual(before, self.kernel.state())
        self.kernel.held.clear()
        self.assertEqual([], self.repair())
        self.assert_nothing_is_left(self.node)

    # Volt.

    def test_a_place_that_volt_has_not_got(self):
        self.bed.volt.forget("debian", "a")
        self.assert_mended(("volt.unplaced", "debian"), restored=False)
        self.assertEqual({"a"}, self.bed.volt.hosts("debian"))

    def test_a_place_that_changed(self):
        self.bed.volt.renew_secret("debian")
        self.assert_mended(("volt.stale", "debian"), restored=False)

    def test_a_place_in_an_image_that_is_not_attached(self):
        self.bed.register("other")
        with self.node.process.here():
            portal = self.node.agent.images.attached("debian").portal
            self.node.agent.coordinator.image("other")
            self.node.agent.coordinator.join("other", replace(portal, iqn=iqn("a", "other")))
        self.assert_mended(("volt.orphan", "other"))
        self.assertEqual(set(), self.bed.volt.hosts("other"))

    def test_an_image_that_volt_keeps_for_disks_that_are_not_there(self):
        self.bed.register("other")
        with self.node.process.here():
            self.node.agent.images.want("wanted")
        said = Report({}, disks={"debian": 2, "wanted": 0, "other": 3})
        self.bed.volt.ground.hosts.heartbeat(self.node.name, said)
        self.assert_mended(("volt.held", "other"), restored=False)
        held = self.bed.volt.ground.holds.index(host=self.node.name)
        self.assertEqual({"debian": 2, "wanted": 0}, {one.image: one.disks for one in held})

    def test_an_image_that_volt_has_not_got_any_more(self):
        self.bed.remake("debian", "other content")
        self.assertIn(("volt.gone", "debian"), self.repair())
        self.assertEqual(self.before[0]["dm"], self.kernel.state()["dm"])

    def test_a_volt_that_does_not_answer_is_said(self):
        self.bed.volt.silence()
        self.assertEqual([("volt.silent", self.bed.volt.url)], self.repair())

    def test_a_vm_of_an_earlier_image(self):
        self.node.stop()
        self.bed.remake("debian", "other content")
        self.node.reboot()
        self.node.recover()
        self.node.create("vm2")
        self.assertEqual([("vm.remade", "vm1")], self.repair())

    def test_what_a_verb_is_doing_is_no_difference(self):
        del self.kernel.mappings["virtman_debian_vm_vm1"]

        def meanwhile(seconds):
            with self.node.process.here():
                self.node.agent.stores.bring_up("vm1")

        with self.node.process.here():
            self.assertEqual((), self.check(meanwhile).look())
