"""What is refused gets its own code and changes nothing anywhere."""

import os
from unittest import mock

import fixtures

from tests.functional.virtman.base import UsedCase
from virtman.errors import VirtmanError
from virtman.privileged import lio

NAMES = ("a/b", "a b", "Debian", "", "a_b", "a:b", "-a", "../etc", "x" * 49, "ü", "a\n", "a\0b")


class RefusalTest(UsedCase):
    def refused(self, code, verb, *arguments):
        before = self.node.everywhere()
        error = self.assertRaises(VirtmanError, verb, *arguments)
        self.assertEqual(code, error.code)
        self.node.settle()
        self.assertEqual(before, self.node.everywhere())
        return str(error)

    def test_an_unknown_image(self):
        text = self.refused("virtman.image.unknown", self.node.create, "vm2", "nope")
        self.assertIn("nope", text)

    def test_names_that_cannot_be_names(self):
        for name in NAMES:
            for verb, *arguments in (
                (self.node.create, name),
                (self.node.create, "vm2", name),
                (self.node.destroy, name),
                (self.node.drop, name),
            ):
                text = self.refused("virtman.name.invalid", verb, *arguments)
                self.assertIn("1 to 48 lower-case letters", text)

    def test_a_vm_that_is_there_already(self):
        text = self.refused("virtman.instance.exists", self.node.create, "vm1")
        self.assertIn("VM vm1", text)

    def test_a_vm_of_another_image_that_is_there_already(self):
        self.bed.register("other")
        self.refused("virtman.instance.exists", self.node.create, "vm1", "other")

    def test_a_vm_that_is_not_there(self):
        self.refused("virtman.instance.unknown", self.node.destroy, "vm2")

    def test_too_little_space(self):
        self.bed.register("other")
        stat = mock.Mock(f_bavail=1000, f_frsize=4096)
        self.useFixture(fixtures.MockPatchObject(os, "statvfs", return_value=stat))
        for image in ("debian", "other"):
            text = self.refused("virtman.store.no_space", self.node.create, "vm2", image)
            self.assertIn("raise [store] overcommit", text)

    def test_modules_that_the_kernel_lacks(self):
        self.node.kernel.missing_modules = {"bcache", "dm-switch"}
        text = self.refused("virtman.kernel.modules_missing", self.node.create, "vm2")
        self.assertIn("no module dm-switch, bcache:", text)
        self.assertIn("depmod -a", text)

    def test_an_agent_starts_where_modules_are_missing(self):
        self.node.die()
        self.node.kernel.missing_modules = {"bcache"}
        with mock.patch.object(lio, "prepare", side_effect=OSError("no configfs")):
            self.node.start()
        self.refused("virtman.kernel.modules_missing", self.node.create, "vm2")
        self.node.kernel.missing_modules = set()
        self.node.create("vm2")

    def test_dropping_an_image_that_is_used(self):
        text = self.refused("virtman.device.busy", self.node.drop)
        self.assertEqual("image debian is in use by vm1; destroy them first", text)

    def test_dropping_an_image_that_is_not_attached(self):
        self.refused("virtman.image.unknown", self.node.drop, "other")

    def test_a_parent_that_serves_too_little(self):
        self.bed.register("short")
        key = next(key for key in self.bed.network.targets if key[2].endswith(":short"))
        self.bed.network.targets[key].luns[0].sectors -= 8
        text = self.refused("virtman.image.mismatch", self.node.create, "vm2", "short")
        self.assertIn("serves 8384512 bytes of image short, which is longer", text)
