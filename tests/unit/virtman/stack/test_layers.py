"""Which table each layer gives the kernel, and when two tables are the same."""

from dataclasses import replace

import fixtures
import testtools

from virtman import sysfs
from virtman.errors import StoreInvalid
from virtman.model import plan
from virtman.model.address import Portal
from virtman.model.hashtree import HashTree
from virtman.model.naming import Device
from virtman.privileged import block, dm, kernel, lio, loop
from virtman.stack import mapped
from virtman.stack.layers.base import BaseLayer
from virtman.stack.layers.hashes import HashesLayer
from virtman.stack.layers.image import ImageLayer
from virtman.stack.layers.instance import InstanceLayer
from virtman.stack.layers.multipath import MultipathLayer
from virtman.stack.layers.store import StoreLayer, Usage
from virtman.stack.layers.stripe import StripeLayer
from virtman.stack.layers.verity import VerityLayer
from virtman.stack.transport.iscsi.export import ExportLayer

NUMBERS = {"/dev/x": "254:8", "/dev/y": "254:9", "/dev/z": "7:3"}
NUMBERS |= {"/dev/mapper/x": "254:8", "/dev/mapper/y": "254:9"}
MIB = 2048


def plain(step):
    return MultipathLayer(step, "service-time", shared=False)


class Tables(fixtures.Fixture):
    """A device mapper that only keeps tables, and tells how often each was swapped."""

    def __init__(self):
        super().__init__()
        self.live = {}
        self.swapped = []
        self.settled = []
        self.hashes_fetched = 256 * 1024

    def _setUp(self):
        for module, name, stand_in in (
            (dm, "create", lambda name, table, ro, owner: self.live.update({name: table})),
            (dm, "reload", self._reload),
            (dm, "table", lambda name: self.live.get(name, [])),
            (dm, "statuses", lambda names: {}),
            (dm, "resume", lambda name: None),
            (dm, "suspend", lambda name, flush, freeze: None),
            (block, "read_ahead", lambda kernel_name, size: None),
            (lio, "serves", lambda storage, iqn, lun: True),
            (loop, "attach", lambda path, offset, ro: "/dev/z"),
            (sysfs, "kernel_name", lambda device: device),
            (sysfs, "number", NUMBERS.__getitem__),
            (sysfs, "mapped_name", {"254:8": "x", "254:9": "y"}.__getitem__),
            (sysfs, "hashes_fetched", lambda: self.hashes_fetched),
            (kernel, "fetch_hashes", lambda size: setattr(self, "hashes_fetched", size)),
            (sysfs, "loop_of", lambda path, offset=0: None),
        ):
            self.useFixture(fixtures.MockPatchObject(module, name, stand_in))

    def _reload(self, name, table, read_only, flush, freeze, settle):
        self.live[name] = table
        self.swapped.append(name)
        self.settled.append(settle)


class TableTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.tables = self.useFixture(Tables())

    def table(self, kind, step, *below):
        self.assertEqual(str(step.device), kind(step).up(below).removeprefix("/dev/mapper/"))
        return self.tables.live[str(step.device)]

    def test_a_stripe_without_a_path_queues(self):
        step = plan.Multipath(Device("i", "s0"), MIB, ())
        self.assertEqual(
            [(0, MIB, "multipath", "3 queue_if_no_path queue_mode bio 0 0 0")],
            self.table(plain, step),
        )

    def test_each_path_is_a_group_of_its_own(self):
        step = plan.Multipath(Device("i", "s0"), MIB, ())
        paths = "service-time 0 1 1 254:8 1 service-time 0 1 1 254:9 1"
        self.assertEqual(
            [(0, MIB, "multipath", f"3 queue_if_no_path queue_mode bio 0 2 1 {paths}")],
            self.table(plain, step, "/dev/x", "/dev/y"),
        )

    def test_paths_are_chosen_as_the_option_says(self):
        step = plan.Multipath(Device("i", "s0"), MIB, ())
        for selector in ("round-robin", "queue-length"):
            device = Device("i", selector[:5])
            layer = MultipathLayer(replace(step, device=device), selector, shared=False)
            layer.up(["/dev/x"])
            ((_, _, _, words),) = self.tables.live[layer.name]
            self.assertTrue(words.endswith(f"1 1 {selector} 0 1 1 254:8 1"), words)

    def test_paths_that_share_what_is_read_are_one_group(self):
        layer = MultipathLayer(
            plan.Multipath(Device("i", "s0"), MIB, ()), "round-robin", shared=True
        )
        features = "3 queue_if_no_path queue_mode bio 0"
        for below, groups in (
            ((), "0 0"),
            (("/dev/x",), "1 1 round-robin 0 1 1 254:8 1"),
            (("/dev/x", "/dev/y"), "1 1 round-robin 0 2 1 254:8 1 254:9 1"),
        ):
            layer.up(below)
            ((_, _, _, words),) = self.tables.live[layer.name]
            self.assertEqual(f"{features} {groups}", words)

    def test_what_is_verified_is_hashed_in_blocks_of_4_kib(self):
        tree = HashTree("aa", "bb")
        step = plan.Verity(Device("i", "verity0", "a"), MIB, (), tree)
        self.assertEqual(
            [(0, MIB, "verity", "1 254:8 254:9 4096 4096 256 0 sha256 aa bb")],
            self.table(VerityLayer, step, "/dev/x", "/dev/y"),
        )
        self.assertEqual(4096, self.tables.hashes_fetched)

    def test_the_leaves_lie_behind_the_upper_levels(self):
        step = plan.Hashes(Device("i", "hashes"), 80, (), 16)
        self.assertEqual(
            [(0, 16, "linear", "254:8 0"), (16, 64, "linear", "254:9 0")],
            self.table(HashesLayer, step, "/dev/x", "/dev/y"),
        )

    def test_the_image_lies_on_the_cache_then_the_stripe(self):
        step = plan.Image(Device("i", "image"), MIB, ())
        paths = "round-robin 0 1 1 254:8 1 round-robin 0 1 1 254:9 1"
        self.assertEqual(
            [(0, MIB, "multipath", f"3 queue_if_no_path queue_mode bio 0 2 1 {paths}")],
            self.table(ImageLayer, step, "/dev/x", "/dev/y"),
        )

    def test_an_image_over_nothing_has_its_size(self):
        step = plan.Image(Device("i", "image"), MIB, ())
        self.assertEqual([(0, MIB, "error", "")], self.table(ImageLayer, step))

    def test_pieces_go_to_the_devices_below_in_turn(self):
        step = plan.Stripe(Device("i", "stripe"), MIB, (), 256 * 1024, (0, 4096))
        self.assertEqual(
            [(0, MIB, "switch", "2 512 0 254:8 0 254:9 8")],
            self.table(StripeLayer, step, "/dev/x", "/dev/y"),
        )

    def test_an_export_begins_with_a_mebibyte_of_zeros(self):
        portal = Portal("10.0.0.1", 3260, "iqn")
        step = plan.Export(Device("i", "export0"), 3 * MIB, (), 32 * 1024, portal)
        self.assertEqual(
            [(0, MIB, "zero", ""), (MIB, 2 * MIB, "switch", "2 2048 0 254:8 0 254:9 0")],
            self.table(ExportLayer, step, "/dev/x", "/dev/y"),
        )

    def test_leaves_are_served_behind_the_image(self):
        portal = Portal("10.0.0.1", 3260, "iqn")
        step = plan.Export(Device("i", "export0"), 3 * MIB + 64, (), 32 * 1024, portal, 64)
        regions = (MIB, 2 * MIB, "switch", "1 2048 0 254:8 0")
        self.assertEqual(
            [(0, MIB, "zero", ""), regions, (3 * MIB, 64, "linear", "7:3 0")],
            self.table(ExportLayer, step, "/dev/x", "/dev/z"),
        )

    def test_behind_an_image_are_zeros(self):
        step = plan.Base(Device("i", "base"), 4 * MIB, (), MIB)
        image, zeros = (0, MIB, "linear", "254:8 0"), (MIB, 3 * MIB, "zero", "")
        self.assertEqual([image, zeros], self.table(BaseLayer, step, "/dev/x"))

    def test_a_store_keeps_what_is_written_or_gives_it_to_the_one_below(self):
        for merging, target in ((False, "snapshot"), (True, "snapshot-merge")):
            step = plan.Store(
                Device("i", "store", "s1"), MIB, (), "/stores/s1.cow", merging, MIB * 512
            )
            self.assertEqual(
                [(0, MIB, target, "254:8 7:3 P 128")], self.table(StoreLayer, step, "/dev/x")
            )
        self.assertEqual(["virtman_i_store_s1"], self.tables.swapped)

    def test_a_vm_moves_to_another_store_under_its_name(self):
        step = plan.Instance(Device("i", "vm", "v"), MIB, ())
        self.assertEqual([(0, MIB, "linear", "254:8 0")], self.table(InstanceLayer, step, "/dev/x"))
        self.assertEqual([(0, MIB, "linear", "254:9 0")], self.table(InstanceLayer, step, "/dev/y"))
        self.assertTrue(InstanceLayer(step).lies_on("/dev/y"))
        self.assertFalse(InstanceLayer(step).lies_on("/dev/x"))
        self.assertEqual([""], self.tables.settled)

    def test_a_store_on_which_a_vm_gets_another_one_is_on_the_disk_before(self):
        step = plan.Instance(Device("i", "vm", "v"), MIB, ())
        self.tables.live["y"] = [(0, MIB, "snapshot", "254:8 7:3 P 128")]
        for store in ("/dev/x", "/dev/y", "/dev/x"):  # the last time past an emptied one
            self.table(InstanceLayer, step, store)
        self.assertEqual(["/dev/mapper/x", ""], self.tables.settled)

    def test_a_store_says_how_full_it_is_or_that_it_is_lost(self):
        layer = StoreLayer(
            plan.Store(Device("i", "store", "s1"), MIB, (), "/stores/s1.cow", False, MIB * 512)
        )
        for status, usage in (
            ("32/4096 32", Usage(16384, 16384)),
            ("48/4096 32", Usage(24576, 16384)),
        ):
            rows = [(0, MIB, "snapshot", status)]
            self.useFixture(fixtures.MockPatchObject(dm, "status", lambda name, rows=rows: rows))
            self.assertEqual(usage, layer.usage())
        self.assertEqual([True, False], [Usage(1, 1).is_empty, Usage(2, 1).is_empty])
        for word in ("Invalid", "Merge failed", "Overflow"):
            rows = [(0, MIB, "snapshot", word)]
            self.useFixture(fixtures.MockPatchObject(dm, "status", lambda name, rows=rows: rows))
            error = self.assertRaises(StoreInvalid, layer.usage)
            self.assertIn(word, str(error))

    def test_only_what_changed_is_swapped(self):
        layer = plain(plan.Multipath(Device("i", "s0"), MIB, ()))
        for below, swaps in (
            (["/dev/x"], 0),
            (["/dev/x"], 0),
            ([], 0),
            (["/dev/x", "/dev/y"], 1),
            (["/dev/y", "/dev/x"], 2),
            (["/dev/y"], 3),
            (["/dev/y"], 3),
        ):
            layer.up(below)
            self.assertEqual(swaps, len(self.tables.swapped), below)


