"""Servers that migrate live under load: the guest goes on with its data, there or where it was."""

import json
import re
import time

from lab.deployment import leftovers
from lab.waiting import wait_until
from tests.openstack.base import CloudCase
from tests.system.virtman.base import report

# What a guest that writes says now and then: see lab/images/guest/guest-init.
LOAD = re.compile(r"^VIRTMAN-LOAD (\w+) number=(\d+) uptime=([\d.]+)\r?$", re.MULTILINE)
# What a guest's kernel says when it has found its own memory wrong.
DIED = re.compile(r"^\[ *[\d.]+\] (invalid opcode|BUG|Oops|general protection|Kernel panic).*",
                  re.MULTILINE)  # fmt: skip


class TestLiveMigration(CloudCase):
    def setUp(self):
        super().setUp()
        self.kept = {}  # what guests said; a console goes with its guest
        (self.server,) = self.boot("web", 1)
        self.assert_right(self.server, 1)
        self.first = self.servers.node(self.server)
        (other,) = {node.name for node in self.nodes.computes} - {self.first.name}
        self.second = self.cloud.bed.node(other)
        tty = self.first.run(["virsh", "ttyconsole", self.server]).stdout.strip()
        # QEMU looks once a second whether somebody is there.
        self.first.run(["sh", "-c", f"(sleep 2; echo load; sleep 2) > {tty}"])
        wait_until(lambda: self._said(self.first), "a guest that writes", 60, 0.2)

    def test_guest_goes_on_with_all_that_it_wrote(self):
        longest = self._migrate()
        self.servers.wait([self.server], "ACTIVE")
        self.assertEqual(self.second.name, self.servers.node(self.server).name)
        self._assert_goes_on(self.second)
        moves = self._ask(self.first, "move", "list")
        (move,) = [one for one in moves if one["vm"] == self.server]
        wait_until(lambda: not leftovers(self.first), "the source to let go", 60, 1)
        self.assertEqual([], list((self.first.share / "instances").glob(f"{self.server}*")))
        self.assertEqual("", self.first.run(["virsh", "list", "--all", "--name"]).stdout.strip())
        self._assert_disk_is_right()
        report(
            f"live migration under load: {move['sent'] >> 10} KiB sent as {move['wire'] >> 10} KiB "
            f"in {move['round'] + 1} rounds, the disk held for {move['pause']:.3f} s, the guest "
            f"silent for {longest:.1f} s"
        )

    def test_guest_stays_if_the_destinations_agent_dies(self):
        self.servers.order("migrate", self.server, "--live-migration")
        wait_until(lambda: self._disks(self.second), "a disk on its way", 60, 0.1)
        self.nodes.stop(self.second, "virtman-agent")
        self.servers.wait([self.server], "ACTIVE")
        self.assertEqual(self.first.name, self.servers.node(self.server).name)
        self._assert_goes_on(self.first)
        self.assertEqual([(self.server, "ready")], self._disks(self.first))
        self.nodes.start_agent(self.second)
        wait_until(lambda: not leftovers(self.second), "nothing on the destination", 150, 1)
        self.assertEqual("", self.second.run(["virsh", "list", "--all", "--name"]).stdout.strip())
        self._assert_disk_is_right()

    def _assert_disk_is_right(self):
        self.servers.wait([self.server], "ACTIVE")
        self.servers.order("reboot", self.server, "--hard")
        self.servers.wait([self.server], "ACTIVE")
        self.assert_right(self.server, 2)

    def _migrate(self):
        """Wait until the guest writes on the other node; return its longest silence, in seconds."""
        self.servers.order("migrate", self.server, "--live-migration")
        said, began, longest = [], time.monotonic(), 0.0

        def goes_on():
            nonlocal said, began, longest
            now = [self._said(self.first), self._said(self.second)]
            longest = max(longest, time.monotonic() - began)
            if now != said:
                said, began = now, time.monotonic()
            self.assertIsNone(DIED.search(self._console(self.second)))
            return len(now[1]) > 1

        wait_until(goes_on, f"the guest on {self.second.name}", 180, 0.05)
        return longest

    def _assert_goes_on(self, node):
        """The guest was never started anew, and has always read what it wrote."""
        before = len(self._said(node))
        wait_until(lambda: len(self._said(node)) > before + 1, "more of the load", 60, 0.2)
        first, second = self._said(self.first), self._said(self.second)
        said = first + second if node is self.second else first
        self.assertEqual({"ok"}, {verdict for verdict, _, _ in said}, said)
        numbers = [int(number) for _, number, _ in said]
        self.assertEqual(list(range(20, numbers[-1] + 1, 20)), numbers)
        uptimes = [float(uptime) for _, _, uptime in said]
        self.assertEqual(sorted(uptimes), uptimes)

    def _said(self, node):
        return LOAD.findall(self._console(node))

    def _console(self, node):
        console = node.share / "instances" / self.server / "console.log"
        if console.exists():
            self.kept[node.name] = console.read_text(errors="replace")
        return self.kept.get(node.name, "")

    def _disks(self, node):
        return [(one["vm"], one["state"]) for one in self._ask(node, "list")]

    def _ask(self, node, *words):
        return json.loads(node.run(["virtman", *words, "--json"]).stdout)
