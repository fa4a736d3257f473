"""The plug-in of openstackclient: what its commands ask, and what they show."""

import contextlib
import io
from types import SimpleNamespace

import requests_mock
import testtools
from keystoneauth1 import adapter, exceptions, session, token_endpoint
from openstack import exceptions as sdk_exceptions
from osc_lib.exceptions import CommandError

from virtman.openstack import osc

VOLT, NOVA = "http://volt", "http://nova"
JSON = {"Content-Type": "application/json"}
GIB = 1024**3


def host(name, **report):
    return {"host": name, "rack": None, "draining": False, "silent": 2, "report": report or None}


class Volumes:
    """Cinder, with one volume.

    :ivar snapshots: what was asked of those that are there
    """

    def __init__(self, find_snapshot):
        self.find_snapshot = find_snapshot
        self.status = "available"
        self.becomes = "available"
        self.snapshots = {}

    def find_volume(self, name, ignore_missing):
        assert not ignore_missing
        return SimpleNamespace(id=f"volume-{name}", status=self.status)

    def create_snapshot(self, **asked):
        self.snapshots["s1"] = asked
        return SimpleNamespace(id="s1")

    def wait_for_status(self, made, status, failures, interval):
        assert (status, failures) == ("available", ["error"])
        if self.becomes == "error":
            raise sdk_exceptions.ResourceFailure("s1 went to error")

    def delete_snapshot(self, snapshot):
        del self.snapshots[snapshot]


class CliTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.wire = requests_mock.Mocker()
        self.wire.start()
        self.addCleanup(self.wire.stop)
        compute = self.adapter(NOVA, default_microversion="2.1", service_type="compute")
        compute.find_flavor = self.finds("flavor")
        cloud = SimpleNamespace(
            compute=compute,
            block_storage=Volumes(find_snapshot=self.finds("snapshot")),
            image=SimpleNamespace(find_image=self.finds("image")),
            network=SimpleNamespace(find_network=self.finds("network")),
        )
        self.volumes = cloud.block_storage
        self.glance = {"size": GIB, "virtual_size": None, "min_disk": 0}
        self.said = io.StringIO()
        manager = SimpleNamespace(virtman=self.adapter(VOLT), sdk_connection=cloud)
        self.app = SimpleNamespace(client_manager=manager, NAME="openstack", stderr=self.said)

    def adapter(self, url, **settings):
        auth = token_endpoint.Token(url, "token")
        return adapter.Adapter(session.Session(auth), endpoint_override=url, **settings)

    def finds(self, kind):
        def find(name, ignore_missing):
            assert not ignore_missing
            return SimpleNamespace(id=f"{kind}-{name}", **self.glance)

        return find

    def run_command(self, kind, *arguments):
        command = kind(self.app, None)
        shown = command.take_action(command.get_parser("test").parse_args(arguments))
        return shown and (shown[0], list(shown[1]))

    def test_images_come_page_by_page(self):
        image = {"size": 1, "shape": "forest", "hosts": 2, "created_at": "now"}
        pages = [
            {"json": {"images": [{**image, "name": "a"}], "next": "a"}},
            {"json": {"images": [{**image, "name": "b"}], "next": None}},
        ]
        self.wire.get(f"{VOLT}/v1/images", pages)
        columns, rows = self.run_command(osc.ListImages)
        self.assertEqual(("Name", "Size", "Shape", "Hosts", "Created At"), columns)
        self.assertEqual(["a", "b"], [row[0] for row in rows])
        self.assertEqual(["a"], self.wire.last_request.qs["marker"])

    def test_one_image(self):
        self.wire.get(f"{VOLT}/v1/images/a", json={"name": "a", "size": 1})
        self.assertEqual((("name", "size"), ["a", 1]), self.run_command(osc.ShowImage, "a"))

    def test_what_volt_says_is_what_the_user_sees(self):
        error = {"error": {"code": "volt.image.unknown", "message": "there is no image a"}}
        self.wire.get(f"{VOLT}/v1/images/a", status_code=404, json=error, headers=JSON)
        raised = self.assertRaises(exceptions.NotFound, self.run_command, osc.ShowImage, "a")
        self.assertIn("there is no image a", str(raised))

    def test_names_are_no_paths(self):
        self.wire.get(f"{VOLT}/v1/images/..%2Fhosts", json={})
        self.run_command(osc.ShowImage, "../hosts")
        self.assertIn("..%2Fhosts", self.wire.last_request.url)

    def test_tree_of_an_image(self):
        node = {"depth": 1, "inner": True, "state": "ready"}
        nodes = [{**node, "host": "n1", "parent": None}, {**node, "host": "n2", "parent": "n1"}]
        trees = {"trees": [{"stripe": 0, "nodes": nodes}]}
        self.wire.get(f"{VOLT}/v1/images/a/trees", json=trees)
        _, rows = self.run_command(osc.ShowTree, "a")
        self.assertEqual(
            [(0, 1, "n1", "source", True, "ready"), (0, 1, "n2", "n1", True, "ready")], rows
        )

    def test_hosts_and_what_they_said(self):
        hosts = [host("n1", images={"a": {}}, overloaded=True), host("n2")]
        self.wire.get(f"{VOLT}/v1/hosts", json={"hosts": hosts, "next": None})
        _, rows = self.run_command(osc.ListHosts)
        self.assertEqual([("n1", None, 1, False, True, 2), ("n2", None, 0, False, False, 2)], rows)

    def test_drain_and_its_end(self):
        self.wire.patch(f"{VOLT}/v1/hosts/n1", json=host("n1"))
        self.run_command(osc.DrainHost, "n1")
        self.assertEqual({"draining": True}, self.wire.last_request.json())
        self.run_command(osc.DrainHost, "n1", "--end")
        self.assertEqual({"draining": False}, self.wire.last_request.json())

    def create(self, *arguments, source=("--snapshot", "s")):
        return self.run_command(osc.CreateServers, "web", *source, "--flavor", "f", *arguments)

    def disk(self, *source):
        """Create a server; return what Nova was told of its disk, and what the user sees."""
        asked = self.wire.post(f"{NOVA}/servers", status_code=202, json={"reservation_id": "r-1"})
        servers = [{"id": "1", "name": "web-1", "status": "BUILD"}]
        self.wire.get(f"{NOVA}/servers/detail", json={"servers": servers})
        _, rows = self.create(source=source)
        (disk,) = asked.last_request.json()["server"]["block_device_mapping_v2"]
        return disk, rows

    def test_servers_are_asked_for_in_one_request(self):
        asked = self.wire.post(f"{NOVA}/servers", status_code=202, json={"reservation_id": "r-1"})
        servers = [{"id": "1", "name": "web-1", "status": "BUILD"}]
        self.wire.get(f"{NOVA}/servers/detail?reservation_id=r-1", json={"servers": servers})
        _, rows = self.create("--count", "50", "--network", "a", "--network", "b")
        self.assertEqual([("1", "web-1", "BUILD", "snapshot-snapshot-s")], rows)
        self.assertEqual(1, asked.call_count)
        self.assertEqual("compute 2.67", asked.last_request.headers["OpenStack-API-Version"])
        disk = {
            "uuid": "snapshot-s",
            "source_type": "snapshot",
            "destination_type": "volume",
            "boot_index": 0,
            "volume_type": "virtman",
            "delete_on_termination": True,
        }
        server = {
            "name": "web",
            "flavorRef": "flavor-f",
            "networks": [{"uuid": "network-a"}, {"uuid": "network-b"}],
            "min_count": 50,
            "max_count": 50,
            "return_reservation_id": True,
            "block_device_mapping_v2": [disk],
        }
        self.assertEqual({"server": server}, asked.last_request.json())

    def test_network_is_nova_s_choice_if_none_is_named(self):
        asked = self.wire.post(f"{NOVA}/servers", status_code=202, json={"reservation_id": "r-1"})
        self.wire.get(f"{NOVA}/servers/detail", json={"servers": []})
        for arguments, networks in (((), "auto"), (("--network", "none"), "none")):
            self.create(*arguments)
            self.assertEqual(networks, asked.last_request.json()["server"]["networks"])

    def test_disk_of_an_image_is_as_large_as_the_image_needs(self):
        for size, virtual_size, min_disk, wanted in (
            (1, None, 0, 1),
            (GIB, None, 0, 1),
            (GIB + 1, None, 0, 2),
            (GIB, 3 * GIB, 0, 3),
            (GIB, 3 * GIB, 10, 10),
            (None, None, None, 1),
        ):
            self.glance = {"size": size, "virtual_size": virtual_size, "min_disk": min_disk}
            disk, rows = self.disk("--image", "i")
            self.assertEqual(wanted, disk["volume_size"])
        self.assertEqual(("image", "image-i"), (disk["source_type"], disk["uuid"]))
        self.assertEqual([("1", "web-1", "BUILD", "image-image-i-1")], rows)
        disk, _ = self.disk("--image", "i", "--size", "20")
        self.assertEqual(20, disk["volume_size"])

    def test_servers_of_a_volume_boot_from_a_snapshot_that_stays(self):
        disk, rows = self.disk("--volume", "v")
        self.assertEqual({"s1": {"volume_id": "volume-v", "name": "web"}}, self.volumes.snapshots)
        self.assertEqual(("snapshot", "s1"), (disk["source_type"], disk["uuid"]))
        self.assertEqual([("1", "web-1", "BUILD", "snapshot-s1")], rows)
        self.assertIn("snapshot s1 of volume v", self.said.getvalue())

    def test_attached_volume_has_no_snapshot_unless_it_is_forced(self):
        self.volumes.status = "in-use"
        refused = self.assertRaises(CommandError, self.disk, "--volume", "v")
        self.assertIn("--force", str(refused))
        self.assertEqual({}, self.volumes.snapshots)
        self.disk("--volume", "v", "--force")
        self.assertTrue(self.volumes.snapshots["s1"]["is_forced"])

    def test_snapshot_that_fails_is_deleted(self):
        self.volumes.becomes = "error"
        self.assertRaises(sdk_exceptions.ResourceFailure, self.disk, "--volume", "v")
        self.assertEqual({}, self.volumes.snapshots)

    def test_snapshot_of_servers_that_nova_refuses_is_deleted(self):
        for status in (400, 403, 404, 409):
            self.wire.post(f"{NOVA}/servers", status_code=status, json={}, headers=JSON)
            self.assertRaises(sdk_exceptions.HttpException, self.create, source=("--volume", "v"))
            self.assertEqual({}, self.volumes.snapshots)

    def test_snapshot_stays_if_nova_may_be_making_servers_of_it(self):
        for error, raised in (
            ({"exc": ConnectionError}, ConnectionError),
            ({"status_code": 502, "json": {}, "headers": JSON}, sdk_exceptions.HttpException),
        ):
            self.wire.post(f"{NOVA}/servers", **error)
            self.assertRaises(raised, self.create, source=("--volume", "v"))
            self.assertEqual(["s1"], list(self.volumes.snapshots))

    def test_options_of_other_sources_are_refused(self):
        for arguments in (("--size", "2"), ("--force",)):
            self.assertRaises(CommandError, self.create, *arguments)
        for source in ((), ("--snapshot", "s", "--image", "i")):
            with contextlib.redirect_stderr(self.said):
                self.assertRaises(SystemExit, self.create, source=source)

    def test_refusal_of_nova_is_an_error(self):
        error = {"badRequest": {"code": 400, "message": "use_vmtsnapshot is off"}}
        self.wire.post(f"{NOVA}/servers", status_code=400, json=error, headers=JSON)
        raised = self.assertRaises(sdk_exceptions.BadRequestException, self.create)
        self.assertIn("use_vmtsnapshot is off", str(raised))
