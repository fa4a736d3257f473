"""Which kernel new beds have."""

from pathlib import Path

import fixtures
import testtools

from lab import kernel
from lab.errors import BuildFailed


class KernelTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.cache = self.useFixture(fixtures.TempDir())
        self.useFixture(fixtures.EnvironmentVariable("VIRTMAN_CACHE", self.cache.path))

    def choose(self, release):
        self.useFixture(fixtures.EnvironmentVariable(kernel.VARIABLE, release))
        return kernel.chosen()

    def test_one_that_is_there_is_taken_as_it_is(self):
        root = self.cache.join("kernel-forky")
        self.useFixture(fixtures.MockPatchObject(kernel, "_fetch", None))
        Path(root, "usr/lib/uml/modules/7.2.7").mkdir(parents=True)
        found = self.choose("forky")
        self.assertEqual("7.2.7", found.modules.name)
        self.assertEqual(root, found.command[-1])

    def test_what_is_no_release_is_refused(self):
        for name in ("7.2", "../x", "forky main"):
            refused = self.assertRaises(BuildFailed, self.choose, name)
            self.assertIn("name a release of Debian", str(refused))
