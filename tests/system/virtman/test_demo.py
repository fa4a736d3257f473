"""The demo as a user runs it: every guest finds its disk right, and nothing is left."""

import json
import os
import subprocess
from pathlib import Path

import testtools
from fixtures import TempDir

from lab.rootfs import TOP
from tests.system import places
from tests.system.virtman.base import NEWER, kernel_of, report


class TestDemo(testtools.TestCase):
    def test_eight_vms_on_seven_nodes_through_trees_of_depth_three(self):
        name = f"test-demo-{os.getpid()}"
        file = Path(self.useFixture(TempDir()).path) / "out.json"
        command = [TOP / "tools/demo.sh", "--nodes", "7", "--vms", "8", "--name", name]
        with places.taken(8), kernel_of(NEWER):
            done = subprocess.run(
                [*command, "--json", file], capture_output=True, text=True, check=False
            )
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        result = json.loads(file.read_text())
        ready = [vm["ready_s"] for vm in result["vms"]]
        ratio = result["source_sent_bytes"] / result["boot_read_bytes"]
        deepest = max(max(node["depth"]) for node in result["nodes"])
        ahead = [node["ahead"] for node in result["nodes"]]
        fetched, used = (sum(one[what] for one in ahead) for what in ("fetched", "used"))
        known = [one["used"] + one["missed"] for one in ahead]
        covered = [
            those / (those + one["strange"]) for those, one in zip(known, ahead, strict=True)
        ]
        report(
            f"demo: 8 VMs on 7 nodes, depth {deepest}, ready after {min(ready):.0f} to "
            f"{max(ready):.0f} s, source sent {ratio:.2f}x one boot's reads; "
            f"{fetched / 7e6:.0f} MB fetched ahead on each, {used / fetched:.0%} of it used, "
            f"the profile has {min(covered):.1%} or more of what VMs read"
        )
        self.assertTrue(result["ok"])
        self.assertEqual([], result["leftovers"])
        self.assertEqual([True] * 8, [vm["ok"] for vm in result["vms"]])
        self.assertEqual(["node1", "node1"], sorted(vm["node"] for vm in result["vms"])[:2])
        self.assertGreater(result["boot_read_bytes"], 40_000_000)
        self.assertEqual({"bytes", "sha256"}, set(result["image"]))
        self.assertEqual(
            [f"node{number}" for number in range(1, 8)], [one["name"] for one in result["nodes"]]
        )
        self.assertGreaterEqual(deepest, 3)
        self.assertLessEqual(ratio, 1.5)
        self.assertEqual([("fetched", "")] * 7, [(one["state"], one["verdict"]) for one in ahead])
        self.assertGreater(min(one["used"] for one in ahead), 10_000_000)
        self.assertGreaterEqual(min(covered), 0.95)
