"""After a reboot the VMs of a node find their devices: systemd starts the agent before them."""

import configparser
from pathlib import Path

import testtools

UNIT = Path(__file__).resolve().parents[3] / "etc/systemd/virtman-agent.service"
HYPERVISOR = {
    "libvirtd.service",
    "virtqemud.service",
    "libvirt-guests.service",
    "nova-compute.service",
}


class AgentUnitTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        # names may occur twice in a section, as CapabilityBoundingSet does
        self.unit = configparser.ConfigParser(strict=False, interpolation=None)
        self.unit.optionxform = str
        self.unit.read_string(UNIT.read_text())

    def test_whatever_starts_vms_waits_for_the_agent(self):
        before = set(self.unit["Unit"]["Before"].split())
        self.assertEqual(set(), HYPERVISOR - before)

    def test_the_agent_has_started_once_it_says_so_however_long_that_takes(self):
        service = self.unit["Service"]
        self.assertEqual("notify", service["Type"])
        # [agent] ready_timeout may be longer than systemd waits unless told
        self.assertEqual("infinity", service["TimeoutStartSec"])

    def test_an_agent_that_is_enabled_starts_with_the_node(self):
        self.assertEqual("multi-user.target", self.unit["Install"]["WantedBy"])

    def test_what_a_node_needs_to_reach_storage_comes_first(self):
        wanted, after = (set(self.unit["Unit"][name].split()) for name in ("Wants", "After"))
        self.assertEqual({"network-online.target", "iscsid.service"}, wanted & after)
