"""What would lose a server's data is refused before anything was changed."""

import json

from tests.openstack.base import CloudCase

NOBODY = "00000000-0000-0000-0000-000000000000"
REFUSED = {
    "createImage": {"name": "image"},
    "createBackup": {"name": "backup", "backup_type": "daily", "rotation": 1},
    "rebuild": {"imageRef": NOBODY},
    "shelve": None,
    "evacuate": {},
}
WRONG = {
    "delete_on_termination": False,
    "boot_index": 1,
    "volume_size": 2,
    "uuid": NOBODY,
}


class TestRefusals(CloudCase):
    def test_operations_are_refused_with_400_and_change_nothing(self):
        (server,) = self.boot("web", 1)
        self.assert_right(server, 1)
        before = self._all_there_is(server)
        for action, body in REFUSED.items():
            answer = self._act(server, {action: body})
            self.assertEqual(400, answer.status_code, (action, answer.text))
            self.assertRegex(answer.text, "root disk by VirtMan|volume-backed")
            self.assertEqual(before, self._all_there_is(server), action)

    def test_requests_are_refused_with_400_and_make_nothing(self):
        snapshot = self.servers.snapshot()
        for name, value in WRONG.items():
            answer = self.servers.ask(snapshot, "refused", 2, "virtman", **{name: value})
            self.assertEqual(400, answer.status_code, (name, answer.text))
        self.assertEqual([], self.servers.all())
        self.assertEqual([], self.servers.left())

    def _act(self, server, body):
        return self.cloud.rest.ask("POST", "compute", f"/servers/{server}/action", body)

    def _all_there_is(self, server):
        """What the services and the node know of a server, and of what could be made of it.

        But not how much the guest has written: it runs.
        """
        get = self.cloud.rest.get
        node = self.servers.node(server)
        disks = json.loads(node.run(["virtman", "list", "--json"]).stdout)
        for disk in disks:
            del disk["taken"]
            for store in disk["stores"]:
                del store["allocated"]
        return [
            disks,
            get("compute", f"/servers/{server}"),
            get("compute", f"/servers/{server}/os-instance-actions"),
            get("block-storage", "/volumes/detail?all_tenants=1"),
            get("block-storage", "/snapshots?all_tenants=1"),
            get("image", "/v2/images"),
            node.run(["dmsetup", "table"]).stdout,
            node.run(["virsh", "domstate", server]).stdout,
        ]
