"""What hosts of a crowd tell Volt."""

import testtools

from lab import crowd
from volt.model import profiles


class ProfileTest(testtools.TestCase):
    def test_volt_takes_the_profiles_of_a_crowd(self):
        found = profiles.parse(crowd._profile(b"what agents read"))
        assert found.root_hash == crowd.ROOT_HASH
