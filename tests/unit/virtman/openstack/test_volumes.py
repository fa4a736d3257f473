"""Volumes of servers with a cache: never an old one, never another volume's, none left behind."""

import contextlib
import tempfile
from pathlib import Path

import testtools

from virtman.errors import (
    AgentUnreachable,
    DeviceBusy,
    VolumeUnknown,
    VolumeUnusable,
)
from virtman.openstack.volumes import Volumes, is_cacheable

V1 = "0c0ffee0-1111-2222-3333-444455556666"
V2 = "0c0ffee0-1111-2222-3333-777788889999"
DATA = {"device_path": "/dev/sdb", "encrypted": False, "access_mode": "rw"}


class FakeAgent:
    """What a node's agent has before volumes, by path; each cache is a list of what it holds."""

    def __init__(self):
        self.caches = {}
        self.busy = set()
        self.reachable = True
        self.refuses = False
        self.loses_answers = False

    def attach(self, device):
        self._answer()
        if self.refuses or device in self.caches:
            raise VolumeUnusable(device)
        self.caches[device] = []
        if self.loses_answers:
            self.reachable = False
            raise AgentUnreachable("timed out")
        return {"volume": device, "device": f"/dev/mapper/cached{device.replace('/', '-')}"}

    def detach(self, device):
        self._answer()
        if device not in self.caches:
            raise VolumeUnknown(device)
        if device in self.busy:
            raise DeviceBusy(device)
        del self.caches[device]

    def _answer(self):
        if not self.reachable:
            raise AgentUnreachable("no answer")


class NodeTest(testtools.TestCase):
    """A node with an agent, and no cache yet."""

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name) / "volumes"
        self.agent = FakeAgent()
        self.volumes = self.restarted()

    def restarted(self):
        """Another nova-compute on the same node."""
        return Volumes(self.agent, self.folder)

    def connect(self, volume=V1, path="/dev/sdb"):
        """Connect a volume; return what its server gets."""
        data = {"device_path": path}
        self.volumes.connect(data, volume)
        self.assertEqual(data["device_path"] != path, self.volumes.is_cached(volume))
        return data["device_path"]

    def disconnect(self, volume=V1, volumes=None):
        """Disconnect a volume; return what its driver gets."""
        data = {"device_path": "/dev/mapper/cached"}
        (volumes or self.volumes).disconnect(data, volume)
        self.assertFalse(self.volumes.is_cached(volume))
        return data["device_path"]

    def noted(self):
        return {one.name: one.read_text() for one in self.folder.glob("*")}


class VolumesTest(NodeTest):
    def test_server_gets_the_cached_device(self):
        self.assertEqual("/dev/mapper/cached-dev-sdb", self.connect())
        self.assertEqual({V1: "/dev/sdb"}, self.noted())

    def test_disconnect_leaves_nothing(self):
        self.connect()
        self.assertEqual("/dev/sdb", self.disconnect())
        self.assertEqual(({}, {}), (self.agent.caches, self.noted()))
        self.agent.reachable = False  # there is nothing to ask
        self.assertEqual("/dev/mapper/cached", self.disconnect())

    def test_it_survives_a_restart(self):
        self.connect()
        self.assertEqual("/dev/sdb", self.disconnect(V1, self.restarted()))
        self.assertEqual(({}, {}), (self.agent.caches, self.noted()))

    def test_cache_begins_empty_each_time(self):
        self.connect()
        self.agent.caches["/dev/sdb"].append("of before another node wrote")
        self.connect()
        self.assertEqual({"/dev/sdb": []}, self.agent.caches)
        self.agent.caches["/dev/sdb"].append("of before another node wrote")
        self.connect(path="/dev/sdc")
        self.assertEqual({"/dev/sdc": []}, self.agent.caches)
        self.assertEqual({V1: "/dev/sdc"}, self.noted())

    def test_path_of_another_volume_is_left_to_that(self):
        self.connect(V1, "/dev/sdb")
        self.agent.caches.clear()  # the node was rebooted; its disks come in another order
        self.connect(V2, "/dev/sdb")
        self.agent.busy.add("/dev/sdb")
        self.disconnect()
        self.assertEqual("/dev/mapper/cached-dev-sdc", self.connect(V1, "/dev/sdc"))
        self.assertEqual({V1: "/dev/sdc", V2: "/dev/sdb"}, self.noted())

    def test_cache_in_use_stays(self):
        self.connect()
        self.agent.busy.add("/dev/sdb")
        self.assertRaises(DeviceBusy, self.disconnect)
        self.assertRaises(DeviceBusy, self.connect, V1)
        self.assertRaises(DeviceBusy, self.connect, V2)
        self.assertEqual({V1: "/dev/sdb"}, self.noted())

    def test_volume_that_cannot_be_cached_goes_on_without(self):
        self.agent.refuses = True
        self.assertEqual("/dev/sdb", self.connect())
        self.agent.reachable = False
        self.assertEqual("/dev/sdb", self.connect())
        self.assertEqual({}, self.noted())

    def test_nobody_reads_past_a_cache_that_may_be_there(self):
        self.connect()
        self.agent.reachable = False
        self.assertRaises(AgentUnreachable, self.connect)
        self.assertRaises(AgentUnreachable, self.disconnect)
        self.agent.reachable = True
        self.disconnect()
        self.assertEqual({}, self.agent.caches)

    def test_lost_answer_is_made_up_for(self):
        self.agent.loses_answers = True
        self.assertRaises(AgentUnreachable, self.connect)
        self.assertEqual({V1: "/dev/sdb"}, self.noted())
        self.agent.reachable, self.agent.loses_answers = True, False
        self.disconnect()
        self.assertEqual(({}, {}), (self.agent.caches, self.noted()))

    def test_names_are_no_paths(self):
        self.assertRaises(ValueError, self.connect, "../../etc/passwd")
        self.assertRaises(ValueError, self.disconnect, "../../etc/passwd")


