"""While Volt does not answer, what it said last is good enough to boot VMs."""

import stat

import requests

from tests.functional.virtman.base import UsedCase
from virtman.errors import CoordinatorUnreachable, ImageRemade, ImageUnknown


class RememberingTest(UsedCase):
    def kept(self):
        return {path.name: path for path in (self.node.folder / "volt").iterdir()}

    def rebooted(self):
        self.node.stop()
        self.node.reboot()
        return self.node

    def test_vms_come_back_and_others_come_after_a_reboot_without_volt(self):
        before = self.node.kernel.state()
        self.bed.volt.silence()
        node = self.rebooted()
        self.assertEqual([], list(node.recover()))
        node.settle()
        self.assertEqual(before, node.kernel.state())
        node.create("vm2")
        self.assertRaises(CoordinatorUnreachable, node.create, "vm3", "other")

    def test_volt_hears_of_it_with_the_first_heartbeat(self):
        self.bed.volt.silence()
        node = self.rebooted()
        node.recover()
        node.settle()
        before = node.kernel.state()
        self.assertEqual(0, node.agent.images.attached("debian").generation)
        self.bed.volt.silence(False)
        self.bed.volt.forget("debian", "a")
        node.beat()
        self.assertEqual({"a"}, self.bed.volt.hosts("debian"))
        self.assertLess(0, node.agent.images.attached("debian").generation)
        self.assertEqual(before["dm"], node.kernel.state()["dm"])
        secret = self.bed.volt.renew_secret("debian")
        node.beat()
        (target,) = (one for one in self.bed.network.targets.values() if one.kernel is node.kernel)
        self.assertEqual(secret, target.chap)
        self.bed.volt.silence()
        self.rebooted().recover()
        (target,) = (one for one in self.bed.network.targets.values() if one.kernel is node.kernel)
        self.assertEqual(secret, target.chap)

    def test_what_is_kept_has_secrets_and_goes_with_the_image(self):
        found = self.kept()
        self.assertEqual({"debian.json", "debian.hashes"}, found.keys())
        self.assertEqual({0o600}, {stat.S_IMODE(one.stat().st_mode) for one in found.values()})
        self.node.destroy("vm1")
        self.node.drop()
        self.assertEqual({}, self.kept())

    def test_an_image_that_volt_says_is_gone_is_gone(self):
        node = self.rebooted()
        self.bed.delete("debian")
        self.assertEqual(["vm1"], list(node.recover()))
        self.assertEqual({}, self.kept())
        self.bed.volt.silence()
        self.assertRaises(CoordinatorUnreachable, node.create, "vm2")
        self.bed.volt.silence(False)
        self.assertRaises(ImageUnknown, node.create, "vm2")

    def test_an_image_that_is_another_once_volt_is_back_is_not_joined(self):
        node = self.rebooted()
        self.bed.remake("debian", "other content")
        self.bed.volt.silence()
        with node.process.here():
            info = node.agent.coordinator.image("debian")
            self.bed.volt.silence(False)
            portal = node.agent.images.find("debian").portal
            node.agent.coordinator._infos.clear()
            self.assertNotEqual(info, node.agent.coordinator.memory.get("debian"))
            self.assertRaises(ImageRemade, node.agent.coordinator.join, "debian", portal)
        self.assertEqual(set(), self.bed.volt.hosts("debian"))

    def test_a_time_out_is_waited_for_once(self):
        node = self.rebooted()
        asked = []

        def time_out(method, url, **settings):
            asked.append((method, url.rpartition("/v1")[2]))
            raise requests.Timeout

        volt = node.agent.coordinator.volt
        request, volt.session.request = volt.session.request, time_out
        self.assertEqual([], list(node.recover()))
        node.create("vm2")
        self.assertRaises(CoordinatorUnreachable, node.create, "vm3", "other")
        self.assertEqual([("GET", "/images/debian")], asked)
        self.assertRaises(CoordinatorUnreachable, node.beat)
        self.assertEqual(2, len(asked))
        volt.session.request = request
        node.beat()
        self.await_(lambda: self.bed.volt.hosts("debian") == {"a"})
        self.assertRaises(ImageUnknown, node.create, "vm3", "other")
