"""Requests that cannot be are refused before anything was made."""

from tests.openstack.base import CloudCase

NOBODY = "00000000-0000-0000-0000-000000000000"
WRONG = {
    "delete_on_termination": False,
    "boot_index": 1,
    "volume_size": 2,
    "uuid": NOBODY,
}


class TestRefusals(CloudCase):
    def test_requests_are_refused_with_400_and_make_nothing(self):
        snapshot = self.servers.snapshot()
        for name, value in WRONG.items():
            answer = self.servers.ask(snapshot, "refused", 2, "virtman", **{name: value})
            self.assertEqual(400, answer.status_code, (name, answer.text))
        self.assertEqual([], self.servers.all())
        self.assertEqual([], self.servers.left())
