"""Rows of the fault table: agents that are killed, and many VMs that come and go."""

import json
import os

from lab.deployment import leftovers
from lab.errors import DeadlinePassed
from lab.waiting import wait_until
from tests.faults.base import PROGRAMS
from tests.system.virtman.base import MIB, DeployedCase, report, sha256

STRIDE = int(os.environ.get("VIRTMAN_FAULTS_STRIDE", "1"))
"""Try each n-th step only."""

AGENT = ("python3", f"{PROGRAMS}/stopping.py")

# What an agent may hold, and its node's kernel for it; a name and a number a line.
RESOURCES = """
pids=$(pgrep -f "[v]irtman.cmd.agent")
for pid in $pids; do
    rss=$((${rss:-0} + $(awk '/^VmRSS/ {print $2}' /proc/$pid/status)))
    fds=$((${fds:-0} + $(ls /proc/$pid/fd | wc -l)))
    threads=$((${threads:-0} + $(ls /proc/$pid/task | wc -l)))
done
echo KiB $rss
echo descriptors $fds
echo threads $threads
echo dm $(dmsetup ls | wc -l)
echo loop $(losetup --all | wc -l)
echo sessions $(ls /sys/class/iscsi_session | wc -l)
echo files $(find /var/lib/virtman -type f | wc -l)
"""


class AgentCase(DeployedCase):
    node_count = 1
    size = 8 * MIB

    def listed(self):
        """States of the node's VMs, by name."""
        done = self.virtman(self.nodes[0], "list", "--json")
        return {one["vm"]: one["state"] for one in json.loads(done.stdout)}


class TestStops(AgentCase):
    """The agent is killed before each root verb in turn; the next one finds what it left."""

    name = "faults-stops"

    def setUp(self):
        super().setUp()
        (self.node,) = self.nodes
        self.node.run(["pkill", "-KILL", "-f", "virtman.cmd.agent|stopping.py"])
        self.start()

    def start(self):
        self.deployment.start_agent(self.node, self.options, AGENT)

    def test_create(self):
        def act():
            return self.virtman(self.node, "create", self.image, "vm1", check=False, timeout=120)

        self.stop_everywhere("create", lambda: None, act)

    def test_destroy_and_drop(self):
        def begin():
            self.virtman(self.node, "create", self.image, "vm1")

        def act():
            self.virtman(self.node, "destroy", "vm1", check=False)
            return self.virtman(self.node, "image", "drop", self.image, check=False)

        self.stop_everywhere("destroy and drop", begin, act)

    def stop_everywhere(self, what, begin, act):
        """Do the same again and again, with the agent dying at another step each time."""
        at, stops = self.node.share / "stop-at", []
        for step in range(1, 1000, STRIDE):
            begin()
            at.write_text(str(step))
            done = act()
            if at.exists():
                at.unlink()
                self.assertEqual(0, done.status, done.stderr)
                self.restore(f"{what}, undisturbed")
                break
            verb = (self.node.share / "stopped-at").read_text()
            stops.append(verb)
            self.start()
            self.restore(f"{what}, killed at step {step}, {verb}")
        report(f"agent killed at {len(stops)} steps of {what}: nothing lost, nothing left")

    def restore(self, after):
        """A VM that there still is has its image; afterwards all can be given back."""
        if self.listed():
            wait_until(lambda: self.listed() == {"vm1": "ready"}, f"{after}: the VM", 60, 0.5)
            device = f"/dev/mapper/virtman_{self.image}_vm_vm1"
            self.assertEqual(self.sha256, sha256(self.node, device), after)
            self.virtman(self.node, "destroy", "vm1")
        try:
            wait_until(self.is_clean, "nothing left", 60, 0.5)
        except DeadlinePassed:
            self.fail(f"{after}: {leftovers(self.node)}")
        self.assertEqual({}, self.deployment.depths(self.image), after)

    def is_clean(self):
        self.virtman(self.node, "image", "drop", self.image, check=False)
        return not leftovers(self.node)


class TestCycles(AgentCase):
    name = "faults-cycles"
    memory = "384M"

    def cycles(self, count, width):
        done = self.nodes[0].run(
            ["python3", f"{PROGRAMS}/cycles.py", self.image, str(count), str(width)],
            timeout=600,
        )
        return json.loads(done.stdout)

    def resources(self):
        lines = self.nodes[0].run(["sh", "-c", RESOURCES]).stdout.splitlines()
        return {name: int(number) for name, number in map(str.split, lines)}

    def test_many_at_once(self):
        self.create(self.nodes[0], "vm1")
        done = self.cycles(50, 50)
        report(f"50 create/destroy cycles at once: {len(done['errors'])} errors, "
               f"{done['seconds']:.1f} s in all, the longest {done['longest']:.1f} s")  # fmt: skip
        self.assertEqual([], done["errors"])
        self.assertEqual({"vm1": "ready"}, self.listed())

    def test_many_one_after_another(self):
        self.create(self.nodes[0], "vm1")
        self.cycles(30, 1)
        before = self.resources()
        done = self.cycles(300, 1)
        self.assertEqual([], done["errors"])
        after = self.resources()
        report(f"300 create/destroy cycles one after another: {done['seconds']:.0f} s, "
               f"before {before}, after {after}")  # fmt: skip
        grown = {name: after[name] - before[name] for name in before}
        self.assertLess(grown.pop("KiB"), 4096)
        self.assertLess(grown.pop("threads"), 8)  # pools that were not full before
        self.assertLess(grown.pop("descriptors"), 8)
        self.assertEqual({name: 0 for name in grown}, grown)