class ShapeTest(testtools.TestCase):
    """The kernel prints tables in its own words."""

    OURS = "3 queue_if_no_path queue_mode bio 0 2 1 " \
           "service-time 0 1 1 254:8 1 service-time 0 1 1 254:9 1"  # fmt: skip
    KERNELS = "4 queue_if_no_path retain_attached_hw_handler queue_mode bio 0 2 1 " \
              "service-time 0 1 2 254:8 1 1 service-time 0 1 2 254:9 1 1"  # fmt: skip

    def same(self, one, two, target="multipath"):
        shapes = [mapped._shape([(0, MIB, target, words)]) for words in (one, two)]
        return shapes[0] == shapes[1]

    def test_the_kernels_words_are_the_same_table(self):
        self.assertTrue(self.same(self.OURS, self.KERNELS))

    def test_the_group_in_use_does_not_matter(self):
        self.assertTrue(self.same(self.OURS, self.KERNELS.replace(" 0 2 1 ", " 0 2 2 ")))

    def test_another_order_is_another_table(self):
        turned = self.KERNELS.replace(":8", ":0").replace(":9", ":8").replace(":0", ":9")
        self.assertFalse(self.same(self.OURS, turned))

    def test_another_number_of_paths_is_another_table(self):
        one = "4 queue_if_no_path retain_attached_hw_handler queue_mode bio 0 1 1 " \
              "service-time 0 1 2 254:8 1 1"  # fmt: skip
        self.assertFalse(self.same(self.OURS, one))

    def test_a_device_whose_number_begins_alike_is_another(self):
        self.assertFalse(self.same("2 2048 0 254:8 0 254:9 0", "2 2048 0 254:80 0 254:9 0"))

    def test_a_table_that_no_longer_queues_is_another(self):
        plain = self.KERNELS.replace("4 queue_if_no_path ", "3 ")
        self.assertFalse(self.same(self.OURS, plain))

    def test_another_target_or_length_is_another_table(self):
        self.assertNotEqual(
            mapped._shape([(0, MIB, "linear", "7:0 0")]), mapped._shape([(0, MIB, "error", "")])
        )
        self.assertNotEqual(
            mapped._shape([(0, MIB, "linear", "7:0 0")]),
            mapped._shape([(0, MIB + 1, "linear", "7:0 0")]),
        )
