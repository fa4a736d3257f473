"""Modules that the kernel has are not loaded again."""

from pathlib import Path

import fixtures
import testtools

from virtman.privileged import kernel

FETCH = kernel.fetch_hashes.args[0]
LOAD = kernel.load_modules.args[0]  # what the privileged part calls


class ModulesTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.loaded = Path(self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.MockPatchObject(kernel, "_LOADED", self.loaded))

    def test_no_process_is_started_where_all_are_there(self):
        for name in ("dm_mod", "loop"):
            (self.loaded / name).mkdir()
        self.assertEqual([], LOAD(["dm-mod", "loop"]))

    def test_how_much_is_fetched_of_hashes_is_a_parameter_of_its_module(self):
        parameter = self.loaded / "dm_verity" / "parameters" / "prefetch_cluster"
        parameter.parent.mkdir(parents=True)
        FETCH(4096)
        self.assertEqual("4096", parameter.read_text())
