"""A file becomes the source of an image: hashed once, served, known to Volt."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random

import fixtures
from click.testing import CliRunner

from tests.functional.virtman.base import MIB, TestCase
from tests.functional.virtman.doubles.kernel import Kernel
from tests.functional.virtman.doubles.process import Process
from virtman import common, source
from virtman.cmd.shell import shell
from virtman.coordinator.client import VoltClient
from virtman.coordinator.interface import Layer, Shape
from virtman.errors import (
    CoordinatorRefused,
    ImageInUse,
    ImageMismatch,
    ImageUnknown,
    InvalidRequest,
)
from virtman.kept_tree import KeptTree
from virtman.model import basis, hashtree, layer_format
from virtman.model.address import iqn
from virtman.model.basis import Run
from virtman.model.hashtree import BLOCK
from virtman.model.layer_format import Description
from virtman.model.profile import PIECE, merged
from virtman.model.profile_format import decode, encode
from virtman.node.check import Check
from volt.model.hosts import ImageReport, Report
from volt.transport import Portal


class SourceCase(TestCase):
    def setUp(self):
        super().setUp()
        folder = Path(self.useFixture(fixtures.TempDir()).path)
        self.hashes = folder / "hashes"
        for name, stand_in in (
            ("_SECRETS", folder / "sources"),
            ("_HASHES", self.hashes),
            ("become_privileged", lambda: None),
        ):
            self.useFixture(fixtures.MockPatchObject(source, name, stand_in))
        self.kernel = Kernel(self.kernels.network, "storage")
        self.file = folder / "image.raw"
        self.write(1)
        self.where = source.Storage("storage", "127.0.0.1", self.bed.source.port)
        self.access = self.bed.access("operator", self.bed.volt.ground.operator)
        self.hashed = 0

    def write(self, seed, size=2 * MIB + 512):
        self.file.write_bytes(Random(seed).randbytes(size))

    def add(self, **settings):
        def progress(done, size):
            self.hashed += done

        with Process(self.kernel).here():
            return source.add("img", str(self.file), self.where, self.bed.volt.url, self.access,
                              Shape(), progress=progress, **settings).portal  # fmt: skip

    def volt(self):
        return VoltClient(self.bed.volt.url, "any", 5, self.access)

    def served(self):
        return [(lun, device, sectors) for _, lun, device, sectors in
                self.kernel.state()["targets"]]  # fmt: skip

    def remove(self):
        with Process(self.kernel).here():
            source.remove("img", "storage", self.bed.volt.url, self.access)


class SourceTest(SourceCase):
    def test_image_and_leaves_are_served_and_the_root_is_at_volt(self):
        self.add()
        leaves = self.hashes / "img" / "leaves"
        self.assertEqual([(0, str(self.file), 4097), (1, str(leaves), 5 * 8)], self.served())
        tree, upper = self.volt().image("img").tree, self.volt().upper_hashes("img")
        self.assertTrue(hashtree.fits(upper, 2 * MIB + 512, tree))
        self.assertEqual(2 * MIB + 512, self.hashed)

    def test_the_file_of_a_layer_is_that_layer_where_files_may_say_so(self):
        size, origin = 16 * MIB, self.volt().image("debian").origin
        self.layer(Description("debian", origin, size))
        self.add()
        self.assertIsNone(self.volt().image("img").layer)
        self.remove()
        self.add(layered=True)
        self.assertEqual(Layer("debian", size), self.volt().image("img").layer)
        self.assertRaises(ImageInUse, self.volt().forget, "debian")
        self.remove()
        before = self.kernel.state()
        self.layer(Description("debian", "another", size))
        self.assertRaises(ImageMismatch, self.add, layered=True)
        self.assertEqual(before, self.kernel.state())
        self.write(3)
        self.add(layered=True)
        self.assertIsNone(self.volt().image("img").layer)

    def layer(self, described):
        content = layer_format.header(described)
        self.file.write_bytes(content.ljust(layer_format.length(0), b"\0"))

    def test_a_file_that_is_as_it_was_is_not_hashed_again(self):
        self.add()
        tree, self.hashed = self.volt().image("img").tree, 0
        self.add()
        self.assertEqual((0, tree), (self.hashed, self.volt().image("img").tree))

    def test_a_tree_may_be_kept_elsewhere_and_stays_there(self):
        folder = self.hashes.parent / "elsewhere"
        self.add(kept=KeptTree(folder))
        self.assertEqual((1, str(folder / "leaves"), 5 * 8), self.served()[1])
        self.remove()
        self.assertEqual([], self.served())
        self.assertEqual(["leaves", "tree"], sorted(one.name for one in folder.iterdir()))
        self.hashed = 0
        self.add(kept=KeptTree(folder))
        self.assertEqual(0, self.hashed)

    def test_other_content_is_refused_and_changes_nothing_at_volt(self):
        self.add()
        tree = self.volt().image("img").tree
        self.write(2)
        self.assertRaises(CoordinatorRefused, self.add)
        self.assertEqual(tree, self.volt().image("img").tree)

    def test_a_token_that_is_replaced_while_the_image_is_hashed_is_used(self):
        def replace(done, size):
            file.write_text(self.bed.volt.ground.operator)

        file = Path(self.access.token_file)
        file.write_text("ended")
        with Process(self.kernel).here():
            source.add("img", str(self.file), self.where, self.bed.volt.url, self.access, Shape(),
                       progress=replace)  # fmt: skip
        self.assertEqual(2 * MIB + 512, self.volt().image("img").size)

    def test_without_a_tree_there_is_one_lun(self):
        self.add(hashed=False)
        self.assertEqual([0], [lun for lun, _, _ in self.served()])
        self.assertIsNone(self.volt().image("img").tree)

    def test_short_images_have_no_tree(self):
        self.write(1, 4096)
        self.add()
        self.assertEqual([0], [lun for lun, _, _ in self.served()])

    def test_a_new_version_keeps_the_pieces_of_profiles_that_are_the_same(self):
        self.add()
        self.record({piece: piece / 10 for piece in range(33)})
        content = bytearray(self.file.read_bytes())
        content[3 * PIECE + 7] ^= 1
        content[-1] ^= 1  # in the last piece, which is short
        self.file.write_bytes(content)
        self.assertEqual([source.Carried("boot", 31, 33)], self.carry("img", "img2"))
        found = decode(self.volt().profile("img2", "boot")[0])
        self.assertEqual(set(range(32)) - {3}, set(found.wanted()))
        self.assertEqual(self.volt().image("img2").tree.root, found.identity)
        self.assertEqual([], self.carry("img", "img2"))

    def test_of_a_profile_of_which_little_is_left_nothing_is_stored(self):
        self.add()
        self.record(dict.fromkeys(range(33), 0.1))
        old = self.file.read_bytes()
        self.file.write_bytes(Random(4).randbytes(17 * PIECE) + old[17 * PIECE :])
        (found,) = self.carry("img", "img2")
        self.assertEqual((16, 33, False), (found.kept, found.pieces, found.is_enough))
        self.assertIsNone(self.volt().profile("img2", "boot"))

    def command(self, image, *words):
        """Add another image by the command; return what it says."""
        where = ("--volt", self.bed.volt.url, "--token-file", self.access.token_file)
        where += ("--host", "storage", "--ip", "127.0.0.1", "--port", str(self.bed.source.port))
        with Process(self.kernel).here():
            done = CliRunner().invoke(
                shell, ["source", "add", image, str(self.file), *where, *words]
            )
        self.assertEqual(0, done.exit_code, done.output)
        return done.stdout.splitlines()[-1]

    def test_what_an_image_is_based_on_gives_it_its_profiles(self):
        self.add()
        self.record(dict.fromkeys(range(33), 0.1))
        content = bytearray(self.file.read_bytes())
        content[0] ^= 1
        self.file.write_bytes(content)
        said = self.command("img2", "--based-on", "img")
        self.assertEqual("profile boot: 32 of 33 pieces of img kept", said)
        self.assertEqual(32, decode(self.volt().profile("img2", "boot")[0]).total)
        said = self.command("img3", "--find-base")
        self.assertEqual("profile boot: 32 of 32 pieces of img2 kept", said)
        self.file.write_bytes(Random(4).randbytes(18 * PIECE) + content[18 * PIECE :])
        said = self.command("img4", "--based-on", "img3")
        self.assertEqual(
            "profile boot: 15 of 32 pieces of img3 are the same, too few: the next boots are "
            "recorded",
            said,
        )
        self.assertIsNone(self.volt().profile("img4", "boot"))

    def test_versions_must_be_served_here_with_hashes(self):
        self.add()
        error = self.assertRaises(InvalidRequest, self.carry, "other", "img2")
        self.assertIn("image other is not served by this host", str(error))

    def based(self, image, content, *names, hashed=True, **settings):
        """Add another image."""
        self.file.write_bytes(content)
        with Process(self.kernel).here():
            return source.add(image, str(self.file), self.where, self.bed.volt.url, self.access,
                              Shape(), hashed=hashed,
                              base=source.Base(names, **settings))  # fmt: skip

    def version(self, image, content, *based_on, **settings):
        """Add another image; return on which it is based, and the runs that it has of them."""
        added = self.based(image, content, *based_on, **settings)
        self.assertEqual(self.volt().image(image).based.images, added.based_on)
        found = basis.decode(self.volt().basis(image), -(-len(content) // BLOCK))
        self.assertEqual(self.volt().image(image).tree.root, found.root)
        self.assertEqual(found.shared, self.volt().image(image).based.shared)
        return [one.name for one in found.others], list(found.runs)

    def test_it_is_told_what_a_new_version_has_of_the_old_one(self):
        self.add()
        old = self.file.read_bytes()
        content = old[: 100 * BLOCK] + Random(5).randbytes(2 * BLOCK) + old[100 * BLOCK :]
        names, runs = self.version("img2", content, "img")
        self.assertEqual(["img"], names)
        self.assertEqual([Run(0, 0, 0, 100), Run(0, 102, 100, 413)], runs)
        names, runs = self.version("img2", content, "img", runs=1)
        self.assertEqual([Run(0, 102, 100, 413)], runs)

    def test_what_the_old_one_has_of_another_comes_from_there_if_hosts_have_that(self):
        self.add()
        content = bytearray(self.file.read_bytes())
        content[7 * BLOCK] ^= 1
        self.version("img2", content, "img")
        content[9 * BLOCK] ^= 1
        self.assertEqual(["img2"], self.version("img3", content, "img2")[0])
        self.bed.volt.ground.hosts.heartbeat("node1", Report({}, disks={"img": 1}))
        names, runs = self.version("img4", content, "img2")
        self.assertEqual(["img", "img2"], names)
        self.assertEqual([0, 1, 0, 0], [run.other for run in runs])

    def test_the_best_match_is_found_and_next_to_nothing_is_none(self):
        self.add()
        content = bytearray(self.file.read_bytes())
        content[:MIB] = Random(7).randbytes(MIB)
        self.version("img2", content, "img")
        content[MIB // 2 : MIB] = Random(8).randbytes(MIB // 2)
        self.assertEqual(["img2"], self.version("img3", content, is_found=True)[0])
        added = self.based("img4", Random(9).randbytes(MIB), is_found=True)
        self.assertEqual((), added.based_on)
        self.assertIsNone(self.volt().image("img4").based)

    def test_what_is_found_is_not_based_on_the_image_itself(self):
        self.add()
        first = self.file.read_bytes()
        second = Random(5).randbytes(BLOCK) + first[BLOCK:]
        third = second[:BLOCK] + Random(6).randbytes(BLOCK) + second[2 * BLOCK :]
        self.version("img2", second, "img")
        self.version("img3", third, "img2")
        before = self.served()
        self.assertEqual((), self.based("img", first, is_found=True).based_on)
        self.assertEqual(["img"], self.version("img2", second, is_found=True)[0])
        self.assertEqual(before, self.served())
        refused = self.assertRaises(CoordinatorRefused, self.version, "img", first, "img3")
        self.assertIn("cannot be based on img3, which is based on it", str(refused))

    def test_an_image_that_is_found_and_goes_meanwhile_leaves_one_that_is_based_on_none(self):
        self.add()
        content, find = self.file.read_bytes(), common.basis

        def compared(*arguments):
            self.volt().forget("img")
            return find(*arguments)

        with fixtures.MockPatchObject(common, "basis", compared):
            self.assertEqual((), self.based("img2", content, is_found=True).based_on)
        self.assertIsNone(self.volt().image("img2").based)

    def test_a_basis_is_taken_away_and_the_image_is_as_any_other(self):
        self.add()
        content = self.file.read_bytes()
        self.version("img2", content, "img")
        self.assertEqual((), self.based("img2", content).based_on)
        self.assertIsNone(self.volt().image("img2").based)
        self.assertEqual(["img2"], self.version("img", content, "img2")[0])

    def test_in_a_long_line_of_versions_the_first_ones_stay_and_the_named_ones_too(self):
        content = bytearray(self.file.read_bytes())
        line = [f"v{number}" for number in range(1, 8)]
        self.based("v1", content)
        self.bed.volt.ground.hosts.heartbeat("node1", Report({}, disks=dict.fromkeys(line[:6], 1)))
        based = []
        for old, new in pairwise(line):
            content[len(based) * BLOCK] ^= 1
            based.append(self.version(new, content, old)[0])
        self.assertEqual(line[:4], based[3])
        self.assertEqual(["v1", "v2", "v3", "v5"], based[4])
        self.assertEqual(["v1", "v2", "v3", "v6"], based[5])
        self.assertEqual(line[1:5], self.version("v7", content, *line[1:5])[0])
        refused = self.assertRaises(InvalidRequest, self.version, "v7", content, *line[:5])
        self.assertIn("4 images are the most", str(refused))

    def test_what_it_cannot_be_based_on_is_refused_and_nothing_is_served(self):
        self.add()
        content, before = self.file.read_bytes(), self.served()
        for names, error, why in (
            (["img2"], InvalidRequest, "cannot be based on itself"),
            (["none"], ImageUnknown, "none is not known"),
            (["debian"], InvalidRequest, "image debian is not served by this host"),
        ):
            refused = self.assertRaises(error, self.version, "img2", content, *names)
            self.assertIn(why, str(refused))
        refused = self.assertRaises(InvalidRequest, self.version, "img2", content, "img",
                                    hashed=False)  # fmt: skip
        self.assertIn("img2 has no hash tree", str(refused))
        self.assertEqual(before, self.served())
        self.assertRaises(ImageUnknown, self.volt().image, "img2")

    def record(self, run):
        """Have a profile of the image at Volt."""
        root = self.volt().image("img").tree.root
        self.volt().store_profile("img", "boot", encode(merged(None, run, root)), None)

    def carry(self, old, image):
        with Process(self.kernel).here():
            source.add(image, str(self.file), self.where, self.bed.volt.url, self.access, Shape())
            return source.carry(old, image, "storage", self.bed.volt.url, self.access)

    def test_removing_leaves_nothing(self):
        self.add()
        with Process(self.kernel).here():
            source.remove("img", "storage", self.bed.volt.url, self.access)
        self.assertEqual(([], []), (self.served(), list(self.hashes.rglob("*"))))

    def withdraw(self, forced=False):
        with Process(self.kernel).here():
            return source.withdraw("img", "storage", self.bed.volt.url, self.access, forced=forced)

    def test_the_last_copy_is_served_on_unless_forced(self):
        self.add()
        volt = self.bed.volt.ground
        volt.hosts.heartbeat("node1", Report({}, disks={"img": 1}))
        refused = self.assertRaises(CoordinatorRefused, self.withdraw)
        self.assertIn("its source is the last copy", str(refused))
        self.assertEqual(2, len(self.served()))
        self.assertEqual((True, None), self.withdraw(forced=True))
        self.assertEqual(([], []), (self.served(), list(self.hashes.rglob("*"))))
        self.add()
        self.assertEqual(2, len(self.served()))

    def test_with_a_copy_elsewhere_the_image_stays_known(self):
        self.add()
        volt = self.bed.volt.ground
        portal = Portal("192.0.2.1", 3260, "iqn.2003-01.org.example:h", 0)
        volt.placements.join("img", "node1", portal)
        volt.hosts.heartbeat("node1", Report({"img": ImageReport(1, whole=True)}))
        self.assertEqual((True, "node1"), self.withdraw())
        self.assertEqual([], self.served())
        self.assertEqual("node1", volt.images.show("img").home)
        self.assertEqual((True, "node1"), self.withdraw())

    def test_without_hosts_that_need_it_it_is_forgotten(self):
        self.add()
        self.assertEqual((False, None), self.withdraw())
        self.assertEqual([], self.served())
        self.assertRaises(ImageUnknown, self.withdraw)

    def test_removal_that_ended_halfway_can_be_repeated(self):
        self.add()
        self.volt().forget("img")
        self.remove()
        self.assertEqual([], self.served())
        self.assertRaises(ImageUnknown, self.remove)

    def test_under_another_name_it_is_refused_and_what_hosts_read_stays(self):
        where = self.add()
        self.where = replace(self.where, host="other")
        refused = self.assertRaises(CoordinatorRefused, self.add)
        self.assertIn("image img exists with another source: delete it first", str(refused))
        self.assertEqual([where.iqn] * 2, [target for target, *_ in self.kernel.state()["targets"]])


class BesideAnAgentTest(SourceCase):
    """A source on a node whose agent has the same name and uses the image."""

    def setUp(self):
        super().setUp()
        self.node = self.bed.node("storage")
        self.kernel = self.node.kernel
        self.source = self.add().iqn
        self.export = iqn("storage", "img")

    def targets(self):
        return {target for target, *_ in self.kernel.state()["targets"]}

    def test_both_serve_and_each_has_its_own_children(self):
        alone = self.kernel.state()["targets"]
        self.node.create("vm1", "img")
        self.node.settle()
        self.assertEqual({self.source, self.export}, self.targets())
        self.assertLessEqual(set(alone), set(self.kernel.state()["targets"]))
        other = self.bed.node("b")
        other.create("vm1", "img")
        for node in (self.node, other) * 3:
            node.beat()
        self.assertEqual(["iqn.node:b"], self.kernel.children(self.export))
        self.assertIn("iqn.node:storage", self.kernel.children(self.source))

    def test_either_started_again_leaves_the_other(self):
        self.node.create("vm1", "img")
        self.node.settle()
        before = self.kernel.state()
        self.add()
        self.assertEqual(before, self.kernel.state())
        self.node.stop()
        self.node.start()
        self.assertEqual([], self.node.recover())
        self.node.settle()
        self.assertEqual(before, self.kernel.state())
        with self.node.process.here():
            self.assertEqual([], list(Check(self.node.agent, lambda seconds: None).look()))

    def test_the_agent_goes_and_the_source_stays(self):
        before = self.kernel.state()
        self.node.create("vm1", "img")
        self.node.destroy("vm1")
        self.node.drop("img")
        self.assertEqual(before, self.kernel.state())
        self.node.create("vm1", "img")
        self.assertEqual({self.source, self.export}, self.targets())

    def test_the_source_goes_and_the_export_stays(self):
        self.node.create("vm1", "img")
        self.node.settle()
        self.assertRaises(CoordinatorRefused, self.remove)
        self.assertEqual({self.source, self.export}, self.targets())
        exported = [one for one in self.kernel.state()["targets"] if one[0] == self.export]
        self.bed.volt.forget("img", "storage")
        self.remove()
        self.assertEqual(exported, self.kernel.state()["targets"])
