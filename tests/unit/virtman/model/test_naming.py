"""Names can be taken apart again, and only good ones are let in."""

import testtools
from hypothesis import given
from hypothesis import strategies as st

from virtman.errors import InvalidName
from virtman.model import naming
from virtman.model.naming import Device

names = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,46}[a-z0-9])?", fullmatch=True)
roles = st.from_regex(r"[a-z]{1,8}[0-9]{0,2}", fullmatch=True)


class NamingTest(testtools.TestCase):
    @given(names, roles, st.one_of(st.just(""), names))
    def test_a_device_name_can_be_taken_apart(self, image, role, argument):
        device = Device(image, role, argument)
        self.assertEqual(device, naming.parse(str(device)))
        self.assertLess(len(str(device)), 128)

    @given(names)
    def test_good_names_are_let_in(self, name):
        self.assertEqual(name, naming.check("image", name))

    def test_bad_names_are_refused_with_the_rule(self):
        for name in ("a/b", "a b", "", "A", "a_b", "a:b", "-a", "a.", "x" * 49, "../a", "a\n"):
            error = self.assertRaises(InvalidName, naming.check, "image", name)
            self.assertIn("1 to 48 lower-case letters", str(error))
            self.assertIn(repr(name), str(error))

    @given(st.text(max_size=40))
    def test_devices_of_others_are_not_ours(self, name):
        device = naming.parse(name)
        if device is not None:
            self.assertEqual(name, str(device))

    def test_the_cache_group_is_no_image(self):
        self.assertIsNone(naming.parse(naming.CACHE_GROUP))
