"""Agents that are killed at any moment, as a VM becomes a layer or begins with one."""

import json
import time

from lab.waiting import wait_until
from tests.system.virtman.base import report, sha256
from tests.system.virtman.test_layers import LAYER, LayerCase


class TestKilled(LayerCase):
    name = "layer-kills"

    def test_an_agent_that_is_killed_as_it_commits_goes_on_or_leaves_nothing(self):
        device = self.create(self.first, "vm1")
        self.write(self.first, device)
        moment, outcomes = sha256(self.first, device), []
        for step in range(20):
            if step >= 6 and 1 in outcomes:
                break  # a slow machine needs longer for a whole commit
            begun = self.first.spawn(["virtman", "commit", "vm1", LAYER], log="commit")
            time.sleep(0.5 + 0.7 * step)
            self.deployment.kill_agent(self.first)
            self.start_agent(self.first)
            self.first.run(["tail", f"--pid={begun}", "-f", "/dev/null"], timeout=60)
            wait_until(self.is_settled, "the commit's end", 60, 0.5)
            outcomes.append(len(self.made(self.first)))
            if self.made(self.first):
                other = self.start(self.second, LAYER, f"vm2-{step}")
                self.assertEqual(moment, sha256(self.second, other))
                self.destroy(self.second, f"vm2-{step}")
                self.deployment.drop(self.second, LAYER)
                self.virtman(self.first, "layer", "remove", LAYER)
            self.assertEqual(moment, sha256(self.first, device))
            vms = json.loads(self.virtman(self.first, "list", "--json").stdout)
            self.assertEqual(["vm1"], [one["vm"] for one in vms])
            files = self.first.run(["ls", "/var/lib/virtman/layers"]).stdout
            self.assertEqual("", files)
        report(f"layers after kills of the agent, ever later: {outcomes}")
        self.assertIn(1, outcomes)

    def is_settled(self):
        found = json.loads(self.virtman(self.first, "layer", "list", "--json").stdout)
        return all(one["state"] == "kept" for one in found)

    def test_an_agent_that_is_killed_as_it_creates_a_vm_of_a_layer_is_fine(self):
        device = self.create(self.first, "vm1")
        self.write(self.first, device)
        moment = sha256(self.first, device)
        self.commit(self.first, "vm1")
        for step in range(5):
            begun = self.second.spawn(["virtman", "create", LAYER, "vm2"], log="create")
            time.sleep(0.5 + 1.2 * step)
            self.deployment.kill_agent(self.second)
            self.start_agent(self.second)
            self.second.run(["tail", f"--pid={begun}", "-f", "/dev/null"], timeout=60)
            if not self.virtman(self.second, "vm", "show", "vm2", check=False).stdout:
                self.virtman(self.second, "create", LAYER, "vm2", timeout=120)
            wait_until(lambda: self.has_vm(self.second, "vm2"), "the VM being ready", 60, 0.5)
            path = f"/dev/mapper/virtman_{LAYER}_vm_vm2"
            self.assertEqual(moment, sha256(self.second, path))
            self.virtman(self.second, "destroy", "vm2")
            self.deployment.drop(self.second, LAYER)
            self.deployment.drop(self.second, self.image)
            self.assertNotIn("virtman_", self.second.run(["dmsetup", "ls"]).stdout)
