"""The demo as a user runs it: every guest finds its disk right, and nothing is left."""

import json
import os
import subprocess
from pathlib import Path

import testtools
from fixtures import TempDir

from lab.rootfs import TOP
from tests.system.virtman.base import report


class TestDemo(testtools.TestCase):
    def run_demo(self, nodes, vms):
        name = f"test-demo-{os.getpid()}"
        file = Path(self.useFixture(TempDir()).path) / "out.json"
        command = [TOP / "tools/demo.sh", "--nodes", str(nodes), "--vms", str(vms)]
        done = subprocess.run(
            [*command, "--name", name, "--json", file], capture_output=True, text=True, check=False
        )
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        result = json.loads(file.read_text())
        ready = [vm["ready_s"] for vm in result["vms"]]
        ratio = result["source_sent_bytes"] / result["boot_read_bytes"]
        deepest = max(max(node["depth"]) for node in result["nodes"])
        report(
            f"demo: {vms} VMs on {nodes} nodes, depth {deepest}, ready after {min(ready):.0f} to "
            f"{max(ready):.0f} s, source sent {ratio:.2f}x one boot's reads"
        )
        self.assertTrue(result["ok"])
        self.assertEqual([], result["leftovers"])
        self.assertEqual(vms, len([vm for vm in result["vms"] if vm["ok"]]))
        return result, deepest, ratio

    def test_four_vms_on_three_nodes(self):
        result, _, ratio = self.run_demo(3, 4)
        self.assertLessEqual(ratio, 1.5)
        self.assertGreater(result["boot_read_bytes"], 40_000_000)
        self.assertEqual({"bytes", "sha256"}, set(result["image"]))
        self.assertEqual(["node1", "node2", "node3"], [one["name"] for one in result["nodes"]])

    def test_seven_vms_on_seven_nodes_through_trees_of_depth_three(self):
        _, deepest, ratio = self.run_demo(7, 7)
        self.assertGreaterEqual(deepest, 3)
        self.assertLessEqual(ratio, 1.5)
