"""Volumes of Cinder's, of servers on nodes with a cache group."""

import copy
import os

import fixtures
from nova import context as nova_context
from nova import exception, objects, test
from nova.tests.fixtures import libvirt as fakelibvirt
from nova.tests.functional.api import client
from oslo_serialization import jsonutils
from oslo_utils.fixture import uuidsentinel as uuids

from tests.driver.nodes import DRIVER, NodesCase
from tests.driver.test_live import LiveCase
from virtman import errors

CONNECTOR = "os_brick.initiator.connectors.iscsi.ISCSIConnector"
OWN, CACHED = "/dev/sdb", "/dev/mapper/virtman-volume_sdb"


class CacheMixin:
    """A server on node ``a``, and a volume that nodes see as ``/dev/sdb``."""

    def setUp(self):
        super().setUp()
        self.flags(use_cachegroup=True, group="virtman")
        self.flags(device_detach_timeout="1", group="libvirt")
        self.volume = self.cinder.ISCSI_BACKED_VOL
        self.info = copy.deepcopy(self.cinder.VOLUME_CONNECTION_INFO)
        self.info[self.volume]["data"]["encrypted"] = False
        self.useFixture(fixtures.MockPatchObject(self.cinder, "VOLUME_CONNECTION_INFO", self.info))
        self.useFixture(
            fixtures.MockPatch(f"{CONNECTOR}.connect_volume", return_value={"path": OWN})
        )
        self.disconnect = self.useFixture(fixtures.MockPatch(f"{CONNECTOR}.disconnect_volume")).mock
        self.agent = self.agents["a"]

    def attach(self):
        body = {"volumeAttachment": {"volumeId": self.volume}}
        self.api.post_server_volume(self.server["id"], body)
        self._wait_for_volume_attach(self.server["id"], self.volume)

    def detach(self):
        self.api.delete_server_volume(self.server["id"], self.volume)
        self._wait_for_volume_detach(self.server["id"], self.volume)

    def noted(self, volume=None):
        """Return what nova has as the path of the server's volume."""
        found = objects.BlockDeviceMapping.get_by_volume_and_instance(
            nova_context.get_admin_context(), volume or self.volume, self.server["id"]
        )
        return jsonutils.loads(found.connection_info)["data"]["device_path"]

    def written(self):
        """Return the volumes that node ``a`` knows to have a cache."""
        folder = self.driver.volumes.folder
        return sorted(os.listdir(folder)) if folder.exists() else []

    def assert_cached(self):
        self.assertEqual({OWN: CACHED}, self.agent.caches)
        self.assertEqual((CACHED, [self.volume]), (self.noted(), self.written()))
        self.assertIn(CACHED, self.opened("a", self.server))

    def assert_not_cached(self, host="a"):
        self.assertEqual(({}, []), (self.agent.caches, self.written()))
        self.assertEqual(OWN, self.noted())
        opened = self.opened(host, self.server)
        self.assertIn(OWN, opened)
        self.assertNotIn(CACHED, opened)

    def assert_disconnected(self):
        self.assertEqual(({}, []), (self.agent.caches, self.written()))
        self.assertEqual(OWN, self.disconnect.call_args[0][0]["device_path"])

    @property
    def driver(self):
        return self.computes["a"].driver