class Killed(BaseException):
    """Nova-compute is not there any more."""


class Mortal:
    """An agent whose caller dies at one of its calls: just before it, or before the answer."""

    def __init__(self, agent, calls, after):
        self.agent = agent
        self.left = calls
        self.after = after

    def attach(self, device):
        return self._call(self.agent.attach, device)

    def detach(self, device):
        return self._call(self.agent.detach, device)

    def _call(self, verb, device):
        self.left -= 1
        if self.left >= 0:
            return verb(device)
        if self.after:
            verb(device)
        raise Killed


class KilledTest(NodeTest):
    """Nova-compute dies at each call in turn."""

    def at_each_call(self, use, calls):
        for after in (False, True):
            for call in range(calls):
                self.agent.caches.clear()
                self.folder.mkdir(exist_ok=True)
                for file in self.folder.iterdir():
                    file.unlink()
                mortal = Volumes(Mortal(self.agent, call, after), self.folder)
                with contextlib.suppress(Killed, VolumeUnknown):
                    use(mortal)
                yield

    def test_killed_while_it_connects(self):
        def use(volumes):
            volumes.connect({"device_path": "/dev/sdb"}, V1)

        for _ in self.at_each_call(use, 2):
            self.assertEqual("/dev/mapper/cached-dev-sdb", self.connect())
            self.assertEqual({"/dev/sdb": []}, self.agent.caches)

    def test_killed_while_it_connects_what_is_never_used(self):
        def use(volumes):
            volumes.connect({"device_path": "/dev/sdb"}, V1)

        for _ in self.at_each_call(use, 2):
            self.disconnect()
            self.assertEqual(({}, {}), (self.agent.caches, self.noted()))

    def test_killed_while_it_disconnects(self):
        def use(volumes):
            self.connect()
            volumes.disconnect({}, V1)

        for _ in self.at_each_call(use, 1):
            self.disconnect()
            self.assertEqual(({}, {}), (self.agent.caches, self.noted()))


class IsCacheableTest(testtools.TestCase):
    def check(self, info=None, **data):
        return is_cacheable({"data": DATA | data, **(info or {})})

    def test_block_device_of_one_server_is(self):
        self.assertTrue(self.check())
        self.assertTrue(self.check({"multiattach": False}))

    def test_others_are_not(self):
        self.assertFalse(self.check({"multiattach": True}))
        self.assertFalse(self.check(encrypted=True))
        self.assertFalse(self.check(encrypted=None))
        self.assertFalse(self.check(access_mode="ro"))
        self.assertFalse(self.check(device_path=None))
        self.assertFalse(self.check(device_path="/var/lib/nova/mnt/share/volume"))
