"""The driver starts with a nova that it was written for, and says what differs in another."""

import importlib.metadata
from unittest import mock

import testtools
from nova.virt.libvirt import driver as stock

from virtman.openstack import driver, guard
from virtman.openstack.releases import RELEASES

METHODS = driver.methods()


class GuardTest(testtools.TestCase):
    def test_this_nova_is_as_it_was(self):
        release = importlib.metadata.version("nova")
        # What differs is what has to be looked at; what is expected then goes into that file.
        self.assertEqual([], guard.differences(METHODS, RELEASES[release]))
        self.assertEqual(set(METHODS), set(RELEASES[release]), guard.listing(METHODS))
        self.assertEqual(release, guard.check(METHODS, RELEASES))

    def test_driver_of_a_nova_that_differs_does_not_start(self):
        def cleanup(self):
            pass

        with mock.patch.object(stock.LibvirtDriver, "cleanup", cleanup):
            self.assertRaises(guard.NovaUnknown, driver.LibvirtDriver, None)
