"""The Python environment in which the programs of a cloud run."""

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import testtools

from lab.openstack import environment
from lab.rootfs import TOP


class TestEnvironment(testtools.TestCase):
    def test_its_list_has_what_programs_of_virtman_require(self):
        code = "import sys, virtman.cmd.golden, virtman.cmd.images; print(*sys.modules)"
        loaded = subprocess.check_output([sys.executable, "-c", code], text=True)
        modules = {name.partition(".")[0] for name in loaded.split()}
        distributions = metadata.packages_distributions()
        imported = {normal(one) for module in modules for one in distributions.get(module, ())}
        needed = imported & listed(TOP / "requirements.txt")
        self.assertIn("click", needed)
        self.assertEqual(
            set(), needed - listed(Path(environment.__file__).with_name("control.txt"))
        )


def listed(file):
    """Return the distributions that a file of requirements has."""
    lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    return {normal(re.split("[^A-Za-z0-9._-]", line)[0]) for line in lines}


def normal(name):
    """Return a distribution's name as pip compares it."""
    return re.sub("[-_.]+", "-", name).lower()
