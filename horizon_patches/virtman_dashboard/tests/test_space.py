"""How much room there is, by the answer of Placement."""

from django.test import SimpleTestCase

from virtman_dashboard.space import RESOURCE, total


def provider(capacity, used):
    return {"resources": {RESOURCE: {"capacity": capacity, "used": used}}}


class TotalTest(SimpleTestCase):
    def test_room_of_all_nodes_is_added_up(self):
        shared = {"resources": {"VCPU": {"capacity": 7, "used": 0}}}
        found = total({"a": provider(100, 40), "b": provider(50, 0), "c": shared})
        self.assertEqual(110, found)

    def test_who_reports_nothing_may_have_room_nonetheless(self):
        self.assertIsNone(total({}))
