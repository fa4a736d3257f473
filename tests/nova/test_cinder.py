"""What is asked of Cinder, through the real cinderclient: what goes over the wire."""

import requests_mock
import testtools
from cinderclient import client, exceptions
from keystoneauth1 import session, token_endpoint

from virtman.openstack.cinder import API_VERSION, Cinder, Connection

URL = "http://cinder/v3/project"
VOLUME = {
    "id": "v1",
    "name": "snapshot-1",
    "status": "in-use",
    "created_at": "2026-11-20T10:00:00.000000",
    "metadata": {"virtman_image": "snapshot-1"},
    "attachments": [{"server_id": "s1", "attachment_id": "a1", "host_name": None}],
}
# As GET and POST /v3/attachments give it: flat, where drivers nest it under "data".
FLAT = {
    "driver_volume_type": "iscsi",
    "target_iqn": "iqn.2010-10.org.openstack:volume-v1",
    "target_portal": "10.0.0.1:3260",
    "target_lun": 0,
    "access_mode": "ro",
}
ATTACHMENT = {"id": "a2", "status": "attached", "connection_info": FLAT}


class CinderTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.wire = requests_mock.Mocker()
        self.wire.start()
        self.addCleanup(self.wire.stop)
        auth = token_endpoint.Token(URL, "token")
        made = client.Client(API_VERSION, session=session.Session(auth))
        self.cinder = Cinder(made)

    def sent(self):
        """The last request: its version of the API and its body."""
        request = self.wire.last_request
        return request.headers["OpenStack-API-Version"], request.json()

    def test_volumes_are_found_by_name_the_oldest_first(self):
        younger = VOLUME | {"id": "v2", "created_at": "2026-11-20T11:00:00.000000"}
        self.wire.get(f"{URL}/volumes/detail", json={"volumes": [younger, VOLUME]})
        first, second = self.cinder.named("snapshot-1")
        self.assertEqual(["snapshot-1"], self.wire.last_request.qs["name"])
        self.assertEqual(("v1", "v2"), (first.id, second.id))
        self.assertEqual({"s1": "a1"}, first.holders)

    def test_golden_volumes_are_told_by_their_metadata(self):
        other = VOLUME | {"id": "v2", "metadata": {}}
        self.wire.get(f"{URL}/volumes/detail", json={"volumes": [other, VOLUME]})
        (found,) = self.cinder.marked("virtman_image")
        self.assertEqual("v1", found.id)

    def test_volume_is_made_of_a_snapshot_or_an_image(self):
        self.wire.post(f"{URL}/volumes", json={"volume": VOLUME | {"attachments": []}})
        for made_of in ({"snapshot_id": "1"}, {"imageRef": "1"}):
            self.cinder.create("name", 3, "virtman", {"virtman_image": "name"}, made_of)
            version, body = self.sent()
            self.assertEqual("volume 3.54", version)
            wanted = {
                "size": 3,
                "name": "name",
                "volume_type": "virtman",
                "metadata": {"virtman_image": "name"},
                "snapshot_id": None,
            }
            found = {key: body["volume"].get(key) for key in (*wanted, *made_of)}
            self.assertEqual(wanted | made_of, found)

    def test_hold_leads_nowhere(self):
        self.wire.post(f"{URL}/attachments", json={"attachment": {"id": "a2"}})
        completed = self.wire.post(f"{URL}/attachments/a2/action", status_code=204)
        self.cinder.hold("v1", "s1")
        body = self.wire.request_history[0].json()["attachment"]
        self.assertEqual(
            {"volume_uuid": "v1", "connector": None, "instance_uuid": "s1", "mode": "ro"}, body
        )
        self.assertEqual({"os-complete": None}, completed.last_request.json())

    def test_flat_connection_is_what_a_connector_wants(self):
        self.wire.post(f"{URL}/attachments", json={"attachment": ATTACHMENT})
        self.wire.post(f"{URL}/attachments/a2/action", status_code=204)
        self.wire.get(f"{URL}/attachments/a2", json={"attachment": ATTACHMENT})
        data = {key: value for key, value in FLAT.items() if key != "driver_volume_type"}
        wanted = Connection("iscsi", data)
        self.assertEqual(wanted, self.cinder.attach("v1", "s1", {"initiator": "iqn.host"}))
        self.assertEqual(wanted, self.cinder.connection("a2"))

    def test_attachments_that_were_begun_are_found(self):
        begun = {"id": "a3", "status": "reserved", "instance": "s2", "volume_id": "v1"}
        done = {"id": "a1", "status": "attached", "instance": "s1", "volume_id": "v1"}
        self.wire.get(f"{URL}/attachments", json={"attachments": [done, begun]})
        self.assertEqual(["a3"], self.cinder.reserved("v1"))
        self.assertEqual(["v1"], self.wire.last_request.qs["volume_id"])

    def test_what_is_gone_need_not_go(self):
        self.wire.delete(f"{URL}/volumes/v1", status_code=404)
        self.cinder.delete("v1")
        self.wire.delete(f"{URL}/attachments/a1", status_code=404)
        self.cinder.detach("a1")

    def test_refusal_is_an_error(self):
        self.wire.delete(f"{URL}/volumes/v1", status_code=400)
        self.assertRaises(exceptions.BadRequest, self.cinder.delete, "v1")