class VolumesTest(CacheMixin, NodesCase):
    CAST_AS_CALL = True  # so that attaching tells what failed

    def setUp(self):
        super().setUp()
        self.start_compute("a")
        self.server = self.boot(flavor_id=self.flavor())

    def rescue(self):
        """Begin a rescue that leaves the server its disks."""
        properties = {"hw_rescue_device": "disk", "hw_rescue_bus": "virtio"}
        image = self.glance.image1 | {"id": uuids.rescue, "properties": properties}
        self.glance.create(None, image)
        body = {"rescue": {"rescue_image_ref": uuids.rescue}}
        self.api.post_server_action(self.server["id"], body)
        self._wait_for_state_change(self.server, "RESCUE")

    def test_attach_and_detach(self):
        self.attach()
        self.assert_cached()
        self.detach()
        self.assert_disconnected()
        self.assertEqual({self.disk(self.server)["device"]}, self.opened("a", self.server))

    def test_it_stays_until_the_server_is_deleted(self):
        self.attach()
        self._stop_server(self.server)
        self._start_server(self.server)
        self.assert_cached()
        self._reboot_server(self.server, hard=True)
        self.assert_cached()
        self.flags(use_cachegroup=False, group="virtman")
        self._delete_server(self.server)
        self.assert_disconnected()

    def test_hard_reboot_ends_it_after_the_option_was_turned_off(self):
        self.attach()
        self.flags(use_cachegroup=False, group="virtman")
        self._reboot_server(self.server, hard=True)
        self.assert_not_cached()

    def test_rescue_keeps_it(self):
        self.attach()
        self.rescue()
        self.assert_cached()
        self._unrescue_server(self.server)
        self.assert_cached()

    def test_rescue_leaves_no_cache_that_grows_old(self):
        self.attach()
        self.flags(use_cachegroup=False, group="virtman")
        self.rescue()
        self.assert_not_cached()

    def test_option_turned_on_takes_effect_at_the_next_start(self):
        self.flags(use_cachegroup=False, group="virtman")
        self.attach()
        self.assert_not_cached()
        self.flags(use_cachegroup=True, group="virtman")
        self._reboot_server(self.server, hard=True)
        self.assert_cached()

    def test_service_that_is_started_anew_knows_of_it(self):
        self.attach()
        self.restart_compute_service("a")
        self.assert_cached()
        self.detach()
        self.assert_disconnected()

    def test_attach_that_fails_leaves_nothing(self):
        with fixtures.MockPatch(
            "nova.virt.libvirt.guest.Guest.attach_device", side_effect=test.TestingException
        ):
            self.assertRaises(client.OpenStackApiException, self.attach)
        self.assert_disconnected()

    def test_cache_that_may_be_an_old_one_fails_the_attach(self):
        with fixtures.MockPatch(
            "virtman.openstack.volumes.Volumes.connect", side_effect=errors.DeviceBusy("in use")
        ):
            self.assertRaises(client.OpenStackApiException, self.attach)
        self.assert_disconnected()

    def test_volume_stays_attached_while_its_cache_cannot_go(self):
        self.attach()
        self.agent.reachable = False
        self.assertRaises(
            client.OpenStackApiException,
            self.api.delete_server_volume,
            self.server["id"],
            self.volume,
        )
        self.disconnect.assert_not_called()
        self.assertEqual([self.volume], self.written())
        self.agent.reachable = True
        self.detach()
        self.assert_disconnected()

    def test_agent_that_refuses_or_is_down_costs_the_cache_only(self):
        self.agent.refuses = True
        self.attach()
        self.assert_not_cached()
        self.detach()
        self.agent.reachable = False
        self.attach()
        self.assert_not_cached()
        self.detach()

    def test_others_are_left_alone(self):
        for values in ({"encrypted": True}, {"access_mode": "ro"}, {"multiattach": True}):
            stock = copy.deepcopy(self.info[self.volume])
            part = self.info[self.volume]
            (part if "multiattach" in values else part["data"]).update(values)
            with fixtures.MockPatch("os_brick.encryptors.get_encryption_metadata", return_value={}):
                self.attach()
                self.assert_not_cached()
                self.detach()
            self.info[self.volume] = stock

    def test_swapped_volume_goes_on_without_until_the_next_start(self):
        self.volume, new = self.cinder.SWAP_OLD_VOL, self.cinder.SWAP_NEW_VOL
        self.info[self.volume] = copy.deepcopy(self.info[self.cinder.ISCSI_BACKED_VOL])
        self.info[new] = copy.deepcopy(self.info[self.volume])
        self.cinder.swap_volume_instance_uuid = self.server["id"]
        self.attach()
        self.assert_cached()
        copied = self.useFixture(fixtures.MockPatch(f"{DRIVER}._swap_volume")).mock
        self.api.put_server_volume(self.server["id"], self.volume, new)
        self._wait_for_volume_attach(self.server["id"], new)
        self.assertEqual(OWN, copied.call_args[0][2].source_path)
        self.assertEqual(({}, [], OWN), (self.agent.caches, self.written(), self.noted(new)))
        self._reboot_server(self.server, hard=True)
        self.assertEqual(({OWN: CACHED}, [new]), (self.agent.caches, self.written()))

    def test_volume_that_is_extended_is_not_resized_under_its_cache(self):
        self.attach()
        extend = self.driver.extend_volume
        info = {"driver_volume_type": "iscsi", "serial": self.volume, "data": {}}
        error = self.assertRaises(
            exception.VolumeExtendFailed, extend, None, info, self.instance(self.server), 2
        )
        self.assertIn("started again", str(error))
        info["serial"] = uuids.other
        stock = self.useFixture(fixtures.MockPatch(f"{DRIVER}._extend_volume")).mock
        stock.side_effect = NotImplementedError
        self.assertRaises(
            exception.ExtendVolumeNotSupported, extend, None, info, self.instance(self.server), 2
        )


class VolumesLiveTest(CacheMixin, LiveCase):
    def setUp(self):
        super().setUp()
        # The fake domain has no serial, by which nova knows which disk gets which path.
        get_xml = fakelibvirt.Domain.XMLDesc
        source = f"<source dev='{CACHED}'/>"
        self.useFixture(
            fixtures.MonkeyPatch(
                "nova.tests.fixtures.libvirt.Domain.XMLDesc",
                lambda domain, flags: get_xml(domain, flags).replace(
                    source, f"{source}<serial>{self.volume}</serial>"
                ),
            )
        )
        self.attach()

    def test_volume_goes_on_without_until_the_next_start(self):
        self.migrate("completed")
        self.assert_not_cached("b")
        self.assertEqual({}, self.agents["b"].caches)

    def test_migration_that_fails_leaves_the_cache_at_the_source(self):
        with fixtures.MockPatchObject(
            self.driver_there, "_pre_live_migration_plug_vifs", side_effect=test.TestingException
        ):
            self.migrate("failed")
        self.assert_cached()
