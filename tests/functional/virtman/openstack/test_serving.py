"""New images of virtman-golden and virtman-images find those on which they are based."""

import shutil
from random import Random

from tests.functional.virtman.doubles.process import Process
from tests.functional.virtman.test_source import SourceCase
from virtman.kept_tree import KeptTree
from virtman.model.hashtree import BLOCK
from virtman.openstack.serving import Served


class TestServed(SourceCase):
    def setUp(self):
        super().setUp()
        self.content = self.file.read_bytes()
        self.trees = {}

    def serve(self, image, content, *, beside=None, hashed=True, kept=None):
        """Serve another image; return on which it is based."""
        self.file.write_bytes(content)
        served = Served(self.where, self.bed.volt.url, self.access, hashed=hashed)
        with Process(self.kernel).here():
            served.add(image, str(self.file), kept=kept, beside=beside)
        return self.based(image)

    def based(self, image):
        found = self.volt().image(image).based
        return found.images if found else ()

    def imported(self, image, content):
        """Serve an image whose tree is kept elsewhere, as those of Glance are."""
        folder = self.hashes.parent / "glance" / image
        self.trees[image] = KeptTree(folder)
        self.addCleanup(shutil.rmtree, folder.parent, ignore_errors=True)
        return self.serve(image, content, beside=self.trees, kept=self.trees[image])

    def changed(self, seed):
        """Return the content with another MiB in the middle, and have that be the content."""
        more = Random(seed).randbytes(100 * BLOCK)
        self.content = self.content[: 50 * BLOCK] + more + self.content[150 * BLOCK :]
        return self.content

    def test_snapshots_of_one_server_are_based_on_the_one_before(self):
        self.assertEqual((), self.serve("snapshot-1", self.content))
        self.assertEqual(("snapshot-1",), self.serve("snapshot-2", self.changed(2)))
        self.assertEqual((), self.serve("snapshot-3", Random(3).randbytes(2 << 20)))

    def test_images_whose_trees_are_elsewhere_find_each_other_and_those_of_this_host(self):
        self.assertEqual((), self.imported("glance-1", self.content))
        self.assertEqual(("glance-1",), self.imported("glance-2", self.changed(2)))
        content = Random(4).randbytes(2 << 20)
        self.serve("img", content)
        self.assertEqual(("img",), self.imported("glance-3", content[BLOCK:]))

    def test_what_is_known_keeps_its_basis(self):
        first = self.content
        self.imported("glance-1", first)
        self.imported("glance-2", self.changed(2))
        self.assertEqual((), self.imported("glance-1", first))
        self.imported("glance-3", self.changed(3))
        self.volt().forget("glance-3")
        self.trees.pop("glance-1")
        self.assertEqual(("glance-2",), self.imported("glance-3", self.content))

    def test_without_hash_trees_none_is_looked_for(self):
        self.serve("snapshot-1", self.content, hashed=False)
        self.assertEqual((), self.serve("snapshot-2", self.content, hashed=False))
