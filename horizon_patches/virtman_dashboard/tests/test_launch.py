"""Who is offered VirtMan, and what is in the way of others."""

from django.test import SimpleTestCase

from virtman_dashboard.conf import Settings
from virtman_dashboard.launch import obstacle


class ObstacleTest(SimpleTestCase):
    def obstacle(self, may=True, types=("lvm", "virtman"), answers=True, **settings):
        return obstacle(Settings(**settings), lambda: may, lambda: types, lambda: answers)

    def test_nothing_is_in_the_way(self):
        self.assertIsNone(self.obstacle())

    def test_the_setting_turns_it_off(self):
        self.assertEqual("disabled", self.obstacle(enabled=False, may=False))

    def test_the_policy_comes_before_cinder_is_asked(self):
        self.assertEqual("policy", self.obstacle(may=False, types=()))

    def test_who_may_not_use_the_type_may_not_use_virtman(self):
        self.assertEqual("volume_type", self.obstacle(types=("lvm",)))
        self.assertEqual("volume_type", self.obstacle(volume_type="golden"))

    def test_volt_must_answer(self):
        self.assertEqual("volt", self.obstacle(answers=False))
