"""Nodes with the driver, a nova-api with the patch, and a stand-in for Cinder."""

import collections
import functools

import fixtures
from nova.volume import cinder
from oslo_utils.fixture import uuidsentinel as uuids

from tests.driver.nodes import IMAGE, NodesCase
from tests.functional.virtman.openstack.doubles import FakeCinderClient
from virtman.openstack.golden import holder_of

SNAPSHOT = uuids.snapshot
BUSY_SNAPSHOT = uuids.busy_snapshot
ENCRYPTED_SNAPSHOT = uuids.encrypted_snapshot
OF_SNAPSHOT = f"snapshot-{SNAPSHOT}"
OF_IMAGE = {"source_type": "image", "uuid": IMAGE, "volume_size": 2}

_TYPES = [{"id": uuids.kind, "name": "virtman"}, {"id": uuids.lvm, "name": "lvm-1"}]


class CloudCase(NodesCase):
    """Nodes ``a`` and ``b``, once they are started.

    :ivar volumes: of the project of nova's own account
    :ivar asked: how often nova asked Cinder and Glance for what, as the user
    """

    def setUp(self):
        super().setUp()
        self.flags(use_vmtsnapshot=True, group="virtman")
        self.volumes = FakeCinderClient()
        self.useFixture(
            fixtures.MockPatch(
                "virtman.openstack.driver.cinder.cinderclient", return_value=self.volumes
            )
        )
        self.asked = collections.Counter()
        answers = {
            "get_snapshot": self._snapshot,
            "get_volume_encryption_metadata": self._encryption,
            "get_all_volume_types": lambda *_: _TYPES,
            "check_availability_zone": lambda *_, **__: None,
            "create": self.cinder.fake_vol_create,
            "delete": lambda *_: None,
        }
        for name, answer in answers.items():
            self.useFixture(fixtures.MockPatchObject(cinder.API, name, staticmethod(answer)))
        for name in (*answers, "get", "attachment_create"):
            counted = functools.partial(self._count, name, getattr(cinder.API, name))
            self.useFixture(fixtures.MockPatchObject(cinder.API, name, staticmethod(counted)))
        image_of = "nova.image.glance.API.get"
        image = functools.partial(self._count, "get_image", self.glance.show)
        self.useFixture(fixtures.MonkeyPatch(image_of, lambda api, *args, **_: image(*args[:2])))

    def _count(self, name, answer, *args, **kwargs):
        self.asked[name] += 1
        return answer(*args, **kwargs)

    def _snapshot(self, context, snapshot):
        status = "creating" if snapshot == BUSY_SNAPSHOT else "available"
        return {"id": snapshot, "status": status, "size": 1, "volume_id": snapshot}

    def _encryption(self, context, volume):
        return {"encryption_key_id": uuids.key if volume == ENCRYPTED_SNAPSHOT else None}

    def request(self, count=1, flavor=None, **disk):
        """Return a request; its root disk is of the snapshot, but for what ``disk`` says."""
        flavor = flavor or self.flavor(disk=0)
        root = {
            "boot_index": 0,
            "uuid": SNAPSHOT,
            "source_type": "snapshot",
            "destination_type": "volume",
            "volume_type": "virtman",
            "delete_on_termination": True,
        }
        body = self.body(flavor_id=flavor, image_uuid="")
        return body | {
            "min_count": count,
            "max_count": count,
            "block_device_mapping_v2": [root | disk],
        }

    def boot_all(self, count=1, state="ACTIVE", host=None, **more):
        """Boot servers; return them once they are what they are expected to be."""
        known = {one["id"] for one in self.api.get_servers(detail=False)}
        where = {"host": host} if host else {}
        self.api.post_server({"server": self.request(count, **more) | where})
        made = [one for one in self.api.get_servers(detail=False) if one["id"] not in known]
        return [
            self._wait_for_server_parameter(one, {"status": state}, max_retries=100) for one in made
        ]

    def boot_one(self, **more):
        (server,) = self.boot_all(**more)
        return server

    def holders(self):
        """Return the nodes that hold the one golden volume."""
        ((_, holders),) = self.volumes.holders().items()
        return [host for host in self.agents if holder_of(host) in holders]
